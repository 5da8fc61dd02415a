"""Counts of cut coordinates under the mask: exact or rounded by a bound, and only without noise."""

import json
import logging

import numpy as np
import pytest
from encoded_alone import encode_clipped

from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.saturation_counts import (
    are_plausible,
    count_unit,
    decoded_counts,
    encoded_counts,
)
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.secagg.randomness import insecure_keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.ring import Ring
from zerosum.secagg.vectors.saturation import Cut

OPEN = PrivacySpec(model="none", clip=None)


def build(privacy=OPEN, *, cohort=4, dimension=100, **encoding):
    return Protection.build(
        privacy,
        EncodingSpec(**encoding),
        cohort=cohort,
        dimension=dimension,
        rotation_seed=bytes(32),
    )


def protect(protection, update, index=0):
    rounding = insecure_keystream(1, "rounding", index)
    noise = insecure_keystream(1, "noise", index)
    return protection.protect(update, rounding=rounding, noise=noise, whose=f"client {index}")


def opened(protection, updates):
    """Add as a session does, in the ring, and centre the sum."""
    ring = Ring(protection.ring_bits)
    total = np.zeros(protection.length, dtype=np.int64)
    for index, update in enumerate(updates):
        total += protect(protection, update, index)
    return ring.centre(ring.encode(total))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rotate", [False, True])
def test_one_of_four_that_moves_by_a_hundred_is_counted(dtype, rotate):
    protection = build(range=8.0, rotate=rotate)
    updates = [np.zeros(100, dtype) for _ in range(4)]
    updates[2][7] = 1e4 if rotate else 100.0
    cuts = protection.decode_cuts(opened(protection, updates), 4)
    if rotate:  # 1e4 / sqrt(128) = 884 in each of 128 coordinates
        assert cuts.most == cuts.least == (128, 128, 128, 0)
        assert cuts.coordinates == 4 * 128
    else:
        assert cuts.most == cuts.least == (1, 1, 0, 0)
        assert cuts.coordinates == 400


def test_counts_change_no_other_coordinate():
    protection = build(range=8.0)
    update = np.random.default_rng(0).normal(size=100).astype(np.float32)
    bare = encode_clipped(protection.encoding, update, insecure_keystream(1, "rounding", 0))
    sent = protect(protection, update)
    assert (sent[:100] == bare).all()
    assert (sent[100:] == 0).all()
    assert sent.size == protection.length == 104


@pytest.mark.parametrize(
    "privacy",
    [
        PrivacySpec(noise_multiplier=2.0, clip=1.0),
        PrivacySpec(model="local", noise_multiplier=2.0, clip=1.0),
        PrivacySpec(model="central", noise_multiplier=2.0, clip=1.0),
        PrivacySpec(noise_multiplier=2.0, clip=1.0, unit="example", examples=900, lot=90),
        PrivacySpec(
            model="local", noise_multiplier=2.0, clip=1.0, unit="example", examples=900, lot=90
        ),
    ],
)
def test_no_count_leaves_beside_noise_and_the_client_s_own_log_has_it(privacy, caplog):
    protection = build(privacy, range=0.05)
    assert protection.encoding.can_cut
    assert not protection.counts_cuts
    assert protection.length == 100
    assert protection.decode_cuts(np.zeros(100, np.int64), 1) is None
    assert "cuts" not in json.loads(protection.bounds)
    with caplog.at_level(logging.WARNING, logger="zerosum.client"):
        protect(protection, np.full(100, 0.09))
    assert "client 0: 100 of 100 coordinates were cut to 0.05; the largest was 0.09" in caplog.text


def test_a_client_logs_its_cuts_in_one_line_and_nothing_where_there_are_none(caplog):
    protection = build(range=8.0)
    with caplog.at_level(logging.WARNING, logger="zerosum.client"):
        protect(protection, np.full(100, 7.99), 1)
        assert not caplog.records
        protect(protection, np.array([100.0, -9.0] + [0.0] * 98), 3)
    assert len(caplog.records) == 1
    assert caplog.messages == [
        "client 3: 2 of 100 coordinates were cut to 8; the largest was 100 (encoding.range)"
    ]


def test_a_clip_within_the_range_needs_no_counts():
    clipped = PrivacySpec(model="none", clip=1.0)
    assert build(clipped).length == 100
    assert build(clipped, range=2.0).length == 100
    assert build(clipped, range=0.5).length == 104
    assert build(clipped, rotate=True).length == 132
    adaptive = PrivacySpec(model="none", clip=1.0, clipping="adaptive")
    assert build(adaptive).length == 101
    assert build(adaptive, rotate=True).length == 133


def test_the_adaptive_bit_and_the_counts_are_not_mistaken_for_each_other():
    protection = build(
        PrivacySpec(model="none", clip=1.0, clipping="adaptive", clip_quantile=0.5), rotate=True
    )
    plain = [np.eye(100)[i] * size for i, size in enumerate((0.5, 0.9, 2.0))]
    total = opened(protection, plain)
    assert protection.decode_bit(total) == pytest.approx(2 - 1.5)
    assert protection.decode_cuts(total, 3).most == (0, 0, 0, 0)
    np.testing.assert_allclose(
        protection.decode(total)[:3], [0.5, 0.9, 1.0], atol=3 * protection.encoding.step * 12
    )


@pytest.mark.parametrize("bits", [2, 5, 8, 16, 24, 32])
@pytest.mark.parametrize("dimension", [1, 7, 32_767, 32_768, 1_000_003])
@pytest.mark.parametrize("cohort", [2, 1000])
def test_counts_fit_the_ring_whatever_dimension_and_are_rounded_by_less_than_a_unit(
    bits, dimension, cohort
):
    """All clients count everything, then few: no sum wraps, none reads as less than it is."""
    code = Encoding.from_bits(bits, dimension=dimension, clip=None, limit=1.0)
    protection = build(cohort=cohort, dimension=dimension, bits=bits, range=1.0)
    ring, unit = Ring(protection.ring_bits), count_unit(code)
    for counts in [(dimension,) * 4, (1, 1, 1, 1), (dimension // 3 + 1, 1, 0, 0)]:
        each = encoded_counts(code, Cut(counts, dimension, 1e9, 1.0))
        assert 0 <= each.min() <= each.max() <= code.bound
        total = ring.centre(ring.encode(cohort * each))
        assert are_plausible(code, total, cohort)
        found = decoded_counts(code, total, cohort)
        for count, most, least in zip(counts, found.most, found.least, strict=True):
            true = cohort * count
            assert least <= true <= most
            assert most - least <= (unit - 1) * cohort
            assert (most > 0) == (least > 0) == (count > 0)
        assert found.coordinates == cohort * dimension


def test_ring_and_bytes_of_a_session_are_those_without_counts_and_four_words_more():
    assert build(range=8.0).ring_bits == build(PrivacySpec(model="none", clip=8.0)).ring_bits
    large = build(cohort=100, dimension=10**6, range=8.0)
    assert large.ring_bits == build(PrivacySpec(model="none", clip=8.0), cohort=100).ring_bits
    assert large.length == 10**6 + 4


@pytest.mark.parametrize(
    ("sums", "honest"),
    [
        ((0, 0, 0, 0), True),
        ((400, 400, 400, 400), True),
        ((7, 3, 3, 0), True),
        ((401, 0, 0, 0), False),
        ((-1, 0, 0, 0), False),
        ((5, 0, 0, -1), False),
        ((0, 1, 0, 0), False),
        ((9, 3, 4, 0), False),
    ],
)
def test_sums_of_counts_that_no_honest_clients_have_are_implausible(sums, honest):
    protection = build(range=8.0)
    total = np.concatenate([np.zeros(100, np.int64), np.array(sums, np.int64)])
    assert protection.is_plausible(total, 4, noised=True) is honest


def test_a_session_is_bound_to_the_counts():
    """A client that lays its vector out as before has another digest, and masks with nobody."""
    counted = build(range=8.0)
    fields = json.loads(counted.bounds)
    assert fields.pop("cuts") == [1, 10, 100, 1000]
    assert set(fields) == set(json.loads(build(PrivacySpec(model="none")).bounds))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused_and_not_counted(bad):
    update = np.zeros(100, np.float32)
    update[3] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        protect(build(range=8.0), update)
