"""Events to epsilon: `dp_accounting` for what it knows, our Renyi bounds for what it does not.

Sensitivities follow one rule, whatever the accountant: a Gaussian event's noise multiplier is
noise over the *clip*, and replace adjacency doubles the sensitivity. `dp_accounting`'s own RDP
accountant does not double it (google/differential-privacy issue 378), so it is given half the
multiplier here. Events of ours carry their sensitivities themselves.
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, Self

import dp_accounting
import numpy as np
from dp_accounting import DpEvent, NeighboringRelation
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta
from numpy.typing import NDArray

from zerosum.client import events
from zerosum.client.events import ORDERS, UnsupportedEventError

Adjacency = Literal["add_remove", "replace", "zero_out"]

_RELATIONS = {
    "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace": NeighboringRelation.REPLACE_ONE,
    "zero_out": NeighboringRelation.REPLACE_SPECIAL,
}


class Ledger:
    """A composition of events under one adjacency.

    Parameters
    ----------
    adjacency : {"add_remove", "replace", "zero_out"}
        What two neighbouring inputs differ in.
    accountant : {"pld", "rdp"}
        "pld" composes privacy-loss distributions while every event has one (in closed form if all
        are Gaussian), and Renyi divergences from the first event that has none.

    Examples
    --------
    >>> from dp_accounting import GaussianDpEvent
    >>> ledger = Ledger("add_remove").compose(GaussianDpEvent(10.0), count=100)
    >>> round(ledger.epsilon(1e-5), 3)
    4.377
    """

    def __init__(self, adjacency: Adjacency, accountant: Literal["pld", "rdp"] = "pld") -> None:
        if adjacency not in _RELATIONS:
            raise ValueError(f"adjacency is one of {sorted(_RELATIONS)}, not {adjacency!r}")
        if accountant not in ("pld", "rdp"):
            raise ValueError(f'accountant is "pld" or "rdp", not {accountant!r}')
        self.adjacency = adjacency
        self._relation = _RELATIONS[adjacency]
        self._counts: Counter[DpEvent] = Counter()
        self._pld_possible = accountant == "pld"
        self._rdp_possible = True

    @property
    def accountant(self) -> str:
        """The accountant in use for what has been composed so far."""
        if not self._pld_possible:
            return "rdp"
        return "exact gaussian" if self._all_gaussian() else "pld"

    def compose(self, event: DpEvent, count: int = 1) -> Self:
        """Add an event ``count`` times.

        Raises
        ------
        UnsupportedEventError
            If no accountant has a bound for the event under this adjacency, beside what is already
            composed. The message names the part at fault; the ledger is unchanged.
        ValueError
            If ``count`` is negative.
        """
        if count < 0:
            raise ValueError(f"an event is composed 0 times or more, not {count}")
        leaves = list(_leaves(events.hashable(event), count))
        pld_possible = self._pld_possible and all(self._has_pld(leaf) for leaf, _ in leaves)
        missing = [leaf for leaf, _ in leaves if not self._has_rdp(leaf)]
        rdp_possible = self._rdp_possible and not missing
        if not (pld_possible or rdp_possible):
            fault = missing[0] if missing else event
            raise UnsupportedEventError(
                f"no accountant bounds {fault} under {self.adjacency} adjacency"
            )
        for leaf, times in leaves:
            if times:
                self._counts[leaf] += times
        self._pld_possible, self._rdp_possible = pld_possible, rdp_possible
        return self

    def epsilon(self, delta: float) -> float:
        """Return epsilon at ``delta``; inf if the composition protects nothing."""
        if not self._counts:
            return 0.0
        if self.accountant == "exact gaussian":
            return float(dp_accounting.get_epsilon_gaussian(self._gaussian_sigma(), delta))
        if self.accountant == "pld":
            return float(self._pld().get_epsilon(delta))
        orders, divergences = self._rdp()
        return float(dp_accounting.rdp.compute_epsilon(orders, divergences, delta)[0])

    def delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon``."""
        if not self._counts:
            return 0.0
        if self.accountant == "exact gaussian":
            from zerosum.client.mechanisms import gaussian_delta

            return gaussian_delta(epsilon, 1 / self._gaussian_sigma())
        if self.accountant == "pld":
            return float(self._pld().get_delta(epsilon))
        orders, divergences = self._rdp()
        return float(compute_delta(orders, divergences, epsilon)[0])

    def _has_pld(self, leaf: DpEvent) -> bool:
        if events.is_own(leaf):
            return False
        return bool(dp_accounting.pld.PLDAccountant(self._relation).supports(leaf))

    def _has_rdp(self, leaf: DpEvent) -> bool:
        if events.is_own(leaf):
            return self.adjacency != "replace" or not events.is_sampled(leaf)
        normal = self._for_rdp(leaf)
        accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=self._relation)
        return normal is not None and bool(accountant.supports(normal))

    def _for_rdp(self, event: DpEvent) -> DpEvent | None:
        """Return the event as the RDP accountant must be told of it, or None if it cannot be."""
        if self.adjacency != "replace":
            return event
        if isinstance(event, dp_accounting.GaussianDpEvent):
            return dp_accounting.GaussianDpEvent(event.noise_multiplier / 2)
        if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
            inner = self._for_rdp(event.event)
            if not isinstance(inner, dp_accounting.GaussianDpEvent):
                return None
            return dp_accounting.SampledWithoutReplacementDpEvent(
                event.source_dataset_size, event.sample_size, inner
            )
        stated = (
            dp_accounting.NoOpDpEvent,
            dp_accounting.NonPrivateDpEvent,
            dp_accounting.RandomizedResponseDpEvent,
        )
        return event if isinstance(event, stated) else None

    def _all_gaussian(self) -> bool:
        return all(
            isinstance(event, dp_accounting.GaussianDpEvent) and event.noise_multiplier > 0
            for event in self._counts
        ) and bool(self._counts)

    def _gaussian_sigma(self) -> float:
        """Return the one noise multiplier that Gaussian events compose to, doubling included."""
        sensitivity = 2 if self.adjacency == "replace" else 1
        precision = sum(
            count * (sensitivity / event.noise_multiplier) ** 2
            for event, count in self._counts.items()
        )
        return 1 / math.sqrt(precision)

    def _pld(self) -> Any:
        accountant = dp_accounting.pld.PLDAccountant(self._relation)
        for event, count in self._counts.items():
            accountant.compose(event, count)
        return accountant

    def _rdp(self) -> tuple[list[float], NDArray[np.float64]]:
        own = {e: c for e, c in self._counts.items() if events.is_own(e)}
        # Renyi bounds of ours are at integer orders; without any, the accountant's own grid.
        orders = list(ORDERS) if own else None
        accountant = dp_accounting.rdp.RdpAccountant(orders, self._relation)
        for event, count in self._counts.items():
            if event not in own:
                accountant.compose(self._for_rdp(event), count)
        total = np.array(accountant.rdp)
        for event, count in own.items():
            total = total + count * events.rdp(event)
        return list(accountant.orders), total


def _leaves(event: DpEvent, count: int) -> Iterator[tuple[DpEvent, int]]:
    """Yield the events of a composition, with how often each occurs."""
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        yield from _leaves(event.event, count * event.count)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            yield from _leaves(part, count)
    else:
        yield event, count
