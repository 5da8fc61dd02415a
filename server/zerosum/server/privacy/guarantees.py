"""Describe what private sums promise, how cohorts are drawn, and who took part.

The inputs of :mod:`zerosum.server.privacy.epsilons`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import attr
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from zerosum.client.privacy.float_slack import FLOAT_SLACK
from zerosum.client.privacy.mechanism import Drawn, Mechanism
from zerosum.client.privacy.registry import guaranteed_shares
from zerosum.client.privacy.samplers import TAU
from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import PrivacySpec, SecAggSpec
from zerosum.secagg.graph.failure_bounds import share_of

Model = Literal["distributed", "local", "central"]


@dataclass(frozen=True)
class ExampleUnit:
    """Use of one example in its client's contribution, where examples are the unit.

    Attributes
    ----------
    q : float
        Probability with which a client draws each of its examples, for each step: its own coins,
        which no observer knows.
    steps : int
        Steps in one contribution; 1 where the noise is in the sum.
    noise_multiplier : float or None
        Noise that the client adds to each step's sum of clipped gradients, over the clip: DP-SGD
        inside local training (Abadi et al., "Deep learning with differential privacy", 2016).
        None: the noise is the mechanism's, in the sum of the clients' clipped gradients.
    """

    q: float
    steps: int = 1
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.q <= 1:
            raise ValueError(f"a sampling probability lies in (0, 1], not at {self.q}")
        if self.steps < 1 or (self.noise_multiplier is None and self.steps != 1):
            raise ValueError(f"{self.steps} steps cannot share the noise of one sum")

    def local_event(self) -> DpEvent:
        """Describe one contribution whose noise was added inside training.

        Returns
        -------
        DpEvent
            Its steps, each on a Poisson sample.

        Raises
        ------
        ValueError
            If the noise is in the sum.
        """
        if self.noise_multiplier is None:
            raise ValueError("the noise is in the sum, not inside local training")
        step = PoissonSampledDpEvent(self.q, GaussianDpEvent(self.noise_multiplier))
        return SelfComposedDpEvent(step, self.steps)


@dataclass(frozen=True)
class Guarantee:
    """Noise that one kind of private sum guarantees, whatever the cohort of a round.

    Attributes
    ----------
    mechanism : Mechanism or None
        Noise of one contribution in a session of ``cohort`` clients; None where it is added
        inside local training.
    model : {"distributed", "local", "central"}
        Whether a contribution carries a share, all of the noise, or none.
    cohort : int
        The session that ``mechanism`` was read from.
    fraction : float
        f: guaranteed are f n shares; the constant total is that of n.
    length : int
        Coordinates.
    topped_up : bool
        Whether sums reach the constant total.
    groups : int
        G: sessions that are added to one released sum, each with the constant total.
    example : ExampleUnit or None
        How examples are drawn, where they are the unit and this kind of sum draws them.
    colluders : bool
        Whether sessions withstand clients who collude and omit their noise: survivors beyond the
        guaranteed ones are needed for each.
    """

    mechanism: Mechanism | None
    model: Model
    cohort: int
    fraction: float
    length: int
    topped_up: bool
    groups: int = 1
    example: ExampleUnit | None = None
    colluders: bool = False

    @classmethod
    def of(
        cls,
        protection: Protection,
        groups: int = 1,
        *,
        model: Model = "distributed",
        example: ExampleUnit | None = None,
        colluders: bool = False,
    ) -> "Guarantee | None":
        """Read the promises of one kind of private sum from any session's protection.

        Parameters
        ----------
        protection : Protection
            Of one session.
        groups : int
            Sessions that are added to one released sum.
        model : Model
            Who adds the noise.
        example : ExampleUnit or None
            How examples are drawn, where they are the unit.
        colluders : bool
            Whether sessions withstand clients who omit their noise.

        Returns
        -------
        Guarantee or None
            None without noise.
        """
        inside = example is not None and example.noise_multiplier is not None
        if protection.mechanism is None and not inside:
            return None
        return cls(
            mechanism=None if inside else protection.mechanism,
            model="local" if inside else model,
            cohort=protection.cohort,
            fraction=float(protection.honest_fraction),
            length=protection.length,
            topped_up=protection.topped_up,
            groups=groups,
            example=example,
            colluders=colluders,
        )

    @property
    def drawn(self) -> Drawn:
        """Return the noise's sampler; inside local training the rounded Gaussian of a table."""
        return "table" if self.mechanism is None else self.mechanism.drawn

    @property
    def tau(self) -> float:
        """Total-variation distance of one drawn noise integer from the claimed law."""
        return TAU if self.mechanism is None else self.mechanism.tau

    @property
    def integers(self) -> int:
        """Noise integers drawn for one contribution: one a coordinate, in each step of DP-SGD."""
        return self.length * (1 if self.example is None else self.example.steps)

    @property
    def caveat(self) -> str:
        """Return the restriction that stands beside every figure; mostly empty."""
        return "" if self.mechanism is None else self.mechanism.caveat

    def contribution(self, cohort: int) -> DpEvent:
        """Describe one contribution, against zero, in a session of ``cohort``."""
        if self.model != "distributed":
            return self._event(1)
        return self._event(self.cohort / cohort)

    def guaranteed(self, cohort: int = 0) -> DpEvent:
        """Describe a sum with no more noise than its observers are sure to face.

        Parameters
        ----------
        cohort : int
            The smallest session that was charged; 0 where fellow clients are left aside: V.
        """
        return self._event(self.fraction * self.cohort * float(self.faced(cohort)))

    def faced(self, cohort: int) -> Fraction:
        """Return the part of V that hides a client from every observer of a session's sum.

        The server faces f n shares, V. A fellow client knows the share that it drew. With top-up
        it faces the rest of the constant total, (G - 1/n) V/f: less than V in one session that
        guarantees more than n - 1 shares. Without, it faces the survivors' shares but its own. One
        that colludes is among those whose shares are not counted on, and no other is needed.

        Parameters
        ----------
        cohort : int
            n, of one group; 0 for none.
        """
        if self.model != "distributed" or cohort == 0:
            return Fraction(1)
        fraction = guaranteed_shares(self.fraction, 1)
        if self.topped_up:
            return min(Fraction(1), (self.groups - Fraction(1, cohort)) / fraction)
        survivors = math.ceil(fraction * cohort)
        others = survivors if self.colluders else survivors - 1
        return min(Fraction(1), others / (fraction * cohort))

    def released(self) -> DpEvent:
        """Describe a released sum: the constant total of all groups, G V / f."""
        return self._event(1 if self.model == "central" else self.groups * self.cohort)

    def description(self) -> dict[str, Any]:
        """Return the guarantee as plain values, equal for equal guarantees of any cohort."""
        distributed = self.model == "distributed"
        return {
            "model": self.model,
            "event": _described(self.guaranteed() if distributed else self.contribution(1)),
            "fraction": self.fraction,
            "length": self.length,
            "topped_up": self.topped_up,
            "groups": self.groups,
            "example": None if self.example is None else attr_free(self.example),
        }

    def _event(self, shares: float) -> DpEvent:
        if self.example is not None and self.example.noise_multiplier is not None:
            return self.example.local_event()
        if self.mechanism is None:
            raise ValueError("there is no noise to describe")
        return self.mechanism.event(shares if shares == 1 else shares * FLOAT_SLACK)


@dataclass(frozen=True)
class Sampling:
    """Law of the cohorts, as far as an observer does not know them.

    Attributes
    ----------
    kind : str
        "poisson", "fixed", "everyone" or "once".
    q : float
        Sampling probability under "poisson".
    p : float
        P(a round opened only because of one client | it was opened).
    population, cohort : int
        Under "fixed": how many are drawn of how many. 0 where that is not known.
    dropout : float
        Under "poisson": the largest rate at which clients are taken to drop out.
    observed : bool
        Whether that rate was concluded from what dropped out, which was more than assumed.
    """

    kind: str
    q: float
    p: float
    population: int = 0
    cohort: int = 0
    dropout: float = 0.0
    observed: bool = False


Worst = tuple[tuple[int, int], ...]
"""For each kind of private sum: one client's contributions, and the sum of their cohort sizes."""


@dataclass(frozen=True)
class Participation:
    """Contributions made or planned: the input of every figure.

    Attributes
    ----------
    worst : tuple of Worst
        Clients that no other client dominates, each with its contributions to every kind.
    opened : tuple of int
        Sums opened of each kind.
    largest, smallest : tuple of int
        Largest and smallest session of each kind; 0 where there was none.
    draws : tuple of int
        Contributions plus top-ups of each kind: noise vectors drawn.
    """

    worst: tuple[Worst, ...]
    opened: tuple[int, ...]
    largest: tuple[int, ...]
    smallest: tuple[int, ...]
    draws: tuple[int, ...]

    @property
    def most(self) -> int:
        """Largest number of contributions of one client."""
        return max((sum(count for count, _ in client) for client in self.worst), default=0)

    def of_kind(self, at: int) -> "Participation":
        """Return what there would have been of one kind of sum, were there no other."""

        def alone(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(value if i == at else 0 for i, value in enumerate(values))

        worst = tuple(
            tuple(pair if i == at else (0, 0) for i, pair in enumerate(client))
            for client in self.worst
        )
        return replace(
            self,
            worst=worst,
            opened=alone(self.opened),
            smallest=alone(self.smallest),
            draws=alone(self.draws),
        )


def attr_free(unit: ExampleUnit) -> dict[str, Any]:
    """Return an example unit as plain values."""
    return {"q": unit.q, "steps": unit.steps, "noise_multiplier": unit.noise_multiplier}


def _described(event: DpEvent) -> Any:
    """Return an event as plain values, floats to nine digits: the same from any cohort."""
    if isinstance(event, ComposedDpEvent):
        return [_described(part) for part in event.events]
    values: dict[str, Any] = {"type": type(event).__name__}
    for field in attr.fields(type(event)):
        value = getattr(event, field.name)
        if isinstance(value, DpEvent):
            value = _described(value)
        elif isinstance(value, float):
            value = float(f"{value:.9g}") if math.isfinite(value) else repr(value)
        values[field.name] = value
    return values


def terms_of(
    protections: Mapping[str, Protection],
    privacy: PrivacySpec,
    secagg: SecAggSpec,
    examples: Mapping[str, ExampleUnit] | None = None,
    *,
    population: int,
) -> dict[str, Guarantee]:
    """Collect what every kind of private sum promises.

    Parameters
    ----------
    protections : mapping of str to Protection
        By kind, of any session.
    privacy, secagg : PrivacySpec, SecAggSpec
        Sections of the experiment.
    examples : mapping of str to ExampleUnit, optional
        By kind, how examples are drawn.
    population : int
        Clients.

    Returns
    -------
    mapping of str to Guarantee
        By kind; kinds without noise are left out.
    """
    if privacy.model == "none":
        return {}
    examples = examples or {}
    colluders = share_of(secagg.corruption, population, "secagg.corruption") > 0
    terms = {
        kind: Guarantee.of(
            p,
            secagg.groups,
            model=privacy.model,
            example=examples.get(kind),
            colluders=colluders,
        )
        for kind, p in protections.items()
    }
    return {kind: t for kind, t in terms.items() if t is not None}
