import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, get_sigma_gaussian

from zerosum.client.events import SkellamDpEvent
from zerosum.client.mechanisms import (
    BinnedGaussian,
    DistributedSkellam,
    analytic_gaussian_sigma,
    gaussian_delta,
)
from zerosum.secagg.randomness import insecure_keystream

SKELLAM = DistributedSkellam(l2_sensitivity=10.0, l1_sensitivity=30.0, share_variance=400.0)
BINNED = BinnedGaussian(sigma=20.0, l2_sensitivity=10.0)


def stream(*indices: int):
    return insecure_keystream(3, "noise", *indices)


@pytest.mark.parametrize("mechanism", [SKELLAM, BINNED])
def test_noise_is_added_to_the_vector(mechanism: DistributedSkellam | BinnedGaussian) -> None:
    vector = np.arange(-50, 50)
    noise = mechanism.apply(np.zeros(100, dtype=np.int64), stream())
    assert (mechanism.apply(vector, stream()) - vector == noise).all()
    assert noise.dtype == np.int64
    assert noise.any()


@pytest.mark.parametrize("mechanism", [SKELLAM, BINNED])
def test_the_claimed_deviation_is_drawn(mechanism: DistributedSkellam | BinnedGaussian) -> None:
    noise = mechanism.apply(np.zeros(100_000, dtype=np.int64), stream())
    assert noise.std() == pytest.approx(mechanism.std(1), rel=0.02)


def test_shares_add_up() -> None:
    assert SKELLAM.std(4) == pytest.approx(40.0)
    assert SKELLAM.event(2.5) == SkellamDpEvent(10.0, 30.0, 1000.0)
    assert SKELLAM.noise(9, 50_000, stream()).std() == pytest.approx(60.0, rel=0.02)


def test_rounded_gaussian_noise_is_charged_as_one_share() -> None:
    assert BINNED.event(1) == BINNED.event(50) == GaussianDpEvent(2.0)
    with pytest.raises(ValueError, match="divided"):
        BINNED.event(0.5)


def test_a_mechanism_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        SKELLAM.share_variance = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_must_be_positive(bad: float) -> None:
    with pytest.raises(ValueError, match="share_variance"):
        DistributedSkellam(1.0, 1.0, bad)
    with pytest.raises(ValueError, match="sigma"):
        BinnedGaussian(bad, 1.0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.4, 60.0])
def test_the_analytic_calibration_meets_its_target(epsilon: float) -> None:
    sigma = analytic_gaussian_sigma(epsilon, 1e-5, sensitivity=3.0)
    assert gaussian_delta(epsilon, 3 / sigma) <= 1e-5
    assert gaussian_delta(epsilon, 3 / (sigma * 0.999)) > 1e-5
    assert sigma == pytest.approx(3 * get_sigma_gaussian(epsilon, 1e-5), rel=1e-6)


def test_the_known_gaussian_case_is_met() -> None:
    # gauss_single of vectors/epsilons.csv.
    assert analytic_gaussian_sigma(4.377178095681224, 1e-5, 1.0) == pytest.approx(1.0, rel=1e-6)


def test_a_huge_epsilon_neither_overflows_nor_leaks() -> None:
    assert gaussian_delta(5000.0, 1.0) == 0.0
    assert gaussian_delta(0.0, 1e-3) == pytest.approx(3.989e-4, rel=1e-3)
