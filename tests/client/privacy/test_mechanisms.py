import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent

from zerosum.client.privacy.binned_gaussian import BinnedGaussian
from zerosum.client.privacy.central_gaussian import CentralGaussian
from zerosum.client.privacy.discrete_gaussian import DistributedDiscreteGaussian
from zerosum.client.privacy.events import SkellamDpEvent
from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.client.privacy.mechanism import Mechanism
from zerosum.client.privacy.noise_range import NoiseOutOfRangeError
from zerosum.client.privacy.privunit import PrivUnit
from zerosum.client.privacy.skellam import DistributedSkellam
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


MAKERS: dict[str, Callable[[float], Mechanism]] = {
    "skellam": lambda std: DistributedSkellam(10.0, 30.0, std**2),
    "discrete gaussian": lambda std: DistributedDiscreteGaussian(10.0, 30.0, std, 50),
    "binned gaussian": lambda std: BinnedGaussian(std, 10.0),
    "central gaussian": lambda std: CentralGaussian(std, 10.0),
    "discrete laplace": lambda std: DiscreteLaplace(std, 10),
    "privunit": lambda std: PrivUnit(2.0 / std, 10.0, 50),
}


DRAWN = {
    "skellam": [1e-150, 1e-30, 7e-7, 0.03, 1.0, 1e6, 1e9, 1e12],
    "discrete gaussian": [1.0, 1e6, 1e9, 1e12],
    "binned gaussian": [0.03, 0.05, 1.0, 1e6, 1e9, 1e12],
    "central gaussian": [0.03, 1e12],
    "discrete laplace": [0.01, 0.03, 1.0, 1e6, 1e9, 1e12],
    "privunit": [0.003, 0.03, 1.0, 1e3, 1e6],
}
REFUSED = {
    "skellam": [1e13, 1e18, 1e150],
    "discrete gaussian": [1e13, 1e18, 1e150],
    "binned gaussian": [1e-300, 1e-30, 7e-7, 1e-3, 0.029, 1e13, 1e18, 1e300],
    "central gaussian": [7e-7, 1e13],
    "discrete laplace": [1e-300, 1e-30, 7e-7, 1e-3, 1e13, 1e18, 1e300],
    "privunit": [1e-300, 7e-7, 2e-3, 1e7, 1e18, 1e300],
}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "std"), [(n, std) for n, stds in DRAWN.items() for std in stds])
def test_noise_in_range_is_drawn_within_a_minute(name: str, std: float) -> None:
    drawn = MAKERS[name](std).apply(np.zeros(50, dtype=np.int64), stream())
    assert drawn.any() == (std >= 0.1 or name == "privunit")


@pytest.mark.parametrize(("name", "std"), [(n, std) for n, stds in REFUSED.items() for std in stds])
def test_noise_out_of_range_is_refused(name: str, std: float) -> None:
    with pytest.raises(NoiseOutOfRangeError, match=r"privacy\.noise_multiplier"):
        MAKERS[name](std)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_must_be_positive(bad: float) -> None:
    with pytest.raises(ValueError, match="share_variance"):
        DistributedSkellam(1.0, 1.0, bad)
    with pytest.raises(ValueError, match="sigma"):
        BinnedGaussian(bad, 1.0)
