"""Recovering the secrets of many dealers from the shares that the live clients released."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.error_correction import off_polynomial, recover_around
from zerosum.secagg.crypto.shamir import combine
from zerosum.secagg.crypto.share_tables import DenseShares, ShareTable
from zerosum.secagg.randomness import Keystream

Check = Callable[[int, bytes], bool]

_MOST_FAILURES = 16
"""Dealers tried in vain, after which the search ends: each costs a decoding, and any one lost costs
the sum. More than one are tried, because those that follow may show who lied to the first."""


@dataclass
class Recovered:
    """Recovered secrets, wrong shares and failures.

    Attributes
    ----------
    secrets : dict
        Dealer's position to its checked secret.
    wrong : dict
        Dealer's position to those of the holders whose share of it is off the one polynomial that
        most of its shares are on, and that gives the secret.
    failed : dict
        Position of a dealer whose secret could not be recovered, to the positions of the
        holders that may be at fault; empty where too few shares of it were released.
    scattered : set of int
        Dealers of whose shares more are wrong than could be located.
    decodings : int
        How many words were decoded to locate wrong shares.
    """

    secrets: dict[int, bytes] = field(default_factory=dict, repr=False)
    wrong: dict[int, tuple[int, ...]] = field(default_factory=dict)
    failed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    scattered: set[int] = field(default_factory=set)
    decodings: int = 0


def recover(
    dealers: Sequence[int],
    table: ShareTable,
    threshold: int,
    check: Check,
    stream: Keystream,
) -> Recovered:
    """Recover one secret of each dealer, in spite of wrong shares.

    On the complete graph wrong shares are located once for all dealers, before any are combined;
    on a sparse graph, where every dealer has its own holders, one dealer after another, and those
    who are known to have given wrong shares are left out first. A dealer that fails is tried again
    when more liars are known; after a few failures the search ends, since without one secret there
    is no sum. So the cost is bounded by one decoding for each dealer and these few, whoever lies.

    Parameters
    ----------
    dealers : sequence of int
        Cohort positions.
    table : ShareTable
    threshold : int
        t.
    check : callable
        Tells whether a recovered secret is the one that a dealer committed to.
    stream : Keystream
        Coefficients that wrong shares are located with: not known before the shares are in.
        What is found does not depend on them, but for a chance of 2^-31 for each wrong share,
        which costs one more decoding.

    Returns
    -------
    Recovered
    """
    counts = table.counts().tolist()
    out = Recovered(failed={dealer: () for dealer in dealers if counts[dealer] < threshold})
    enough = [dealer for dealer in dealers if counts[dealer] >= threshold]
    search = _Search(table, threshold, check, stream, out)
    search.one_by_one(search.together(enough))
    # Without the check that its secret passes, a dealer's polynomial is not beyond doubt.
    out.wrong = {dealer: who for dealer, who in out.wrong.items() if dealer in out.secrets}
    return out


@dataclass
class _Search:
    """A recovery under way; ``known`` counts the dealers of whom a holder gave wrong shares."""

    table: ShareTable
    threshold: int
    check: Check = field(repr=False)
    stream: Keystream = field(repr=False)
    out: Recovered
    known: Counter[int] = field(default_factory=Counter)

    def together(self, dealers: Sequence[int]) -> list[int]:
        """Recover all dealers' secrets; return those that fail.

        On the complete graph wrong shares are located once, whoever gave them.
        """
        table = self.table
        if not isinstance(table, DenseShares) or not dealers:
            return self._combine(dealers)
        if table.agree(dealers, self.threshold, self.stream) and not self._combine(dealers):
            return []
        located = table.locate(dealers, self.threshold, self.stream)
        self.out.decodings += located.decodings
        for place in np.flatnonzero(located.wrong.any(axis=1)).tolist():
            self._note(dealers[place], table.live[located.wrong[place]].tolist())
        self.out.scattered.update(dealers[i] for i in np.flatnonzero(~located.sound).tolist())
        return self._combine([dealer for dealer in dealers if dealer not in self.out.secrets])

    def _combine(self, dealers: Sequence[int]) -> list[int]:
        """Combine shares that are not known to be wrong; return the dealers whose check fails."""
        failing = []
        for dealer, secret in self.table.combine(dealers, self.threshold, self.out.wrong):
            if secret is not None and self.check(dealer, secret):
                self.out.secrets[dealer] = secret
            else:
                failing.append(dealer)
        return sorted(failing)

    def one_by_one(self, dealers: Sequence[int]) -> None:
        """Recover one dealer after another, until none is left or the search is in vain."""
        waiting, failures, since = deque(dealers), 0, 0
        while since < len(waiting) and failures < _MOST_FAILURES:
            dealer = waiting.popleft()
            if self._alone(dealer):
                since = 0
                self.out.failed.pop(dealer, None)
            else:
                waiting.append(dealer)
                since, failures = since + 1, failures + 1

    def _alone(self, dealer: int) -> bool:
        """Recover one secret: without known liars if that is enough, or by decoding."""
        holders, out = self.table.holders(dealer), self.out
        points, shares = (holders + 1).tolist(), self.table.shares(dealer, holders)

        def check(secret: bytes) -> bool:
            return self.check(dealer, secret)

        recovered = self._without_known(holders.tolist(), points, shares, check)
        if recovered is None:
            out.decodings += 1
            recovered = recover_around(points, shares, self.threshold, check, self.stream)
        if recovered is None:
            out.failed[dealer] = tuple(holders.tolist())
            return False
        out.secrets[dealer], places = recovered
        out.wrong.pop(dealer, None)
        # Two polynomials with the same value at zero share t - 2 more points at most: up to so
        # many wrong shares leave no other one with as few.
        if 2 * len(places) <= len(points) - self.threshold + 1:
            out.scattered.discard(dealer)
            self._note(dealer, holders[list(places)].tolist())
        else:
            out.scattered.add(dealer)
            self.known.update(holders[list(places)].tolist())  # whom to try first without, no more
        return True

    def _without_known(
        self,
        holders: Sequence[int],
        points: Sequence[int],
        shares: NDArray[np.uint32],
        check: Callable[[bytes], bool],
    ) -> tuple[bytes, tuple[int, ...]] | None:
        """Combine the shares of those who are known for the fewest wrong ones."""
        suspected = [self.known[holder] for holder in holders]
        if not any(suspected):
            return None
        least = sorted(np.argsort(suspected, kind="stable")[: self.threshold].tolist())
        secret = combine([points[i] for i in least], shares[least])
        if secret is None or not check(secret):
            return None
        return secret, off_polynomial(points, shares, least)

    def _note(self, dealer: int, holders: Sequence[int]) -> None:
        """Note whose shares of a dealer are wrong."""
        if holders:
            self.out.wrong[dealer] = tuple(holders)
            self.known.update(holders)
