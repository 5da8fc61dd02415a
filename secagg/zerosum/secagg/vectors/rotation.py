"""Random rotations: signs, then a Walsh-Hadamard transform, which evens out a vector's entries."""

import math
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import Keystream

Float = TypeVar("Float", np.float32, np.float64)

_LARGEST_FACTOR = 64
"""Sides of the matrices into which the transform is factored: a few products beat many sums."""


def walsh_hadamard(vector: NDArray[Float]) -> NDArray[Float]:
    """Return H v / sqrt(d), its own inverse, for a vector whose length d is a power of two.

    H is a Kronecker product of small Hadamard matrices; each is applied to its own digits of the
    index, which are then moved behind the others.

    Parameters
    ----------
    vector : ndarray of float32 or float64
        Shape (d,).
    """
    result, left = vector, vector.size
    while left > 1:
        factor = min(left, _LARGEST_FACTOR)
        result = result.reshape(factor, -1).T @ _hadamard(factor, vector.dtype.char)
        left //= factor
    return result.reshape(-1).copy() if result is vector else result.reshape(-1)


def random_signs(seed: bytes, length: int) -> NDArray[np.float64]:
    """Draw signs from a seed.

    Parameters
    ----------
    seed : bytes
        32 bytes.
    length : int

    Returns
    -------
    ndarray of float64, shape (length,)
        Each 1.0 or -1.0.
    """
    packed = np.frombuffer(Keystream(seed).take(-(-length // 8)), dtype=np.uint8)
    return np.where(np.unpackbits(packed, count=length), -1.0, 1.0)


@cache
def _hadamard(side: int, kind: str) -> np.ndarray:
    matrix = np.ones((1, 1))
    while len(matrix) < side:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / math.sqrt(side)).astype(kind)
