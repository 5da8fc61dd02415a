import json
import logging
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from zerosum.client.privacy.binned_gaussian import BinnedGaussian
from zerosum.client.privacy.skellam import DistributedSkellam
from zerosum.client.protocol.protection import Protection, UnusableUpdateError
from zerosum.client.protocol.training_outcomes import NOT_FINITE_CURE, quoted
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.secagg.randomness import Keystream, insecure_keystream
from zerosum.secagg.vectors.vector_sum import VectorSum
from zerosum.secagg.vectors.wrapping import MessageCanWrapError

DISTRIBUTED = PrivacySpec(noise_multiplier=2.0, clip=1.0, honest_fraction=0.8)
LOCAL = PrivacySpec(model="local", noise_multiplier=2.0, clip=1.0)
NONE = PrivacySpec(model="none", clip=1.0)


def build(privacy: PrivacySpec = DISTRIBUTED, *, cohort: int = 10, **encoding) -> Protection:
    return Protection.build(
        privacy,
        EncodingSpec(**encoding),
        cohort=cohort,
        dimension=300,
        rotation_seed=bytes(32),
    )


def stream(purpose: str, *indices: int) -> Keystream:
    return insecure_keystream(11, purpose, *indices)


def protect(protection: Protection, update: np.ndarray, index: int = 0) -> np.ndarray:
    return protection.protect(
        update, rounding=stream("rounding", index), noise=stream("noise", index)
    )


def unit(seed: int = 0) -> np.ndarray:
    vector = np.random.default_rng(seed).normal(size=300)
    return vector / np.linalg.norm(vector)


def test_share_variance_divides_the_guaranteed_total() -> None:
    protection = build(cohort=25)
    assert isinstance(protection.mechanism, DistributedSkellam)
    l2 = protection.encoding.l2_sensitivity
    assert protection.mechanism.share_variance == pytest.approx((2 * l2) ** 2 / (0.8 * 25))
    assert protection.std_sum == pytest.approx(2 * l2 / math.sqrt(0.8) * protection.encoding.step)


def test_local_noise_is_whole_at_each_client() -> None:
    protection = build(LOCAL)
    assert protection.mechanism == BinnedGaussian(
        2 * protection.encoding.l2_sensitivity, protection.encoding.l2_sensitivity
    )
    assert protection.std_contribution == pytest.approx(2.0, rel=0.01)


def test_without_privacy_the_sum_decodes_to_the_sum() -> None:
    protection = build(NONE, rotate=True)
    total = np.sum([protect(protection, unit(i), i) for i in range(5)], axis=0)
    expected = sum(unit(i) for i in range(5))
    assert protection.length == 512 + 4  # a rotated coordinate may exceed 6 C / sqrt(d): counted
    assert np.allclose(protection.decode(total), expected, atol=1e-3)


def test_noise_drawn_elsewhere_is_left_out() -> None:
    bare = build().protect(unit(), rounding=stream("rounding"), noise=None)
    assert (bare == build(NONE).protect(unit(), rounding=stream("rounding"), noise=None)).all()


@pytest.mark.parametrize("privacy", [DISTRIBUTED, LOCAL])
def test_the_noise_does_not_depend_on_the_update(privacy: PrivacySpec) -> None:
    protection = build(privacy)
    bare = protection.protect(unit(), rounding=stream("rounding", 0), noise=None)
    noised = protect(protection, unit())
    assert (noised - bare == protection.zero(stream("noise", 0))).all()


ADAPTIVE = PrivacySpec(clipping="adaptive", clip=1.0, noise_multiplier=2.0)


@pytest.mark.parametrize("own_noise", [True, False], ids=["own-noise", "no-noise"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("privacy", "encoding"),
    [
        (DISTRIBUTED, {}),
        (DISTRIBUTED, {"rotate": True, "range": 0.2}),
        (LOCAL, {}),
        (NONE, {}),
        (PrivacySpec(model="none", clip=None), {"range": 0.5}),
        (ADAPTIVE, {}),
    ],
    ids=["distributed", "rotated", "local", "clipped", "open", "adaptive"],
)
def test_a_sum_is_added_what_each_client_would_send(privacy, encoding, dtype, own_noise) -> None:
    protection = build(privacy, **encoding)
    updates = [(scale * unit(i)).astype(dtype) for i, scale in enumerate([0.3, 1.0, 9.0, 0.0, 2.0])]
    updates.append(np.full(300, math.nan, dtype))
    total, expected = VectorSum(protection.length), np.zeros(protection.length, np.int64)
    for i, update in enumerate(updates):

        def coins(i: int = i) -> dict[str, Any]:
            noise = stream("noise", i) if own_noise else None
            return {"rounding": stream("rounding", i), "noise": noise}

        try:
            expected += protection.protect(update, **coins())
        except UnusableUpdateError:
            with pytest.raises(UnusableUpdateError):
                protection.add_protected(update, total, **coins())
        else:
            protection.add_protected(update, total, **coins())
    found = total.integers()
    assert (found == expected).all()
    assert found.any()


@pytest.mark.parametrize("privacy", [DISTRIBUTED, LOCAL])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_unusable_update_becomes_zero_plus_noise_and_is_logged_at_home(
    privacy: PrivacySpec, bad: float, caplog: pytest.LogCaptureFixture
) -> None:
    protection = build(privacy)
    update = unit()
    update[7] = bad
    with caplog.at_level(logging.WARNING, logger="zerosum.client"):
        sent = protect(protection, update)
    assert (sent == protection.zero(stream("noise", 0))).all()
    assert "1 of 300 entries" in caplog.text


def test_without_privacy_an_unusable_update_is_an_error() -> None:
    with pytest.raises(UnusableUpdateError, match="NaN"):
        protect(build(NONE), np.full(300, math.nan))
    with pytest.raises(UnusableUpdateError, match="drops out"):
        build(NONE).zero(stream("noise"))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_without_privacy_an_update_that_is_not_finite_names_the_cure_in_a_quoted_line(bad) -> None:
    with pytest.raises(UnusableUpdateError) as raised:
        protect(build(NONE), np.full(300, bad))
    assert quoted(raised.value).endswith(f": {NOT_FINITE_CURE}")


@pytest.mark.parametrize("privacy", [DISTRIBUTED, LOCAL])
def test_under_privacy_the_cure_is_in_the_clients_own_log_and_its_notes(privacy, caplog) -> None:
    told: list[Exception] = []
    update = np.full(300, math.nan)
    with caplog.at_level(logging.WARNING, logger="zerosum.client"):
        build(privacy).protect(
            update, rounding=stream("r"), noise=stream("noise", 0), unusable=told.append
        )
    assert NOT_FINITE_CURE in caplog.text
    assert quoted(told[0]).endswith(f": {NOT_FINITE_CURE}")


@pytest.mark.parametrize("privacy", [DISTRIBUTED, LOCAL])
def test_unusable_update_of_any_type_becomes_zero_plus_noise(privacy: PrivacySpec) -> None:
    protection = build(privacy)
    huge = np.array([10**400] * 300, dtype=object)
    updates: list[Any] = [huge, None, ["a"] * 300, np.ones(300) * 1j, {}, []]
    for update in updates:
        sent = protection.protect(update, rounding=stream("r"), noise=stream("noise", 0))
        assert (sent == protection.zero(stream("noise", 0))).all()
    with pytest.raises(UnusableUpdateError):
        protect(build(NONE), huge)


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("dtype", ["c8", "?", "O", "U", "masked"])
def test_what_is_no_vector_of_real_numbers_is_an_error_clipped_or_not(
    dtype: str, clip: float | None
) -> None:
    protection = build(PrivacySpec(model="none", clip=clip), range=1.0)
    update: np.ndarray = np.full(300, 0.5, "f4")
    if dtype == "masked":
        update = np.ma.masked_array(update, np.arange(300) == 2)
    else:
        update = update.astype(dtype)
    total = VectorSum(protection.length)
    with pytest.raises(UnusableUpdateError, match=r"real numbers|masked"):
        protection.add_protected(update, total, rounding=stream("rounding"), noise=None)
    assert not total.integers().any()


def test_zero_without_noise_is_never_made_where_the_noise_is_inside() -> None:
    inside = PrivacySpec(
        model="local", unit="example", examples=100, lot=10, clip=1.0, noise_multiplier=1.0
    )
    protection = build(inside, range=10.0)
    with pytest.raises(ValueError, match="drawn in training"):
        protection.zero(stream("noise"))
    protection.check_usable(np.zeros(300))
    unusable: list[Any] = [np.zeros(5), np.full(300, math.nan), None]
    for bad in unusable:
        with pytest.raises(UnusableUpdateError):
            protection.check_usable(bad)


def test_update_of_the_wrong_length_becomes_zero_plus_noise() -> None:
    assert (protect(build(), np.zeros(5)) == build().zero(stream("noise", 0))).all()


@pytest.mark.parametrize("survivors", [0, 7, 9])
def test_top_up_draws_what_is_missing(survivors: int) -> None:
    protection = build(cohort=10, bits=8)
    noise = protection.top_up(survivors, stream("server"))
    assert noise is not None
    assert noise.shape == (300,)
    expected = protection.mechanism.std(10 - survivors)  # type: ignore[union-attr]
    assert noise.std() == pytest.approx(expected, rel=0.15)


def test_a_whole_cohort_needs_no_top_up() -> None:
    assert build(cohort=10).top_up(10, stream("server")) is None


def test_no_top_up_without_shares_or_by_request() -> None:
    off = DISTRIBUTED.model_copy(update={"top_up": False})
    for privacy in (off, LOCAL, NONE):
        assert build(privacy).top_up(5, stream("server")) is None


def test_more_survivors_than_clients_are_refused() -> None:
    with pytest.raises(ValueError, match="11 survivors"):
        build(cohort=10).top_up(11, stream("server"))


def test_summed_noise_has_the_deviation_of_all_shares() -> None:
    for privacy, survivors in ((DISTRIBUTED, 10), (LOCAL, 7)):
        protection = build(privacy, cohort=10, bits=8)
        noise = protection.summed_noise(survivors, stream("server"))
        assert noise is not None
        expected = protection.mechanism.std(survivors)  # type: ignore[union-attr]
        assert noise.std() == pytest.approx(expected, rel=0.15)
    assert build(NONE).summed_noise(5, stream("server")) is None


def test_both_sides_agree_on_every_parameter() -> None:
    base = build()
    assert base.bounds == build().bounds
    json.loads(base.bounds)
    others = [
        build(DISTRIBUTED.model_copy(update={"noise_multiplier": 2.1})),
        build(DISTRIBUTED.model_copy(update={"clip": 1.1})),
        build(DISTRIBUTED.model_copy(update={"honest_fraction": 0.9})),
        build(DISTRIBUTED.model_copy(update={"top_up": False})),
        build(LOCAL),
        build(NONE),
        build(cohort=11),
        build(bits=15),
        build(range=0.9),
        build(rotate=True),
        build(ring_bits=40),
    ]
    assert len({p.bounds for p in [base, *others]}) == 12


def test_the_ring_is_sized_for_message_and_noise() -> None:
    protection = build(cohort=100)
    assert protection.log2_wrap_probability <= -40
    assert protection.ring_bits <= 24
    assert build(NONE, cohort=100).log2_wrap_probability == -math.inf


def test_a_ring_too_small_for_the_message_is_refused() -> None:
    with pytest.raises(MessageCanWrapError, match="ring_bits = 18"):
        build(cohort=10, ring_bits=18)


def test_an_unresolved_noise_multiplier_is_refused() -> None:
    with pytest.raises(ValueError, match="must be found"):
        build(PrivacySpec(epsilon=3.0))


@pytest.mark.slow
def test_a_deployed_client_imports_neither_torch_nor_dp_accounting() -> None:
    code = (
        "import sys, zerosum.client.protocol.protection\n"
        "heavy = {'torch', 'dp_accounting', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def of_records(**privacy) -> Protection:
    return Protection.build(
        DISTRIBUTED.model_copy(update=privacy),
        EncodingSpec(bits=16, range=30.0),
        cohort=10,
        dimension=300,
        rotation_seed=bytes(32),
        records=True,
    )


def test_sum_of_records_is_not_clipped_and_noise_hides_one_record() -> None:
    protection = of_records()
    total = 20 * unit()
    bare = protection.protect(total, rounding=stream("rounding"), noise=None)
    assert np.linalg.norm(protection.decode(bare)) == pytest.approx(20, rel=1e-3)
    assert protection.encoding.clip is not None
    assert protection.mechanism is not None
    one = protection.encoding.clip / protection.encoding.step
    assert one >= 100 * math.sqrt(300) * (1 - 1e-12)
    assert protection.encoding.l2_sensitivity == pytest.approx(one + math.sqrt(300))
    # z = 2: at most 1 % more noise than two clips of a record.
    assert protection.mechanism.std(8) * protection.encoding.step == pytest.approx(2, rel=0.011)
    assert protection.mechanism.std(8) * protection.encoding.step > 2


def test_one_record_more_moves_what_is_sent_by_its_sensitivity_at_most() -> None:
    protection = of_records()
    for seed in range(50):
        others = 9 * unit(seed)
        with_it, without = (
            protection.protect(total, rounding=stream("rounding", seed), noise=None)
            for total in (others + unit(seed + 1), others)
        )
        moved = with_it - without
        assert np.linalg.norm(moved) <= protection.encoding.l2_sensitivity
        assert np.abs(moved).sum() <= protection.encoding.l1_sensitivity


def test_records_need_a_range() -> None:
    with pytest.raises(ValueError, match="range of its own"):
        Protection.build(
            DISTRIBUTED,
            EncodingSpec(),
            cohort=10,
            dimension=300,
            rotation_seed=bytes(32),
            records=True,
        )
