"""Bounds on the failures of a masking graph.

Each client gives shares to k neighbours, t of which recover a secret. Three things can fail:
too many colluders among one client's neighbours (secrecy), too few survivors among them
(correctness), and a group of honest clients whose masks cancel without the rest (connectivity).
How many clients drew one as their neighbour enters none of them.
Each failure is bounded by a sum over clients, or over groups, of exact hypergeometric tails,
after Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead" (CCS 2020).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from zerosum.secagg.errors import LocalProtocolError
from zerosum.secagg.graph import tails
from zerosum.secagg.stages import ServerMode

# Statistical security: unlike a key, a draw of neighbours cannot be searched offline. An attacker
# has as many tries as sessions, which clients count (:func:`security_of`).
SECURITY = 2.0**-40


def security_of(openings: int) -> float:
    """Return the security level of one session, so that all together fail with 2^-40.

    A union bound: a server that lies may begin sessions until what clients drew suits it. Client
    and server divide the same float by the same number, and compare the same bound.

    Parameters
    ----------
    openings : int
        Sessions that a client's policy allows.

    Returns
    -------
    float
    """
    return SECURITY / openings


LARGEST_ROSTER = (1 << 24) - 1
"""Most clients that a semi-honest server may sample colluders from: logarithms of so many
factorials take some hundred megabytes, and it is the server that tells a client how many there are.
"""

# Largest denominator of the short fraction that a float stands for: 0.29 is meant as 29/100, and
# 0.29 x 100 in floats is 28.999999999999996, which floor takes to 28.
_FINEST = 10**9
# Up to this many clients an undecided sum over groups is redone in fractions.
_EXACT_UP_TO = 256


@dataclass(frozen=True)
class Assumptions:
    """Threats to a masking graph: c of n collude, d drop out; and how rarely it may fail."""

    server: ServerMode
    n: int
    colluders: int
    dropped: int
    security: float
    correctness: float

    @classmethod
    def of(
        cls,
        n: int,
        roster: int,
        dropout: float,
        corruption: float,
        server: ServerMode,
        security: float,
        correctness: float,
    ) -> "Assumptions":
        """Count the colluders and dropouts of a cohort of n from a roster.

        Parameters
        ----------
        n, roster : int
            Sizes of the cohort and of the roster that it was drawn from.
        dropout, corruption : float
            Fractions of the cohort that drops out, and of the roster that colludes.
        server : ServerMode
        security, correctness : float
            Bounds on the probability of each failure.

        Returns
        -------
        Assumptions

        Raises
        ------
        LocalProtocolError
            If a size or fraction is out of range.
        """
        corrupt = colluders_in(n, roster, corruption, server, security)
        return cls(server, n, corrupt, share_of(dropout, n, "dropout"), security, correctness)

    @property
    def malicious(self) -> bool:
        """Return whether the server may lie."""
        return self.server is ServerMode.MALICIOUS


def as_written(fraction: float) -> Fraction:
    """Return the short fraction that a float stands for, such as 1/3 or 0.29."""
    return Fraction(fraction).limit_denominator(_FINEST)


@lru_cache(maxsize=1024)
def share_of(fraction: float, count: int, name: str) -> int:
    """Return floor(fraction x count) of the fraction that was meant.

    Parameters
    ----------
    fraction : float
        In 0 .. 1; read as the short fraction that it stands for, such as 1/3 or 0.29.
    count : int
    name : str
        The fraction's, for the message.

    Returns
    -------
    int

    Raises
    ------
    LocalProtocolError
        If the fraction is outside 0 .. 1.
    """
    if not 0 <= fraction <= 1:
        raise LocalProtocolError(f"{name} = {fraction} is not in 0 .. 1")
    return math.floor(as_written(fraction) * count)


@lru_cache(maxsize=1024)
def colluders_in(
    n: int, roster: int, corruption: float, server: str, security: float = SECURITY
) -> int:
    """Bound how many of a cohort collude.

    Parameters
    ----------
    n, roster : int
        Sizes of the cohort and of the roster that it was drawn from.
    corruption : float
        Fraction of the roster that colludes.
    server : str
        A malicious server invites all its colluders into one cohort: c is all of them, or n - 1.
        A semi-honest one samples: c is the smallest number with
        P[Hyp(roster, floor(corruption x roster), n) > c] <= security.
    security : float
        Probability that c is exceeded, for a semi-honest server.

    Returns
    -------
    int
        c.

    Raises
    ------
    LocalProtocolError
        If the sizes or fractions are out of range.
    """
    if not 1 <= n <= roster:
        raise LocalProtocolError(f"a cohort of {n} from a roster of {roster}")
    check_level(security, "security")
    bad = share_of(corruption, roster, "corruption")
    if ServerMode(server) is ServerMode.MALICIOUS:
        return min(n - 1, bad)
    if not bad:
        return 0
    if roster > LARGEST_ROSTER:
        raise LocalProtocolError(
            f"a roster of {roster} clients, of whom some collude: at most {LARGEST_ROSTER} are "
            "reckoned with under a semi-honest server"
        )
    return tails.rarely_exceeded(roster, bad, n, security)


def check_level(level: float, name: str) -> None:
    """Refuse a bound on a probability that is none.

    Parameters
    ----------
    level : float
    name : str
        The bound's, for the message.

    Raises
    ------
    LocalProtocolError
        If ``level`` is not in 0 .. 1, or is 1.
    """
    if not 0 <= level < 1:
        raise LocalProtocolError(f"{name} = {level} is not a probability below 1")


def exposing(a: Assumptions, degree: int, threshold: int) -> int:
    """Count the colluders among its neighbours that expose a client.

    A server that lies needs t shares of each secret, and may show two parts of the honest
    neighbours two sets of survivors; only colluders give shares of both: 2t <= k + colluders.

    Parameters
    ----------
    a : Assumptions
    degree, threshold : int
        k and t.

    Returns
    -------
    int
    """
    return 2 * threshold - degree if a.malicious else threshold


def is_secret(a: Assumptions, degree: int, count: int) -> bool:
    """Return whether so many colluders among a client's neighbours are rare enough.

    Parameters
    ----------
    a : Assumptions
    degree : int
        k.
    count : int
        Colluders that expose a client, as :func:`exposing` counts them.

    Returns
    -------
    bool
    """
    return tails.is_rare(a.n - 1, a.colluders, degree, count, a.security, a.n)


def _log_closed_groups(n: int, colluders: int, degree: int, threshold: int) -> tuple[float, float]:
    """Return the log of the sum over closed honest groups, and its error bound.

    sum over s = 1 .. floor((n - c)/2) of C(n - c, s) T(s - 1 + c)^s, where
    T(K) = P[Hyp(n - 1, K, k) >= t]: each of s clients draws t neighbours or more from the other
    s - 1 and the colluders. One more good one in the population turns a draw with t - 1 good
    ones into one with t if it was drawn, so T(K + 1) - T(K) is
    (k/(n - 1)) P[Hyp(n - 2, K, k - 1) = t - 1], and all T come from one running sum.
    """
    largest = (n - colluders) // 2
    sizes = np.arange(max(1, threshold - colluders + 1), largest + 1)
    if not sizes.size:
        return -math.inf, 0.0
    good = np.arange(threshold - 1, colluders + largest - 1)
    steps = (
        tails.log_choose(good, threshold - 1)
        + tails.log_choose(n - 2 - good, degree - threshold)
        - tails.log_choose(n - 2, degree - 1)
        + math.log(degree / (n - 1))
    )
    running = np.minimum(np.logaddexp.accumulate(steps), 0.0)
    tail_logs = running[sizes + colluders - 1 - threshold]
    terms = tails.log_choose(n - colluders, sizes) + sizes * tail_logs
    total = tails.log_sum(terms)
    depth = float(np.abs(running[np.isfinite(running)]).max(initial=0.0))
    slack = tails.error_bound(n) + len(good) * (depth + 1) * 2.0**-52
    # Each term magnifies the error of its tail s times.
    mean_size = float((np.exp(terms - total) * sizes).sum()) if total > -math.inf else 0.0
    return total, slack * (mean_size + 1)


def _exact_closed_groups(n: int, colluders: int, degree: int, threshold: int) -> Fraction:
    return sum(
        (
            math.comb(n - colluders, s)
            * tails.exact_tail(n - 1, s - 1 + colluders, degree, threshold) ** s
            for s in range(1, (n - colluders) // 2 + 1)
        ),
        Fraction(0),
    )


@lru_cache(maxsize=4096)
def _stays_together(n: int, colluders: int, degree: int, threshold: int, security: float) -> bool:
    """Return whether closed honest groups are certainly rare enough."""
    total, slack = _log_closed_groups(n, colluders, degree, threshold)
    verdict = tails.compare(total, security, slack)
    if verdict is None and n <= _EXACT_UP_TO:
        return _exact_closed_groups(n, colluders, degree, threshold) <= Fraction(security)
    return bool(verdict)


def _removed(a: Assumptions) -> int:
    """Return how many clients may be useless as neighbours to one who stays."""
    return min(a.n - 1, a.colluders + a.dropped)


def is_connected(
    a: Assumptions, degree: int, threshold: int, *, isolation_only: bool = False
) -> bool:
    """Return whether the connectivity terms hold.

    Parameters
    ----------
    a : Assumptions
    degree, threshold : int
        k and t.
    isolation_only : bool
        Count the isolation of one client alone, as published tables do.

    Returns
    -------
    bool
    """
    if a.malicious and not isolation_only:
        return _stays_together(a.n, a.colluders, degree, threshold, a.security)
    if a.malicious:
        honest = a.n - a.colluders
        return tails.is_rare(a.n - 1, a.colluders, degree, threshold, a.security, honest)
    removed = _removed(a)
    if not tails.is_rare(a.n - 1, removed, degree, degree, a.security, a.n):
        return False
    if isolation_only or degree == a.n - 1:
        return True
    pair = 2 * (degree // 2)
    return tails.is_rare(a.n, removed, pair, pair, a.security, Fraction(a.n**2, 2))


def log_secrecy(a: Assumptions, degree: int, threshold: int) -> float:
    """Bound the probability of exposing a client.

    Parameters
    ----------
    a : Assumptions
    degree, threshold : int
        k and t.

    Returns
    -------
    float
        Natural logarithm; -inf where the failure cannot happen.
    """
    count = exposing(a, degree, threshold)
    return math.log(a.n) + tails.log_tail(a.n - 1, a.colluders, degree, count)


def log_correctness(a: Assumptions, degree: int, threshold: int) -> float:
    """Bound the probability of leaving a client with too few neighbours.

    Parameters
    ----------
    a : Assumptions
    degree, threshold : int
        k and t.

    Returns
    -------
    float
        Natural logarithm; -inf where the failure cannot happen.
    """
    shortage = degree - threshold + 1
    return math.log(a.n) + tails.log_tail(a.n - 1, a.dropped, degree, shortage)


def log_isolation(a: Assumptions, degree: int, threshold: int) -> float:
    """Bound the probability of isolating one client.

    Parameters
    ----------
    a : Assumptions
    degree, threshold : int
        k and t.

    Returns
    -------
    float
        Natural logarithm; -inf where the failure cannot happen.
    """
    if a.malicious:
        honest = a.n - a.colluders
        return math.log(honest) + tails.log_tail(a.n - 1, a.colluders, degree, threshold)
    return math.log(a.n) + tails.log_tail(a.n - 1, _removed(a), degree, degree)


def log_connectivity(a: Assumptions, degree: int, threshold: int) -> float:
    """Bound the probability of closed groups; semi-honest, of two removed windows.

    Parameters
    ----------
    a : Assumptions
    degree, threshold : int
        k and t.

    Returns
    -------
    float
        Natural logarithm; -inf where the failure cannot happen.
    """
    if a.malicious:
        return _log_closed_groups(a.n, a.colluders, degree, threshold)[0]
    if degree == a.n - 1:
        return -math.inf
    pair = 2 * (degree // 2)
    return math.log(a.n**2 / 2) + tails.log_tail(a.n, _removed(a), pair, pair)
