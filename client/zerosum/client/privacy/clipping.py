"""Clip vectors to a norm, robust to zero, huge and integer entries."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.secagg.vectors.encoding import NotFiniteError


def clip_to_norm(vector: ArrayLike, clip: float, order: Literal[1, 2] = 2) -> NDArray[np.float64]:
    """Return the vector, scaled down if its norm is above ``clip``.

    Parameters
    ----------
    vector : array_like
        Any shape, any real dtype; integers and float32 are taken as float64, and entries as large
        as float64 holds do not overflow.
    clip : float
        The norm C, above 0.
    order : int
        2 for the Euclidean norm, 1 for the sum of magnitudes.

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
    real = _finite(vector, clip)
    unit, exponent = _unit(real)
    norm = _norm(unit, order)
    return real if _within(norm, exponent, clip) else unit * (clip / norm)


def norm_is_within(vector: ArrayLike, clip: float) -> bool:
    """Test whether a vector's L2 norm is at most ``clip``, as :func:`clip_to_norm` decides.

    Parameters
    ----------
    vector : array_like, shape (d,)
        The vector, real.
    clip : float
        The norm C, above 0.

    Returns
    -------
    bool
        Whether it would be left as it is.
    """
    unit, exponent = _unit(_finite(vector, clip))
    return _within(_norm(unit, 2), exponent, clip)


def layer_clips(clip: float, layers: int, fractions: Sequence[float] | None) -> list[float]:
    """Divide a clip norm among layers, so that the squares of their bounds add up to its own.

    McMahan, Ramage, Talwar, Zhang, "Learning differentially private recurrent language models"
    (2018), section 2.2: C / sqrt(L) each, or C f_l / |f| for given fractions.

    Parameters
    ----------
    clip : float
        The norm C of the whole.
    layers : int
        Layers L.
    fractions : sequence of float, optional
        Relative bounds, one a layer. Default: equal ones.

    Returns
    -------
    list of float
        One bound a layer.

    Raises
    ------
    ValueError
        If there are not as many fractions as layers.
    """
    parts = [1.0] * layers if fractions is None else list(fractions)
    if len(parts) != layers:
        raise ValueError(
            f"privacy.clip_fractions has {len(parts)} entries, and the model {layers} layers"
        )
    whole = math.hypot(*parts)
    return [clip * part / whole for part in parts]


def clip_layers(
    vector: ArrayLike, layers: Sequence[slice], clips: Sequence[float]
) -> NDArray[np.float64]:
    """Clip each layer of a vector to its own bound.

    Parameters
    ----------
    vector : array_like, shape (d,)
        The vector, real.
    layers : sequence of slice
        Where each layer is.
    clips : sequence of float
        One bound a layer.

    Returns
    -------
    ndarray of float64, shape (d,)
        A new array.

    Raises
    ------
    NotFiniteError
        If an entry is NaN or infinite.
    """
    result = np.array(vector, dtype=np.float64)
    for where, clip in zip(layers, clips, strict=True):
        result[where] = clip_to_norm(result[where], clip)
    return result


def _finite(vector: ArrayLike, clip: float) -> NDArray[np.float64]:
    """Return a float64 copy of a vector that can be clipped."""
    if not (clip > 0 and math.isfinite(clip)):
        raise ValueError(f"a clip norm must be positive and finite, not {clip}")
    given = np.asarray(vector)
    if given.dtype.kind not in "iuf":  # numpy would drop imaginary parts, and read texts
        raise ValueError(f"a vector of real numbers is clipped, not of {given.dtype}")
    real = np.array(given, dtype=np.float64)
    if not np.isfinite(real).all():
        bad = int(np.count_nonzero(~np.isfinite(real)))
        raise NotFiniteError(f"{bad} of {real.size} entries are NaN or infinite")
    return real


def _unit(real: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return the vector over a power of two that leaves its largest entry in [1/2, 1).

    A power of two scales exactly, and keeps every square within float64's range.
    """
    exponent = math.frexp(float(np.max(np.abs(real), initial=0.0)))[1]
    return np.ldexp(real, -exponent), exponent


def _norm(unit: NDArray[np.float64], order: Literal[1, 2]) -> float:
    if order == 1:
        return float(np.abs(unit).sum())
    return math.sqrt(float(np.square(unit).sum()))


def _within(norm: float, exponent: int, clip: float) -> bool:
    if exponent <= 0:
        return norm * 2.0**exponent <= clip
    return norm <= math.ldexp(clip, -exponent)
