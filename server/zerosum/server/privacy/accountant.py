"""Compose events and evaluate their epsilon: by `dp_accounting`, and by Renyi bounds of ours.

Everything that this project calls an epsilon is composed here.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, Self

import dp_accounting
import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta, compute_epsilon
from numpy.typing import NDArray
from scipy.special import log_ndtr

from zerosum.client.privacy import events
from zerosum.client.privacy.events import ORDERS, UnsupportedEventError
from zerosum.server.privacy import event_costs
from zerosum.server.privacy.coupling import Closeness, coupled_run
from zerosum.server.privacy.event_costs import RELATIONS, Adjacency
from zerosum.server.privacy.loss_composition import self_composed
from zerosum.server.privacy.loss_search import epsilon_for_delta

__all__ = ["Accounted", "Adjacency", "Ledger"]

_COUPLING_PART = 0.1
"""Most of delta that a total variation may cost; where it would cost more, it is not used. For
Gaussian noise at multipliers of 4 to 1/2 epsilon at 0.9 delta is 0.006 to 0.05 higher."""

_RATIO_PART = 5e-4
"""Part of delta that pays for likelihood ratios beyond their bound. It is lost whatever the ratio,
so it is small; the bound grows with the square root of its logarithm only."""

_RARE = 50.0
"""ln of the odds against likelihood ratios beyond their bound, where a delta is asked for: e^-50 is
below any delta that is worth asking for."""

_HOPELESS = 60.0
"""Epsilon by Renyi divergences above which nobody is helped by a smaller one, and a coupling, which
multiplies tau by e^epsilon, has none."""

_LARGEST_RATIO = 0.5
"""Bound on a log-ratio above which it is not used: e^-0.5 leaves more than half of delta."""


_Counts = tuple[tuple[DpEvent, float], ...]
"""Events of a composition, each with how often, in the order in which they came."""


@dataclass(frozen=True)
class Accounted:
    """An epsilon and how it was found.

    Attributes
    ----------
    value : float
        Epsilon; may be infinite.
    accountant : str
        "pld", "exact gaussian", "rdp" or "pure"; ", coupled" behind it where integer noise was
        accounted as a Gaussian that it is close to.
    slack, margin : float
        The parts of delta and of epsilon that this closeness cost.
    """

    value: float
    accountant: str
    slack: float = 0.0
    margin: float = 0.0


class Ledger:
    """A composition of events under one adjacency.

    Parameters
    ----------
    adjacency : {"add_remove", "replace", "zero_out"}
        What two neighbouring inputs differ in.
    accountant : {"pld", "rdp"}
        "pld" composes privacy-loss distributions while every event has one (in closed form if all
        are Gaussian), and Renyi divergences from the first event that has none. Integer noise close
        to a Gaussian is accounted both ways, by the Gaussian's distribution and by its own Renyi
        divergences, and the smaller counts. Either is cut down to the sum of pure epsilons where
        that is less; where one of these is above 100 that sum is all, "pure".

    Examples
    --------
    >>> from dp_accounting import GaussianDpEvent
    >>> ledger = Ledger("add_remove").compose(GaussianDpEvent(10.0), count=100)
    >>> round(ledger.epsilon(1e-5), 3)
    4.377
    """

    def __init__(self, adjacency: Adjacency, accountant: Literal["pld", "rdp"] = "pld") -> None:
        if adjacency not in RELATIONS:
            raise ValueError(f"adjacency is one of {sorted(RELATIONS)}, not {adjacency!r}")
        if accountant not in ("pld", "rdp"):
            raise ValueError(f'accountant is "pld" or "rdp", not {accountant!r}')
        self.adjacency: Adjacency = adjacency
        self._counts: Counter[DpEvent] = Counter()
        self._pld_wanted = self._pld_possible = accountant == "pld"
        self._rdp_possible = True

    @property
    def accountant(self) -> str:
        """The accountant of what has been composed so far, before any coupling."""
        if not self._pld_possible:
            return "rdp"
        if self._all_gaussian():
            return "exact gaussian"
        large = any(event_costs.is_large(event, self.adjacency) for event in self._counts)
        return "pure" if large and math.isfinite(self._pure) else "pld"

    def compose(self, event: DpEvent, count: float = 1) -> Self:
        """Add an event ``count`` times.

        Parameters
        ----------
        event : DpEvent
            One of `dp_accounting`'s or of :mod:`zerosum.client.privacy.events`.
        count : float
            How often. A fraction is that part of the event's Renyi divergences, or of a Gaussian's
            precision: for what is bounded by a part of something larger.

        Returns
        -------
        Ledger
            This one.

        Raises
        ------
        UnsupportedEventError
            If no accountant has a bound for the event under this adjacency, beside what is already
            composed. The message names the part at fault; the ledger is unchanged.
        ValueError
            If ``count`` is negative.
        """
        if not count >= 0:
            raise ValueError(f"an event is composed 0 times or more, not {count}")
        leaves = [
            (event_costs.simplified(leaf), times)
            for leaf, times in event_costs.leaves(event, count)
        ]
        pld_possible = self._pld_possible and all(self._has_pld(*leaf) for leaf in leaves)
        missing = [
            leaf for leaf, _ in leaves if not event_costs.has_divergences(leaf, self.adjacency)
        ]
        rdp_possible = self._rdp_possible and not missing
        if not (pld_possible or rdp_possible):
            fault = missing[0] if missing else event
            raise UnsupportedEventError(
                f"no accountant bounds {fault} under {self.adjacency} adjacency"
            )
        for leaf, times in leaves:
            if times:
                self._counts[leaf] += times  # type: ignore[assignment]
        self._pld_possible, self._rdp_possible = pld_possible, rdp_possible
        self._forget()
        return self

    def epsilon(self, delta: float) -> float:
        """Return epsilon at ``delta``; inf if the composition protects nothing.

        Raises
        ------
        ValueError
            If ``delta`` is not in [0, 1].
        """
        return self.accounted(delta).value

    def accounted(self, delta: float) -> Accounted:
        """Evaluate epsilon at ``delta``, with the accountant that found it.

        Parameters
        ----------
        delta : float
            In [0, 1].

        Returns
        -------
        Accounted
            The smallest of the bounds that are known.

        Raises
        ------
        ValueError
            If ``delta`` is not in [0, 1].
        """
        if not 0 <= delta <= 1:
            raise ValueError(f"delta lies in [0, 1], not at {delta}")
        if not self._counts or delta == 1:
            return Accounted(0.0, self.accountant)
        if any(map(event_costs.exposes, self._counts)):
            return Accounted(math.inf, self.accountant)
        own = Accounted(min(self._pure, self._epsilon(delta)), self.accountant)
        if self._coupling is None or delta == 0 or own.value > _HOPELESS:
            return own
        return min((own, *self._by_coupling(delta)), key=lambda one: one.value)

    def _by_coupling(self, delta: float) -> Iterator[Accounted]:
        """Yield epsilons by total variation and by likelihood ratio, where these are bounded.

        Epsilon at delta / 2 stands in for the one that is found, which is less: so all that a
        coupling costs grows with every event, one that is refused stays refused, and no more events
        ever make the smallest of all figures smaller. A total variation that costs less of delta
        than the other way's fixed part leaves nothing to be asked.
        """
        if self._coupling is None:
            return
        gaussian, closeness = self._coupling
        first = gaussian.epsilon(delta / 2)
        slack = (1 + math.exp(min(first, 700.0))) * closeness.total_variation
        name = f"{gaussian.accountant}, coupled"
        if slack <= _COUPLING_PART * delta:
            yield Accounted(gaussian.epsilon(delta - slack), name, slack)
        ratio = closeness.log_ratio(math.log(_RATIO_PART * delta / 2) - first - _LARGEST_RATIO)
        if slack > _RATIO_PART * delta and ratio <= _LARGEST_RATIO:
            left = (1 - _RATIO_PART) * math.exp(-ratio) * delta
            value = gaussian.epsilon(left) + 2 * ratio
            yield Accounted(value, name, delta - left, 2 * ratio)

    def delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon``."""
        if not self._counts or self._pure <= epsilon:
            return 0.0
        if any(map(event_costs.exposes, self._counts)):
            return 1.0
        if self._coupling is None:
            return self._delta(epsilon)
        gaussian, closeness = self._coupling
        power = min(epsilon, 700.0)
        varied = gaussian.delta(epsilon) + (1 + math.exp(power)) * closeness.total_variation
        rare = -_RARE - power
        ratio = closeness.log_ratio(rare)
        if ratio > _LARGEST_RATIO:
            return min(1.0, self._delta(epsilon), varied)
        whole = math.exp(ratio) * gaussian.delta(epsilon - 2 * ratio)
        whole += math.exp(rare) + math.exp(power - ratio + rare)
        return min(1.0, self._delta(epsilon), varied, whole)

    def _delta(self, epsilon: float) -> float:
        if self.accountant == "exact gaussian":
            return gaussian_delta(epsilon, 1 / self._gaussian_sigma())
        if self.accountant == "pure":
            return 1.0
        if self.accountant == "pld":
            plds = _distributions(self.adjacency, tuple(self._counts.items()))
            return max(float(pld.get_delta_for_epsilon(epsilon)) for pld in plds)
        orders, divergences = self._rdp
        return float(compute_delta(orders, divergences, epsilon)[0])

    def _epsilon(self, delta: float) -> float:
        if self.accountant == "exact gaussian":
            if delta == 0:
                return math.inf
            return _gaussian_epsilon(self._gaussian_sigma(), delta)
        if self.accountant == "pure":
            return self._pure
        if self.accountant == "pld":
            return _loss_epsilon(self.adjacency, tuple(self._counts.items()), delta)
        orders, divergences = self._rdp
        return _renyi_epsilon(tuple(orders), tuple(divergences.tolist()), delta)

    def _forget(self) -> None:
        for name in ("_rdp", "_pure", "_coupling"):
            self.__dict__.pop(name, None)

    def _has_pld(self, leaf: DpEvent, count: float) -> bool:
        whole = float(count).is_integer() or isinstance(leaf, GaussianDpEvent)
        return whole and event_costs.has_distribution(leaf, self.adjacency)

    def _all_gaussian(self) -> bool:
        return bool(self._counts) and all(
            isinstance(event, GaussianDpEvent) and event.noise_multiplier > 0
            for event in self._counts
        )

    def _gaussian_sigma(self) -> float:
        """Return the one noise multiplier that Gaussian events compose to, doubling included."""
        sensitivity = 2 if self.adjacency == "replace" else 1
        precision = sum(
            count * (sensitivity / event.noise_multiplier) ** 2
            for event, count in self._counts.items()
        )
        return 1 / math.sqrt(precision)

    @cached_property
    def _coupling(self) -> "tuple[Ledger, Closeness] | None":
        """The ledger of Gaussians that this composition is close to, and how close; or None."""
        if not self._pld_wanted or not any(map(events.is_own, self._counts)):
            return None
        run = coupled_run(self._counts, self.adjacency)
        if run is None:
            return None
        gaussian = Ledger(self.adjacency)
        try:
            for event, count in run.counts.items():
                gaussian.compose(event, count)
        except UnsupportedEventError:
            return None
        return (gaussian, run.closeness) if gaussian._pld_possible else None

    @cached_property
    def _pure(self) -> float:
        return math.fsum(
            count * event_costs.pure_epsilon(event, self.adjacency)
            for event, count in self._counts.items()
        )

    @cached_property
    def _rdp(self) -> tuple[list[float], NDArray[np.float64]]:
        # Renyi bounds of ours are at integer orders; without any, the accountant's own grid.
        grid = ORDERS if any(map(events.is_own, self._counts)) else None
        orders: tuple[float, ...] = ()
        total = np.zeros(())
        for event, count in self._counts.items():
            orders, row = event_costs.divergences(event, self.adjacency, grid)
            total = total + count * row
        return list(orders), total


# Each observer has a ledger of its own, and mostly the same events in it: every round each epsilon
# was searched for three times, for a tenth of the time of a round of small clients.
@lru_cache(maxsize=64)
def _gaussian_epsilon(sigma: float, delta: float) -> float:
    return float(dp_accounting.get_epsilon_gaussian(sigma, delta))


@lru_cache(maxsize=64)
def _renyi_epsilon(
    orders: tuple[float, ...], divergences: tuple[float, ...], delta: float
) -> float:
    return float(compute_epsilon(orders, divergences, delta)[0])


# The search for a noise multiplier composes the whole run ten times, and is made anew by each who
# asks for the same settings: a plan, its cures, an app, a run.
@lru_cache(maxsize=256)
def _loss_epsilon(adjacency: Adjacency, counts: _Counts, delta: float) -> float:
    return max(epsilon_for_delta(pld, delta) for pld in _distributions(adjacency, counts))


@lru_cache(maxsize=4)
def _distributions(adjacency: Adjacency, counts: _Counts) -> list[Any]:
    """Compose distributions whose largest bound counts: one more event lowers it on no grid.

    A narrow event needs the fine grid for all, on which the wide ones alone may cost a little less
    than they did on theirs.
    """
    wide = tuple(pair for pair in counts if event_costs.is_wide(pair[0]))
    if len(wide) == len(counts):
        return [_composed(wide, adjacency, event_costs.WIDE)]
    alone = [_composed(wide, adjacency, event_costs.WIDE)] if wide else []
    fine = event_costs.fine_interval(dict(counts), adjacency)
    return [_composed(counts, adjacency, fine), *alone]


def _composed(counts: _Counts, adjacency: Adjacency, interval: float) -> Any:
    total: Any = None
    for event, count in counts:
        if isinstance(event, GaussianDpEvent):
            event, count = GaussianDpEvent(event.noise_multiplier / math.sqrt(count)), 1
        part = event_costs.distribution(event, adjacency, interval)
        part = part if count == 1 else self_composed(part, round(count))
        total = part if total is None else total.compose(part)
    return total


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta of the Gaussian mechanism at sensitivity / sigma = mu.

    Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu): Balle and Wang, "Improving the Gaussian
    mechanism for differential privacy" (2018), Theorem 8. In logarithms, so that a large epsilon
    does not overflow.

    Parameters
    ----------
    epsilon : float
        0 or more.
    mu : float
        Above 0.

    Returns
    -------
    float
        In [0, 1].
    """
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if second >= first:
        return 0.0
    return -math.exp(first) * math.expm1(second - first)
