"""Mean, sum and variance from the noisy sums of Bernstein polynomials.

With u = (x - low) / (high - low) a record adds the Bernstein polynomials of order o,
C(o, j) u^j (1 - u)^(o - j), times a weight K, to the cells j = 0 to o. They sum to K, so the cells
hold the number of records too. An estimate here is a function of the cells with its gradient: noise
moves it by the gradient times the noise (the delta method; exact for the sum, which is linear).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class MomentEstimate:
    """An estimate, and how it moves with each cell.

    Attributes
    ----------
    value : float
        In the column's unit, or its square; NaN where there are no records to divide by.
    gradient : ndarray of float64, shape (cells,)
        Derivative by each cell's sum, in the unit of the value over integer units.
    bounds : tuple of float
        Least and largest that the truth can be; the value is within.
    """

    value: float
    gradient: NDArray[np.float64]
    bounds: tuple[float, float] = (-math.inf, math.inf)


def records(cells: NDArray[np.float64], weight: int) -> MomentEstimate:
    """Return the number of records: the cells' sum over K.

    Parameters
    ----------
    cells : ndarray of float64, shape (o + 1,)
        Noisy sums.
    weight : int
        K.

    Returns
    -------
    MomentEstimate
        In records.
    """
    return MomentEstimate(float(cells.sum()) / weight, np.full(cells.size, 1 / weight))


def total(cells: NDArray[np.float64], weight: int, low: float, high: float) -> MomentEstimate:
    """Return the sum of a column: (low y0 + high y1) / K.

    Parameters
    ----------
    cells : ndarray of float64, shape (2,)
        Noisy sums of order 1.
    weight : int
        K.
    low, high : float
        Bounds of the column.

    Returns
    -------
    MomentEstimate
        In the column's unit.
    """
    gradient = np.array([low, high]) / weight
    return MomentEstimate(float(gradient @ cells), gradient)


def mean(cells: NDArray[np.float64], low: float, high: float) -> MomentEstimate:
    """Return the mean of a column: low + (high - low) y1 / (y0 + y1).

    Parameters
    ----------
    cells : ndarray of float64, shape (2,)
        Noisy sums of order 1.
    low, high : float
        Bounds of the column.

    Returns
    -------
    MomentEstimate
        In the column's unit.
    """
    whole = float(cells.sum())
    if not whole > 0:
        return MomentEstimate(math.nan, np.full(2, math.nan), (low, high))
    share = float(cells[1]) / whole
    gradient = (high - low) * np.array([-share, 1 - share]) / whole
    value = low + (high - low) * share
    return MomentEstimate(min(max(value, low), high), gradient, (low, high))


def variance(cells: NDArray[np.float64], low: float, high: float) -> MomentEstimate:
    """Return the variance of a column: (high - low)^2 (E u^2 - (E u)^2), divided by n, not n - 1.

    E u = (y1 / 2 + y2) / Y and E u^2 = y2 / Y, with Y = y0 + y1 + y2.

    Parameters
    ----------
    cells : ndarray of float64, shape (3,)
        Noisy sums of order 2.
    low, high : float
        Bounds of the column.

    Returns
    -------
    MomentEstimate
        In the square of the column's unit; at most a quarter of the squared range (Popoviciu).
    """
    range_squared = (high - low) ** 2
    bounds = (0.0, range_squared / 4)
    whole = float(cells.sum())
    if not whole > 0:
        return MomentEstimate(math.nan, np.full(3, math.nan), bounds)
    first_of, second_of = np.array([0, 0.5, 1]), np.array([0.0, 0, 1])
    first, second = float(first_of @ cells) / whole, float(second_of @ cells) / whole
    gradient = range_squared * ((second_of - second) - 2 * first * (first_of - first)) / whole
    value = range_squared * (second - first**2)
    return MomentEstimate(min(max(value, bounds[0]), bounds[1]), gradient, bounds)
