"""Costs of one event: its privacy loss distribution, Renyi divergences and pure epsilon.

Sensitivities follow one rule, whatever the accountant: a noise multiplier of `dp_accounting`'s is
noise over the *clip*, and replace adjacency doubles the sensitivity. Its own RDP accountant does
not double it (google/differential-privacy issue 378), and its PLD accountant refuses Laplace noise
there and composes randomised response once, whatever the count.

Events of ours carry their sensitivities and say themselves what they cost. This module is the one
adapter for `dp_accounting`'s: a class for each kind that needs a word, and a table of them. What
no class speaks for fails closed: nothing bounds it but what `dp_accounting` itself supports.
"""

import math
from collections.abc import Iterator, Mapping
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
from zerosum.client.privacy.events import MaybeAbandonedDpEvent, NoiseDpEvent
from zerosum.client.privacy.integer_losses import FINEST_SHIFT, LARGEST_PURE

Adjacency = Literal["add_remove", "replace", "zero_out"]

RELATIONS = {
    "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace": NeighboringRelation.REPLACE_ONE,
    "zero_out": NeighboringRelation.REPLACE_SPECIAL,
}

FINE, WIDE = 1e-4, 1e-3
"""Steps of the grid of privacy losses. `dp_accounting`'s own is the fine one."""

WIDE_STEPS = 8
"""Steps of the coarse grid within a standard deviation of a loss, from which it is used: a thousand
events then cost less than a relative 10^-3 of epsilon more than on the fine one."""

MOST_POINTS = 1 << 22
"""Points of that grid on which bounded losses are composed: a second's work."""

KEPT_DISTRIBUTIONS = 1024
"""Distributions of events that are kept: one a receipt of a session of queries, each of which would
be made anew at every question if the oldest were always the next to be asked for."""

Orders = tuple[float, ...]


class _Costs:
    """Costs of an event, as a ledger asks for them; of a kind without a class of its own."""

    def __init__(self, event: DpEvent) -> None:
        self.event = event

    def simplified(self) -> DpEvent:
        """Return an equal event, with what it is made of made one where that can be done."""
        return self.event

    def precision(self) -> float | None:
        """Return the sum of 1/z^2 of a composition of Gaussians alone."""
        return None

    def doubled(self) -> DpEvent:
        """Return the event at twice its sensitivities."""
        raise events.UnsupportedEventError(f"{self.event} has no sensitivity to double")

    def exposes(self) -> bool:
        """Return whether the event protects nothing."""
        noise = getattr(
            self.event, "noise_multiplier", getattr(self.event, "noise_parameter", None)
        )
        return noise is not None and noise <= 0

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        """Return the epsilon at delta = 0 of an event that protects something."""
        return math.inf

    def spread(self) -> float:
        """Return about the standard deviation of a loss; 0 where that is not looked at."""
        return 0.0

    def has_distribution(self, adjacency: Adjacency) -> bool:
        """Return whether :meth:`distribution` has an answer."""
        return bool(dp_accounting.pld.PLDAccountant(RELATIONS[adjacency]).supports(self.event))

    def distribution(self, adjacency: Adjacency, interval: float) -> Any:
        """Return the privacy loss distribution."""
        accountant = dp_accounting.pld.PLDAccountant(RELATIONS[adjacency], interval)
        accountant.compose(self.event)
        return accountant._pld  # what it holds, it composes with itself only for some events

    def for_rdp(self, adjacency: Adjacency) -> DpEvent | None:
        """Return the event as the RDP accountant must be told of it, or None if it cannot be."""
        return None if adjacency == "replace" else self.event


class _Own(_Costs):
    """An event of ours, which answers for itself."""

    event: NoiseDpEvent

    def doubled(self) -> DpEvent:
        return self.event.doubled()

    def exposes(self) -> bool:
        return False

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        return self.event.pure_epsilon()

    def has_distribution(self, adjacency: Adjacency) -> bool:
        return distribution(self.event, adjacency, FINE) is not None

    def distribution(self, adjacency: Adjacency, interval: float) -> Any:
        return self.event.loss_distribution(interval)


class _Gaussian(_Costs):
    def precision(self) -> float | None:
        z = float(self.event.noise_multiplier)
        return z**-2 if z > 0 else None

    def doubled(self) -> DpEvent:
        return attr.evolve(self.event, noise_multiplier=self.event.noise_multiplier / 2)

    def for_rdp(self, adjacency: Adjacency) -> DpEvent | None:
        return self.doubled() if adjacency == "replace" else self.event


class _Laplace(_Costs):
    def doubled(self) -> DpEvent:
        return attr.evolve(self.event, noise_multiplier=self.event.noise_multiplier / 2)

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        return float(_shifts(adjacency) / self.event.noise_multiplier)

    def has_distribution(self, adjacency: Adjacency) -> bool:
        return adjacency == "replace" or super().has_distribution(adjacency)

    def distribution(self, adjacency: Adjacency, interval: float) -> Any:
        if adjacency == "replace":
            return distribution(self.doubled(), "zero_out", interval)
        return super().distribution(adjacency, interval)

    def for_rdp(self, adjacency: Adjacency) -> DpEvent | None:
        return self.doubled() if adjacency == "replace" else self.event


class _DiscreteLaplace(_Costs):
    def doubled(self) -> DpEvent:
        return attr.evolve(self.event, sensitivity=2 * self.event.sensitivity)

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        return float(_shifts(adjacency) * self.event.sensitivity * self.event.noise_parameter)

    def has_distribution(self, adjacency: Adjacency) -> bool:
        return adjacency == "replace" or super().has_distribution(adjacency)

    def distribution(self, adjacency: Adjacency, interval: float) -> Any:
        if adjacency == "replace":
            return distribution(self.doubled(), "zero_out", interval)
        return _Costs(self._coarser()).distribution(adjacency, interval)

    def _coarser(self) -> DiscreteLaplaceDpEvent:
        """Return an event of at most :data:`FINEST_SHIFT` steps that costs as much or a bit more.

        A geometric variable is k times a geometric one of k times the rate plus an independent
        rest, so noise on the finer lattice is post-processing of noise on the coarser one.
        """
        rate, sensitivity = self.event.noise_parameter, self.event.sensitivity
        step = -(-sensitivity // FINEST_SHIFT)
        return DiscreteLaplaceDpEvent(rate * step, -(-sensitivity // step))


class _RandomizedResponse(_Costs):
    def exposes(self) -> bool:
        return bool(self.event.num_buckets > 1 and self.event.noise_parameter == 0)

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        if adjacency == "add_remove":  # against a uniform answer it is less
            return math.inf
        p, k = self.event.noise_parameter, self.event.num_buckets
        return math.log1p(k * (1 - p) / p) if k > 1 else 0.0

    def for_rdp(self, adjacency: Adjacency) -> DpEvent | None:
        return self.event


class _NoOp(_Costs):
    def doubled(self) -> DpEvent:
        return self.event

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        return 0.0

    def distribution(self, adjacency: Adjacency, interval: float) -> Any:
        return distributions.identity(value_discretization_interval=interval)

    def for_rdp(self, adjacency: Adjacency) -> DpEvent | None:
        return self.event


class _NonPrivate(_Costs):
    def exposes(self) -> bool:
        return True

    def for_rdp(self, adjacency: Adjacency) -> DpEvent | None:
        return self.event


class _SelfComposed(_Costs):
    def precision(self) -> float | None:
        one = _costs(self.event.event).precision()
        return None if one is None or self.event.count < 1 else self.event.count * one

    def doubled(self) -> DpEvent:
        return attr.evolve(self.event, event=doubled(self.event.event))


class _Composed(_Costs):
    def precision(self) -> float | None:
        parts = [_costs(part).precision() for part in self.event.events]
        known = [part for part in parts if part is not None]
        return math.fsum(known) if parts and len(known) == len(parts) else None

    def doubled(self) -> DpEvent:
        return ComposedDpEvent(tuple(map(doubled, self.event.events)))


class _Sampled(_Costs):
    """Of a Poisson sample, and the rest of it of a sample without replacement."""

    def simplified(self) -> DpEvent:
        inner = simplified(self.event.event)
        precision = _costs(inner).precision()
        one = inner if precision is None else GaussianDpEvent(precision**-0.5)
        return attr.evolve(self.event, event=one)


class _PoissonSampled(_Sampled):
    def simplified(self) -> DpEvent:
        inner = simplified(self.event.event)
        if isinstance(inner, PoissonSampledDpEvent):
            # Two independent coins are one.
            q = self.event.sampling_probability * inner.sampling_probability
            return PoissonSampledDpEvent(q, inner.event)
        return super().simplified()

    def exposes(self) -> bool:
        return self.event.sampling_probability > 0 and exposes(self.event.event)

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        inner = math.inf if adjacency == "replace" else pure_epsilon(self.event.event, adjacency)
        if not math.isfinite(inner):
            return math.inf
        return math.log1p(self.event.sampling_probability * math.expm1(inner))

    def spread(self) -> float:
        inner = self.event.event
        if not isinstance(inner, GaussianDpEvent):
            return 0.0
        return float(self.event.sampling_probability / inner.noise_multiplier)


class _SampledWithoutReplacement(_Sampled):
    def for_rdp(self, adjacency: Adjacency) -> DpEvent | None:
        if adjacency != "replace":
            return self.event
        if not isinstance(self.event.event, GaussianDpEvent):
            return None
        return attr.evolve(self.event, event=doubled(self.event.event))


class _MaybeAbandoned(_Costs):
    """Of a sampled Gaussian that may be abandoned: one of our noise has Renyi divergences alone."""

    def simplified(self) -> DpEvent:
        if events.is_own(self.event):
            return self.event
        return attr.evolve(self.event, event=simplified(self.event.event))

    def exposes(self) -> bool:
        return exposes(self.event.event)

    def spread(self) -> float:
        return _costs(self.event.event).spread()

    def has_distribution(self, adjacency: Adjacency) -> bool:
        sampled = self.event.event
        gaussian = isinstance(getattr(sampled, "event", None), GaussianDpEvent)
        return adjacency != "replace" and isinstance(sampled, PoissonSampledDpEvent) and gaussian

    def distribution(self, adjacency: Adjacency, interval: float) -> Any:
        sampled = self.event.event
        # Whether a round opened only because of one client is told, in both worlds alike.
        return distribution(sampled.event, adjacency, interval).compute_mixture(
            distribution(sampled, adjacency, interval), self.event.p
        )

    def for_rdp(self, adjacency: Adjacency) -> DpEvent | None:
        return None


_KINDS: dict[type[DpEvent], type[_Costs]] = {
    GaussianDpEvent: _Gaussian,
    LaplaceDpEvent: _Laplace,
    DiscreteLaplaceDpEvent: _DiscreteLaplace,
    RandomizedResponseDpEvent: _RandomizedResponse,
    NoOpDpEvent: _NoOp,
    dp_accounting.NonPrivateDpEvent: _NonPrivate,
    SelfComposedDpEvent: _SelfComposed,
    ComposedDpEvent: _Composed,
    PoissonSampledDpEvent: _PoissonSampled,
    SampledWithoutReplacementDpEvent: _SampledWithoutReplacement,
    MaybeAbandonedDpEvent: _MaybeAbandoned,
}


def _costs(event: DpEvent) -> _Costs:
    own = isinstance(event, NoiseDpEvent)
    return _Own(event) if own else _KINDS.get(type(event), _Costs)(event)


def _shifts(adjacency: Adjacency) -> int:
    """Return by how many sensitivities two neighbours differ."""
    return 2 if adjacency == "replace" else 1


def simplified(event: DpEvent) -> DpEvent:
    """Return an equal event, hashable: Gaussians under sampling made one, and coins too.

    An event that may be abandoned costs a little more if two coins are made one: where the first
    was certain, the second is taken to be.
    """
    return _costs(events.hashable(event)).simplified()


def doubled(event: DpEvent) -> DpEvent:
    """Return the event at twice its sensitivities: one record in place of another.

    Raises
    ------
    UnsupportedEventError
        If the event has no sensitivity that could be doubled.
    """
    return _costs(events.hashable(event)).doubled()


def for_replacement(event: DpEvent) -> DpEvent:
    """Return an event, whose sensitivities are against zero, for a ledger of replace adjacency.

    Ours carry their sensitivities and are doubled; the others a ledger doubles itself.
    """
    event = events.hashable(event)
    if events.is_own(event):
        return doubled(event)
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent(tuple(map(for_replacement, event.events)))
    return event


def leaves(event: DpEvent, count: float = 1) -> Iterator[tuple[DpEvent, float]]:
    """Yield the events of a composition, with how often each occurs.

    Parameters
    ----------
    event : DpEvent
        Any.
    count : float
        How often it occurs itself.

    Yields
    ------
    event : DpEvent
        Not a composition.
    count : float
        How often.
    """
    if isinstance(event, SelfComposedDpEvent):
        yield from leaves(event.event, count * event.count)
    elif isinstance(event, ComposedDpEvent):
        for part in event.events:
            yield from leaves(part, count)
    else:
        yield event, count


def exposes(event: DpEvent) -> bool:
    """Return whether an event protects nothing: every epsilon is infinite."""
    return _costs(event).exposes()


def has_distribution(event: DpEvent, adjacency: Adjacency) -> bool:
    """Test whether :func:`distribution` knows the event.

    Parameters
    ----------
    event : DpEvent
        Hashable, as of :func:`simplified`.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.

    Returns
    -------
    bool
        False for a sample of one of ours, whatever it knows itself.
    """
    if events.parts_of(event) and events.is_own(event):
        return False
    return _costs(event).has_distribution(adjacency)


def is_large(event: DpEvent, adjacency: Adjacency) -> bool:
    """Test whether an event's pure epsilon is all that is worth knowing of it.

    Parameters
    ----------
    event : DpEvent
        Hashable, as of :func:`simplified`.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.

    Returns
    -------
    bool
        Whether that is above :data:`LARGEST_PURE`.
    """
    return LARGEST_PURE < pure_epsilon(event, adjacency) < math.inf


def fine_interval(counts: Mapping[DpEvent, float], adjacency: Adjacency) -> float:
    """Return the fine grid, doubled until all bounded losses fit into :data:`MOST_POINTS`.

    Coarser grids hold points of finer ones only, so that more events never cost less on them.

    Parameters
    ----------
    counts : mapping of DpEvent to float
        Events and how often each occurs.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.

    Returns
    -------
    float
        A step of the grid of privacy losses.
    """
    pures = ((count, pure_epsilon(event, adjacency)) for event, count in counts.items())
    whole = math.fsum(2 * count * pure for count, pure in pures if math.isfinite(pure))
    return FINE * 2.0 ** max(0, math.ceil(math.log2(max(1.0, whole / FINE / MOST_POINTS))))


def is_wide(event: DpEvent) -> bool:
    """Return whether the coarse grid of privacy losses is enough for an event.

    It is ten times faster, which counts as a run asks each round. See :data:`WIDE_STEPS`.
    """
    return _costs(event).spread() >= WIDE_STEPS * WIDE


@lru_cache(maxsize=KEPT_DISTRIBUTIONS)
def distribution(event: DpEvent, adjacency: Adjacency, interval: float) -> Any:
    """Build the privacy loss distribution of one event that protects something.

    Parameters
    ----------
    event : DpEvent
        Hashable, as of :func:`simplified`.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.
    interval : float
        Step of the grid of privacy losses.

    Returns
    -------
    PrivacyLossDistribution or None
        None from an event of ours that has none.
    """
    return _costs(event).distribution(adjacency, interval)


def has_divergences(event: DpEvent, adjacency: Adjacency) -> bool:
    """Test whether :func:`divergences` knows the event.

    Parameters
    ----------
    event : DpEvent
        Hashable, as of :func:`simplified`.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.

    Returns
    -------
    bool
        Whether Renyi divergences bound it under this adjacency.
    """
    if events.is_own(event):
        return _has_own_divergences(event, adjacency)
    stated = _costs(event).for_rdp(adjacency)
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=RELATIONS[adjacency])
    return stated is not None and bool(accountant.supports(stated))


def _has_own_divergences(event: DpEvent, adjacency: Adjacency) -> bool:
    # The tight amplification compares a cohort with and without a client, not with another.
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
    """Return orders and Renyi divergences of one event.

    Parameters
    ----------
    event : DpEvent
        Hashable, as of :func:`simplified`.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.
    orders : tuple of float or None
        Those asked for; None is the accountant's own grid. Events of ours have their own.

    Returns
    -------
    orders : tuple of float
        The k orders.
    divergences : ndarray of float64, shape (k,)
        Read-only.
    """
    if events.is_own(event):
        return events.ORDERS, events.rdp(event)
    relation = RELATIONS[adjacency]
    accountant = dp_accounting.rdp.RdpAccountant(None if orders is None else list(orders), relation)
    accountant.compose(_costs(event).for_rdp(adjacency))
    row = np.array(accountant.rdp)
    row.flags.writeable = False
    return tuple(float(order) for order in accountant.orders), row


def pure_epsilon(event: DpEvent, adjacency: Adjacency) -> float:
    """Return the epsilon that holds at delta = 0.

    Parameters
    ----------
    event : DpEvent
        Hashable, as of :func:`simplified`.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.

    Returns
    -------
    float
        inf if there is none.
    """
    return math.inf if exposes(event) else _costs(event).pure_epsilon(adjacency)
