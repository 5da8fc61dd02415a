"""Name liars from wrong shares, where the shares prove it.

A wrong share may be its holder's or its dealer's fault, since the holder alone opens the envelope.
So each wrong share gives a pair with a liar in it. A party in pairs with more others than can lie
is a liar itself: otherwise all of these others were.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zerosum.secagg.crypto.reconstruction import Recovered

FEWEST_LIARS = 1
"""Liars assumed where no colluders are: a wrong share shows that somebody lied."""


@dataclass(frozen=True)
class Verdict:
    """Wrong shares and proved liars, in cohort positions.

    Attributes
    ----------
    wrong : tuple of (int, int)
        Dealer and holder of each wrong share, ascending.
    liars : tuple of int
        Those proved to have lied, ascending.
    decodings : int
        How many words were decoded to locate the wrong shares.
    """

    wrong: tuple[tuple[int, int], ...] = ()
    liars: tuple[int, ...] = ()
    decodings: int = 0


def judge(
    recovered: Recovered, counts: Sequence[int], threshold: int, colluders: int | None
) -> Verdict:
    """Name liars, if no more than c parties lied: c is ``colluders``, and 1 at least.

    - Who is in wrong pairs with more than c others is one of the c: otherwise all of these are.
      A pair counts where its dealer's polynomial is beyond doubt. A second one with the same value
      at zero shares t - 2 more points with it at most; so if w of m shares are off the first and
      w + c < m - t + 2, then no second one can have c shares off, and the first is the dealer's.
    - A dealer whose polynomials cannot be located, or do not give what it committed to, is one of
      the c if c wrong shares can be decoded, 2 c <= m - t: those of an honest dealer would be.

    Where more than c would be named, more than c lied, and nothing of this holds: nobody is. An
    envelope that nobody could open proves nothing either: it may have been lost on its way.

    Parameters
    ----------
    recovered : Recovered
    counts : sequence of int
        By dealer, m: how many released a share of its secret.
    threshold : int
        t.
    colluders : int or None
        The most that are assumed to lie together; None names nobody.

    Returns
    -------
    Verdict
    """
    wrong = tuple((v, h) for v, holders in sorted(recovered.wrong.items()) for h in holders)
    liars: set[int] = set()
    if colluders is not None:
        c = max(FEWEST_LIARS, colluders)
        liars = _tied(recovered.wrong, counts, threshold, c)
        liars |= _unreadable(recovered, counts, threshold, c)
        liars = liars if len(liars) <= c else set()
    return Verdict(wrong, tuple(sorted(liars)), recovered.decodings)


def _tied(
    wrong: Mapping[int, Sequence[int]], counts: Sequence[int], threshold: int, c: int
) -> set[int]:
    others: dict[int, set[int]] = defaultdict(set)
    for dealer, holders in wrong.items():
        if len(holders) + c <= counts[dealer] - threshold + 1:
            for holder in holders:
                others[dealer].add(holder)
                others[holder].add(dealer)
    return {party for party, tied in others.items() if len(tied) > c}


def _unreadable(recovered: Recovered, counts: Sequence[int], threshold: int, c: int) -> set[int]:
    failed = {dealer for dealer, holders in recovered.failed.items() if holders}
    doubted = failed | recovered.scattered
    return {dealer for dealer in doubted if 2 * c <= counts[dealer] - threshold}
