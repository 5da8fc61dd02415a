"""Moments of Bernstein cells: against numpy's own, and against finite differences."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.server.analytics.moments import MomentEstimate, mean, records, total, variance

LOW, HIGH, WEIGHT = -3.0, 12.0, 1000
Cells = NDArray[np.float64]


def bernstein(x: Cells, order: int) -> Cells:
    u = (x - LOW) / (HIGH - LOW)
    parts = [math.comb(order, j) * u**j * (1 - u) ** (order - j) for j in range(order + 1)]
    return WEIGHT * np.array(parts).sum(axis=1)


@pytest.fixture(scope="module")
def x() -> Cells:
    return np.random.default_rng(0).uniform(LOW, HIGH, 50)


def test_moments_without_noise_are_exact(x: Cells) -> None:
    first, second = bernstein(x, 1), bernstein(x, 2)
    assert records(first, WEIGHT).value == pytest.approx(50)
    assert records(second, WEIGHT).value == pytest.approx(50)
    assert mean(first, LOW, HIGH).value == pytest.approx(x.mean())
    assert total(first, WEIGHT, LOW, HIGH).value == pytest.approx(x.sum())
    assert variance(second, LOW, HIGH).value == pytest.approx(x.var())


FORMULAS: list[tuple[int, Callable[[Cells], MomentEstimate]]] = [
    (1, lambda cells: records(cells, WEIGHT)),
    (1, lambda cells: total(cells, WEIGHT, LOW, HIGH)),
    (1, lambda cells: mean(cells, LOW, HIGH)),
    (2, lambda cells: variance(cells, LOW, HIGH)),
]


@pytest.mark.parametrize(("order", "formula"), FORMULAS)
def test_gradients_are_those_of_finite_differences(
    x: Cells, order: int, formula: Callable[[Cells], MomentEstimate]
) -> None:
    cells = bernstein(x, order)
    seen = formula(cells).gradient
    step = 1e-3
    for j in range(cells.size):
        bump = step * (np.arange(cells.size) == j)
        slope = (formula(cells + bump).value - formula(cells - bump).value) / (2 * step)
        assert seen[j] == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("cells", [[0.0, 0.0], [-5.0, 5.0], [-10.0, 2.0]])
def test_means_of_no_records_are_no_number(cells: list[float]) -> None:
    assert math.isnan(mean(np.array(cells), LOW, HIGH).value)
    assert math.isnan(variance(np.array([*cells, 0.0]), LOW, HIGH).value)


def test_estimates_stay_within_what_is_possible() -> None:
    assert mean(np.array([-20.0, 900.0]), LOW, HIGH).value == HIGH
    assert mean(np.array([900.0, -20.0]), LOW, HIGH).value == LOW
    assert variance(np.array([0.0, 900.0, 0.0]), LOW, HIGH).value == 0
    assert variance(np.array([500.0, -90.0, 500.0]), LOW, HIGH).value == (HIGH - LOW) ** 2 / 4
