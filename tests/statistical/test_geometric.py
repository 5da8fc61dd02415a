"""Shares of geometric noise have the law that is claimed, alone, summed and topped up."""

import math
from fractions import Fraction

import numpy as np
import pytest
from geometric_law import chi_square_p, power_of_laplace

from zerosum.client.privacy.counts import counting_mechanism
from zerosum.client.privacy.geometric import DistributedGeometric
from zerosum.secagg.randomness import insecure_keystream, system_keystream

pytestmark = pytest.mark.statistical

ALPHA = 1e-6
COHORT = 300


def stream(*indices: int):
    return insecure_keystream(4, "noise", *indices)


def summed(law: str, scale: float, survivors: int, count: int) -> tuple[np.ndarray, float]:
    """Return survivors' shares with the server's top-up, and the deviation that is claimed."""
    mechanism = counting_mechanism(law, scale, COHORT, 0.8, (1,))
    total = np.zeros(count, dtype=np.int64)
    for client in range(survivors):
        total = mechanism.apply(total, stream(survivors, client))
    if survivors < COHORT:
        total += mechanism.noise(COHORT - survivors, count, stream(survivors, COHORT))
    return total, mechanism.std(COHORT)


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_240_shares_are_one_discrete_laplace(scale: float) -> None:
    total = np.zeros(400_000, dtype=np.int64)
    for client in range(240):
        share = counting_mechanism("geometric", scale, COHORT, 0.8, (1,))
        total = share.apply(total, stream(client))
    a = math.exp(-1 / scale)
    k = np.arange(math.ceil(60 * scale))
    assert chi_square_p(total, (1 - a) / (1 + a) * a**k) > ALPHA
    for wrong in (2 / 3, 3 / 2):
        assert chi_square_p(total, power_of_laplace(wrong * scale, 1.0)) < ALPHA
    # So would Skellam shares of the same variance be rejected.
    sibling = counting_mechanism("skellam", share.std(240), COHORT, 0.8, (1,))
    skellam = sibling.noise(240, 400_000, stream())
    assert skellam.std() == pytest.approx(total.std(), rel=0.02)
    assert chi_square_p(skellam, (1 - a) / (1 + a) * a**k) < ALPHA


@pytest.mark.parametrize("r", [Fraction(1, 240), Fraction(1, 5), Fraction(5, 4)])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_a_part_has_the_power_of_the_characteristic_function(scale: float, r: Fraction) -> None:
    drawn = DistributedGeometric(scale, r, (1,)).noise(1, 4_000_000, stream())
    assert chi_square_p(drawn, power_of_laplace(scale, float(r))) > ALPHA
    for wrong in (2 / 3, 3 / 2):
        assert chi_square_p(drawn, power_of_laplace(wrong * scale, float(r))) < ALPHA
        assert chi_square_p(drawn, power_of_laplace(scale, wrong * float(r))) < ALPHA


@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("law", ["geometric", "skellam"])
def test_a_sums_deviation_is_constant_whoever_drops_out(law: str, dropout: float) -> None:
    survivors = COHORT - round(dropout * COHORT)
    total, claimed = summed(law, 10.0, survivors, 1 << 17)
    assert total.std() == pytest.approx(claimed, rel=0.02)
    # And without top-up a fifth fewer would show.
    if dropout == 0.2:
        mechanism = counting_mechanism(law, 10.0, COHORT, 0.8, (1,))
        assert abs(mechanism.std(survivors) / claimed - 1) > 0.1


def correlation(one: np.ndarray, two: np.ndarray) -> float:
    return abs(float(np.corrcoef(one, two)[0, 1])) * math.sqrt(one.size)


def test_coordinates_clients_and_chunks_are_independent() -> None:
    mechanism = DistributedGeometric(20.0, Fraction(1, 4), (1,))
    one, two = (mechanism.noise(1, 1 << 18, stream(i)) for i in range(2))
    for a, b in ((one, two), (one[:-1], one[1:]), (one[: -(1 << 14)], one[1 << 14 :])):
        assert correlation(a, b) < 5
        assert correlation(np.abs(a), np.abs(b)) < 5
    # The control: a stream that is used twice.
    assert correlation(one, mechanism.noise(1, 1 << 18, stream(0))) > 100


def test_two_draws_from_the_operating_system_differ() -> None:
    mechanism = DistributedGeometric(1e6, Fraction(1, 2), (1,))
    one, two = (mechanism.noise(1, 1 << 17, system_keystream()) for _ in range(2))
    assert np.mean(one == two) < 0.01
    assert correlation(one, two) < 6
    assert one.std() == pytest.approx(mechanism.std(1), rel=0.03)


def test_jumps_have_every_size_and_both_signs_as_often_as_they_should() -> None:
    """At scale 2^30 nearly every coordinate of P(1/1000) with a jump has one: ln-uniform sizes."""
    scale, count = 2.0**30, 1 << 22
    drawn = DistributedGeometric(scale, Fraction(1, 1000), (1,)).noise(1, count, stream())
    sizes = np.abs(drawn[drawn != 0])
    levels = np.bincount([int(k).bit_length() - 1 for k in sizes], minlength=32)[:20]
    # 2 r ln 2 of each octave far below the scale, that of 1 alone 2 r.
    expected = np.array([sum(1 / k for k in range(1 << j, 2 << j)) for j in range(12)])
    expected *= 2 / 1000 * count
    # Another jump in the same coordinate, 2 r ln s = 4 % of them, takes it elsewhere.
    assert levels[:12] == pytest.approx(expected, rel=0.08)
    assert abs(2 * np.sum(drawn > 0) - sizes.size) < 5 * math.sqrt(sizes.size)
