"""The clip finds the quantile it is told to find, with noise and without."""

import math
from typing import Any

import numpy as np
import pytest

from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.secagg.randomness import insecure_keystream
from zerosum.server.training.adaptive_clip import LARGEST, SMALLEST, Clip

COHORT, DIMENSION = 50, 20
NORMS = np.exp(np.random.default_rng(3).normal(size=COHORT))


def privacy(**settings) -> PrivacySpec:
    values: dict[str, Any] = {"clipping": "adaptive", "clip": 0.01, "noise_multiplier": 0.5}
    return PrivacySpec(**(values | {"clip_rate": 0.3} | settings))


def update(norm: float) -> np.ndarray:
    vector = np.zeros(DIMENSION)
    vector[7] = -norm
    return vector


def opened(clip: Clip, number: int, survivors: int = COHORT) -> float | None:
    """Run one round's sum of updates through the whole envelope; return the bit."""
    protection = Protection.build(
        clip.privacy,
        EncodingSpec(),
        cohort=COHORT,
        dimension=DIMENSION,
        rotation_seed=bytes(32),
    )
    total = np.zeros(protection.length, dtype=np.int64)
    for client in range(survivors):
        rounding, noise = (
            insecure_keystream(4, name, number, client) for name in ("rounding", "noise")
        )
        total += protection.protect(update(NORMS[client]), rounding=rounding, noise=noise)
    extra = protection.top_up(survivors, insecure_keystream(4, "server", number))
    return protection.decode_bit(total if extra is None else total + extra)


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("start", [0.01, 30.0])
def test_without_noise_the_clip_finds_the_quantile(quantile: float, start: float) -> None:
    clip = Clip(privacy(model="none", noise_multiplier=None, clip_quantile=quantile, clip=start))
    for number in range(80):
        clip.follow(opened(clip, number), COHORT)
    assert np.mean(clip.value >= NORMS) == pytest.approx(quantile, abs=0.05)


@pytest.mark.slow
def test_with_noise_it_stays_around_the_quantile() -> None:
    clip, fractions = Clip(privacy(honest_fraction=0.9)), []
    for number in range(80):
        clip.follow(opened(clip, number), COHORT)
        fractions.append(np.mean(clip.value >= NORMS))
    assert np.mean(fractions[40:]) == pytest.approx(0.5, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("settings", [{"model": "none", "noise_multiplier": None}, {}])
def test_dropouts_do_not_move_the_quantile_that_is_found(quantile: float, settings) -> None:
    """Divided by the expected cohort, of which seven in ten are left."""
    clip, fractions = Clip(privacy(honest_fraction=0.6, clip_quantile=quantile, **settings)), []
    for number in range(160):
        clip.follow(opened(clip, number, survivors=35), COHORT)
        fractions.append(np.mean(clip.value >= NORMS[:35]))
    assert np.mean(fractions[80:]) == pytest.approx(quantile, abs=0.06)


def test_a_round_moves_the_clip_by_the_rule() -> None:
    clip = Clip(privacy(clip=2.0, clip_rate=0.2, clip_quantile=0.8))
    assert clip.follow(20.0, 100) == 1.0
    assert clip.value == pytest.approx(2 * math.exp(-0.2 * (1.0 - 0.8)))
    clip = Clip(privacy(clip=2.0, clip_rate=0.2, clip_quantile=0.5))
    assert clip.follow(50.0, 100) == 1.0
    assert clip.value == pytest.approx(2 * math.exp(-0.1))
    assert clip.privacy.clip == clip.value
    # Beyond what a count can be, noise says no more than its end.
    assert clip.follow(1e9, 100) == 1.0
    assert clip.value == pytest.approx(2 * math.exp(-0.2))


def test_it_is_stopped_before_it_leaves_the_numbers() -> None:
    clip = Clip(privacy(clip=1.0, clip_rate=10.0))
    for _ in range(100):
        clip.follow(-50.0, 100)
    assert clip.value == LARGEST
    for _ in range(100):
        clip.follow(50.0, 100)
    assert clip.value == SMALLEST
    clip.privacy.model_validate(clip.privacy.model_dump())


def test_a_flat_clip_stays() -> None:
    flat = PrivacySpec(noise_multiplier=1.0)
    clip = Clip(flat)
    assert clip.follow(None, 100) is None
    assert clip.privacy is flat


def test_the_sensitivity_in_steps_does_not_move_with_the_clip() -> None:
    """What the ledger was told before the first round holds in every round."""
    built = [
        Protection.build(
            privacy(clip=value),
            EncodingSpec(rotate=rotate),
            cohort=COHORT,
            dimension=DIMENSION,
            rotation_seed=bytes(32),
        )
        for rotate in (False, True)
        for value in (1e-9, 0.3, 7e8)
    ]
    for group in (built[:3], built[3:]):
        ratios = {round(p.encoding.l2_sensitivity, 6) for p in group}
        assert len(ratios) == 1


def test_an_update_that_is_unusable_says_nothing_about_its_norm() -> None:
    protection = Protection.build(
        privacy(), EncodingSpec(), cohort=10, dimension=DIMENSION, rotation_seed=bytes(32)
    )
    rounding = insecure_keystream(4, "rounding")
    sent = protection.protect(np.full(DIMENSION, math.nan), rounding=rounding, noise=None)
    assert not sent.any()
    assert protection.decode_bit(sent) == 0
