"""Recovering the secrets of many dealers from the shares that the live clients released."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.decoding import recover_around
from zerosum.secagg.shamir import LIMBS, from_limbs, lagrange_rows, leave_one_out_weights, weigh

Check = Callable[[int, bytes], bool]
# What each holder released: the dealers' positions, ascending, and a share of each.
Released = Mapping[int, tuple[NDArray[np.intp], NDArray[np.uint32]]]

_AT_ONCE = 512


class ShareTable(ABC):
    """Released shares, by dealer."""

    @abstractmethod
    def counts(self) -> NDArray[np.intp]:
        """Return, by dealer, how many released a share of its secret."""

    @abstractmethod
    def holders(self, dealer: int) -> NDArray[np.intp]:
        """Return who released a share of a dealer's secret, ascending."""

    @abstractmethod
    def shares(self, dealer: int, holders: NDArray[np.intp]) -> NDArray[np.uint32]:
        """Return some holders' shares of a dealer's secret, shape (len(holders), 9)."""

    @abstractmethod
    def combine(self, dealers: Sequence[int], threshold: int) -> Iterator[tuple[int, bytes | None]]:
        """Combine, for dealers with enough holders, the shares of the first ``threshold``."""


class DenseShares(ShareTable):
    """Shares on the complete graph, where nearly everybody holds one of everybody.

    Parameters
    ----------
    size : int
        The cohort's size.
    released : mapping
    """

    def __init__(self, size: int, released: Released) -> None:
        self._shares = np.zeros((size, size, LIMBS), np.uint32)
        self._given = np.zeros((size, size), bool)
        self._live = frozenset(released)
        for holder, (dealers, table) in released.items():
            self._shares[holder, dealers] = table
            self._given[holder, dealers] = True

    def counts(self) -> NDArray[np.intp]:
        """Return, by dealer, how many released a share of its secret."""
        counts: NDArray[np.intp] = self._given.sum(axis=0)
        return counts

    def holders(self, dealer: int) -> NDArray[np.intp]:
        """Return who released a share of a dealer's secret, ascending."""
        return np.flatnonzero(self._given[:, dealer])

    def shares(self, dealer: int, holders: NDArray[np.intp]) -> NDArray[np.uint32]:
        """Return some holders' shares of a dealer's secret, shape (len(holders), 9)."""
        found: NDArray[np.uint32] = self._shares[holders, dealer]
        return found

    def combine(self, dealers: Sequence[int], threshold: int) -> Iterator[tuple[int, bytes | None]]:
        """Combine the shares of dealers that have the same holders in one product."""
        for base, group in self._bases(dealers, threshold):
            weights = leave_one_out_weights(tuple(position + 1 for position in base))
            places = {position: place for place, position in enumerate(base)}
            # The row of the dealer leaves it out; any other dealer does without the last holder.
            rows = weights[[places.get(dealer, threshold) for dealer in group]]
            limbs = weigh(rows, self._shares[np.ix_(base, group)])
            yield from zip(group, map(from_limbs, limbs.tolist()), strict=True)

    def _bases(
        self, dealers: Sequence[int], threshold: int
    ) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """Group dealers by t + 1 positions of which all but one hold shares of theirs and are used.

        The one left out is the dealer itself where it is among them: counted among its own
        holders while it is live, it has the same base as others, and so have those that are gone.
        """
        columns = self._given.T.copy()
        live = list(self._live)
        columns[live, live] = True
        groups: dict[bytes, list[int]] = defaultdict(list)
        for dealer in dealers:
            groups[columns[dealer].tobytes()].append(dealer)
        for group in groups.values():
            holders = np.flatnonzero(columns[group[0]]).tolist()
            if len(holders) > threshold:
                yield tuple(holders[: threshold + 1]), group
                continue
            for dealer in group:
                yield tuple(sorted([*holders, dealer])), [dealer]


class EdgeShares(ShareTable):
    """Shares on a sparse graph: one row for each, sorted by dealer and holder.

    Parameters
    ----------
    size : int
        The cohort's size.
    released : mapping
    """

    def __init__(self, size: int, released: Released) -> None:
        ascending = sorted(released)
        parts = [released[holder] for holder in ascending]
        dealers = np.concatenate([np.empty(0, np.intp), *(part[0] for part in parts)])
        order = np.argsort(dealers, kind="stable")
        counts = [len(part[0]) for part in parts]
        self._holders = np.repeat(np.array(ascending, np.intp), counts)[order]
        empty = np.empty((0, LIMBS), np.uint32)
        self._rows = np.concatenate([empty, *(part[1] for part in parts)])[order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(dealers, minlength=size))])

    def counts(self) -> NDArray[np.intp]:
        """Return, by dealer, how many released a share of its secret."""
        return np.diff(self._starts)

    def _span(self, dealer: int) -> slice:
        return slice(int(self._starts[dealer]), int(self._starts[dealer + 1]))

    def holders(self, dealer: int) -> NDArray[np.intp]:
        """Return who released a share of a dealer's secret, ascending."""
        return self._holders[self._span(dealer)]

    def shares(self, dealer: int, holders: NDArray[np.intp]) -> NDArray[np.uint32]:
        """Return some holders' shares of a dealer's secret, shape (len(holders), 9)."""
        span = self._span(dealer)
        return self._rows[span][np.searchsorted(self._holders[span], holders)]

    def combine(self, dealers: Sequence[int], threshold: int) -> Iterator[tuple[int, bytes | None]]:
        """Combine the shares of a few hundred dealers, each with its own holders, at a time."""
        for start in range(0, len(dealers), _AT_ONCE):
            group = dealers[start : start + _AT_ONCE]
            places = self._starts[list(group)][:, None] + np.arange(threshold)
            weights = lagrange_rows(self._holders[places] + 1)
            limbs = weigh(weights, self._rows[places].transpose(1, 0, 2))
            yield from zip(group, map(from_limbs, limbs.tolist()), strict=True)


@dataclass
class Recovered:
    """What could be recovered.

    Attributes
    ----------
    secrets : dict
        Dealer's position to its checked secret.
    faulty : set of int
        Positions of holders found to have given wrong shares.
    failed : dict
        Position of a dealer whose secret could not be recovered, to the positions of the
        holders that may be at fault; empty where too few shares of it were released.
    """

    secrets: dict[int, bytes] = field(default_factory=dict, repr=False)
    faulty: set[int] = field(default_factory=set)
    failed: dict[int, tuple[int, ...]] = field(default_factory=dict)


def recover(dealers: Sequence[int], table: ShareTable, threshold: int, check: Check) -> Recovered:
    """Recover one secret of each dealer, and decode around wrong shares.

    Parameters
    ----------
    dealers : sequence of int
        Cohort positions.
    table : ShareTable
    threshold : int
        t.
    check : callable
        Tells whether a recovered secret is the one that a dealer committed to.
    """
    out = Recovered()
    enough, counts = [], table.counts().tolist()
    for dealer in dealers:
        if counts[dealer] < threshold:
            out.failed[dealer] = ()
        else:
            enough.append(dealer)
    suspicious: list[int] = []
    for dealer, secret in table.combine(enough, threshold):
        if secret is not None and check(dealer, secret):
            out.secrets[dealer] = secret
        else:
            suspicious.append(dealer)
    for dealer in suspicious:
        _recover_alone(dealer, table, threshold, check, out)
    return out


def _recover_alone(
    dealer: int, table: ShareTable, threshold: int, check: Check, out: Recovered
) -> None:
    """Decode around wrong shares, leaving out first the holders known to give such."""
    holders = table.holders(dealer).tolist()
    trusted = [holder for holder in holders if holder not in out.faulty]
    for among in (trusted, holders) if len(trusted) < len(holders) else (holders,):
        if len(among) < threshold:
            continue
        found = recover_around(
            [holder + 1 for holder in among],
            table.shares(dealer, np.array(among, np.intp)),
            threshold,
            lambda secret: check(dealer, secret),
        )
        if found is not None:
            out.secrets[dealer] = found[0]
            out.faulty.update(among[place] for place in found[1])
            return
    out.failed[dealer] = tuple(holders)
