"""Bringing a vector's norm under the clip, whatever is in it."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


class NotFiniteError(ValueError):
    """A vector holds NaN or infinite entries, so it has no norm to clip."""


def clip_to_norm(vector: ArrayLike, clip: float) -> NDArray[np.float64]:
    """Return the vector, scaled down if its L2 norm is above ``clip``.

    Parameters
    ----------
    vector : array_like
        Any shape, any real dtype; integers and float32 are taken as float64, and entries as large
        as float64 holds do not overflow.
    clip : float
        The norm C, above 0.

    Returns
    -------
    ndarray of float64
        A new array of the same shape. Its norm exceeds C by float rounding at most; the encoding's
        integer check, not this, carries the sensitivity.

    Raises
    ------
    NotFiniteError
        If an entry is NaN or infinite.
    ValueError
        If ``clip`` is not positive and finite.
    """
    if not (clip > 0 and math.isfinite(clip)):
        raise ValueError(f"a clip norm must be positive and finite, not {clip}")
    real = np.array(vector, dtype=np.float64)
    if not np.isfinite(real).all():
        bad = int(np.count_nonzero(~np.isfinite(real)))
        raise NotFiniteError(f"{bad} of {real.size} entries are NaN or infinite")
    largest = float(np.max(np.abs(real), initial=0.0))
    if largest == 0:
        return real
    # A power of two scales exactly, and keeps every square within float64's range.
    exponent = math.frexp(largest)[1]
    unit = np.ldexp(real, -exponent)
    norm = math.sqrt(float(np.square(unit).sum()))
    if exponent <= 0:
        within = norm * 2.0**exponent <= clip
    else:
        within = norm <= math.ldexp(clip, -exponent)
    return real if within else unit * (clip / norm)
