"""A zero update through the whole envelope: the noise at the server is what was claimed."""

import math

import numpy as np
import pytest

from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.survivors import min_survivors
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.secagg.randomness import insecure_keystream

pytestmark = pytest.mark.statistical

COHORT, DIMENSION = 50, 1 << 15


def build(*, rotate: bool = False, **privacy) -> Protection:
    spec = PrivacySpec(**{"noise_multiplier": 1.5, "honest_fraction": 0.6} | privacy)
    return Protection.build(
        spec,
        EncodingSpec(rotate=rotate),
        cohort=COHORT,
        dimension=DIMENSION,
        rotation_seed=bytes(range(32)),
    )


def summed(protection: Protection, survivors: int, *, topped_up: bool = True) -> np.ndarray:
    total = np.zeros(protection.length, dtype=np.int64)
    for client in range(survivors):
        rounding, noise = (
            insecure_keystream(9, purpose, survivors, client) for purpose in ("round", "noise")
        )
        total += protection.protect(np.zeros(DIMENSION), rounding=rounding, noise=noise)
    extra = protection.top_up(survivors, insecure_keystream(9, "server", survivors))
    if topped_up and extra is not None:
        total += extra
    return protection.decode(total)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.3])
def test_the_noise_of_a_sum_is_constant_whoever_drops_out(rotate: bool, dropout: float) -> None:
    protection = build(rotate=rotate)
    survivors = COHORT - math.floor(dropout * COHORT)
    assert survivors >= min_survivors(0.6, COHORT)
    claimed = 1.5 * protection.encoding.l2_sensitivity * protection.encoding.step / math.sqrt(0.6)
    assert protection.std_sum == pytest.approx(claimed, rel=1e-9)
    assert summed(protection, survivors).std() == pytest.approx(claimed, rel=0.02)


def test_without_top_up_the_noise_tells_how_many_dropped_out() -> None:
    protection = build()
    whole, fewer = (summed(protection, n, topped_up=False).std() for n in (COHORT, 35))
    assert fewer / whole == pytest.approx(math.sqrt(0.7), rel=0.02)
    assert abs(fewer / protection.std_sum - 1) > 0.1


def test_the_guaranteed_survivors_carry_the_guaranteed_noise() -> None:
    protection = build()
    fewest = summed(protection, min_survivors(0.6, COHORT), topped_up=False)
    guaranteed = 1.5 * protection.encoding.l2_sensitivity * protection.encoding.step
    assert fewest.std() == pytest.approx(guaranteed, rel=0.02)


def test_one_draw_for_all_has_the_same_deviation() -> None:
    protection = build()
    once = protection.summed_noise(35, insecure_keystream(9, "once"))
    assert once is not None
    assert protection.decode(once).std() == pytest.approx(protection.std_sum, rel=0.02)


def test_local_noise_adds_up_from_each_client() -> None:
    protection = build(model="local")
    assert summed(protection, COHORT).std() == pytest.approx(protection.std_sum, rel=0.02)
    assert protection.std_contribution == pytest.approx(
        1.5 * protection.encoding.l2_sensitivity * protection.encoding.step
    )
