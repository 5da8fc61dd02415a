"""The smallest degree and threshold at which a masking graph fails rarely enough."""

import math
from dataclasses import dataclass
from functools import lru_cache

from zerosum.secagg.errors import LocalProtocolError, NoFeasibleGraph, UnsafeGraph
from zerosum.secagg.graph import tails
from zerosum.secagg.graph.failure_bounds import (
    SECURITY,
    Assumptions,
    check_level,
    exposing,
    is_connected,
    is_secret,
    log_connectivity,
    log_correctness,
    log_isolation,
    log_secrecy,
)
from zerosum.secagg.stages import ServerMode

# A session that fails for want of shares costs a new attempt and no privacy, so that it may fail
# more often than secrecy does.
CORRECTNESS = 2.0**-20

# A range of more degrees than this is halved before the slow sum over groups is asked.
_FEW_DEGREES = 8


@dataclass(frozen=True, kw_only=True)
class GraphParameters:
    """A masking graph, and how rarely it fails.

    Attributes
    ----------
    server : ServerMode
        What the server is trusted with.
    n : int
        The cohort's size.
    degree : int
        k, how many neighbours each client gives shares to.
    threshold : int
        t, how many shares recover a secret.
    largest_threshold : int
        The most that t may be for the dropouts to leave it reachable.
    colluders, dropped : int
        How many of the cohort may collude, and how many may drop out.
    complete : bool
        Whether everybody is everybody's neighbour, k = n - 1.
    log2_secrecy, log2_correctness, log2_isolation, log2_connectivity : float
        Binary logarithms of the bounds on each failure, -inf where it cannot happen. Isolation
        is that of one client; connectivity is that of any group against a malicious server, and
        two windows of removed neighbours against a semi-honest one.
    """

    server: ServerMode
    n: int
    degree: int
    threshold: int
    largest_threshold: int
    colluders: int
    dropped: int
    complete: bool
    log2_secrecy: float
    log2_correctness: float
    log2_isolation: float
    log2_connectivity: float


@lru_cache(maxsize=1 << 16)
def _lost_shares(n: int, dropped: int, degree: int, correctness: float) -> int:
    """Return how many of a client's k shares must be expendable: k - t is at least this."""
    return tails.rarely_exceeded(n - 1, dropped, degree, correctness, n)


def _largest_threshold(a: Assumptions, degree: int) -> int:
    return degree - _lost_shares(a.n, a.dropped, degree, a.correctness)


def _hopeless(a: Assumptions, low: int, high: int, isolation_only: bool) -> bool:
    """Return whether no degree in low .. high can do; for one degree, exactly that.

    The largest threshold t and the number of expendable shares k - t do not fall as k grows, and
    neither do the tails at a fixed count. So the tails at k = low with the t of k = high are
    at least as rare as any in between, and 2t - k is at most t(high) - (k - t)(low).
    """
    if low == high and not a.malicious and low * a.n % 2:
        return True
    threshold = _largest_threshold(a, high)
    if threshold < 1:
        return True
    lost = _lost_shares(a.n, a.dropped, low, a.correctness)
    if not is_secret(a, low, threshold - lost if a.malicious else threshold):
        return True
    if a.malicious and high - low > _FEW_DEGREES:
        return False  # the sum over groups is the slow term, and seldom the one that binds
    # Against a semi-honest server connectivity depends on k alone and only improves with it.
    degree = low if a.malicious else high
    return not is_connected(a, degree, threshold, isolation_only=isolation_only)


def smallest_sparse(a: Assumptions, *, isolation_only: bool = False) -> tuple[int, int, int] | None:
    """Find the smallest sparse degree with its least and largest threshold.

    Whether a degree can do is not monotone, for t is whole: so halve ranges of degrees and
    discard those that are hopeless, leftmost first.

    Parameters
    ----------
    a : Assumptions
    isolation_only : bool
        Count as connectivity the isolation of one client alone, as published tables do.

    Returns
    -------
    tuple of (int, int, int), or None
        The degree, its least and its largest threshold; None where no sparse graph can do.
    """
    ranges = [(1, a.n - 2)]
    while ranges:
        low, high = ranges.pop()
        if low > high or _hopeless(a, low, high, isolation_only):
            continue
        if low == high:
            largest = _largest_threshold(a, low)
            return low, _least_threshold(a, low, largest, isolation_only), largest
        middle = (low + high) // 2
        ranges += [(middle + 1, high), (low, middle)]
    return None


def _least_threshold(a: Assumptions, degree: int, largest: int, isolation_only: bool) -> int:
    """Return the smallest threshold with secrecy and connectivity, given one that has them."""
    low, high = 1, largest
    while low < high:
        middle = (low + high) // 2
        if is_secret(a, degree, exposing(a, degree, middle)) and is_connected(
            a, degree, middle, isolation_only=isolation_only
        ):
            high = middle
        else:
            low = middle + 1
    return low


def _complete_range(a: Assumptions) -> tuple[int, int]:
    """Return the least and the largest threshold on the complete graph, where c is certain."""
    least = (a.n + a.colluders + 1) // 2 if a.malicious else a.colluders + 1
    return least, a.n - 1 - a.dropped


def _feasible(a: Assumptions) -> bool:
    """Return whether any graph can do: the complete one can wherever a sparse one can.

    Of k random neighbours more than k c/(n-1) collude half of the time, and a tail below 1/n has
    no room for that; so c + d <= n - 2, or c + 2d <= n - 2 against a server that may show
    two different sets of dropouts, which is what the complete graph asks.
    """
    least, largest = _complete_range(a)
    return 1 <= least <= largest


def _refusal(a: Assumptions, dropout: float, corruption: float, roster: int) -> NoFeasibleGraph:
    weight = 2 if a.malicious else 1
    most_dropped = (a.n - 2 - a.colluders) // weight
    most_colluders = a.n - 2 - weight * a.dropped
    if most_dropped >= 0:
        first = f"dropout may be at most {_down(most_dropped, a.n)} at this corruption"
    else:
        first = "no dropout is small enough at this corruption"
    if most_colluders >= 0:
        bad = _most_bad(a, most_colluders, roster)
        second = f"corruption at most {_down(bad, roster)} at this dropout"
    else:
        second = "no corruption is small enough at this dropout"
    return NoFeasibleGraph(
        f"a cohort of {a.n} from a roster of {roster} cannot stand {a.colluders} colluders "
        f"(corruption = {corruption}) and {a.dropped} dropouts (dropout = {dropout}) of a "
        f"{a.server.value} server's session at once: {first}, {second}"
    )


def _most_bad(a: Assumptions, most_colluders: int, roster: int) -> int:
    """Return how many of the roster may be bad so that at most so many of the cohort are."""
    if a.malicious:
        return min(roster, most_colluders)
    low, high = 0, roster
    while low < high:
        middle = (low + high + 1) // 2
        if tails.rarely_exceeded(roster, middle, a.n, a.security) <= most_colluders:
            low = middle
        else:
            high = middle - 1
    return low


def _down(count: int, total: int) -> str:
    """Return count/total as a decimal that floor(decimal x total) takes back to count."""
    for digits in range(1, 10):
        unit = 10**digits
        value = -(-count * unit // total)
        if value * total // unit == count:
            return str(value / unit)
    return repr(count / total)


def graph_parameters(
    n: int,
    dropout: float,
    corruption: float,
    server: str = "malicious",
    roster: int | None = None,
    *,
    security: float = SECURITY,
    correctness: float = CORRECTNESS,
    complete_below: int = 0,
    degree: int | None = None,
) -> GraphParameters:
    """Return the smallest degree, and for it the smallest threshold, that fail rarely enough.

    Where no degree below n - 1 does, the graph is complete. A sparse graph gets the smallest
    threshold that is safe, which stands the most dropouts; the complete graph has more room and
    takes ``max(t_min, min(t_max, floor(2k/3) + 1))``.

    Parameters
    ----------
    n : int
        The cohort's size, at least 2.
    dropout : float
        Fraction of the cohort that may drop out, in 0 .. 1.
    corruption : float
        Fraction of the roster that colludes with the server, in 0 .. 1.
    server : str
        ``"malicious"`` or ``"semi-honest"``, or the :class:`ServerMode`.
    roster : int, optional
        The roster's size, n if not given.
    security : float
        Bound on the secrecy term and on each connectivity term.
    correctness : float
        Bound on the probability that those who may drop out leave a client with fewer than t
        neighbours, over the cohort.
    complete_below : int
        Cohorts smaller than this get the complete graph.
    degree : int, optional
        The one degree to look at, up to n - 1; by default the smallest that can do.

    Returns
    -------
    GraphParameters

    Raises
    ------
    NoFeasibleGraph
        If no graph can do, or none of the one degree; the message says which dropout, corruption
        or degree would be feasible.
    LocalProtocolError
        If an argument is out of range.

    Notes
    -----
    The terms, with c colluders and floor(dropout x n) dropped: secrecy n P[X >= t], against a
    malicious server n P[X >= 2t - k], with X ~ Hyp(n-1, c, k); correctness n P[Y < t] with
    Y ~ Hyp(n-1, n-1-dropped, k); connectivity, malicious, the sum over s = 1 .. floor((n-c)/2)
    of C(n-c, s) P[Hyp(n-1, s-1+c, k) >= t]^s; semi-honest, on a permuted Harary graph (n k
    even), n P[Hyp(n-1, c+dropped, k) = k] and (n^2/2) P[Hyp(n, c+dropped, h) = h] with
    h = 2 floor(k/2), two disjoint windows wholly removed.

    Examples
    --------
    >>> chosen = graph_parameters(n=10_000, dropout=0.05, corruption=0.05)
    >>> chosen.degree, chosen.threshold
    (61, 43)
    """
    return _parameters(
        n,
        dropout,
        corruption,
        server_mode(server),
        n if roster is None else roster,
        security,
        correctness,
        complete_below,
        degree,
    )


def server_mode(server: str) -> ServerMode:
    """Return the mode of a name.

    Parameters
    ----------
    server : str
        ``"malicious"`` or ``"semi-honest"``, or the mode itself.

    Returns
    -------
    ServerMode

    Raises
    ------
    LocalProtocolError
        If there is no such mode.
    """
    try:
        return ServerMode(server)
    except ValueError:
        raise LocalProtocolError(
            f"server = {server!r} is neither 'malicious' nor 'semi-honest'"
        ) from None


@lru_cache(maxsize=256)
def _parameters(
    n: int,
    dropout: float,
    corruption: float,
    server: ServerMode,
    roster: int,
    security: float,
    correctness: float,
    complete_below: int,
    degree: int | None,
) -> GraphParameters:
    if n < 2:
        raise LocalProtocolError(f"a cohort has at least two clients, not {n}")
    check_level(correctness, "correctness")
    a = Assumptions.of(n, roster, dropout, corruption, server, security, correctness)
    if not _feasible(a):
        raise _refusal(a, dropout, corruption, roster)
    if degree is not None and degree != n - 1:
        return _of_degree(a, degree)
    sparse = None if n < complete_below or degree is not None else smallest_sparse(a)
    if sparse is not None:
        return _described(a, *sparse)
    least, largest = _complete_range(a)
    return _described(a, n - 1, max(least, min(largest, 2 * (n - 1) // 3 + 1)), largest)


def is_feasible(
    n: int,
    degree: int,
    dropout: float,
    corruption: float,
    server: str = "malicious",
    roster: int | None = None,
    *,
    security: float = SECURITY,
    correctness: float = CORRECTNESS,
) -> bool:
    """Return whether a sparse degree, 1 .. n - 2, has a threshold that fails rarely enough.

    Then the smallest such degree, and every threshold at it, is at most this one: cheaper to know
    than :func:`graph_parameters`.

    Parameters
    ----------
    n : int
    degree : int
        k.
    dropout, corruption : float
    server : str
    roster : int, optional
    security, correctness : float
        All as for :func:`graph_parameters`.

    Returns
    -------
    bool
    """
    whole = n if roster is None else roster
    a = Assumptions.of(n, whole, dropout, corruption, server_mode(server), security, correctness)
    return 1 <= degree < n - 1 and _feasible(a) and not _hopeless(a, degree, degree, False)


def _of_degree(a: Assumptions, degree: int) -> GraphParameters:
    """Return the one sparse graph of this degree, at its smallest safe threshold."""
    if not 1 <= degree < a.n:
        raise LocalProtocolError(f"degree = {degree} is not in 1 .. {a.n - 1}")
    if not a.malicious and degree * a.n % 2:
        raise NoFeasibleGraph(
            f"no graph of {a.n} clients has degree {degree}: one of the two must be even; take "
            f"degree {degree + 1}"
        )
    if _hopeless(a, degree, degree, isolation_only=False):
        smallest = smallest_sparse(a)
        cure = "the complete graph" if smallest is None else f"{smallest[0]}, or the complete graph"
        raise NoFeasibleGraph(
            f"no threshold makes a graph of degree {degree} safe for a cohort of {a.n} with "
            f"{a.colluders} colluders and {a.dropped} dropouts; the smallest degree is {cure}"
        )
    largest = _largest_threshold(a, degree)
    least = _least_threshold(a, degree, largest, isolation_only=False)
    return _described(a, degree, least, largest)


def _described(a: Assumptions, degree: int, threshold: int, largest: int) -> GraphParameters:
    log2 = math.log(2)
    return GraphParameters(
        server=a.server,
        n=a.n,
        degree=degree,
        threshold=threshold,
        largest_threshold=largest,
        colluders=a.colluders,
        dropped=a.dropped,
        complete=degree == a.n - 1,
        log2_secrecy=log_secrecy(a, degree, threshold) / log2,
        log2_correctness=log_correctness(a, degree, threshold) / log2,
        log2_isolation=log_isolation(a, degree, threshold) / log2,
        log2_connectivity=log_connectivity(a, degree, threshold) / log2,
    )


def check(
    n: int,
    roster: int,
    degree: int,
    threshold: int,
    *,
    corruption: float,
    dropout: float | None = None,
    server: str = "malicious",
    security: float = SECURITY,
) -> None:
    """Refuse a session's degree and threshold if they are unsafe under a client's own policy.

    Only secrecy and connectivity count: that a session may fail is the server's concern.

    Parameters
    ----------
    n, roster : int
        Sizes of the session's cohort and of the client's roster.
    degree, threshold : int
        The session's k and t.
    corruption : float
        Fraction of the roster that the client takes for colluders.
    dropout : float, optional
        Fraction of the cohort that may drop out: needed where a sparse graph of a semi-honest
        server must stay connected without them.
    server : str
        ``"malicious"`` or ``"semi-honest"``.
    security : float
        Bound on each term.

    Raises
    ------
    UnsafeGraph
        If they or the cohort are out of range, or a term exceeds the bound; ``term`` says which.
    LocalProtocolError
        If the policy makes no sense.
    """
    mode = server_mode(server)
    if not 2 <= n <= roster:
        raise UnsafeGraph("cohort", n, degree, threshold)
    if dropout is None:
        if mode is ServerMode.SEMI_HONEST and degree != n - 1:
            raise LocalProtocolError("dropout is needed to judge a semi-honest server's graph")
        dropout = 0.0
    a = Assumptions.of(n, roster, dropout, corruption, mode, security, 0.0)
    # A regular graph with n k odd does not exist; neighbours that are drawn need not be mutual.
    odd = not a.malicious and degree * n % 2 == 1
    if odd or not 1 <= degree <= n - 1:
        raise UnsafeGraph("degree", n, degree, threshold)
    if not 1 <= threshold <= degree:
        raise UnsafeGraph("threshold", n, degree, threshold)
    if not is_secret(a, degree, exposing(a, degree, threshold)):
        worst = log_secrecy(a, degree, threshold)
        raise UnsafeGraph("secrecy", n, degree, threshold, worst / math.log(2))
    if not is_connected(a, degree, threshold):
        worst = max(log_isolation(a, degree, threshold), log_connectivity(a, degree, threshold))
        raise UnsafeGraph("connectivity", n, degree, threshold, worst / math.log(2))
