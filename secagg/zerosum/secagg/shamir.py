"""Shamir's t-of-n secret sharing over the prime field of 2^31 - 1, in batches.

A 32-byte secret is nine limbs of 30 bits (the top one 16), each shared by a polynomial of its
own (Shamir, "How to share a secret", CACM 1979). Splitting is one matrix product for all limbs
of all secrets; combining weighs the shares of all dealers that have the same holders at once.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import Keystream

PRIME = (1 << 31) - 1
SECRET_BYTES = 32
LIMB_BITS = 30
LIMBS = 9
TOP_LIMB_BITS = 8 * SECRET_BYTES - LIMB_BITS * (LIMBS - 1)

_P = np.uint64(PRIME)
_SPLIT_BITS = 11
_TERMS = 1 << (53 - 31 - _SPLIT_BITS)


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
    """Return ``count`` uniform field elements from a keystream, by rejection."""
    drawn = np.empty(0, np.uint64)
    while len(drawn) < count:
        words = stream.words(count - len(drawn), np.uint32) & np.uint32(PRIME)
        drawn = np.concatenate([drawn, words[words != PRIME].astype(np.uint64)])
    return drawn


@lru_cache(maxsize=8)
def _powers(points: tuple[int, ...], count: int) -> NDArray[np.float64]:
    """Return points^1 .. points^count modulo p, shape (len(points), count), exact floats."""
    base = np.array(points, np.uint64)
    table = np.empty((len(points), count), np.float64)
    power = np.ones_like(base)
    for column in range(count):
        power = power * base % _P
        table[:, column] = power
    table.setflags(write=False)
    return table


def _product(left: NDArray[np.float64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return ``left @ right`` modulo p.

    The right factor is split into limbs of 11 bits, and at most 2^11 terms are added at once, so
    that no partial sum passes 2^53 and float64 is exact.
    """
    mask = np.uint64((1 << _SPLIT_BITS) - 1)
    limbs = [(right >> np.uint64(_SPLIT_BITS * i)) & mask for i in range(3)]
    stacked = np.concatenate(limbs, axis=1).astype(np.float64)
    columns = right.shape[1]
    total = np.zeros((left.shape[0], columns), np.uint64)
    for start in range(0, left.shape[1], _TERMS):
        part = left[:, start : start + _TERMS] @ stacked[start : start + _TERMS]
        residues = part.astype(np.uint64) % _P
        for limb in range(3):
            piece = residues[:, limb * columns : (limb + 1) * columns]
            total += piece << np.uint64(_SPLIT_BITS * limb)
        total %= _P
    return total


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
    """Return the inverses modulo p of nonzero field elements."""
    return np.array([pow(int(value), -1, PRIME) for value in values], np.uint64)


@lru_cache(maxsize=64)
def lagrange_weights(points: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return the weights whose product with shares at ``points`` is the value at zero."""
    x = np.array(points, np.uint64)
    numerator, denominator = np.ones_like(x), np.ones_like(x)
    for i, point in enumerate(x):
        difference = (point + _P - x) % _P
        difference[i] = 1
        denominator = denominator * difference % _P
        factor = np.full_like(x, point)
        factor[i] = 1
        numerator = numerator * factor % _P
    weights = numerator * inverse(denominator) % _P
    weights.setflags(write=False)
    return weights


@lru_cache(maxsize=16)
def leave_one_out_weights(points: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return, in row i, the Lagrange weights of ``points`` without the i-th, zero at i.

    Dropping x_i from a set divides the weight of x_j by x_i / (x_i - x_j), so that all rows
    follow from one set of weights. Nobody holds a share of its own secret: with these, t + 1
    holders recover each other's secrets in one product.
    """
    x = np.array(points, np.uint64)
    differences = (x[:, None] + _P - x[None, :]) % _P
    scaled = differences * inverse(x)[:, None] % _P
    table = scaled * lagrange_weights(points)[None, :] % _P
    table.setflags(write=False)
    return table


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
