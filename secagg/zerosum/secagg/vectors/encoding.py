"""Real vectors to integers and back: rotation, clamp, scale and rounding.

The integers carry the sensitivity. Whatever a float clip did before, an encoded vector leaves
here only if the exact sum of its squares is at most floor(Delta2^2).
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.fast_rounding import (
    NORM_MARGIN,
    SMALLEST_NORM,
    can_round,
    finite_norm,
    rounded,
    squared_norm,
)
from zerosum.secagg.vectors.rotation import random_signs, walsh_hadamard
from zerosum.secagg.vectors.saturation import OnCut, largest_magnitude, measure
from zerosum.secagg.vectors.sensitivity import l1_rounded, l1_sensitivity, l2_sensitivity
from zerosum.secagg.vectors.vector_sum import VectorSum

# A rounding is accepted with probability 1 - beta at least, so that this many all fail with
# probability e^-50: then the vector was longer than its clip.
MAX_REJECTIONS = 100

RECORD_RESOLUTION = 100
"""Integer units in C / sqrt(d), at least, where sums of clipped records are rounded."""

Rule = Literal["l2", "l1", "records"]
"""Norm that bounds one contributor's part of an encoded vector: see :class:`Encoding`."""


class NotFiniteError(ValueError):
    """A vector holds NaN or infinite entries, so it can be neither clipped nor encoded."""


def sum_of_squares(vector: NDArray[np.int64]) -> int:
    """Return the exact sum of squares of an int64 vector with entries below 2^47 in magnitude."""
    largest = int(np.max(np.abs(vector), initial=0))
    if largest * largest * vector.size < 2**63:
        return int(np.dot(vector, vector))
    high, low = vector >> 16, vector & 0xFFFF
    parts = int(np.dot(high, high)), int(np.dot(high, low)), int(np.dot(low, low))
    return (parts[0] << 32) + (parts[1] << 17) + parts[2]


@dataclass(frozen=True)
class Encoding:
    """A fixed map between real vectors and integer vectors, known to both sides.

    Attributes
    ----------
    dimension : int
        Length d of the real vector.
    limit : float
        Largest magnitude of a coordinate; larger ones are clamped (which only lowers a norm), and
        counted (:mod:`~zerosum.secagg.vectors.saturation`).
    bound : int
        The integer that ``limit`` maps to: no encoded coordinate exceeds it in magnitude.
    clip : float or None
        L2 norm C that the caller clipped to. None: rounding is plain and no norm is promised.
    rotation_seed : bytes or None
        32 bytes. Rotates by random signs and a Walsh-Hadamard transform; None does not.
    rule : str
        What ``clip`` bounds. "l2", "l1": the norm of the vector; its rounding is drawn again until
        the integers' norm is within the sensitivity. "records": one of the records whose sum the
        vector is; it is rounded once, and two sums that differ in one record, rounded with the
        same coins, differ by at most C/gamma + sqrt(d).
    """

    dimension: int
    limit: float
    bound: int
    clip: float | None = None
    rotation_seed: bytes | None = None
    rule: Rule = "l2"

    def __post_init__(self) -> None:
        if self.rule == "l1" and self.rotation_seed is not None:
            raise ValueError("a rotation does not keep an L1 norm: encode without one")
        if self.dimension < 1 or self.bound < 1:
            raise ValueError("an encoding needs a dimension and a bound of at least 1")
        if not (self.limit > 0 and math.isfinite(self.limit)):
            raise ValueError(f"the largest coordinate must be positive, not {self.limit}")

    @classmethod
    def from_bits(
        cls,
        bits: int,
        *,
        dimension: int,
        clip: float | None,
        limit: float | None = None,
        rotation_seed: bytes | None = None,
        rule: Rule = "l2",
    ) -> "Encoding":
        """Return the encoding whose coordinates take ``bits`` bits: limit/gamma = 2^(bits-1) - 1.

        Under the rule "records" as many more as C/gamma >= 100 sqrt(d) takes, so that rounding
        adds at most 1 % to the sensitivity.

        Parameters
        ----------
        bits : int
            At least 2.
        dimension : int
            Length of the real vector.
        clip : float or None
            Clip norm of the vector, or of one record.
        limit : float or None
            Largest coordinate. Default: ``clip``, or 6 clip / sqrt(d) when rotated (a rotated
            coordinate is about normal with standard deviation at most clip / sqrt(d)).
        rotation_seed : bytes or None
            Rotate first.
        rule : str
            What ``clip`` bounds.

        Returns
        -------
        Encoding

        Raises
        ------
        ValueError
            If both ``clip`` and ``limit`` are missing, or one of them under "records".
        """
        bound = 2 ** (bits - 1) - 1
        if rule == "records":
            if clip is None or limit is None:
                raise ValueError(
                    "a sum of clipped records needs its records' clip norm and a range of its own"
                )
            root = math.sqrt(_padded(dimension, rotation_seed))
            bound = max(bound, math.ceil(RECORD_RESOLUTION * root * limit / clip))
        if limit is None:
            if clip is None:
                raise ValueError("encoding.range is required where nothing is clipped")
            padded = _padded(dimension, rotation_seed)
            limit = clip if rotation_seed is None else 6 * clip / math.sqrt(padded)
        return cls(dimension, limit, bound, clip, rotation_seed, rule)

    @property
    def step(self) -> float:
        """Gamma: the real value of one integer unit."""
        return self.limit / self.bound

    @property
    def length(self) -> int:
        """Length of the encoded vector: d, or the next power of two when rotated."""
        return _padded(self.dimension, self.rotation_seed)

    @property
    def can_cut(self) -> bool:
        """Return whether a vector clipped as the encoding says can have a coordinate to cut.

        No coordinate is larger than an L1 or L2 norm, rotated or not. A sum of clipped records is
        bounded by their number alone.
        """
        return self.clip is None or self.rule == "records" or self.limit < self.clip

    @cached_property
    def l2_sensitivity(self) -> float:
        """Delta2 in integer units. ValueError where nothing is clipped."""
        if self.clip is None:
            raise ValueError("without a clip norm a sum has no sensitivity")
        scaled = self.clip / self.step
        if self.rule == "records":
            return scaled + math.sqrt(self.length)
        if self.rule == "l1":
            return float(l1_rounded(scaled, self.length))
        return l2_sensitivity(scaled, self.length)

    @cached_property
    def l1_sensitivity(self) -> float:
        """Delta1 in integer units. ValueError where nothing is clipped."""
        if self.rule == "records":
            return math.sqrt(self.length) * self.l2_sensitivity
        if self.rule == "l1":
            return self.l2_sensitivity
        return l1_sensitivity(self.l2_sensitivity, self.length)

    def encode(
        self, vector: ArrayLike, rounding: Keystream, on_cut: OnCut | None = None
    ) -> NDArray[np.int64]:
        """Encode a finite real vector, already clipped where the encoding says so.

        Parameters
        ----------
        vector : array_like
            Shape (dimension,), any real dtype.
        rounding : Keystream
            Coins of the stochastic rounding.
        on_cut : callable, optional
            Called with what the range cuts of the vector, rotated where it is, if it cuts any.

        Returns
        -------
        ndarray of int64
            Shape (length,), magnitudes at most ``bound``; with a clip on its norm, the sum of
            squares is at most floor(Delta2^2), or that of magnitudes at most Delta1.

        Raises
        ------
        ValueError
            If the shape is wrong or an entry is not a finite real number.
        """
        given = np.asarray(vector)
        if given.dtype.kind not in "iuf":  # numpy would drop imaginary parts, and read texts
            raise ValueError(f"a vector of real numbers is encoded, not of {given.dtype}")
        real = given.astype(np.float64, copy=False)
        if real.shape != (self.dimension,):
            raise ValueError(f"expected shape ({self.dimension},), got {real.shape}")
        if not np.isfinite(real).all():
            raise NotFiniteError("a vector with NaN or infinite entries cannot be encoded")
        if self.rotation_seed is not None:
            real = walsh_hadamard(self._signs * _padded_copy(real, self.length))
            if not np.isfinite(real).all():
                raise ValueError("a vector too large to be rotated cannot be encoded")
        self._report_cut(real, 1.0, on_cut)
        scaled = np.clip(real, -self.limit, self.limit) * (self.bound / self.limit)
        np.clip(scaled, -self.bound, self.bound, out=scaled)
        return self._rounded(scaled, rounding)

    def add_clipped(
        self,
        vector: NDArray[np.float32],
        rounding: Keystream,
        total: VectorSum,
        on_cut: OnCut | None = None,
    ) -> bool:
        """Clip a float32 vector's L2 norm, where one is promised, and encode it into a sum.

        In one pass, and with no vector of its own where no rounding can exceed the sensitivity.

        Parameters
        ----------
        vector : ndarray of float32
            Shape (dimension,).
        rounding : Keystream
            Coins of the stochastic rounding.
        total : VectorSum
            Its first entries are added what :meth:`encode` returns, as int32.
        on_cut : callable, optional
            As for :meth:`encode`.

        Returns
        -------
        bool
            False where nothing was added, since this vector or encoding takes more care than one
            pass: clip it, and :meth:`encode` it.
        """
        scaled = self._scaled(vector, on_cut)
        if scaled is None:
            return False
        if scaled.within:
            total.add_rounded(scaled.vector, scaled.scale, scaled.bound, rounding)
            return True
        # A value between two integers is conditioned on the norm, never on single coordinates.
        for _ in range(MAX_REJECTIONS + 1):
            candidate = rounded(scaled.vector, scaled.scale, scaled.bound, rounding)
            if self._within(candidate):
                total.add(candidate, keep=True)
                return True
        return False

    def decode(self, total: NDArray[np.int64]) -> NDArray[np.float64] | NDArray[np.int64]:
        """Decode a centred integer sum into a real vector.

        Parameters
        ----------
        total : ndarray of int, shape (length,)
            A centred sum.

        Returns
        -------
        ndarray of float64, shape (dimension,)

        Raises
        ------
        ValueError
            If ``total`` is not of signed integers, or of another shape.
        """
        if total.dtype.kind != "i" or total.shape != (self.length,):
            raise ValueError(
                f"signed integers of shape ({self.length},) are decoded, not {total.dtype} of "
                f"shape {total.shape}"
            )
        real = total.astype(np.float64)
        np.multiply(real, self.step, out=real)
        if self.rotation_seed is not None:
            real = self._signs * walsh_hadamard(real)
        return real[: self.dimension]

    def _scaled(self, vector: NDArray[np.float32], on_cut: OnCut | None) -> "_Scaled | None":
        """Return how a float32 vector is clipped, scaled and clamped in one pass; None if not."""
        scale = self.bound / self.limit
        if vector.dtype != np.float32 or vector.shape != (self.dimension,):
            return None
        if self.rule != "l2" or not can_round(scale, self.bound):
            return None
        norm = finite_norm(vector)
        if norm is None:
            return None
        shrunk = self.clip / norm if self.clip is not None and norm > self.clip else 1.0
        scale *= shrunk
        if self.rotation_seed is not None:
            padded = np.zeros(self.length, np.float32)
            np.multiply(vector, self._narrow_signs[: self.dimension], out=padded[: self.dimension])
            vector = walsh_hadamard(padded)
        # What cannot come near the bound needs no clamp: mostly the norm tells, or the largest one.
        reach = NORM_MARGIN * scale * norm if norm >= SMALLEST_NORM else math.inf
        bound = None
        if reach >= self.bound and NORM_MARGIN * scale * largest_magnitude(vector) >= self.bound:
            bound = self.bound
            self._report_cut(vector, shrunk, on_cut)
        # Rounding moves an entry by one unit at most, and by float32's last place.
        longest = reach + NORM_MARGIN * math.sqrt(self.length)
        within = self.clip is None or longest < self._rounded_norm
        return _Scaled(vector, scale, bound, within)

    @cached_property
    def _rounded_norm(self) -> float:
        """Largest L2 norm of integers that pass :meth:`_within`."""
        return math.sqrt(math.floor(self.l2_sensitivity**2))

    def _report_cut(
        self, vector: NDArray[np.floating[Any]], shrunk: float, on_cut: OnCut | None
    ) -> None:
        """Measure what is cut of a vector that is going to be clipped by a factor."""
        if on_cut is None or not self.can_cut:
            return
        if (cut := measure(vector, self.limit, shrunk)) is not None:
            on_cut(cut)

    @cached_property
    def _signs(self) -> NDArray[np.float64]:
        return random_signs(self.rotation_seed or bytes(32), self.length)

    @cached_property
    def _narrow_signs(self) -> NDArray[np.float32]:
        return self._signs.astype(np.float32)

    def _rounded(self, scaled: NDArray[np.float64], rounding: Keystream) -> NDArray[np.int64]:
        floor = np.floor(scaled)
        fraction = scaled - floor
        base = floor.astype(np.int64)
        if self.clip is None or self.rule == "records":
            return base + (rounding.uniform(base.size) < fraction)
        for _ in range(MAX_REJECTIONS + 1):
            candidate = base + (rounding.uniform(base.size) < fraction)
            if self._within(candidate):
                return candidate
        truncated = np.trunc(scaled).astype(np.int64)
        return truncated if self._within(truncated) else np.zeros_like(truncated)

    def _within(self, vector: NDArray[np.signedinteger[Any]]) -> bool:
        """Return whether the integers' norm is within the sensitivity, exactly."""
        if self.rule == "l1":
            return int(np.abs(vector).sum()) <= self.l1_sensitivity
        narrow = vector.dtype == np.int32
        squares = squared_norm(vector) if narrow else sum_of_squares(vector)
        return squares <= math.floor(self.l2_sensitivity**2)


@dataclass(frozen=True)
class _Scaled:
    """A finite float32 vector on its way to integers.

    Attributes
    ----------
    vector, scale, bound
        As :func:`~.fast_rounding.rounded` takes them.
    within : bool
        Whether no rounding of it exceeds the sensitivity, whatever the coins.
    """

    vector: NDArray[np.float32] = field(repr=False)
    scale: float
    bound: int | None
    within: bool


def _padded(dimension: int, rotation_seed: bytes | None) -> int:
    return dimension if rotation_seed is None else 1 << (dimension - 1).bit_length()


def _padded_copy(vector: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    result = np.zeros(length)
    result[: vector.size] = vector
    return result
