"""The theorem behind a query's receipt, by enumeration: no walk tells more than one coordinate."""

import itertools
import math

import numpy as np
import pytest

from zerosum.client.privacy.integer_laws import Geometric, Skellam, two_sided

EPSILONS = np.linspace(0, 6, 25)

LAWS = {
    "discrete Laplace": two_sided(Geometric(1.5, 1.0)),
    "P(1.25)": two_sided(Geometric(1.0, 1.25)),
    "P(4)": two_sided(Geometric(0.7, 4.0)),
    "Skellam": two_sided(Skellam(2.0)),
    "discrete Gaussian": (
        np.arange(-40, 41),
        np.exp(-(np.arange(-40, 41) ** 2) / 4) / np.exp(-(np.arange(-40, 41) ** 2) / 4).sum(),
    ),
}
HALF = two_sided(Geometric(1.5, 0.5))
TENTH = two_sided(Geometric(1.5, 0.1))


def line(law, reach: int) -> np.ndarray:
    """Probabilities of -reach to reach, zero where the law was cut."""
    values, probabilities = law
    whole = np.zeros(2 * reach + 1)
    kept = np.abs(values) <= reach
    whole[values[kept] + reach] = probabilities[kept]
    return whole


def deltas(law, moves: tuple[int, ...], reach: int) -> np.ndarray:
    """Hockey-stick divergences of Z from Z + moves, both directions' larger: shape (25,).

    What lies outside the box is left out, which lowers them by its mass at most.
    """
    joint = np.ones(())
    moved = np.ones(())
    wide = line(law, reach + max(map(abs, moves)))
    middle = wide.size // 2
    for move in moves:
        joint = np.multiply.outer(joint, wide[middle - reach : middle + reach + 1])
        shifted = wide[middle - reach - move : middle + reach + 1 - move]
        moved = np.multiply.outer(moved, shifted)
    return np.array(
        [
            max(
                np.maximum(joint - math.exp(one) * moved, 0).sum(),
                np.maximum(moved - math.exp(one) * joint, 0).sum(),
            )
            for one in EPSILONS
        ]
    )


def walks(dimension: int, length: int) -> list[tuple[int, ...]]:
    reach = range(-length, length + 1)
    return [
        moves
        for moves in itertools.product(reach, repeat=dimension)
        if sum(map(abs, moves)) == length and max(moves) < length and moves[0] > 0
    ]


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(("dimension", "length", "reach"), [(2, 2, 40), (2, 3, 40), (3, 3, 24)])
def test_no_walk_tells_more_than_one_coordinate(name, dimension, length, reach):
    law = LAWS[name]
    one = deltas(law, (length,), 200)
    outside = dimension * (1 - line(law, reach).sum()) + 1e-12
    for moves in walks(dimension, length):
        assert (deltas(law, moves, reach) <= one + outside).all(), moves


@pytest.mark.parametrize(("law", "excess"), [(HALF, 0.09), (TENTH, 0.5)])
def test_below_one_share_a_walk_of_two_coordinates_tells_more(law, excess):
    one = deltas(law, (3,), 200)
    assert (deltas(law, (2, 1), 60) - one).max() > excess
