"""Events to epsilon: `dp_accounting` for what it knows, our Renyi bounds for what it does not.

Everything that this project calls an epsilon is composed here.
"""

import math
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, Self

import dp_accounting
import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta, compute_epsilon
from numpy.typing import NDArray

from zerosum.client import events
from zerosum.client.events import ORDERS, UnsupportedEventError
from zerosum.client.mechanisms import gaussian_delta
from zerosum.server import costs
from zerosum.server.costs import RELATIONS, Adjacency

__all__ = ["Adjacency", "Ledger"]


class Ledger:
    """A composition of events under one adjacency.

    Parameters
    ----------
    adjacency : {"add_remove", "replace", "zero_out"}
        What two neighbouring inputs differ in.
    accountant : {"pld", "rdp"}
        "pld" composes privacy-loss distributions while every event has one (in closed form if all
        are Gaussian), and Renyi divergences from the first event that has none. Either is cut
        down to the sum of pure epsilons where that is less; where one of these is above 100 that
        sum is all, "pure".

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
        self._pld_possible = accountant == "pld"
        self._rdp_possible = True

    @property
    def accountant(self) -> str:
        """The accountant in use for what has been composed so far."""
        if not self._pld_possible:
            return "rdp"
        if self._all_gaussian():
            return "exact gaussian"
        large = any(costs.is_large(event, self.adjacency) for event in self._counts)
        return "pure" if large and math.isfinite(self._pure) else "pld"

    def compose(self, event: DpEvent, count: float = 1) -> Self:
        """Add an event ``count`` times.

        Parameters
        ----------
        event : DpEvent
            One of `dp_accounting`'s or of :mod:`zerosum.client.events`.
        count : float
            How often. A fraction is that part of the event's Renyi divergences, or of a Gaussian's
            precision: for what is bounded by a part of something larger.

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
        leaves = [(costs.simplified(leaf), times) for leaf, times in _leaves(event, count)]
        pld_possible = self._pld_possible and all(self._has_pld(*leaf) for leaf in leaves)
        missing = [leaf for leaf, _ in leaves if not costs.has_divergences(leaf, self.adjacency)]
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
        if not 0 <= delta <= 1:
            raise ValueError(f"delta lies in [0, 1], not at {delta}")
        if not self._counts or delta == 1:
            return 0.0
        if any(map(costs.exposes, self._counts)):
            return math.inf
        return min(self._pure, self._epsilon(delta))

    def delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon``."""
        if not self._counts or self._pure <= epsilon:
            return 0.0
        if any(map(costs.exposes, self._counts)):
            return 1.0
        if self.accountant == "exact gaussian":
            return gaussian_delta(epsilon, 1 / self._gaussian_sigma())
        if self.accountant == "pure":
            return 1.0
        if self.accountant == "pld":
            return max(float(pld.get_delta_for_epsilon(epsilon)) for pld in self._plds)
        orders, divergences = self._rdp
        return float(compute_delta(orders, divergences, epsilon)[0])

    def _epsilon(self, delta: float) -> float:
        if self.accountant == "exact gaussian":
            if delta == 0:
                return math.inf
            return float(dp_accounting.get_epsilon_gaussian(self._gaussian_sigma(), delta))
        if self.accountant == "pure":
            return self._pure
        if self.accountant == "pld":
            return max(float(pld.get_epsilon_for_delta(delta)) for pld in self._plds)
        orders, divergences = self._rdp
        return float(compute_epsilon(orders, divergences, delta)[0])

    def _forget(self) -> None:
        for name in ("_plds", "_rdp", "_pure"):
            self.__dict__.pop(name, None)

    def _has_pld(self, leaf: DpEvent, count: float) -> bool:
        whole = float(count).is_integer() or isinstance(leaf, GaussianDpEvent)
        return whole and costs.has_distribution(leaf, self.adjacency)

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
    def _pure(self) -> float:
        return math.fsum(
            count * costs.pure_epsilon(event, self.adjacency)
            for event, count in self._counts.items()
        )

    @cached_property
    def _plds(self) -> list[Any]:
        """Distributions whose largest bound counts: one more event lowers it on no grid.

        A narrow event needs the fine grid for all, on which the wide ones alone may cost a little
        less than they did on theirs.
        """
        wide = [event for event in self._counts if costs.is_wide(event)]
        if len(wide) == len(self._counts):
            return [self._composed(wide, costs.WIDE)]
        alone = [self._composed(wide, costs.WIDE)] if wide else []
        fine = costs.fine_interval(self._counts, self.adjacency)
        return [self._composed(list(self._counts), fine), *alone]

    def _composed(self, composed: list[DpEvent], interval: float) -> Any:
        total: Any = None
        for event in composed:
            count = self._counts[event]
            if isinstance(event, GaussianDpEvent):
                event, count = GaussianDpEvent(event.noise_multiplier / math.sqrt(count)), 1
            part = costs.distribution(event, self.adjacency, interval)
            part = part if count == 1 else part.self_compose(round(count))
            total = part if total is None else total.compose(part)
        return total

    @cached_property
    def _rdp(self) -> tuple[list[float], NDArray[np.float64]]:
        # Renyi bounds of ours are at integer orders; without any, the accountant's own grid.
        grid = ORDERS if any(map(events.is_own, self._counts)) else None
        orders: tuple[float, ...] = ()
        total = np.zeros(())
        for event, count in self._counts.items():
            orders, row = costs.divergences(event, self.adjacency, grid)
            total = total + count * row
        return list(orders), total


def _leaves(event: DpEvent, count: float) -> Iterator[tuple[DpEvent, float]]:
    """Yield the events of a composition, with how often each occurs."""
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        yield from _leaves(event.event, count * event.count)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            yield from _leaves(part, count)
    else:
        yield event, count
