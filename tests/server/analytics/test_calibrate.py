import math

import numpy as np
import pytest

from zerosum.client.privacy.integer_laws import Skellam, two_sided
from zerosum.server.analytics.calibrate import (
    PURE_PART,
    Noise,
    UnreachableEpsilonError,
    calibrate,
    moments_weight,
)
from zerosum.server.privacy.accountant import Ledger

DELTA = 1e-6


def epsilon(noise: Noise, moves: tuple[int, ...], delta: float = DELTA) -> float:
    return Ledger("zero_out").compose(noise.receipt(moves)).epsilon(delta)


# Standard deviations of a cell, D blocks of weight 1 at delta 1e-6: geometric, exact Skellam.
TABLE = [
    (1, 0.1, 14.1, 36.3),
    (6, 0.1, 84.8, 88.9),
    (10, 0.1, 140, 115),
    (20, 0.1, 219, 162),
    (1, 1, 1.36, 3.77),
    (6, 1, 8.48, 10.32),
    (10, 1, 14.1, 13.36),
    (20, 1, 24.9, 18.9),
    (78, 1, 51.9, 37.35),
    (1, 4, 0.195, 0.380),
    (6, 4, 2.09, 2.80),
    (10, 4, 3.51, 3.72),
    (20, 4, 6.80, 5.32),
    (78, 4, 14.6, 10.55),
]


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "target", "geometric", "skellam"), TABLE)
def test_auto_takes_the_smaller_deviation_of_the_published_table(
    blocks, target, geometric, skellam
):
    moves = (1,) * blocks
    both = {
        law: calibrate(moves, epsilon=target, delta=DELTA, mechanism=law)
        for law in ("geometric", "skellam")
    }
    assert both["geometric"].std == pytest.approx(geometric, rel=0.01)
    assert both["skellam"].std == pytest.approx(skellam, rel=0.01)
    chosen = calibrate(moves, epsilon=target, delta=DELTA)
    assert chosen == both["geometric" if geometric <= skellam else "skellam"]


@pytest.mark.quick_one_in(11)
@pytest.mark.parametrize("law", ["geometric", "skellam"])
@pytest.mark.parametrize("moves", [(1,), (1,) * 12, (4096,) * 3, (1, 7, 50), (100, 100)])
@pytest.mark.parametrize("target", [0.02, 1.0, 6.0])
def test_the_least_noise_costs_epsilon_and_less_costs_more(law, moves, target):
    noise = calibrate(moves, epsilon=target, delta=DELTA, mechanism=law)
    assert epsilon(noise, moves) <= target
    less = Noise(law, noise.scale * (1 - 2 * PURE_PART))
    assert epsilon(less, moves) > target


@pytest.mark.parametrize("deviation", [0.381, 0.379])
def test_skellam_noise_of_one_count_at_epsilon_four_by_its_definition(deviation):
    # Recomputed without an accountant: sum of max(p(k) - e^4 p(k - 1), 0).
    probabilities = np.append(two_sided(Skellam(deviation**2))[1], 0.0)
    excess = np.maximum(probabilities - math.exp(4) * np.roll(probabilities, 1), 0).sum()
    assert (excess <= DELTA) == (deviation == 0.381)


@pytest.mark.parametrize("choice", [{"delta": 0.0}, {"delta": DELTA, "pure_only": True}])
def test_where_epsilon_has_to_be_pure_noise_is_geometric(choice):
    noise = calibrate((1,) * 78, epsilon=1.0, **choice)
    assert noise == Noise("geometric", 78.0)
    assert epsilon(noise, (1,) * 78, 0.0) <= 1.0
    with pytest.raises(ValueError, match="no pure epsilon"):
        calibrate((1,), epsilon=1.0, mechanism="skellam", **choice)


def test_one_count_has_a_pure_epsilon_whatever_the_delta():
    assert calibrate((1,), epsilon=0.1, delta=DELTA) == Noise("geometric", 10.0)


@pytest.mark.parametrize("whole", [1, 3, 7, 4096])
def test_a_pure_scale_never_costs_more_than_epsilon(whole):
    for target in np.linspace(0.013, 3, 200):
        noise = calibrate((whole,), epsilon=float(target), delta=0.0)
        assert whole / noise.scale <= target


@pytest.mark.slow
def test_the_choice_is_the_same_in_whatever_order_blocks_come():
    ordered = calibrate((1, 2, 3, 4), epsilon=1.0, delta=DELTA)
    assert calibrate((4, 2, 1, 3), epsilon=1.0, delta=DELTA) == ordered


def test_released_noise_is_the_guaranteed_over_the_honest_fraction():
    geometric = Noise("geometric", 10.0).receipt([1, 2], surplus=1.25)
    assert (geometric.parameters, geometric.moves) == ((10.0, 1.25), (1, 2))
    assert Noise("skellam", 10.0).receipt([1], surplus=1.25).parameters == (125.0,)


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"epsilon": 0.0, "delta": DELTA}, "epsilon is above 0"),
        ({"epsilon": math.nan, "delta": DELTA}, "epsilon is above 0"),
        ({"epsilon": math.inf, "delta": DELTA}, "epsilon is above 0"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta lies"),
        ({"epsilon": 1.0, "delta": DELTA, "mechanism": "laplace"}, "mechanism is"),
    ],
)
def test_what_cannot_be_met_is_refused(asked, match):
    with pytest.raises(ValueError, match=match):
        calibrate((1,), **asked)


@pytest.mark.parametrize("moves", [(), (1, 0)])
def test_a_query_that_moves_nothing_is_refused(moves):
    with pytest.raises(ValueError, match="moves are"):
        calibrate(moves, epsilon=1.0, delta=0.0)


def test_an_epsilon_below_the_reach_of_renyi_divergences_takes_geometric_noise():
    moves = (4096,) * 40
    with pytest.raises(UnreachableEpsilonError, match="no skellam noise"):
        calibrate(moves, epsilon=1e-3, delta=DELTA, mechanism="skellam")
    noise = calibrate(moves, epsilon=1e-3, delta=DELTA)
    assert noise.law == "geometric"
    assert epsilon(noise, moves) <= 1e-3


def test_noise_out_of_reach_is_refused():
    with pytest.raises(UnreachableEpsilonError, match="raise epsilon"):
        calibrate((2**40,), epsilon=1e-3, delta=DELTA)


@pytest.mark.parametrize(
    ("records", "target", "weight"),
    [(48_842, 1.0, 4096), (48_842, 0.1, 256), (1, 0.01, 64), (2**20, 1.0, 16_384)],
)
def test_a_weight_of_moments_hides_their_rounding(records, target, weight):
    assert moments_weight(records, target) == weight
    assert records * target**2 / (8 * weight**2) <= 1e-3


@pytest.mark.parametrize(
    ("records", "target"), [(0, 1.0), (1, 0.0), (1, math.nan), (10, 1e9), (10, 1e300)]
)
def test_a_weight_out_of_range_is_refused(records, target):
    with pytest.raises(ValueError, match="epsilon"):
        moments_weight(records, target)
