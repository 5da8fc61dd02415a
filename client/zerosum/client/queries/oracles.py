"""Randomise one value at home: reports whose sum estimates a histogram.

A report is a support vector of 0 and 1 over the k values; a value's own cell is supported with
probability p, any other with probability q, so that the sum S of n reports estimates a count by
(S - n q)/(p - q). Every report is epsilon-DP under replacement, purely: the chances of its coins
are multiples of 2^-192, rounded towards privacy.
"""

import hashlib
import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.pmf import exp_negative
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.query import OracleKind
from zerosum.client.spec.query_privacy import MOST_LOCAL_EPSILON
from zerosum.secagg.randomness import Keystream

COIN_BITS = 192
"""Bits of a coin and of its threshold."""

_HEADS = 1 << COIN_BITS
_EXP_BITS = COIN_BITS + 64


def choose(k: int, epsilon: float) -> OracleKind:
    """Return the oracle with the smaller variance for a rare value.

    Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation"
    (USENIX Security 2017), section 4.4.

    Parameters
    ----------
    k : int
        Number of values.
    epsilon : float

    Returns
    -------
    OracleKind
        `k-rr` where k < 3 e^epsilon + 2, else `oue`.
    """
    _check(k, epsilon)
    return "k-rr" if k < 3 * math.exp(epsilon) + 2 else "oue"


def probabilities(kind: OracleKind, k: int, epsilon: float) -> tuple[float, float]:
    """Return the chances that a report supports its own value, and another one.

    RR: Warner (1965). OUE and OLH: Wang et al. (2017). Hadamard: Acharya, Sun, Zhang, "Hadamard
    response" (AISTATS 2019).

    Parameters
    ----------
    kind : OracleKind
    k : int
        Number of values.
    epsilon : float

    Returns
    -------
    p, q : float

    Raises
    ------
    QueryError
        If there is no such report.
    """
    _check(k, epsilon)
    odds = math.exp(epsilon)
    if kind in ("rr", "k-rr"):
        return odds / (odds + k - 1), 1 / (odds + k - 1)
    if kind == "oue":
        return 0.5, 1 / (odds + 1)
    if kind == "olh":
        g = hash_cells(epsilon)
        return odds / (odds + g - 1), 1 / g
    return odds / (odds + 1), 0.5


def report(
    kind: OracleKind, value: int, k: int, epsilon: float, coins: Keystream
) -> NDArray[np.int64]:
    """Draw a report of one value.

    Parameters
    ----------
    kind : OracleKind
    value : int
        From 0 to k - 1.
    k : int
        Number of values.
    epsilon : float
        Of the report, under replacement.
    coins : Keystream

    Returns
    -------
    ndarray of int64, shape (k,)
        1 in the cells that the report supports.

    Raises
    ------
    QueryError
        If there is no such value or report.
    """
    _check(k, epsilon)
    if not 0 <= value < k:
        raise QueryError(f"oracle: there is no value {value} of {k}")
    if kind in ("rr", "k-rr"):
        supported = np.zeros(k, dtype=np.bool_)
        supported[_respond(value, k, epsilon, coins)] = True
    elif kind == "oue":
        supported = _coins(other_bit(epsilon), k, coins)
        supported[value] = _coin(_HEADS // 2, coins)
    elif kind == "olh":
        seed = coins.take(8)
        g = hash_cells(epsilon)
        said = _respond(hashed(seed, value, g), g, epsilon, coins)
        supported = np.array([hashed(seed, other, g) == said for other in range(k)])
    else:
        supported = _hadamard(value, k, epsilon, coins)
    return np.asarray(supported, dtype=np.int64)


def truth(k: int, epsilon: float) -> int:
    """Return the threshold at which randomised response among k values tells the truth.

    With E at least e^-epsilon it is 2^192/(1 + (k - 1) E) rounded down, so that the truth is at
    most 1/E, hence e^epsilon, times as likely as any one of the other values.

    Parameters
    ----------
    k : int
    epsilon : float

    Returns
    -------
    int
        In units of 2^-192.
    """
    return (_HEADS << _EXP_BITS) // ((1 << _EXP_BITS) + (k - 1) * _least_ratio(epsilon))


def other_bit(epsilon: float) -> int:
    """Return the threshold at which OUE sets a bit that is not its value's: 1/(e^epsilon + 1).

    Parameters
    ----------
    epsilon : float

    Returns
    -------
    int
        In units of 2^-192, rounded up.
    """
    ratio = _least_ratio(epsilon)
    return -(-(ratio << COIN_BITS) // ((1 << _EXP_BITS) + ratio))


def hash_cells(epsilon: float) -> int:
    """Return g, the cells that OLH hashes into: the nearest integer to e^epsilon, plus 1."""
    return round(math.exp(epsilon)) + 1


def hashed(seed: bytes, value: int, g: int) -> int:
    """Return the cell of a value under a seed: BLAKE2b keyed by the seed, modulo g.

    Parameters
    ----------
    seed : bytes
        8 bytes, kept at home.
    value : int
    g : int

    Returns
    -------
    int
        From 0 to g - 1.
    """
    digest = hashlib.blake2b(value.to_bytes(8, "little"), key=seed, digest_size=8).digest()
    return int.from_bytes(digest, "little") % g


def _check(k: int, epsilon: float) -> None:
    if not 0 < epsilon <= MOST_LOCAL_EPSILON:
        raise QueryError(
            f"oracle: epsilon = {epsilon} is not above 0 and at most {MOST_LOCAL_EPSILON:g}"
        )
    if k < 2:
        raise QueryError(f"oracle: a report of {k} values says nothing; two or more are needed")


@lru_cache(maxsize=64)
def _least_ratio(epsilon: float) -> int:
    """Return e^-epsilon in units of 2^-256, rounded up: `exp_negative` is right to a few units."""
    fixed = math.floor(Fraction(epsilon) * (1 << _EXP_BITS))
    return min(exp_negative(fixed, _EXP_BITS) + (1 << 16), 1 << _EXP_BITS)


def _respond(value: int, k: int, epsilon: float, coins: Keystream) -> int:
    """Tell the value, or one of the k - 1 others with equal chances."""
    if _coin(truth(k, epsilon), coins):
        return value
    other = _below(k - 1, coins)
    return other + (other >= value)


def _hadamard(value: int, k: int, epsilon: float, coins: Keystream) -> NDArray[np.bool_]:
    """Name a column in which the value's row is +1 more often; supported are all rows of +1.

    Row v + 1, for row 0 is +1 throughout. The entry of row i and column j is -1 to the number of
    ones in i & j.
    """
    row, bits = value + 1, k.bit_length()
    column = _below(1 << bits, coins)
    positive = _coin(truth(2, epsilon), coins)
    if (row & column).bit_count() % 2 == positive:
        # To flip a bit of the column that the row has flips the sign: uniform over the other half.
        column ^= row & -row
    rows = np.arange(1, k + 1, dtype=np.int64)
    return np.asarray(np.bitwise_count(rows & column) % 2 == 0)


def _coin(threshold: int, coins: Keystream) -> bool:
    return int.from_bytes(coins.take(COIN_BITS // 8), "little") < threshold


def _coins(threshold: int, count: int, coins: Keystream) -> NDArray[np.bool_]:
    """Toss equal coins: 64 bits decide all but one in 2^64, and only there the rest is drawn."""
    rest = COIN_BITS - 64
    words = coins.words(count)
    top = np.uint64(threshold >> rest)
    heads = words < top
    for tie in np.flatnonzero(words == top):
        low = int.from_bytes(coins.take(rest // 8), "little")
        heads[tie] = low < threshold & ((1 << rest) - 1)
    return heads


def _below(count: int, coins: Keystream) -> int:
    """Draw a uniform integer below a count, by rejection."""
    size = max(1, -(-count.bit_length() // 8))
    limit = (1 << 8 * size) // count * count
    while (drawn := int.from_bytes(coins.take(size), "little")) >= limit:
        pass
    return drawn % count
