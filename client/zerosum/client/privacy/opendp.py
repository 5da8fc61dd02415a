"""Draw small releases by OpenDP's exact samplers: the extra ``exact``.

They sample without any approximation and read the operating system's entropy, a thousand times
slower than a table; a draw cannot be repeated, so neither can a simulation that uses them.
"""

import importlib.util
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 1 << 17
"""Most coordinates of a vector drawn exactly: at 0.04 million a second, three seconds a client."""


class ExactUnavailableError(ValueError):
    """OpenDP is not installed, or the release is not a small one."""


def check_available(length: int) -> None:
    """Check that vectors of this length can be drawn exactly.

    Parameters
    ----------
    length : int
        Coordinates.

    Raises
    ------
    ExactUnavailableError
        If OpenDP is not installed, or the vectors are too long.
    """
    if importlib.util.find_spec("opendp") is None:
        raise ExactUnavailableError(
            "privacy.exact = true needs OpenDP: pip install 'zerosum[exact]', or leave it false"
        )
    if length > LARGEST:
        raise ExactUnavailableError(
            f"privacy.exact = true is for vectors of at most {LARGEST:,} coordinates, not "
            f"{length:,}: leave it false, the table's distance from the law is accounted"
        )


def discrete_gaussian(sigma: float, count: int) -> NDArray[np.int64]:
    """Draw discrete Gaussian integers.

    Parameters
    ----------
    sigma : float
        The law's sigma, in integer units.
    count : int
        How many.

    Returns
    -------
    ndarray of int64, shape (count,)
        From the operating system's entropy.
    """
    return _drawn(_gaussian(sigma), count)


def discrete_laplace(scale: float, count: int) -> NDArray[np.int64]:
    """Draw discrete Laplace integers.

    Parameters
    ----------
    scale : float
        The law's scale, in integer units.
    count : int
        How many.

    Returns
    -------
    ndarray of int64, shape (count,)
        From the operating system's entropy.
    """
    return _drawn(_laplace(scale), count)


def _drawn(measurement: Any, count: int) -> NDArray[np.int64]:
    return np.array(measurement([0] * count), dtype=np.int64)


@lru_cache(maxsize=16)
def _gaussian(scale: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)


@lru_cache(maxsize=16)
def _laplace(scale: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return dp.m.make_laplace(*space, scale=scale)


@lru_cache(maxsize=1)
def _opendp() -> Any:
    check_available(0)
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    return dp
