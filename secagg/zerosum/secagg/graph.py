"""Who shares with whom, who masks with whom, and how many shares recover a secret.

On the complete graph everybody is everybody's neighbour: k = n - 1.
"""

import math
from fractions import Fraction

from zerosum.secagg.errors import LocalProtocolError
from zerosum.secagg.parameters import parameters as parameters
from zerosum.secagg.session import Session

SECURITY = 2.0**-40

# A float is at most this far from the short fraction that it stands for.
_FINEST = 10**9


def share_neighbours(session: Session, position: int) -> tuple[int, ...]:
    """Return the positions that the client at ``position`` gives shares to, ascending."""
    return tuple(other for other in range(session.size) if other != position)


def mask_neighbours(session: Session, position: int) -> tuple[int, ...]:
    """Return the positions that the client at ``position`` masks with, ascending."""
    return share_neighbours(session, position)


def quorum(session: Session) -> int:
    """Return the fewest live clients with which a session can still end in a sum.

    Each needs ``threshold`` live neighbours; on the complete graph those are all the others.
    """
    return session.threshold + 1


def _floor_share(fraction: float, count: int, name: str) -> int:
    """Return floor(fraction x count) of the fraction that was meant, such as 1/3 or 0.29."""
    if not 0 <= fraction <= 1:
        raise LocalProtocolError(f"{name} = {fraction} is not in 0 .. 1")
    return math.floor(Fraction(fraction).limit_denominator(_FINEST) * count)


def dropped(n: int, dropout: float) -> int:
    """Return floor(dropout x n): how many of a cohort of n may drop out."""
    return _floor_share(dropout, n, "dropout")


def colluders(n: int, roster: int, corruption: float, security: float = SECURITY) -> int:
    """Return how many of a cohort collude with a semi-honest server, but for rare bad luck.

    The server samples the cohort honestly from a roster of which floor(corruption x roster)
    collude, so their number X is hypergeometric; the answer is the smallest c with
    P[X > c] <= security, by exact integer arithmetic.

    Parameters
    ----------
    n : int
        The cohort's size.
    roster : int
        The roster's size, at least n.
    corruption : float
        Fraction of the roster, in 0 .. 1.
    security : float
        Probability that the answer is exceeded.

    Raises
    ------
    LocalProtocolError
        If the sizes or fractions are out of range.
    """
    if not 1 <= n <= roster:
        raise LocalProtocolError(f"a cohort of {n} from a roster of {roster}")
    if not 0 <= security < 1:
        raise LocalProtocolError(f"security = {security} is not in 0 .. 1")
    bad = _floor_share(corruption, roster, "corruption")
    most, fewest = min(n, bad), max(0, n - (roster - bad))
    allowed = Fraction(security) * math.comb(roster, n)
    ways = math.comb(bad, most) * math.comb(roster - bad, n - most)
    tail, count = 0, most
    while count > fewest and tail + ways <= allowed:
        tail += ways
        # The number of cohorts with one colluder less, from the number with `count`.
        ways = ways * count * (roster - bad - n + count) // ((bad - count + 1) * (n - count + 1))
        count -= 1
    return count


def complete_threshold(n: int, dropout: float, corruption_count: int) -> int:
    """Return the threshold t for a semi-honest server on the complete graph.

    ``max(t_min, min(t_max, floor(2k/3) + 1))`` with k = n - 1. Fewer than t_min = c + 1 shares
    would let c colluders open a secret; with more than t_max = k - floor(dropout n) the
    dropouts that are expected would end the session.

    Parameters
    ----------
    n : int
        The cohort's size, at least 2.
    dropout : float
        Fraction of the cohort that may drop out.
    corruption_count : int
        c, from :func:`colluders`.

    Raises
    ------
    LocalProtocolError
        If no threshold does both; the message says what would be feasible.
    """
    if n < 2:
        raise LocalProtocolError(f"a cohort has at least two clients, not {n}")
    if corruption_count < 0:
        raise LocalProtocolError(f"corruption_count = {corruption_count} is negative")
    k = n - 1
    lowest, highest = corruption_count + 1, k - dropped(n, dropout)
    if lowest > highest or highest < 1:
        raise LocalProtocolError(
            f"a cohort of {n} cannot stand {corruption_count} colluders and "
            f"{dropped(n, dropout)} dropouts (dropout = {dropout}) at once: colluders + dropouts "
            f"may be at most {n - 2}; {max(0, highest - 1)} colluders are feasible at this "
            f"dropout, {max(0, k - lowest)} dropouts with these colluders"
        )
    return max(lowest, min(highest, 2 * k // 3 + 1))
