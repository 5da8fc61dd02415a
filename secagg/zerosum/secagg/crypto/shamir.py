"""Shamir's t-of-n secret sharing over the prime field of 2^31 - 1, in batches.

A 32-byte secret is nine limbs of 30 bits (the top one 16), each shared by a polynomial of its
own (Shamir, "How to share a secret", CACM 1979). Splitting is one matrix product for all limbs
of all secrets; combining weighs the shares of all dealers that have the same holders at once.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import Keystream

PRIME = (1 << 31) - 1
SECRET_BYTES = 32
LIMB_BITS = 30
LIMBS = 9
TOP_LIMB_BITS = 8 * SECRET_BYTES - LIMB_BITS * (LIMBS - 1)

_P = np.uint64(PRIME)
# float64 holds integers up to 2^53 exactly. Centred elements are below 2^30 and, split at 16 bits,
# below 2^15: so many products may be added before a sum is reduced.
_SPLIT_BITS = 16
_TERMS = 1 << (53 - 30 - (_SPLIT_BITS - 1))
# Two megabytes of differences, and the columns of eight secrets: what stays in cache.
_CELLS_AT_ONCE = 1 << 18
_COLUMNS_AT_ONCE = 8 * LIMBS


def to_limbs(secret: bytes) -> list[int]:
    """Return the nine limbs of a 32-byte secret, the lowest first."""
    value = int.from_bytes(secret, "little")
    return [value >> (LIMB_BITS * limb) & ((1 << LIMB_BITS) - 1) for limb in range(LIMBS)]


def from_limbs(limbs: Sequence[int]) -> bytes | None:
    """Return the secret of nine field elements, or None where one is too large for its limb."""
    if max(limbs) >> LIMB_BITS or limbs[-1] >> TOP_LIMB_BITS:
        return None
    value = 0
    for limb in reversed(limbs):
        value = value << LIMB_BITS | limb
    return value.to_bytes(SECRET_BYTES, "little")


def uniform_elements(stream: Keystream, count: int) -> NDArray[np.uint64]:
    """Draw uniform field elements from a keystream, by rejection.

    Parameters
    ----------
    stream : Keystream
    count : int

    Returns
    -------
    ndarray of uint64, shape (count,)
        Below p.
    """
    drawn = np.empty(0, np.uint64)
    while len(drawn) < count:
        words = stream.words(count - len(drawn), np.uint32) & np.uint32(PRIME)
        drawn = np.concatenate([drawn, words[words != PRIME].astype(np.uint64)])
    return drawn


def _centred(elements: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the representatives of least magnitude: below 2^30, of either sign."""
    signed = elements.astype(np.int64)
    signed -= (signed > PRIME // 2) * np.int64(PRIME)
    return signed


def _reduce(values: NDArray[np.float64], spare: NDArray[np.float64]) -> None:
    """Reduce whole floats of at most 2^53 in magnitude, in place, to within -p .. 2p.

    The quotient is off by one at most, and all of it is exact; several times as fast as the
    remainder of 64-bit integers. ``spare`` has the shape of ``values`` and is overwritten.
    """
    np.multiply(values, 1 / PRIME, out=spare)
    np.floor(spare, out=spare)
    spare *= PRIME
    values -= spare


@lru_cache(maxsize=8)
def _powers(points: tuple[int, ...], count: int) -> NDArray[np.float64]:
    """Return points^1 .. points^count modulo p, centred, shape (len(points), count)."""
    table = np.empty((len(points), count), np.uint64)
    table[:, 0] = points
    done = 1
    while done < count:
        more = min(done, count - done)
        table[:, done : done + more] = table[:, :more] * table[:, done - 1 : done] % _P
        done += more
    centred = _centred(table).astype(np.float64)
    centred.setflags(write=False)
    return centred


def _product(left: NDArray[np.float64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return ``left @ right`` modulo p, ``left`` being centred, by blocks that stay in cache."""
    starts = range(0, right.shape[1], _COLUMNS_AT_ONCE)
    blocks = [_block_product(left, right[:, i : i + _COLUMNS_AT_ONCE]) for i in starts]
    return np.concatenate(blocks, axis=1)


def _block_product(left: NDArray[np.float64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return ``left @ right`` modulo p, ``left`` being centred.

    The right factor is centred and split into limbs below 2^15, and at most 2^8 terms are added
    at once, so that no partial sum passes 2^30 x 2^15 x 2^8 = 2^53 and float64 is exact.
    """
    half = 1 << (_SPLIT_BITS - 1)
    centred = _centred(right)
    low = ((centred + half) & (2 * half - 1)) - half
    stacked = np.concatenate([low, (centred - low) >> _SPLIT_BITS], axis=1).astype(np.float64)
    columns = right.shape[1]
    sums = left[:, :_TERMS] @ stacked[:_TERMS]
    spare = np.empty_like(sums)
    _reduce(sums, spare)
    for start in range(_TERMS, left.shape[1], _TERMS):
        part = left[:, start : start + _TERMS] @ stacked[start : start + _TERMS]
        _reduce(part, spare)
        sums += part
    _reduce(sums, spare)
    total = sums[:, :columns] + sums[:, columns:] * float(1 << _SPLIT_BITS)
    _reduce(total, spare[:, :columns])
    return (total.astype(np.int64) % PRIME).astype(np.uint64)


def split(
    secrets: Sequence[bytes], threshold: int, points: Sequence[int], stream: Keystream
) -> NDArray[np.uint32]:
    """Split 32-byte secrets into shares of which any ``threshold`` recover them.

    Parameters
    ----------
    secrets : sequence of bytes
        m secrets.
    threshold : int
        t, at least 1.
    points : sequence of int
        Where the polynomials are evaluated: distinct, from 1 to p - 1.
    stream : Keystream
        Supplies (t - 1) x 9 m uniform coefficients.

    Returns
    -------
    ndarray of uint32, shape (len(points), m, 9)
        A share's value does not depend on which other points are asked for.
    """
    constant = np.array([to_limbs(secret) for secret in secrets], np.uint64).reshape(-1)
    width = len(constant)
    coefficients = uniform_elements(stream, (threshold - 1) * width).reshape(-1, width)
    shares = np.broadcast_to(constant, (len(points), width))
    if threshold > 1:
        shares = (_product(_powers(tuple(points), threshold - 1), coefficients) + constant) % _P
    return shares.reshape(len(points), len(secrets), LIMBS).astype(np.uint32)


def inverse(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the inverses modulo p of nonzero field elements, shape (m,).

    One inversion for all (Montgomery, Mathematics of Computation 48, 1987, section 10.3.1), by
    halves: 1/a = b/(ab) and 1/b = a/(ab).
    """
    if len(values) <= 1:
        return np.array([pow(int(value), -1, PRIME) for value in values], np.uint64)
    half = len(values) // 2
    first, second = values[:half], values[half : 2 * half]
    inverses = inverse(np.concatenate([first * second % _P, values[2 * half :]]))
    paired = inverses[:half]
    return np.concatenate([paired * second % _P, paired * first % _P, inverses[half:]])


def _row_products(table: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the products modulo p along the last axis; the table is spent."""
    width = table.shape[-1]
    while width > 1:
        half = (width + 1) // 2
        left = table[..., : width - half]
        left *= table[..., half:width]
        left %= _P
        width = half
    product: NDArray[np.uint64] = table[..., 0]
    return product


def lagrange_rows(points: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the Lagrange weights at zero of many sets of points at once.

    Parameters
    ----------
    points : ndarray of integers, shape (m, t)
        One set in each row: distinct, from 1 to p - 1.

    Returns
    -------
    ndarray of uint64, shape (m, t)
        The product of a row with the shares at its points is the value at zero.
    """
    x = points.astype(np.uint64)
    count, size = x.shape
    at_once = max(1, _CELLS_AT_ONCE // (size * size))
    diagonal = np.arange(size)
    divisors = np.empty_like(x)
    for start in range(0, count, at_once):
        some = x[start : start + at_once]
        differences = some[:, None, :] + _P - some[:, :, None]
        # w_i is the product of all x_j / (x_j - x_i), and x_i / x_i takes the place of j = i.
        differences[:, diagonal, diagonal] = some
        differences %= _P
        divisors[start : start + at_once] = _row_products(differences)
    numerators = _row_products(x.copy())
    inverses = inverse(divisors.reshape(-1)).reshape(x.shape)
    weights: NDArray[np.uint64] = numerators[:, None] * inverses % _P
    return weights


@lru_cache(maxsize=64)
def lagrange_weights(points: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return the weights whose product with shares at ``points`` is the value at zero."""
    weights: NDArray[np.uint64] = lagrange_rows(np.array([points], np.uint64))[0]
    weights.setflags(write=False)
    return weights


def leave_out_rows(points: Sequence[int], left_out: NDArray[Any]) -> NDArray[np.uint64]:
    """Return, for each few points left out, weights of the values at all others, at zero.

    A polynomial f of degree below t, times (x - z) for each of r points z, has degree below t + r:
    its values at t + r points give f(0) times the product of all -z, whatever its values at the z,
    which are zero. So the weight of f(x_j) is that of x_j times all (z - x_j) / z, and none at a z.
    Nobody holds a share of its own secret: with r = 1, t + 1 holders recover each other's secrets,
    and everybody else's, in one product.

    Parameters
    ----------
    points : sequence of int
        t + r distinct points.
    left_out : ndarray of integers, shape (m, r)
        Distinct in each row; any points, not zero.

    Returns
    -------
    ndarray of uint64, shape (m, t + r)
    """
    x, z = np.array(points, np.uint64), left_out.astype(np.uint64)
    inverses = inverse(z.reshape(-1)).reshape(z.shape)
    rows = np.tile(lagrange_weights(tuple(points)), (len(z), 1))
    for column, inverted in zip(z.T, inverses.T, strict=True):
        rows = (column[:, None] + _P - x[None, :]) % _P * rows % _P * inverted[:, None] % _P
    return rows


def evaluation_rows(points: Sequence[int], at: Sequence[int]) -> NDArray[np.uint64]:
    """Return weights whose product with values at t points is the polynomial's value elsewhere.

    Barycentric (Berrut and Trefethen, "Barycentric Lagrange interpolation", SIAM Review 46,
    2004): the weight of x_j at y is v_j / (y - x_j) over the sum of all of them.

    Parameters
    ----------
    points : sequence of int
        t distinct points.
    at : sequence of int
        None of ``points``.

    Returns
    -------
    ndarray of uint64, shape (len(at), t)
    """
    x, y = np.array(points, np.uint64), np.array(at, np.uint64)
    # Up to one factor, v_j is x_j times the weight at zero.
    weights = lagrange_weights(tuple(points)) * x % _P
    differences = (y[:, None] + _P - x[None, :]) % _P
    terms = inverse(differences.reshape(-1)).reshape(differences.shape) * weights % _P
    rows: NDArray[np.uint64] = terms * inverse(terms.sum(axis=1) % _P)[:, None] % _P
    return rows


def weigh(weights: NDArray[np.uint64], shares: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the values at zero of many secrets.

    Parameters
    ----------
    weights : ndarray of uint64, shape (m, h)
        One row of Lagrange weights for each secret.
    shares : ndarray of uint32, shape (h, m, 9)
        One share of each holder for each secret.

    Returns
    -------
    ndarray of uint64, shape (m, 9)
    """
    products = weights.T[:, :, None] * shares.astype(np.uint64) % _P
    total: NDArray[np.uint64] = products.sum(axis=0) % _P
    return total


def combine(points: Sequence[int], shares: NDArray[np.uint32]) -> bytes | None:
    """Recover one secret from exactly as many shares as its threshold.

    Parameters
    ----------
    points : sequence of int
        Where the shares were evaluated.
    shares : ndarray of uint32, shape (len(points), 9)

    Returns
    -------
    bytes or None
        None where a recovered limb is out of range, which no right shares give.
    """
    weights = lagrange_weights(tuple(points))[None, :]
    return from_limbs(weigh(weights, shares[:, None, :])[0].tolist())
