"""What one event costs: its privacy-loss distribution, Renyi divergences and pure epsilon.

Sensitivities follow one rule, whatever the accountant: a noise multiplier of `dp_accounting`'s is
noise over the *clip*, and replace adjacency doubles the sensitivity. Its own RDP accountant does
not double it (google/differential-privacy issue 378), and its PLD accountant refuses Laplace noise
there and composes randomised response once, whatever the count. Events of ours carry their
sensitivities themselves.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import attr
import dp_accounting
import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from dp_accounting.pld import privacy_loss_distribution as distributions
from numpy.typing import NDArray

from zerosum.client.privacy import events
from zerosum.client.privacy.events import MaybeAbandonedDpEvent

Adjacency = Literal["add_remove", "replace", "zero_out"]

RELATIONS = {
    "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace": NeighboringRelation.REPLACE_ONE,
    "zero_out": NeighboringRelation.REPLACE_SPECIAL,
}

FINEST_SHIFT = 1 << 15
"""Integer steps of discrete Laplace noise that are accounted one by one."""

FINE, WIDE = 1e-4, 1e-3
"""Steps of the grid of privacy losses."""

MOST_POINTS = 1 << 22
"""Points of that grid on which bounded losses are composed: a second's work."""

LARGEST_PURE = 100.0
"""Pure epsilon of one event above which nothing else is asked about it."""

Orders = tuple[float, ...]


def simplified(event: DpEvent) -> DpEvent:
    """Return an equal event, hashable: Gaussians under sampling made one, and coins too.

    An event that may be abandoned costs a little more if two coins are made one: where the first
    was certain, the second is taken to be.
    """
    event = events.hashable(event)
    if isinstance(event, PoissonSampledDpEvent | SampledWithoutReplacementDpEvent):
        inner = simplified(event.event)
        if isinstance(event, PoissonSampledDpEvent) and isinstance(inner, PoissonSampledDpEvent):
            # Two independent coins are one.
            q = event.sampling_probability * inner.sampling_probability
            return PoissonSampledDpEvent(q, inner.event)
        multiplier = _one_gaussian(inner)
        return attr.evolve(event, event=inner if multiplier is None else multiplier)
    if isinstance(event, MaybeAbandonedDpEvent) and not events.is_own(event):
        return attr.evolve(event, event=simplified(event.event))
    return event


def _one_gaussian(event: DpEvent) -> GaussianDpEvent | None:
    precision = _precision(event)
    return None if precision is None else GaussianDpEvent(precision**-0.5)


def _precision(event: DpEvent) -> float | None:
    """Return the sum of 1/z^2 of a composition of Gaussians alone."""
    if isinstance(event, GaussianDpEvent) and event.noise_multiplier > 0:
        return float(event.noise_multiplier) ** -2
    if isinstance(event, SelfComposedDpEvent):
        one = _precision(event.event)
        return None if one is None or event.count < 1 else event.count * one
    if isinstance(event, ComposedDpEvent) and event.events:
        parts = [_precision(part) for part in event.events]
        return None if None in parts else math.fsum(part for part in parts if part is not None)
    return None


def doubled(event: DpEvent) -> DpEvent:
    """Return the event at twice its sensitivities: one record in place of another.

    Raises
    ------
    UnsupportedEventError
        If the event has no sensitivity that could be doubled.
    """
    event = events.hashable(event)
    if isinstance(event, events.SkellamDpEvent | events.DistributedDiscreteGaussianDpEvent):
        return attr.evolve(
            event,
            l2_sensitivity=2 * event.l2_sensitivity,
            l1_sensitivity=2 * event.l1_sensitivity,
        )
    if isinstance(event, GaussianDpEvent | LaplaceDpEvent):
        return attr.evolve(event, noise_multiplier=event.noise_multiplier / 2)
    if isinstance(event, DiscreteLaplaceDpEvent):
        return attr.evolve(event, sensitivity=2 * event.sensitivity)
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent(tuple(doubled(part) for part in event.events))
    if isinstance(event, SelfComposedDpEvent):
        return attr.evolve(event, event=doubled(event.event))
    if isinstance(event, NoOpDpEvent):
        return event
    raise events.UnsupportedEventError(f"{event} has no sensitivity to double")


def for_replacement(event: DpEvent) -> DpEvent:
    """Return an event, whose sensitivities are against zero, for a ledger of replace adjacency.

    Ours carry their sensitivities and are doubled; the others a ledger doubles itself.
    """
    event = events.hashable(event)
    if events.is_own(event):
        return doubled(event)
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent(tuple(for_replacement(part) for part in event.events))
    return event


def exposes(event: DpEvent) -> bool:
    """Return whether an event protects nothing: every epsilon is infinite."""
    if isinstance(event, dp_accounting.NonPrivateDpEvent):
        return True
    if isinstance(event, MaybeAbandonedDpEvent):
        return exposes(event.event)
    if isinstance(event, PoissonSampledDpEvent):
        return event.sampling_probability > 0 and exposes(event.event)
    if isinstance(event, RandomizedResponseDpEvent):
        return bool(event.num_buckets > 1 and event.noise_parameter == 0)
    noise = getattr(event, "noise_multiplier", getattr(event, "noise_parameter", None))
    return noise is not None and noise <= 0


def has_distribution(event: DpEvent, adjacency: Adjacency) -> bool:
    """Return whether :func:`distribution` knows the event."""
    if isinstance(event, MaybeAbandonedDpEvent):
        sampled = event.event
        return (
            adjacency != "replace"
            and isinstance(sampled, PoissonSampledDpEvent)
            and isinstance(sampled.event, GaussianDpEvent)
        )
    if events.is_own(event):
        return False
    if adjacency == "replace" and isinstance(event, LaplaceDpEvent | DiscreteLaplaceDpEvent):
        return True
    return bool(dp_accounting.pld.PLDAccountant(RELATIONS[adjacency]).supports(event))


def is_large(event: DpEvent, adjacency: Adjacency) -> bool:
    """Return whether an event's pure epsilon is all that is worth knowing of it.

    Its losses would take millions of points, to say a little less.
    """
    return LARGEST_PURE < pure_epsilon(event, adjacency) < math.inf


def fine_interval(counts: Mapping[DpEvent, float], adjacency: Adjacency) -> float:
    """Return the fine grid, doubled until all bounded losses fit into :data:`MOST_POINTS`.

    Coarser grids hold points of finer ones only, so that more events never cost less on them.
    """
    pures = ((count, pure_epsilon(event, adjacency)) for event, count in counts.items())
    whole = math.fsum(2 * count * pure for count, pure in pures if math.isfinite(pure))
    return FINE * 2.0 ** max(0, math.ceil(math.log2(max(1.0, whole / FINE / MOST_POINTS))))


def is_wide(event: DpEvent) -> bool:
    """Return whether the coarse grid of privacy losses is enough for an event.

    Where losses spread over several times its step: ten times faster, which counts as a run asks
    each round, for a relative error of epsilon below 10^-3 at a thousand events, from above.
    """
    return _spread(event) >= 8 * WIDE


def _spread(event: DpEvent) -> float:
    """Return about the standard deviation of a loss; 0 where that is not looked at."""
    if isinstance(event, MaybeAbandonedDpEvent):
        return _spread(event.event)
    if isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        return float(event.sampling_probability / event.event.noise_multiplier)
    return 0.0


@lru_cache(maxsize=128)
def distribution(event: DpEvent, adjacency: Adjacency, interval: float) -> Any:
    """Return the privacy-loss distribution of one event that protects something."""
    if isinstance(event, NoOpDpEvent):
        return distributions.identity(value_discretization_interval=interval)
    if isinstance(event, MaybeAbandonedDpEvent):
        sampled = event.event
        # Whether a round opened only because of one client is told, in both worlds alike.
        return distribution(sampled.event, adjacency, interval).compute_mixture(
            distribution(sampled, adjacency, interval), event.p
        )
    if adjacency == "replace" and isinstance(event, LaplaceDpEvent | DiscreteLaplaceDpEvent):
        return distribution(doubled(event), "zero_out", interval)
    if isinstance(event, DiscreteLaplaceDpEvent):
        event = _coarser(event)
    accountant = dp_accounting.pld.PLDAccountant(RELATIONS[adjacency], interval)
    accountant.compose(event)
    return accountant._pld  # what it holds, it composes with itself only for some events


def _coarser(event: DiscreteLaplaceDpEvent) -> DiscreteLaplaceDpEvent:
    """Return an event of at most :data:`FINEST_SHIFT` steps that costs as much or a little more.

    A geometric variable is k times a geometric one of k times the rate plus an independent rest,
    so noise on the finer lattice is post-processing of noise on the coarser one.
    """
    step = -(-event.sensitivity // FINEST_SHIFT)
    return DiscreteLaplaceDpEvent(event.noise_parameter * step, -(-event.sensitivity // step))


def has_divergences(event: DpEvent, adjacency: Adjacency) -> bool:
    """Return whether :func:`divergences` knows the event."""
    if events.is_own(event):
        return _has_own_divergences(event, adjacency)
    if isinstance(event, MaybeAbandonedDpEvent):
        return False
    told = _for_rdp(event, adjacency)
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=RELATIONS[adjacency])
    return told is not None and bool(accountant.supports(told))


def _has_own_divergences(event: DpEvent, adjacency: Adjacency) -> bool:
    if adjacency == "replace" and events.is_sampled(event):
        return False
    try:
        events.rdp(event)
    except events.UnsupportedEventError:
        return False
    return True


@lru_cache(maxsize=512)
def divergences(
    event: DpEvent, adjacency: Adjacency, orders: Orders | None
) -> tuple[Orders, NDArray[np.float64]]:
    """Return orders and Renyi divergences of one event; None is the accountant's own grid."""
    if events.is_own(event):
        return events.ORDERS, events.rdp(event)
    relation = RELATIONS[adjacency]
    accountant = dp_accounting.rdp.RdpAccountant(None if orders is None else list(orders), relation)
    accountant.compose(_for_rdp(event, adjacency))
    row = np.array(accountant.rdp)
    row.flags.writeable = False
    return tuple(float(order) for order in accountant.orders), row


def _for_rdp(event: DpEvent, adjacency: Adjacency) -> DpEvent | None:
    """Return the event as the RDP accountant must be told of it, or None if it cannot be."""
    if adjacency != "replace":
        return event
    if isinstance(event, GaussianDpEvent | LaplaceDpEvent):
        return doubled(event)
    if isinstance(event, SampledWithoutReplacementDpEvent):
        if not isinstance(event.event, GaussianDpEvent):
            return None
        return attr.evolve(event, event=doubled(event.event))
    stated = (NoOpDpEvent, dp_accounting.NonPrivateDpEvent, RandomizedResponseDpEvent)
    return event if isinstance(event, stated) else None


def pure_epsilon(event: DpEvent, adjacency: Adjacency) -> float:
    """Return the epsilon that holds at delta = 0, inf if there is none."""
    shifts = 2 if adjacency == "replace" else 1
    if isinstance(event, NoOpDpEvent):
        return 0.0
    if exposes(event):
        return math.inf
    if isinstance(event, LaplaceDpEvent):
        return float(shifts / event.noise_multiplier)
    if isinstance(event, DiscreteLaplaceDpEvent):
        return float(shifts * event.sensitivity * event.noise_parameter)
    if isinstance(event, RandomizedResponseDpEvent) and adjacency != "add_remove":
        # Against a uniform answer it is less.
        p, k = event.noise_parameter, event.num_buckets
        return math.log1p(k * (1 - p) / p) if k > 1 else 0.0
    if isinstance(event, PoissonSampledDpEvent) and adjacency != "replace":
        inner = pure_epsilon(event.event, adjacency)
        if math.isfinite(inner):
            return math.log1p(event.sampling_probability * math.expm1(inner))
    return math.inf
