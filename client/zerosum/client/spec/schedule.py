"""Define learning-rate schedules: a pure function of the round, at clients and at the server.

Nothing of a schedule is kept between rounds, so that a resumed run has the rates of one that was
never interrupted.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import Field

ScheduleName = Literal["constant", "cosine", "step", "linear"]
"""How a learning rate falls once the warm-up is over."""

Rounds = Annotated[int, Field(ge=0, le=1_000_000)]
DecayRounds = Annotated[list[Annotated[int, Field(gt=0, le=1_000_000)]], Field(max_length=1000)]
Decay = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(ge=0, le=1)]

SCHEDULE_DEFAULTS: Final[Mapping[str, Any]] = {
    "schedule": "constant",
    "warmup_rounds": 0,
    "decay_rounds": [],
    "decay": 0.1,
    "final": 0.0,
}
"""The keys of a section that make its schedule, and what none has."""

_TAKERS = {"decay_rounds": ("step",), "decay": ("step",), "final": ("cosine", "linear")}


class Scheduled(Protocol):
    """A section with a learning rate and a schedule of it."""

    @property
    def lr(self) -> float:
        """Learning rate before the schedule's factor."""
        ...

    @property
    def schedule(self) -> ScheduleName:
        """Which schedule."""
        ...

    @property
    def warmup_rounds(self) -> int:
        """Rounds over which the factor rises to 1."""
        ...

    @property
    def decay_rounds(self) -> list[int]:
        """Rounds after the warm-up at which `step` decays."""
        ...

    @property
    def decay(self) -> float:
        """Factor of each decay."""
        ...

    @property
    def final(self) -> float:
        """Factor that `cosine` and `linear` approach."""
        ...


def factor_at(spec: Scheduled, round: int, rounds: int) -> float:
    """Return what a learning rate is multiplied by in a round.

    The formulas are those of ``torch.optim.lr_scheduler``: LinearLR for the warm-up, followed by
    CosineAnnealingLR (Loshchilov and Hutter 2017, equation 5), LinearLR or MultiStepLR, which begin
    at the end of the warm-up and would reach ``final`` in the round after the last.

    Parameters
    ----------
    spec : Scheduled
        The section.
    round : int
        From 1 on. What lies outside of a run, as the sum before its first round, has the factor of
        the nearest round in it.
    rounds : int
        Of the whole run.

    Returns
    -------
    float
        Above 0, at most 1.
    """
    done = min(max(round, 1), rounds) - 1
    if done < spec.warmup_rounds:
        return (done + 1) / spec.warmup_rounds
    t, length = done - spec.warmup_rounds, rounds - spec.warmup_rounds
    match spec.schedule:
        case "cosine":
            return spec.final + (1 - spec.final) * (1 + math.cos(math.pi * t / length)) / 2
        case "linear":
            return 1 - (1 - spec.final) * t / length
        case "step":
            return float(spec.decay ** bisect_right(spec.decay_rounds, t))
        case _:
            return 1.0


def follows_rounds(spec: Scheduled) -> bool:
    """Return whether the rate of a round depends on how many there will be."""
    return spec.schedule in ("cosine", "linear")


def is_scheduled(spec: Scheduled) -> bool:
    """Return whether the rate changes in a run."""
    return spec.schedule != "constant" or spec.warmup_rounds > 0


def schedule_text(spec: Scheduled) -> str:
    """Return the schedule in words, as ``cosine after 5 rounds of warm-up``; empty of none."""
    warm = f"{spec.warmup_rounds} rounds of warm-up" if spec.warmup_rounds else ""
    if spec.schedule == "constant":
        return f"constant after {warm}" if warm else ""
    return f"{spec.schedule} after {warm}" if warm else spec.schedule


def check_schedule(section: str, spec: Scheduled) -> None:
    """Refuse keys that do not make a schedule.

    Parameters
    ----------
    section : str
        Name of the section.
    spec : Scheduled
        What was read.

    Raises
    ------
    ValueError
        One line that names the key, its value, what is allowed and the cure.
    """
    for name, takers in _TAKERS.items():
        if spec.schedule not in takers and getattr(spec, name) != SCHEDULE_DEFAULTS[name]:
            listed = " or ".join(f'"{taker}"' for taker in takers)
            raise ValueError(
                f"{section}.{name} = {getattr(spec, name)} is for {section}.schedule = {listed}, "
                f'and it is "{spec.schedule}": take it out'
            )
    if spec.schedule != "step":
        return
    if not spec.decay_rounds:
        raise ValueError(
            f'{section}.schedule = "step" needs {section}.decay_rounds: write the rounds after '
            f"which the rate falls, as {section}.decay_rounds=[20, 30]"
        )
    if spec.decay_rounds != sorted(set(spec.decay_rounds)):
        raise ValueError(
            f"{section}.decay_rounds = {spec.decay_rounds} must ascend, each round once: write "
            f"{section}.decay_rounds={sorted(set(spec.decay_rounds))}"
        )
    if not spec.lr * spec.decay ** len(spec.decay_rounds) > 0:
        raise ValueError(
            f"{section}.decay = {spec.decay:g} in {len(spec.decay_rounds)} rounds leaves no "
            f"learning rate: raise it, or shorten {section}.decay_rounds"
        )


def check_length(section: str, spec: Scheduled, rounds: int) -> None:
    """Refuse a warm-up that fills the run.

    Parameters
    ----------
    section : str
        Name of the section.
    spec : Scheduled
        With a warm-up or not.
    rounds : int
        Of the run.

    Raises
    ------
    ValueError
        One line that names both keys.
    """
    if spec.warmup_rounds >= rounds:
        raise ValueError(
            f"{section}.warmup_rounds = {spec.warmup_rounds} must be below rounds = {rounds}: "
            "lower it, or raise rounds"
        )
