"""Noise on blocks of integers, as queries add them: all that does not depend on its law."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.mechanism import (
    AddedBy,
    Divergences,
    DpEvent,
    Drawn,
    NoiseSettings,
    Norm,
)
from zerosum.client.privacy.samplers import TAU
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding

Shares = float | Fraction
"""A number of shares. Parts of geometric noise are added up exactly, so that f n of them are 1."""


class BlockNoise(ABC):
    """Integer noise on blocks of counts, in each of which a unit moves a bounded L1 norm.

    Attributes
    ----------
    moves : tuple of int
        For each block what one unit can move in it at most, in integer units, under the query's
        adjacency. Nothing is doubled afterwards.
    """

    moves: tuple[int, ...]
    added_by: ClassVar[AddedBy]
    summary: ClassVar[str]
    caveat: ClassVar[str]
    norm: ClassVar[Norm] = "l1"
    takes_records: ClassVar[bool] = False
    takes_bit: ClassVar[bool] = False
    takes_exact: ClassVar[bool] = False
    drawn: ClassVar[Drawn] = "table"
    tau: ClassVar[float] = TAU

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> NoReturn:
        """Raise ValueError: real vectors, rotated or not, have no blocks.

        See :meth:`~zerosum.client.privacy.mechanism.Mechanism.from_spec`;
        :func:`~zerosum.client.privacy.counts.counting_mechanism` builds this mechanism.
        """
        raise ValueError(
            f"{cls.__name__} is for the integer blocks of a query, not for real vectors"
        )

    @classmethod
    @abstractmethod
    def of_query(cls, scale: float, shares: Fraction, moves: tuple[int, ...]) -> "BlockNoise":
        """Build a query's mechanism.

        Parameters
        ----------
        scale : float
            Of the guaranteed noise, in integer units: the law says which measure of it.
        shares : Fraction
            f n, the shares that make it up.
        moves : tuple of int
            See the class.

        Returns
        -------
        BlockNoise
            Frozen.
        """

    @classmethod
    def guaranteed_fraction(cls, honest_fraction: Fraction, cohort: int) -> Fraction:
        """Return the f by which noise is divided, topped up and guaranteed.

        Parameters
        ----------
        honest_fraction : Fraction
            As asked for.
        cohort : int
            n, of the smallest session.

        Returns
        -------
        Fraction
            At most ``honest_fraction``.
        """
        return honest_fraction

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Add the noise of one contribution."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    @abstractmethod
    def noise(self, shares: Shares, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw the sum of so many shares at once: ``count`` integers."""

    @abstractmethod
    def variance(self, shares: Shares) -> float:
        """Return the variance of so many shares in a coordinate."""

    def std(self, shares: Shares) -> float:
        """Return the standard deviation of so many shares in a coordinate."""
        return math.sqrt(self.variance(shares))

    def bit_std(self, shares: Shares) -> float:
        """Return 0: there is no bit here."""
        return 0.0

    def bound(self, code: Encoding) -> int:
        """Return the encoding's bound."""
        return code.bound

    def slack(self, cohort: int) -> int:
        """Return 0: the noise is integer from the start."""
        return 0

    @abstractmethod
    def log_tail(self, shares: int, margin: float) -> float:
        """Return ln of a bound on P(so many shares > margin), in one coordinate."""

    @abstractmethod
    def event(self, shares: Shares) -> DpEvent:
        """Describe a sum that is guaranteed to hold so many shares, under the query's adjacency."""

    def share_epsilon(self, moves: Sequence[int]) -> float:
        """Return the pure epsilon of one share alone, for who sees a contribution unmasked.

        Parameters
        ----------
        moves : sequence of int
            Of every block, under the adjacency that is meant.

        Returns
        -------
        float
            inf where there is none.
        """
        return math.inf

    @property
    def share_caveat(self) -> str:
        """Say what stands beside :meth:`share_epsilon`; mostly empty."""
        return ""

    def divergences(self, shares: Shares, *, doubled: bool) -> Divergences | None:
        """Return the divergences of a sum with so many shares.

        Raises
        ------
        ValueError
            If they are asked for doubled: moves are those of the query's adjacency.
        """
        from zerosum.client.privacy.events import share_divergences

        return share_divergences(self.event(shares), doubled=doubled)


def check_moves(moves: tuple[int, ...]) -> None:
    """Check that a query moves something, by whole units.

    Parameters
    ----------
    moves : tuple of int
        One or more, each 1 or more.

    Raises
    ------
    ValueError
        If there is none, or one that is not a positive integer.
    """
    if not moves or any(type(move) is not int or move < 1 for move in moves):
        raise ValueError(f"a query's moves are positive integers, one a block, not {moves!r}")


def not_above(value: Fraction) -> float:
    """Return the largest float that does not exceed a number: noise is charged as no more."""
    near = float(value)
    return math.nextafter(near, -math.inf) if Fraction(near) > value else near


def not_below(value: Fraction) -> float:
    """Return the least float that is not below a number: noise is drawn as no less."""
    return -not_above(-value)
