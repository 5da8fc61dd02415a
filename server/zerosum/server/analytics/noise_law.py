"""The noise of a released sum: its standard deviation, quantiles and tails.

Both laws are closed under sums and indexed by a real number of shares, so that a sum of m cells
has the law of one cell at m times the ratio.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.integer_laws import LAWS, Geometric, IntegerLaw, Skellam, two_sided

_TABLE_STD = 2.0**11
"""Standard deviation above which a law is tabulated in units of a power of two. Both laws are then
close to scaled copies of each other: a probability in such units is off by a relative 1e-6."""


@dataclass(frozen=True)
class ReleasedNoise:
    """The law of one cell's noise in a released sum.

    Attributes
    ----------
    law : "geometric" or "skellam"
        Which family the shares are of.
    scale : float
        Of the guaranteed noise, in integer units: the scale s of the discrete Laplace, or the
        standard deviation of Skellam noise.
    shares_ratio : float
        Noise of the released sum over the guaranteed noise: 1 / honest_fraction after the top-up.
    """

    law: IntegerLaw
    scale: float
    shares_ratio: float = 1.0

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise ValueError(f"the noise of a sum is {' or '.join(LAWS)}, not {self.law!r}")
        for name in ("scale", "shares_ratio"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} of a sum's noise is a number above 0, not {value}")

    @property
    def std(self) -> float:
        """Standard deviation of a cell in integer units."""
        return self._in_units_of(1).std

    @property
    def variance(self) -> float:
        """Its square."""
        return self.std**2

    @property
    def excess_kurtosis(self) -> float:
        """Fourth cumulant over the squared variance: 0 for a normal law, 3 for a Laplace law."""
        if isinstance(self._in_units_of(1), Geometric):
            # (1 + 4a + a^2) / (2 a r) with a = exp(-1/s).
            return (2 + math.cosh(1 / self.scale)) / self.shares_ratio
        return 1 / self.variance

    def summed(self, cells: float) -> "ReleasedNoise":
        """Return the law of the sum of so many cells, any positive real."""
        return replace(self, shares_ratio=self.shares_ratio * cells)

    def quantile(self, level: float) -> int:
        """Return the least integer that the noise exceeds with probability 1 - level at most.

        Parameters
        ----------
        level : float
            In (0, 1).

        Returns
        -------
        int
            In integer units; above a standard deviation of 2,048 rounded up by less than 0.1 %
            of it.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"a level is between 0 and 1, not {level}")
        unit, values, below, above = _tables(self.law, self.scale, self.shares_ratio)
        if level <= 0.5:
            place = int(np.searchsorted(below, level * (1 - 1e-15)))
        else:
            # P(Z > values[i]) is above[i + 1], which falls as i grows.
            beyond = np.append(above[1:], 0.0)
            place = int(np.searchsorted(-beyond, -(1 - level) * (1 + 1e-15)))
        # A coarse value stands for the unit around it: its upper end leaves no less below.
        return int(values[place]) * unit + unit // 2

    def half_width(self, level: float) -> int:
        """Return the least integer h for which the noise is within +-h with this probability."""
        return self.quantile((1 + level) / 2)

    def upper_tail(self, threshold: int) -> float:
        """Return the probability that the noise is ``threshold`` or more.

        Parameters
        ----------
        threshold : int
            In integer units.

        Returns
        -------
        float
            Right to a relative 1e-9 down to 1e-40, below which it is 0; above a standard deviation
            of 2,048 never too small by more than a relative 1e-5.
        """
        unit, values, _, above = _tables(self.law, self.scale, self.shares_ratio)
        place = threshold // unit - int(values[0])
        if place >= above.size:
            return 0.0
        return float(above[max(0, place)])

    def table(self) -> tuple[int, NDArray[np.int64], NDArray[np.float64]]:
        """Return the law as a table, coarser than the integers where its deviation is large.

        Returns
        -------
        unit : int
            What one step of ``values`` is, a power of two.
        values : ndarray of int64, shape (n,)
            Ascending, symmetric about 0, in that unit.
        probabilities : ndarray of float64, shape (n,)
            They add up to 1 but for rounding.
        """
        unit = _unit(self.std)
        return unit, *two_sided(self._in_units_of(unit))

    def _in_units_of(self, unit: int) -> Geometric | Skellam:
        if LAWS[self.law] is Geometric:
            return Geometric(self.scale / unit, self.shares_ratio)
        return Skellam((self.scale / unit) ** 2 * self.shares_ratio)


def _unit(std: float) -> int:
    return 1 if std <= _TABLE_STD else 1 << math.ceil(math.log2(std / _TABLE_STD))


@lru_cache(maxsize=64)
def _tables(
    law: IntegerLaw, scale: float, ratio: float
) -> tuple[int, NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return unit, values, P(Z <= value) and P(Z >= value).

    Each tail is summed from its own end, so that small ones keep their relative precision.
    """
    unit, values, probabilities = ReleasedNoise(law, scale, ratio).table()
    below = np.cumsum(probabilities)
    above = np.cumsum(probabilities[::-1])[::-1]
    return unit, values, below, above
