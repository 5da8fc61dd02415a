"""Released shares, by dealer: on the complete graph as one array, on a sparse graph as rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.error_correction import Located, dual_weights, locate_all, syndromes
from zerosum.secagg.crypto.shamir import (
    LIMBS,
    PRIME,
    from_limbs,
    lagrange_rows,
    lagrange_weights,
    leave_out_rows,
    uniform_elements,
    weigh,
)
from zerosum.secagg.randomness import Keystream

# What each holder released: the dealers' positions, ascending, and a share of each.
Released = Mapping[int, tuple[NDArray[np.intp], NDArray[np.uint32]]]
# Wrong shares: dealer's position to those of its holders.
Wrong = Mapping[int, Sequence[int]]

_P = np.uint64(PRIME)
# Dealers whose weights are computed together: a few megabytes at a degree of some hundred.
_DEALERS_AT_ONCE = 512


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
        """Return some holders' shares of a dealer's secret.

        Parameters
        ----------
        dealer : int
            Cohort position.
        holders : ndarray of int, shape (m,)
            Some of :meth:`holders`, ascending.

        Returns
        -------
        ndarray of uint32, shape (m, 9)
        """

    @abstractmethod
    def combine(
        self, dealers: Sequence[int], threshold: int, wrong: Wrong
    ) -> Iterator[tuple[int, bytes | None]]:
        """Combine shares that are not known to be wrong into secrets.

        Parameters
        ----------
        dealers : sequence of int
            Cohort positions, each with ``threshold`` holders at least.
        threshold : int
            t.
        wrong : mapping
            Wrong shares: dealer's position to those of its holders. They are left out.

        Returns
        -------
        iterator of (int, bytes or None)
            Each dealer and its secret, unchecked; None where a limb is out of range.
        """


class DenseShares(ShareTable):
    """Shares on the complete graph, where nearly everybody holds one of everybody.

    Parameters
    ----------
    size : int
        The cohort's size.
    released : mapping
    """

    def __init__(self, size: int, released: Released) -> None:
        self._live = np.array(sorted(released), np.intp)
        self._places = {position: place for place, position in enumerate(self._live.tolist())}
        self._shares = np.zeros((len(self._live), size, LIMBS), np.uint32)
        self._given = np.zeros((len(self._live), size), bool)
        for place, holder in enumerate(self._live.tolist()):
            dealers, table = released[holder]
            self._shares[place, dealers] = table
            self._given[place, dealers] = True

    def counts(self) -> NDArray[np.intp]:
        """Return, by dealer, how many released a share of its secret."""
        counts: NDArray[np.intp] = self._given.sum(axis=0)
        return counts

    def holders(self, dealer: int) -> NDArray[np.intp]:
        """Return who released a share of a dealer's secret, ascending."""
        holders: NDArray[np.intp] = self._live[self._given[:, dealer]]
        return holders

    def shares(self, dealer: int, holders: NDArray[np.intp]) -> NDArray[np.uint32]:
        """Return some holders' shares of a dealer's secret, shape (len(holders), 9)."""
        rows: NDArray[np.uint32] = self._shares[np.searchsorted(self._live, holders), dealer]
        return rows

    def combine(
        self, dealers: Sequence[int], threshold: int, wrong: Wrong
    ) -> Iterator[tuple[int, bytes | None]]:
        """Combine the shares of t + 1 holders in one product; a few dealers need others."""
        usable = self._usable(dealers, wrong)
        own = self._live[:, None] == np.array(dealers, np.intp)
        bad = (~usable & ~own).sum(axis=1)
        base = np.sort(np.argsort(bad, kind="stable")[: threshold + 1])
        whole = (usable | own)[base].all(axis=0) & (len(base) > threshold)
        group = [dealers[place] for place in np.flatnonzero(whole).tolist()]
        if group:
            points = (self._live[base] + 1).tolist()
            rows = leave_out_rows(points, np.array(group)[:, None] + 1)
            limbs = weigh(rows, self._shares[np.ix_(base, np.array(group))])
            yield from zip(group, map(from_limbs, limbs.tolist()), strict=True)
        for place in np.flatnonzero(~whole).tolist():
            yield self._combine_alone(dealers[place], usable[:, place], threshold)

    def _usable(self, dealers: Sequence[int], wrong: Wrong) -> NDArray[np.bool_]:
        """Return, by holder and dealer, which shares are there and not known to be wrong."""
        usable: NDArray[np.bool_] = self._given[:, list(dealers)]
        for column, dealer in enumerate(dealers):
            usable[[self._places[holder] for holder in wrong.get(dealer, ())], column] = False
        return usable

    def _combine_alone(
        self, dealer: int, usable: NDArray[np.bool_], threshold: int
    ) -> tuple[int, bytes | None]:
        chosen = np.flatnonzero(usable)[:threshold]
        if len(chosen) < threshold:
            return dealer, None
        weights = lagrange_weights(tuple((self._live[chosen] + 1).tolist()))
        limbs = weigh(weights[None, :], self._shares[chosen, dealer][:, None, :])
        return dealer, from_limbs(limbs[0].tolist())

    def agree(self, dealers: Sequence[int], threshold: int, stream: Keystream) -> bool:
        """Return whether all shares of most dealers are right, looking at one limb of each.

        The limb is drawn when the shares are in. Who lies in few of them may pass, and does no
        harm: every secret is checked, whatever is found here.

        Parameters
        ----------
        dealers : sequence of int
            Cohort positions.
        threshold : int
            t.
        stream : Keystream
            Draws the limbs and their coefficients.

        Returns
        -------
        bool
        """
        redundancy = self._redundancy(dealers, threshold)
        most = np.flatnonzero(redundancy >= np.median(redundancy) - 1)
        chosen = np.array(dealers, np.intp)[most]
        limbs = uniform_elements(stream, len(most)).astype(np.intp) % LIMBS
        mixed = self._shares[:, chosen, limbs] * uniform_elements(stream, len(most)) % _P
        word = (mixed * self._erasures(chosen) % _P).sum(axis=1) % _P * self._duals % _P
        count = max(0, int(redundancy[most].min()))
        return not syndromes(word[None, :], self._points, count).any()

    def locate(self, dealers: Sequence[int], threshold: int, stream: Keystream) -> Located:
        """Locate the wrong shares of all dealers.

        Parameters
        ----------
        dealers : sequence of int
            Cohort positions.
        threshold : int
            t.
        stream : Keystream
            Coefficients of the combinations.

        Returns
        -------
        Located
            A row for each of ``dealers``, a column for each of :attr:`live`.
        """
        chosen = np.array(dealers, np.intp)
        words = np.zeros((len(self._live), len(chosen)), np.uint64)
        # Which limb is wrong does not matter: one combination of the nine is enough.
        for limb in range(LIMBS):
            words += self._shares[:, chosen, limb] * uniform_elements(stream, len(chosen)) % _P
        words = words % _P * self._erasures(chosen) % _P * self._duals[:, None] % _P
        redundancy = self._redundancy(dealers, threshold)
        given = self._given[:, chosen].T
        return locate_all(np.ascontiguousarray(words.T), self._points, redundancy, given, stream)

    @property
    def live(self) -> NDArray[np.intp]:
        """Positions of those who released shares, ascending."""
        return self._live

    @cached_property
    def _points(self) -> NDArray[np.uint64]:
        return (self._live + 1).astype(np.uint64)

    @cached_property
    def _duals(self) -> NDArray[np.uint64]:
        return dual_weights(self._points.tolist())

    def _redundancy(self, dealers: Sequence[int], threshold: int) -> NDArray[np.intp]:
        redundancy: NDArray[np.intp] = self.counts()[list(dealers)] - threshold
        return redundancy

    def _erasures(self, dealers: NDArray[np.intp]) -> NDArray[np.uint64]:
        """Return, by holder and dealer, the product of x - x_e over the holders without a share.

        A dealer's values times it are those of a polynomial on all points, zero at the missing
        ones, of a degree that is higher by their number: so words of dealers who lack different
        shares, their own at least, are words on the same points.
        """
        product = np.ones((len(self._live), len(dealers)), np.uint64)
        missing = (~self._given[:, dealers]).cumsum(axis=0)
        for rank in range(1, int(missing[-1].max(initial=0)) + 1):
            columns = np.flatnonzero(missing[-1] >= rank)
            gone = self._points[(missing[:, columns] >= rank).argmax(axis=0)]
            factors = (self._points[:, None] + _P - gone) % _P
            product[:, columns] = product[:, columns] * factors % _P
        return product


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

    def combine(
        self, dealers: Sequence[int], threshold: int, wrong: Wrong
    ) -> Iterator[tuple[int, bytes | None]]:
        """Combine the first shares of a few hundred dealers at a time; ``wrong`` is empty here."""
        for start in range(0, len(dealers), _DEALERS_AT_ONCE):
            group = dealers[start : start + _DEALERS_AT_ONCE]
            places = self._starts[list(group)][:, None] + np.arange(threshold)
            weights = lagrange_rows(self._holders[places] + 1)
            limbs = weigh(weights, self._rows[places].transpose(1, 0, 2))
            yield from zip(group, map(from_limbs, limbs.tolist()), strict=True)
