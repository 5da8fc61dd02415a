"""Seconds a round of engines that take turns, and what they are to the bare loop and the floor."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.bench.turns import Entrant, MissingError
from zerosum.simulations.bench.workload import Workload

OURS = ("zerosum", "zerosum-protected")
MASKED = "zerosum-masked"
ALWAYS = ("floor", "bare", *OURS)
PEERS = {
    "pfl": "pip install --no-deps pfl prv-accountant multiprocess dill",
    "flower": "pip install 'flwr[simulation]'",
    "fedjax": "pip install fedjax 'jax<0.6'",
}
"""Peers that are measured, and how each is installed."""

T = TypeVar("T")

_FACTS = ("trainer", "device", "gflop_per_s")
"""Facts that an engine reports of itself; absent for those that report none."""

WARM_UP, MEMORY = 1, 1
"""Rounds that are not timed: the first, and one in which memory is watched."""


def run(
    models: Sequence[str] = ("mlp",),
    workers: Sequence[int] = (1,),
    versus: Sequence[str] = (),
    rounds: int = 5,
    *,
    clients: int = 1000,
    records: int = 100,
    cohort: int = 100,
    device: str = "cpu",
    trainer: str = "auto",
    extra: Path | None = None,
    tell: Callable[[str], None] = lambda what: None,
    keep: Callable[[list[Values]], None] = lambda rows: None,
) -> Values:
    """Measure engines in turns.

    Parameters
    ----------
    models : sequence of str
        ``"mlp"``, ``"cnn"``.
    workers : sequence of int
        Numbers of processes or threads; each is measured by itself.
    versus : sequence of str
        Keys of :data:`PEERS`, and :data:`MASKED`.
    rounds : int
        Timed rounds.
    clients, records, cohort : int
        Of the workload.
    device : str
        Of every row; peers are measured on the CPU alone.
    trainer : str
        Of our rows.
    extra : Path, optional
        A folder of packages for peers.
    tell : callable
        Is told what is being done.
    keep : callable
        Is given the rows of all turns so far, after each.

    Returns
    -------
    dict
        ``rows``, each with engine, model, workers, turns, seconds_per_round, ratio_to_bare,
        ratio_to_floor and peak_memory_mb; ``missing``, why a peer was left out.

    Raises
    ------
    BenchError
        If an engine other than a peer fails.
    """
    rows: list[Values] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="zerosum-bench-") as folder:
        turns = WARM_UP + rounds + MEMORY
        workload = Workload(
            "", folder, clients, records, cohort, turns, device=device, trainer=trainer
        )
        tell("making records")
        workload.write()
        for model in models:
            one = replace(workload, model=model)
            rows += _rows(one, workers, versus, extra, tell, missing, partial(_beside, rows, keep))
            keep(rows)
    return {"rows": rows, "missing": missing}


def _beside(rows: list[Values], keep: Callable[[list[Values]], None], more: list[Values]) -> None:
    """Keep the rows of a model that is being measured beside those of others."""
    keep([*rows, *more])


def _rows(
    workload: Workload,
    workers: Sequence[int],
    versus: Sequence[str],
    extra: Path | None,
    tell: Callable[[str], None],
    missing: dict[str, str],
    keep: Callable[[list[Values]], None],
) -> list[Values]:
    """Let the engines do their rounds in turns."""
    with ExitStack() as stack:
        tell("starting engines")
        entrants = []
        for count in workers:
            for name in (*ALWAYS, *versus):
                entrants.append(Entrant(name, workload, count, extra=extra))
                stack.callback(entrants[-1].kill)
        field = _Field(entrants, tell, missing)
        field.take_turns("starting", Entrant.ready)
        rounds: list[dict[Entrant, float]] = []
        for number in range(workload.rounds - MEMORY):
            spent = field.take_turns(f"{workload.model}, round {number}:", Entrant.round)
            if number >= WARM_UP:
                rounds.append(spent)
                keep(_rows_of(workload.model, rounds, dict.fromkeys(spent)))
        memory = field.take_turns("memory of", Entrant.peak_memory_mb)
        field.take_turns("ending", Entrant.end)
    return _rows_of(workload.model, rounds, memory)


def _rows_of(
    model: str, rounds: list[dict[Entrant, float]], memory: Mapping[Entrant, float | None]
) -> list[Values]:
    """Return a row for each engine that is still there."""
    seconds = {entrant: [spent[entrant] for spent in rounds] for entrant in memory}
    return [_row(model, entrant, seconds, memory[entrant]) for entrant in memory]


class _Field:
    """The engines that are still running; a peer that fails is left out, with its reason."""

    def __init__(
        self, entrants: list[Entrant], tell: Callable[[str], None], missing: dict[str, str]
    ) -> None:
        self._entrants, self._tell, self._missing = entrants, tell, missing

    def take_turns(self, what: str, act: Callable[[Entrant], T]) -> dict[Entrant, T]:
        """Let each engine act, and return what came of it.

        Raises
        ------
        BenchError
            If an engine other than a peer fails.
        """
        answers: dict[Entrant, T] = {}
        for entrant in self._entrants:
            self._tell(f"{what} {entrant.engine} on {entrant.workers}")
            try:
                answers[entrant] = act(entrant)
            except BenchError as error:
                if entrant.engine not in PEERS:
                    raise
                absent = isinstance(error, MissingError)
                reason = f"not installed: {PEERS[entrant.engine]}" if absent else "it fails"
                self._missing[entrant.engine] = f"{reason} ({error})"
                entrant.kill()
        self._entrants = list(answers)
        return answers


def _row(
    model: str,
    entrant: Entrant,
    seconds: dict[Entrant, list[float]],
    memory: float | None,
) -> Values:
    """Return what was found of an engine, beside the bare loop and the floor of equal width."""
    beside = {other.engine: other for other in seconds if other.workers == entrant.workers}
    least = beside["floor"].facts["floor_seconds"]
    bare = seconds[beside["bare"]]
    own = [least] * len(bare) if entrant.engine == "floor" else seconds[entrant]
    return {
        "engine": entrant.engine,
        "model": model,
        "workers": entrant.workers,
        "turns": len(own),
        "seconds_per_round": median(own),
        # Of the same turn: what slows one down slows the other.
        "ratio_to_bare": median(mine / theirs for mine, theirs in zip(own, bare, strict=True)),
        "ratio_to_floor": median(own) / least,
        "peak_memory_mb": memory,
        **{key: entrant.facts[key] for key in _FACTS if key in entrant.facts},
    }
