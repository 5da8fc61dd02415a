"""The three figures of a run, from what was asked of whom and what was opened.

Pure functions: :mod:`zerosum.server.accounting` counts, :mod:`zerosum.server.calibration` plans.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.contribution import Protection
from zerosum.client.mechanisms import BinnedGaussian, DistributedSkellam

UNIT = "client"
OBSERVERS = ("sum", "local", "release")

Worst = tuple[tuple[int, int], ...]
"""For each kind of private sum: one client's contributions, and the sum of their cohort sizes."""


@dataclass(frozen=True)
class Terms:
    """What one kind of private sum promises, whatever the cohort of a round.

    Attributes
    ----------
    l2, l1 : float
        Delta2 and Delta1 of one client against zero, integer units.
    guaranteed : float
        Noise variance of a sum's guaranteed shares: V = (z Delta2)^2. Under the local model, the
        variance of each contribution's noise.
    fraction : float
        f: the constant total is V / f, a client's share V / (f n).
    distributed : bool
        Shares of Skellam noise, rather than full noise from each.
    length : int
        Coordinates.
    tau : float
        Total-variation distance of one drawn integer.
    topped_up : bool
        Whether sums reach the constant total.
    groups : int
        G: sessions that are added to one released sum, each with the constant total, so that
        outsiders see G V / f.
    """

    l2: float
    l1: float
    guaranteed: float
    fraction: float
    distributed: bool
    length: int
    tau: float
    topped_up: bool
    groups: int = 1

    @classmethod
    def of(cls, protection: Protection, groups: int = 1) -> "Terms | None":
        """Read the terms from any session's protection; None without noise."""
        mechanism, code = protection.mechanism, protection.encoding
        z = protection.noise_multiplier
        if z is None or not isinstance(mechanism, DistributedSkellam | BinnedGaussian):
            return None
        # Less what float rounding of a share and of its number can take.
        variance = (z * mechanism.l2_sensitivity) ** 2 * (1 - 2.0**-48)
        return cls(
            l2=mechanism.l2_sensitivity,
            l1=code.l1_sensitivity,
            guaranteed=variance,
            fraction=protection.honest_fraction,
            distributed=isinstance(mechanism, DistributedSkellam),
            length=protection.length,
            tau=mechanism.tau,
            topped_up=protection.topped_up,
            groups=groups,
        )


@dataclass(frozen=True)
class Sampling:
    """How outsiders' ignorance of the cohorts may be used.

    Attributes
    ----------
    kind : str
        "poisson", "fixed", "everyone" or "once".
    q : float
        Sampling probability under "poisson".
    p : float
        P(a round opened only because of one client | it was opened).
    """

    kind: str
    q: float
    p: float


@dataclass(frozen=True)
class Tally:
    """What happened, or is planned: the input of every figure.

    Attributes
    ----------
    worst : tuple of Worst
        Clients that no other client dominates, each with its contributions to every kind.
    opened : tuple of int
        Sums opened of each kind.
    largest : tuple of int
        Largest cohort of each kind.
    draws : tuple of int
        Contributions plus top-ups of each kind: noise vectors drawn.
    """

    worst: tuple[Worst, ...]
    opened: tuple[int, ...]
    largest: tuple[int, ...]
    draws: tuple[int, ...]

    @property
    def most(self) -> int:
        """Largest number of contributions of one client."""
        return max((sum(count for count, _ in client) for client in self.worst), default=0)


@dataclass(frozen=True)
class Bound:
    """An upper bound on epsilon as a function of delta, and where it comes from."""

    at: Callable[[float], float]
    accountant: str
    adjacency: str
    participations: int
    assumptions: tuple[str, ...]


def local_bound(terms: tuple[Terms, ...], tally: Tally) -> Bound:
    """Bound what one noised vector after another says about its client: replace adjacency, 2C."""
    notes: tuple[str, ...]
    if all(t.distributed for t in terms):
        rows = []
        for t, largest in zip(terms, tally.largest, strict=True):
            # RDP of a share grows faster than n, so RDP(n) <= n RDP(largest) / largest.
            n = max(1, largest)
            rows.append(_skellam(2 * t.l2, 2 * t.l1, t.guaranteed / (t.fraction * n)) / n)
        at = _renyi(max_over=[_dot([size for _, size in c], rows) for c in tally.worst])
        accountant = "rdp"
        notes = ("each contribution carries one client's share of the noise, V/(f n)",)
    else:
        at = _gaussian(
            [
                sum(
                    count * (2 * t.l2) ** 2 / t.guaranteed
                    for t, (count, _) in zip(terms, c, strict=True)
                )
                for c in tally.worst
            ]
        )
        accountant = "exact gaussian"
        notes = ("each contribution carries the full noise",)
    notes += ("composed over the contributions of the client that made most",)
    return Bound(at, accountant, "replace", tally.most, notes)


def sum_bound(terms: tuple[Terms, ...], tally: Tally, local: Bound, *, masked: bool) -> Bound:
    """Bound what opened sums and the roster say about a client to the server."""
    if not masked:
        note = "no masking: the server sees each contribution, so this is epsilon_local"
        return _with_notes(local, note)
    if not all(t.distributed for t in terms):
        return _with_notes(local, "a sum of contributions is post-processing of epsilon_local")
    rows = [_skellam(t.l2, t.l1, t.guaranteed) for t in terms]
    at = _renyi(max_over=[_dot([count for count, _ in c], rows) for c in tally.worst])
    notes = (
        "masking is in force: the server sees sums and the roster only",
        "charged is the guaranteed noise V, whoever dropped out",
        "composed over the contributions of the client that made most",
    )
    return Bound(at, "rdp", "zero_out", tally.most, notes)


def release_bound(
    terms: tuple[Terms, ...], tally: Tally, local: Bound, sampling: Sampling
) -> Bound:
    """Bound what the sequence of released sums says to outsiders."""
    if not all(t.distributed for t in terms):
        return _with_notes(local, "released sums are post-processing of epsilon_local")
    totals = [t.groups * t.guaranteed / t.fraction for t in terms]
    notes: tuple[str, ...]
    notes = ("every contributing client adds its share; the server tops up to V/f",)
    if (groups := max(t.groups for t in terms)) > 1:
        notes += (
            f"a release adds {groups} groups, failed ones included: its noise is {groups} V/f",
        )
    if sampling.kind != "poisson":
        rows = [_skellam(t.l2, t.l1, v) for t, v in zip(terms, totals, strict=True)]
        at = _renyi(max_over=[_dot([count for count, _ in c], rows) for c in tally.worst])
        notes += (
            f'no amplification: "{sampling.kind}" cohorts are accounted as known, over the '
            "contributions of the client that made most",
        )
        return Bound(at, "rdp", "zero_out", tally.most, notes)
    rows = [_sampled(t.l2, t.l1, v, sampling) for t, v in zip(terms, totals, strict=True)]
    at = _renyi(max_over=[_dot(tally.opened, rows)])
    notes += (
        f"cohorts are Poisson samples at q = {sampling.q:.6g} that this observer does not know",
        f"a round is opened only because of one client with probability {sampling.p:.3g}",
    )
    return Bound(at, "rdp", "zero_out", sum(tally.opened), notes)


def figure(bound: Bound, delta: float, draws: float, tau: float) -> dict[str, Any]:
    """Evaluate a bound at delta less the samplers' slack.

    Parameters
    ----------
    bound : Bound
        From one of the functions above.
    delta : float
        The delta that is reported.
    draws : float
        Noise integers drawn.
    tau : float
        Total-variation distance of each; also bounds its log-ratio at every point.
    """
    distance = draws * tau
    value, slack, how = _with_slack(bound.at, delta, distance)
    return {
        "value": value if math.isfinite(value) else None,
        "delta": delta,
        "slack": slack,
        "adjacency": bound.adjacency,
        "unit": UNIT,
        "accountant": bound.accountant,
        "participations": bound.participations,
        "assumptions": [*bound.assumptions, how],
        "reason": None if math.isfinite(value) else "no finite epsilon holds at this delta",
    }


def refused(delta: float, reason: str, adjacency: str | None = None) -> dict[str, Any]:
    """Return the figure that is infinite, with its reason."""
    return {
        "value": None,
        "delta": delta,
        "slack": 0.0,
        "adjacency": adjacency,
        "unit": UNIT,
        "accountant": None,
        "participations": None,
        "assumptions": [],
        "reason": reason,
    }


def all_figures(
    terms: Mapping[str, Terms], tally: Tally, sampling: Sampling, delta: float, *, masked: bool
) -> dict[str, dict[str, Any]]:
    """Return the figures for every observer: keys "sum", "local", "release".

    Raises
    ------
    ValueError
        If ``terms`` mixes local and distributed noise.
    """
    rows = tuple(terms.values())
    if len({t.distributed for t in rows}) != 1:
        raise ValueError("a run's private sums share one privacy model")
    draws = float(sum(n * t.length for n, t in zip(tally.draws, rows, strict=True)))
    tau = max(t.tau for t in rows)
    local = local_bound(rows, tally)
    result = {
        "sum": figure(sum_bound(rows, tally, local, masked=masked), delta, draws, tau),
        "local": figure(local, delta, draws, tau),
    }
    if all(t.topped_up or not t.distributed for t in rows):
        result["release"] = figure(release_bound(rows, tally, local, sampling), delta, draws, tau)
    else:
        lengths = ", ".join(str(t.length) for t in rows)
        result["release"] = refused(
            delta,
            "privacy.top_up = false: the variance of a sum then tells how many took part "
            f"(over {lengths} coordinates), which no released-sums figure covers",
            "zero_out",
        )
    return result


def _with_slack(
    at: Callable[[float], float], delta: float, distance: float
) -> tuple[float, float, str]:
    """Return epsilon, slack and what was assumed of the sampler.

    Total variation costs (1 + e^epsilon) distance of delta. Where that is no longer small beside
    delta (epsilon above about 40), the bound on every probability's log-ratio is used: it costs
    2 distance of epsilon and a factor e^distance of delta.
    """
    first = at(delta)
    if first < 600:
        slack = 1.001 * (1 + math.exp(first)) * distance
        if slack < delta / 1000:
            value = at(delta - slack)
            if (1 + math.exp(min(600.0, value))) * distance <= slack:
                return value, slack, "integer noise from a table; delta - slack is accounted"
    slack = -delta * math.expm1(-distance)
    value = at(delta - slack) + 2 * distance
    return value, slack, "integer noise from a table, by its pointwise log-ratio"


def _skellam(l2: float, l1: float, variance: float) -> NDArray[np.float64]:
    from zerosum.client import events

    return events.rdp(events.SkellamDpEvent(l2, l1, variance))


def _sampled(l2: float, l1: float, variance: float, sampling: Sampling) -> NDArray[np.float64]:
    from dp_accounting import PoissonSampledDpEvent

    from zerosum.client import events

    event = PoissonSampledDpEvent(sampling.q, events.SkellamDpEvent(l2, l1, variance))
    return events.rdp(events.MaybeAbandonedDpEvent(event, sampling.p))


def _dot(
    counts: tuple[int, ...] | list[int], rows: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    total = np.zeros_like(rows[0])
    for count, row in zip(counts, rows, strict=True):
        if count:
            total = total + count * row
    return total


def _renyi(max_over: list[NDArray[np.float64]]) -> Callable[[float], float]:
    @lru_cache(maxsize=16)
    def at(delta: float) -> float:
        from dp_accounting.rdp import compute_epsilon

        from zerosum.client.events import ORDERS

        return max(
            (float(compute_epsilon(ORDERS, row, delta)[0]) for row in max_over if row.any()),
            default=0.0,
        )

    return at


def _gaussian(precisions: list[float]) -> Callable[[float], float]:
    """Gaussians compose to one Gaussian: sensitivity over sigma adds in squares."""
    largest = max(precisions, default=0.0)

    @lru_cache(maxsize=16)
    def at(delta: float) -> float:
        from dp_accounting import get_epsilon_gaussian

        return float(get_epsilon_gaussian(1 / math.sqrt(largest), delta)) if largest else 0.0

    return at


def _with_notes(bound: Bound, *notes: str) -> Bound:
    return Bound(
        bound.at,
        bound.accountant,
        bound.adjacency,
        bound.participations,
        (*bound.assumptions, *notes),
    )
