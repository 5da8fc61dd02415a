"""Recovering the secrets of many dealers from the shares that the live clients released."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from zerosum.secagg.decoding import off_polynomial, recover_around
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.shamir import combine
from zerosum.secagg.tables import DenseShares, ShareTable

Check = Callable[[int, bytes], bool]

_MOST_FAILURES = 16


@dataclass
class Recovered:
    """What could be recovered.

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

    secrets: dict[int, bytes] = field(default_factory=dict)
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
    """
    out = Recovered()
    counts = table.counts().tolist()
    out.failed = {dealer: () for dealer in dealers if counts[dealer] < threshold}
    enough = [dealer for dealer in dealers if counts[dealer] >= threshold]
    if isinstance(table, DenseShares) and enough:
        doubtful = _recover_together(enough, table, threshold, check, stream, out)
    else:
        doubtful = _combine(enough, table, threshold, check, out)
    _recover_rest(doubtful, table, threshold, check, stream, out)
    # Without the check that its secret passes, a dealer's polynomial is not beyond doubt.
    out.wrong = {dealer: who for dealer, who in out.wrong.items() if dealer in out.secrets}
    return out


def _recover_together(
    dealers: Sequence[int],
    table: DenseShares,
    threshold: int,
    check: Check,
    stream: Keystream,
    out: Recovered,
) -> list[int]:
    """Recover all dealers' secrets, locating wrong shares once; return those that fail."""
    if table.agree(dealers, threshold, stream):
        failing = _combine(dealers, table, threshold, check, out)
        if not failing:
            return []
    _locate(dealers, table, threshold, stream, out)
    left = [dealer for dealer in dealers if dealer not in out.secrets]
    return _combine(left, table, threshold, check, out)


def _combine(
    dealers: Sequence[int], table: ShareTable, threshold: int, check: Check, out: Recovered
) -> list[int]:
    """Combine shares that are not known to be wrong; return the dealers whose check fails."""
    failing = []
    for dealer, secret in table.combine(dealers, threshold, out.wrong):
        if secret is not None and check(dealer, secret):
            out.secrets[dealer] = secret
        else:
            failing.append(dealer)
    return sorted(failing)


def _locate(
    dealers: Sequence[int], table: DenseShares, threshold: int, stream: Keystream, out: Recovered
) -> None:
    """Locate the wrong shares of all dealers at once."""
    found = table.locate(dealers, threshold, stream)
    out.decodings += found.decodings
    for place in np.flatnonzero(found.wrong.any(axis=1)).tolist():
        out.wrong[dealers[place]] = tuple(table.live[found.wrong[place]].tolist())
    out.scattered.update(dealers[place] for place in np.flatnonzero(~found.sound).tolist())


def _recover_rest(
    dealers: Sequence[int],
    table: ShareTable,
    threshold: int,
    check: Check,
    stream: Keystream,
    out: Recovered,
) -> None:
    """Recover one dealer after another, until none is left or the search is in vain."""
    known = Counter(holder for holders in out.wrong.values() for holder in holders)
    waiting, failures, since = deque(dealers), 0, 0
    while since < len(waiting) and failures < _MOST_FAILURES:
        dealer = waiting.popleft()
        if _recover_alone(dealer, table, threshold, check, stream, out, known):
            since = 0
            out.failed.pop(dealer, None)
        else:
            waiting.append(dealer)
            since, failures = since + 1, failures + 1


def _recover_alone(
    dealer: int,
    table: ShareTable,
    threshold: int,
    check: Check,
    stream: Keystream,
    out: Recovered,
    known: Counter[int],
) -> bool:
    """Recover one secret: without known liars if that is enough, or by decoding.

    ``known`` counts, by holder, the dealers of whom it gave a wrong share.
    """
    holders = table.holders(dealer)
    points, shares = (holders + 1).tolist(), table.shares(dealer, holders)

    def own_check(secret: bytes) -> bool:
        return check(dealer, secret)

    found = None
    suspected = [known[holder] for holder in holders.tolist()]
    if any(suspected):
        least = sorted(np.argsort(suspected, kind="stable")[:threshold].tolist())
        secret = combine([points[i] for i in least], shares[least])
        if secret is not None and own_check(secret):
            found = secret, off_polynomial(points, shares, least)
    if found is None:
        out.decodings += 1
        found = recover_around(points, shares, threshold, own_check, stream)
    if found is None:
        out.failed[dealer] = tuple(holders.tolist())
        return False
    out.secrets[dealer] = found[0]
    out.wrong.pop(dealer, None)
    # Two polynomials with the same value at zero share t - 2 more points at most: up to so many
    # wrong shares leave no other one with as few.
    if 2 * len(found[1]) <= len(points) - threshold + 1:
        wrong = tuple(holders[list(found[1])].tolist())
        out.wrong |= {dealer: wrong} if wrong else {}
        known.update(wrong)
        out.scattered.discard(dealer)
    else:
        out.scattered.add(dealer)
    return True
