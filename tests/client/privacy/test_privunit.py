import math

import numpy as np
import pytest
from scipy.special import betainc, betaincinv

from zerosum.client.privacy.noise_range import NoiseOutOfRangeError
from zerosum.client.privacy.privunit import PrivUnit
from zerosum.secagg.randomness import insecure_keystream
from zerosum.secagg.vectors.encoding import Encoding

RADIUS = 10_000.0


def outputs(mechanism: PrivUnit, vector: np.ndarray, count: int) -> np.ndarray:
    return np.array(
        [mechanism.apply(vector, insecure_keystream(8, "draw", i)) for i in range(count)]
    )


@pytest.mark.parametrize("dimension", [2, 50, 1000, 200_000])
@pytest.mark.parametrize("epsilon", [0.5, 4.4, 30.0])
def test_two_densities_differ_by_no_more_than_e_to_the_epsilon(dimension, epsilon):
    cap = PrivUnit(epsilon, RADIUS, dimension)._cap
    a = (dimension - 1) / 2
    tail = betainc(a, a, (1 - cap.height) / 2)
    inside, beyond = cap.chance / tail, (1 - cap.chance) / (1 - tail)
    assert math.log(inside / beyond) == pytest.approx(epsilon, rel=1e-9)
    assert 0 < cap.mean < 1


@pytest.mark.parametrize("dimension", [2, 3, 100, 10_000])
@pytest.mark.parametrize("epsilon", [36.0, 60.0, 200.0])
def test_cap_and_coin_are_exact_at_a_large_epsilon(dimension, epsilon):
    cap = PrivUnit(epsilon, RADIUS, dimension)._cap
    a = (dimension - 1) / 2
    edge = betaincinv(a, a, cap.inside)
    assert 0 < betainc(a, a, edge) == pytest.approx(cap.inside, rel=1e-9)
    assert cap.miss >= 2.0**-100
    # As drawn: the ratio of the density in the cap to that beyond it.
    ratio = math.log1p(-cap.miss) - math.log(cap.inside)
    ratio -= math.log(cap.miss) - math.log1p(-cap.inside)
    assert ratio == pytest.approx(epsilon, rel=1e-9)


def test_at_a_large_epsilon_an_output_is_not_the_direction_itself():
    mechanism = PrivUnit(60.0, RADIUS, 10_000)
    vector = np.zeros(10_000, dtype=np.int64)
    vector[7] = RADIUS
    cosines = outputs(mechanism, vector, 20)[:, 7] / mechanism._length
    assert (cosines < 0.5).all()
    assert (cosines >= mechanism._cap.height - 1e-3).all()


def test_a_cap_that_floats_cannot_hold_is_refused():
    with pytest.raises(NoiseOutOfRangeError, match="2 dimensions"):
        PrivUnit(600.0, RADIUS, 2)
    assert PrivUnit(600.0, RADIUS, 1000)._cap.mean > 0.5


def test_the_split_is_the_best_there_is():
    mechanism = PrivUnit(4.4, RADIUS, 60)
    means = [mechanism._cap_at(4.4 * part).mean for part in (0.0, 0.3, 0.6, 0.95, 1.0)]
    assert mechanism._cap.mean > max(means)
    # A cap of half the sphere and no coin beyond it: what Duchi et al. (2013) did.
    half = math.gamma(30) / (math.sqrt(math.pi) * math.gamma(30.5)) * math.tanh(2.2)
    assert means[0] == pytest.approx(half, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("length", [0.0, 0.4, 1.0])
def test_the_mean_of_the_outputs_is_the_vector(length):
    mechanism = PrivUnit(3.0, RADIUS, 20)
    vector = np.zeros(20, dtype=np.int64)
    vector[3], vector[4] = round(0.6 * length * RADIUS), round(-0.8 * length * RADIUS)
    drawn = outputs(mechanism, vector, 4000)
    error = drawn.std(axis=0) / math.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - vector) < 5 * error).all()


def test_every_privunit_output_has_the_same_norm():
    mechanism = PrivUnit(3.0, RADIUS, 200)
    code = Encoding.from_bits(16, dimension=200, clip=1.0)
    for vector in (np.zeros(200, dtype=np.int64), np.full(200, 700)):
        norms = np.linalg.norm(outputs(mechanism, vector, 50), axis=1)
        assert norms == pytest.approx(mechanism._length, rel=1e-3)
    assert np.abs(outputs(mechanism, vector, 50)).max() <= mechanism.bound(code)


def test_the_claimed_deviation_is_that_of_zero_vectors():
    mechanism = PrivUnit(2.0, RADIUS, 100)
    drawn = outputs(mechanism, np.zeros(100, dtype=np.int64), 1000)
    assert drawn.std() == pytest.approx(mechanism.std(1), rel=0.02)
    assert mechanism.std(4) == pytest.approx(2 * mechanism.std(1))


def test_float_sampling_is_said_to_be_unproved():
    assert "unproved" in PrivUnit(1.0, RADIUS, 10).caveat


def test_privunit_without_a_sphere_or_a_scale_is_refused():
    with pytest.raises(ValueError, match="2 coordinates"):
        PrivUnit(1.0, RADIUS, 1)
    with pytest.raises(ValueError, match="epsilon"):
        PrivUnit(math.inf, RADIUS, 10)
    with pytest.raises(ValueError, match="divided"):
        PrivUnit(1.0, RADIUS, 10).event(0.5)
