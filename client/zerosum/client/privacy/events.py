"""Events that `dp_accounting` lacks, each of which says itself what it costs.

An event is frozen data that describes a mechanism fully enough to account for it with no other
knowledge. One of this project's derives from :class:`NoiseDpEvent` and gives its Renyi divergences,
at integer orders; where it knows more, a privacy loss distribution, a pure epsilon or the law of
its noise, the ledger uses that too. So a new mechanism's event is accounted for where it is
written, and no table of events has to learn of it.
"""

import abc
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import attr
import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from numpy.typing import NDArray

from zerosum.client import renyi_filter
from zerosum.client.privacy import integer_losses, renyi_rows
from zerosum.client.privacy.amplification import poisson_amplified, with_abandonment
from zerosum.client.privacy.integer_laws import Geometric, IntegerLaw, Skellam, law_of
from zerosum.client.privacy.pmf import DiscreteGaussianLaw, NoiseLaw, SkellamLaw

ORDERS: tuple[int, ...] = renyi_filter.ORDERS
"""Integer orders at which everything of ours is accounted."""


class UnsupportedEventError(ValueError):
    """No bound is known for an event in this setting."""


@dataclass(frozen=True)
class IntegerNoise:
    """The noise of an event, by its law: what a ledger compares with a rounded Gaussian.

    Attributes
    ----------
    law : NoiseLaw
        Of the noise in a coordinate, in integer units.
    l2_sensitivity : float
        In integer units.
    dimension : int
        Coordinates.
    least_divergence : float
        Closed form, by cumulants, of the Kullback-Leibler divergence of the law from a Gaussian of
        its variance less 1/12, rounded; the summed one counts as no less. 0 where none is known.
    log_ratio : float
        Largest log-ratio of the noise to the law, in a coordinate: 0 where that is the law itself.
    """

    law: NoiseLaw
    l2_sensitivity: float
    dimension: int
    least_divergence: float = 0.0
    log_ratio: float = 0.0


class NoiseDpEvent(DpEvent, abc.ABC):  # type: ignore[misc]
    """One release under noise of a mechanism of ours: what it costs, by its own account.

    Subclasses are frozen and hashable (:mod:`attr`). They have to give their Renyi divergences and
    themselves at twice the sensitivity. What else they leave out is taken at its worst: then no
    amplification by sampling is known, no pure epsilon, and no distribution.
    """

    symmetric: ClassVar[bool] = False
    """Whether exchanging two neighbours mirrors the pair of distributions, as symmetric noise on
    integer shifts does: the tight amplification by sampling needs it."""

    @abc.abstractmethod
    def divergences(self) -> NDArray[np.float64]:
        """Return the Renyi divergences at :data:`ORDERS`, shape (511,).

        Raises
        ------
        UnsupportedEventError
            If no bound is known at these parameters.
        """

    @abc.abstractmethod
    def doubled(self) -> Self:
        """Return the event at twice its sensitivities: one vector in place of another."""

    def pure_epsilon(self) -> float:
        """Return the epsilon that holds at delta = 0; inf if there is none."""
        return math.inf

    def loss_distribution(self, interval: float) -> Any | None:
        """Return `dp_accounting`'s privacy loss distribution of one release, or None.

        Parameters
        ----------
        interval : float
            Step of its grid of privacy losses.
        """
        return None

    def integer_noise(self) -> IntegerNoise | None:
        """Return the law of the noise, independent in each coordinate; None if it has none."""
        return None


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SkellamDpEvent(NoiseDpEvent):
    """An integer vector under Skellam noise.

    Attributes
    ----------
    l2_sensitivity, l1_sensitivity : float
        Sensitivities in integer units, under the adjacency that is meant.
    variance : float
        Total variance of the noise in a coordinate.
    dimension : int or None
        Coordinates, over which the distance from a Gaussian adds up; None where that is not known,
        and Renyi divergences are all there is.
    """

    l2_sensitivity: float
    l1_sensitivity: float
    variance: float
    dimension: int | None = None
    symmetric: ClassVar[bool] = True

    def divergences(self) -> NDArray[np.float64]:
        """Return the bound of Agarwal, Kairouz, Liu (2021), Theorem 3.5.

        alpha l2^2/(2 mu) + min( ((2 alpha - 1) l2^2 + 6 l1)/(4 mu^2), 3 l1/(2 mu) ).
        """
        alpha = np.array(ORDERS, dtype=np.float64)
        l2, l1, mu = self.l2_sensitivity, self.l1_sensitivity, self.variance
        if mu <= 0:
            return np.full_like(alpha, math.inf)
        second = ((2 * alpha - 1) * l2**2 + 6 * l1) / (4 * mu**2)
        result: NDArray[np.float64] = alpha * l2**2 / (2 * mu) + np.minimum(
            second, 3 * l1 / (2 * mu)
        )
        return result

    def doubled(self) -> Self:
        """Return the event at twice its sensitivities."""
        return _doubled(self)

    def integer_noise(self) -> IntegerNoise | None:
        """Return Skellam noise; None where the number of coordinates is not known.

        Its fourth cumulant exceeds the rounded Gaussian's by mu, which makes the divergence
        mu^2 / (48 mu^4) to first order.
        """
        if self.dimension is None or self.variance <= 0:
            return None
        least = 1 / (48 * self.variance**2)
        return IntegerNoise(SkellamLaw(self.variance), self.l2_sensitivity, self.dimension, least)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DistributedDiscreteGaussianDpEvent(NoiseDpEvent):
    """An integer vector under a sum of discrete Gaussian shares.

    Attributes
    ----------
    l2_sensitivity, l1_sensitivity : float
        Sensitivities in integer units.
    sigma : float
        Parameter of one share.
    num_shares, dimension : int
        Shares in the sum; coordinates.
    """

    l2_sensitivity: float
    l1_sensitivity: float
    sigma: float
    num_shares: int
    dimension: int
    symmetric: ClassVar[bool] = True

    def distance(self) -> float:
        """Return the largest log-ratio, in a coordinate, of the sum to one discrete Gaussian.

        Kairouz, Liu, Steinke (2021), Theorem 10; it bounds the total variation too.

        Returns
        -------
        float
            An upper bound; 0 for one share.

        Raises
        ------
        UnsupportedEventError
            If sigma is below 1, where the bound is vacuous.
        """
        if self.sigma < 1:
            raise UnsupportedEventError(
                f"discrete Gaussian shares of sigma = {self.sigma} < 1 have no useful bound"
            )
        k = np.arange(1, self.num_shares)
        return 10 * float(np.sum(np.exp(-2 * math.pi**2 * self.sigma**2 * k / (k + 1))))

    def divergences(self) -> NDArray[np.float64]:
        """Return the bound of Kairouz, Liu, Steinke (2021), Proposition 14.

        Raises
        ------
        UnsupportedEventError
            If sigma is below 1, where the bound is vacuous.
        """
        tau = self.distance()
        alpha = np.array(ORDERS, dtype=np.float64)
        noise, d = math.sqrt(self.num_shares) * self.sigma, self.dimension
        ratio = self.l2_sensitivity / noise
        bounds = (
            alpha * ratio**2 / 2 + tau * d,
            alpha / 2 * (ratio**2 + 2 * self.l1_sensitivity * tau / noise + tau**2 * d),
            alpha / 2 * (ratio + math.sqrt(d) * tau) ** 2,
        )
        result: NDArray[np.float64] = np.minimum.reduce(bounds)
        return result

    def doubled(self) -> Self:
        """Return the event at twice its sensitivities."""
        return _doubled(self)

    def integer_noise(self) -> IntegerNoise | None:
        """Return one discrete Gaussian of the shares' variance, and the sum's distance from it.

        Fourth cumulants of the discrete and the rounded Gaussian differ by 1/120. None where the
        distance has no useful bound.
        """
        variance = self.num_shares * self.sigma**2
        try:
            between = self.distance()
        except UnsupportedEventError:
            return None
        least = 1 / (691_200 * variance**4)
        law = DiscreteGaussianLaw(math.sqrt(variance))
        return IntegerNoise(law, self.l2_sensitivity, self.dimension, least, between)


def _floats(given: Iterable[float]) -> tuple[float, ...]:
    return tuple(map(float, given))


def _integers(given: Iterable[int]) -> tuple[int, ...]:
    return tuple(map(operator.index, given))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class IntegerNoiseDpEvent(NoiseDpEvent):
    """Blocks of integers under independent noise, each changed by at most its move in L1 norm.

    It costs what the composition of one-dimensional pairs (noise, noise + move) costs, one a move.
    Why: walk from one block to its neighbour in unit steps. The noise is log-concave, so that by
    monotone likelihood ratio one threshold is optimal for each step of a walk along *one*
    coordinate: the curves of its steps chain to exactly that of the whole move. By group privacy
    (Dong, Roth, Su, "Gaussian differential privacy", 2022) no walk through several coordinates ends
    in anything easier to tell; symmetry exchanges the pair.

    Attributes
    ----------
    law : {"geometric", "skellam"}
        Of the noise in each coordinate.
    parameters : tuple of float
        Geometric: (s, r), r >= 1 shares in units of one discrete Laplace of scale s. Skellam:
        (variance,). In integer units.
    moves : tuple of int
        L1 distances in integer units, written for the adjacency that is meant: nothing doubles
        them.

    Raises
    ------
    ValueError
        If parameters or moves are out of range. Below r = 1 geometric noise is not log-concave, the
        theorem fails, and a sum has no receipt.
    """

    law: IntegerLaw
    parameters: tuple[float, ...] = attr.ib(converter=_floats)
    moves: tuple[int, ...] = attr.ib(converter=_integers)

    def __attrs_post_init__(self) -> None:
        if not self._noise.is_log_concave:
            raise ValueError(
                f"a sum with r = {self.parameters[-1]:.6g} of its geometric noise has no receipt: "
                "below 1 the noise is not log-concave, and a move of two coordinates tells more "
                "than one of a single coordinate"
            )
        if not self.moves or min(self.moves) < 1:
            raise ValueError(f"moves are integers above 0, one or more, not {self.moves}")

    @property
    def _noise(self) -> Geometric | Skellam:
        return law_of(self.law, self.parameters)

    def divergences(self) -> NDArray[np.float64]:
        """Return the sum of the moves' rows: see :mod:`zerosum.client.privacy.renyi_rows`."""
        return renyi_rows.moves_row(self._noise, self.moves)

    def doubled(self) -> Self:
        """Refuse: moves are written for the adjacency that is meant.

        Returns
        -------
        Self
            Never.

        Raises
        ------
        UnsupportedEventError
            Always.
        """
        raise UnsupportedEventError(
            "the moves of a query's receipt are written for its adjacency: doubling them would "
            "charge for one that nobody asked for"
        )

    def pure_epsilon(self) -> float:
        """Return the sum of the moves over the scale; inf for Skellam noise."""
        return self._noise.pure_epsilon(sum(self.moves))

    def loss_distribution(self, interval: float) -> Any | None:
        """Return the moves' composed privacy losses, or None.

        Parameters
        ----------
        interval : float
            Step of its grid of privacy losses.

        Returns
        -------
        dp_accounting.pld.PrivacyLossDistribution or None
            None where no grid is made: see :func:`~.integer_losses.composed_losses`.
        """
        return integer_losses.composed_losses(self._noise, self.moves, interval)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class MaybeAbandonedDpEvent(DpEvent):  # type: ignore[misc]
    """A Poisson-sampled event that is released only if enough clients take part.

    Attributes
    ----------
    event : PoissonSampledDpEvent
        What is released.
    p : float
        P(released only because of this client | released).
    """

    event: DpEvent
    p: float


E = TypeVar("E", SkellamDpEvent, DistributedDiscreteGaussianDpEvent)

_WRAPPERS = (ComposedDpEvent, SelfComposedDpEvent, PoissonSampledDpEvent, MaybeAbandonedDpEvent)
"""Events made of others, whose divergences follow from theirs."""


def parts_of(event: DpEvent) -> tuple[DpEvent, ...]:
    """Return the events that one of :data:`_WRAPPERS` is made of; none for any other."""
    if not isinstance(event, _WRAPPERS):
        return ()
    return tuple(event.events) if isinstance(event, ComposedDpEvent) else (event.event,)


def is_own(event: DpEvent) -> bool:
    """Return whether an event, and all that it is made of, accounts for itself."""
    parts = parts_of(event)
    return isinstance(event, NoiseDpEvent) or (bool(parts) and all(map(is_own, parts)))


def is_sampled(event: DpEvent) -> bool:
    """Return whether an event of ours is amplified by sampling: not valid for replacement."""
    return isinstance(event, PoissonSampledDpEvent | MaybeAbandonedDpEvent)


def twice(event: DpEvent) -> DpEvent:
    """Return one of our events, or a composition of them, at twice its sensitivities.

    Parameters
    ----------
    event : DpEvent
        One of ours.

    Returns
    -------
    DpEvent
        Of the same kind, hashable.

    Raises
    ------
    UnsupportedEventError
        If the event is sampled, or not one of ours.
    """
    if isinstance(event, NoiseDpEvent):
        return event.doubled()
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent(tuple(map(twice, event.events)))
    if isinstance(event, SelfComposedDpEvent):
        return SelfComposedDpEvent(twice(event.event), event.count)
    raise UnsupportedEventError(f"{event} has no sensitivity to double")


def rdp(event: DpEvent) -> NDArray[np.float64]:
    """Return the Renyi divergences of one of our events at :data:`ORDERS`.

    Parameters
    ----------
    event : DpEvent
        A :class:`NoiseDpEvent`, or one made of such.

    Returns
    -------
    ndarray of float64, shape (511,)
        Read-only: it is cached.

    Raises
    ------
    UnsupportedEventError
        If the event, or one that it is made of, is not one of ours.
    """
    if not is_own(event):
        raise UnsupportedEventError(f"no Renyi bound of ours for {event}")
    result: NDArray[np.float64] = _rdp(hashable(event))
    return result


def share_divergences(event: DpEvent, *, doubled: bool) -> NDArray[np.float64]:
    """Return what a mechanism of shares charges its client: :func:`rdp` of its event.

    Parameters
    ----------
    event : DpEvent
        One of ours, against zero.
    doubled : bool
        At twice its sensitivities.

    Returns
    -------
    ndarray of float64, shape (511,)
        Renyi divergences, read-only.
    """
    return rdp(twice(event) if doubled else event)


def hashable(event: DpEvent) -> DpEvent:
    """Return an equal event whose compositions are tuples, so that it can be a key."""
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent(tuple(hashable(part) for part in event.events))
    inner = getattr(event, "event", None)
    return attr.evolve(event, event=hashable(inner)) if isinstance(inner, DpEvent) else event


@lru_cache(maxsize=512)
def _rdp(event: DpEvent) -> NDArray[np.float64]:
    if isinstance(event, NoiseDpEvent):
        result = np.array(event.divergences(), dtype=np.float64)
    elif isinstance(event, ComposedDpEvent):
        result = np.sum([rdp(part) for part in event.events], axis=0)
    elif isinstance(event, SelfComposedDpEvent):
        result = event.count * rdp(event.event)
    elif isinstance(event, PoissonSampledDpEvent):
        result = _sampled_rdp(event)
    else:
        sampled = event.event
        if not isinstance(sampled, PoissonSampledDpEvent):
            raise UnsupportedEventError(f"abandonment is bounded for Poisson sampling: {event}")
        result = with_abandonment(rdp(sampled), rdp(sampled.event), event.p)
    if result.shape != (len(ORDERS),) or not (result >= 0).all():
        raise UnsupportedEventError(
            f"{event} has to give {len(ORDERS)} divergences of 0 or more, one an order"
        )
    result.flags.writeable = False
    return result


def _sampled_rdp(event: PoissonSampledDpEvent) -> NDArray[np.float64]:
    inner = event.event
    if isinstance(inner, PoissonSampledDpEvent):
        # Two independent coins are one: the tight form does not hold for what is sampled already.
        q = event.sampling_probability * inner.sampling_probability
        return rdp(PoissonSampledDpEvent(q, inner.event)).copy()
    if not _symmetric(inner):
        raise UnsupportedEventError(f"the amplification by sampling is not known for {event}")
    return poisson_amplified(event.sampling_probability, rdp(inner))


def _symmetric(event: DpEvent) -> bool:
    """Return whether exchanging two neighbours mirrors the pair of distributions."""
    if isinstance(event, NoiseDpEvent):
        return event.symmetric
    return not is_sampled(event) and all(map(_symmetric, parts_of(event)))


def _doubled(event: E) -> E:
    result: E = attr.evolve(
        event,
        l2_sensitivity=2 * event.l2_sensitivity,
        l1_sensitivity=2 * event.l1_sensitivity,
    )
    return result
