import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from encoded_alone import encode_clipped
from hypothesis import given, settings
from hypothesis import strategies as st

from zerosum.secagg.randomness import insecure_keystream
from zerosum.secagg.vectors.encoding import Encoding, sum_of_squares
from zerosum.secagg.vectors.rotation import walsh_hadamard
from zerosum.secagg.vectors.sensitivity import l1_rounded, l1_sensitivity, l2_sensitivity

SEED = bytes(range(32))


def coins(*indices: int):
    return insecure_keystream(7, "rounding", *indices)


def clipped(dimension: int, clip: float, seed: int = 0) -> np.ndarray:
    vector = np.random.default_rng(seed).normal(size=dimension)
    return vector * clip / np.linalg.norm(vector)


def test_bits_set_the_step() -> None:
    encoding = Encoding.from_bits(16, dimension=5, clip=0.5)
    assert encoding.bound == 32767
    assert encoding.limit / encoding.step == pytest.approx(2**15 - 1, rel=1e-15)


def test_a_rotated_range_is_six_deviations() -> None:
    encoding = Encoding.from_bits(12, dimension=1000, clip=2.0, rotation_seed=SEED)
    assert encoding.length == 1024
    assert encoding.limit == pytest.approx(12 / 32)


def test_a_range_is_required_without_a_clip() -> None:
    with pytest.raises(ValueError, match=r"encoding\.range"):
        Encoding.from_bits(16, dimension=5, clip=None)


@pytest.mark.parametrize("rotation", [None, SEED])
@pytest.mark.parametrize("dimension", [1, 3, 64, 100])
def test_decoding_an_encoding_is_within_the_steps(rotation: bytes | None, dimension: int) -> None:
    encoding = Encoding.from_bits(
        20, dimension=dimension, clip=1.0, limit=1, rotation_seed=rotation
    )
    vector = clipped(dimension, 1.0)
    decoded = encoding.decode(encoding.encode(vector, coins()))
    assert np.linalg.norm(decoded - vector) <= encoding.step * math.sqrt(encoding.length)


def test_a_sum_decodes_to_the_sum() -> None:
    encoding = Encoding.from_bits(16, dimension=100, clip=1.0, rotation_seed=SEED)
    vectors = [clipped(100, 1.0, seed) for seed in range(10)]
    total = np.sum([encoding.encode(v, coins(i)) for i, v in enumerate(vectors)], axis=0)
    assert np.allclose(encoding.decode(total), sum(vectors), atol=20 * encoding.step)


@settings(max_examples=40)
@given(
    dimension=st.integers(1, 200),
    bits=st.integers(2, 20),
    scale=st.floats(0.1, 3),
    rotate=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_no_encoded_norm_exceeds_the_sensitivity(
    dimension: int, bits: int, scale: float, rotate: bool, seed: int
) -> None:
    rotation = SEED if rotate else None
    encoding = Encoding.from_bits(bits, dimension=dimension, clip=1.0, rotation_seed=rotation)
    # Longer than the clip on purpose: the integers must hold whatever the floats did.
    encoded = encoding.encode(clipped(dimension, scale, seed), coins(seed))
    assert sum_of_squares(encoded) <= math.floor(encoding.l2_sensitivity**2)
    assert np.abs(encoded).max() <= encoding.bound
    assert encoded.dtype == np.int64


def test_a_vector_too_long_to_round_is_truncated_and_then_dropped() -> None:
    encoding = Encoding(dimension=4, limit=10.0, bound=1000, clip=1.0)
    assert not encoding.encode(np.full(4, 9.0), coins()).any()


def test_truncation_is_tried_before_zero() -> None:
    encoding = Encoding(dimension=10_000, limit=1.0, bound=10, clip=1.0)
    # Every coordinate is 0.99 steps: rounding gives nearly all ones, far above Delta2.
    vector = np.full(10_000, 0.099)
    vector[0] = 1.0
    encoded = encoding.encode(vector, coins())
    assert encoded[0] == 10
    assert not encoded[1:].any()


def test_rounding_without_a_clip_is_plain_and_clamped() -> None:
    encoding = Encoding(dimension=3, limit=1.0, bound=100)
    assert list(encoding.encode([5.0, -5.0, 0.25], coins())) == [100, -100, 25]
    with pytest.raises(ValueError, match="no sensitivity"):
        _ = encoding.l2_sensitivity


def test_rounding_is_unbiased_without_a_clip() -> None:
    encoding = Encoding(dimension=40_000, limit=1.0, bound=10)
    mean = encoding.encode(np.full(40_000, 0.123), coins()).mean()
    assert mean == pytest.approx(1.23, abs=5 * 0.5 / 200)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinite_entries_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN"):
        Encoding.from_bits(8, dimension=2, clip=1.0).encode([0.0, bad], coins())


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        Encoding.from_bits(8, dimension=2, clip=1.0).encode([0.0], coins())


def test_the_transform_is_its_own_inverse_and_keeps_norms() -> None:
    vector = clipped(256, 3.0)
    turned = walsh_hadamard(vector)
    assert np.linalg.norm(turned) == pytest.approx(3.0)
    assert np.allclose(walsh_hadamard(turned), vector)
    assert np.array_equal(vector, clipped(256, 3.0))


@pytest.mark.parametrize("length", [1, 2, 64, 128, 1 << 13])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_transform_is_that_of_its_definition(length: int, dtype: Any) -> None:
    vector = np.random.default_rng(0).normal(size=length).astype(dtype)
    places = np.arange(length, dtype=np.uint64)
    for row in {0, length // 2, length - 1, length // 3}:
        ones = np.bitwise_count(places & np.uint64(row)) % 2  # H has (-1)^(ones of i and j)
        wanted = np.where(ones, -vector, vector).sum(dtype=np.float64) / math.sqrt(length)
        found = walsh_hadamard(vector)
        assert found.dtype == dtype
        assert found[row] == pytest.approx(wanted, abs=1e-5 if dtype is np.float32 else 1e-12)


def test_rotation_spreads_a_spike() -> None:
    encoding = Encoding.from_bits(16, dimension=1024, clip=1.0, rotation_seed=SEED)
    spike = np.zeros(1024)
    spike[3] = 1.0
    encoded = encoding.encode(spike, coins())
    assert len(set(np.abs(encoded))) <= 2


def test_other_seeds_rotate_otherwise() -> None:
    vector = clipped(64, 1.0)
    one, two = (
        Encoding.from_bits(16, dimension=64, clip=1.0, rotation_seed=bytes([i]) * 32).encode(
            vector, coins()
        )
        for i in range(2)
    )
    assert (one != two).any()


def test_sums_of_squares_are_exact_beyond_an_int64() -> None:
    vector = np.array([2**40 + 1, -(2**41) - 3, 7], dtype=np.int64)
    assert sum_of_squares(vector) == sum(int(v) ** 2 for v in vector)


def test_the_sensitivity_is_that_of_the_reference_case() -> None:
    # skellam_vec_n100 and ddg_vec_n100: C/gamma = 1000, d = 2^20.
    assert l2_sensitivity(1000, 2**20) == pytest.approx(1124.1245, abs=1e-4)
    assert l1_sensitivity(3.0, 100) == 9.0
    assert l1_sensitivity(300.0, 100) == 3000.0


def test_encoding_keeps_its_memory_within_a_few_vectors() -> None:
    encoding = Encoding.from_bits(16, dimension=100_000, clip=1.0)
    vector = clipped(100_000, 1.0)
    tracemalloc.start()
    encoding.encode(vector, coins())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * vector.nbytes


RECORDS: dict[str, Any] = {"dimension": 40, "clip": 1.0, "limit": 3.0, "rule": "records"}


def records(count: int, dimension: int, seed: int) -> np.ndarray:
    """Return records of norm at most 1, some of them on one axis, where rounding bites most."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(count, dimension))
    found[::3] = np.eye(dimension)[rng.integers(dimension, size=len(found[::3]))]
    return found / np.maximum(1, np.linalg.norm(found, axis=1, keepdims=True))


@pytest.mark.parametrize("rotation", [None, SEED])
def test_one_record_moves_a_rounded_sum_by_no_more_than_is_claimed(rotation: bytes | None) -> None:
    """Neighbours are rounded with the same coins: the coupling that the bound speaks of."""
    encoding = Encoding.from_bits(6, rotation_seed=rotation, **RECORDS)
    l2, l1 = encoding.l2_sensitivity, encoding.l1_sensitivity
    largest = 0.0
    for seed in range(300):
        batch = records(12, 40, seed)
        whole = encoding.encode(batch.sum(axis=0), coins(seed))
        less = encoding.encode(batch[1:].sum(axis=0), coins(seed))
        moved = np.abs(whole - less)
        largest = max(largest, float(np.linalg.norm(moved)))
        assert np.linalg.norm(moved) <= l2
        assert moved.sum() <= l1
    assert encoding.clip is not None
    # The claim is not idle: clamping aside, a record moves a sum by nearly its clip.
    assert largest > 0.9 * encoding.clip / encoding.step


def test_adversarial_neighbours_reach_the_square_root_of_the_dimension() -> None:
    """A difference of half a step everywhere can round to a whole one everywhere."""
    # C/gamma = 2 where records ask for 800: coarse on purpose.
    encoding = Encoding(64, 8.0, 16, clip=1.0, rule="records")
    assert encoding.clip is not None
    step, worst = encoding.step, 0.0
    rng = np.random.default_rng(0)
    for seed in range(400):
        base = rng.uniform(-4, 4, 64)
        change = rng.choice([-1.0, 1.0], 64) / 8
        moved = encoding.encode(base + change, coins(seed)) - encoding.encode(base, coins(seed))
        worst = max(worst, float(np.linalg.norm(moved)))
    assert worst <= encoding.l2_sensitivity
    # More than the difference itself: the inflation is needed.
    assert worst > 1.5 * encoding.clip / step


def test_a_sum_of_records_is_clamped_and_rounded_once() -> None:
    encoding = Encoding.from_bits(16, **RECORDS)
    huge = np.full(40, 100.0)
    assert (encoding.encode(huge, coins()) == encoding.bound).all()
    mean = sum(encoding.encode(np.full(40, 0.3), coins(i)).mean() for i in range(50)) / 50
    assert mean * encoding.step == pytest.approx(0.3, rel=1e-3)


@pytest.mark.parametrize("bits", [4, 24])
@pytest.mark.parametrize("dimension", [10, 100_000])
def test_records_get_as_many_bits_as_keep_rounding_small(bits: int, dimension: int) -> None:
    encoding = Encoding.from_bits(bits, **(RECORDS | {"dimension": dimension}))
    scaled = 1.0 / encoding.step
    assert scaled >= 100 * math.sqrt(dimension) * (1 - 1e-12)
    assert encoding.bound >= 2 ** (bits - 1) - 1
    assert encoding.l2_sensitivity == pytest.approx(scaled + math.sqrt(dimension))
    assert encoding.l1_sensitivity == pytest.approx(math.sqrt(dimension) * encoding.l2_sensitivity)


def test_records_need_a_range_and_a_clip() -> None:
    for missing in ("clip", "limit"):
        with pytest.raises(ValueError, match="range of its own"):
            Encoding.from_bits(16, **(RECORDS | {missing: None}))


@given(st.integers(1, 200), st.floats(0.01, 1.0), st.integers(0, 50))
@settings(max_examples=60)
def test_an_l1_norm_is_conditioned_on_exactly(dimension: int, clip: float, seed: int) -> None:
    vector = np.random.default_rng(seed).laplace(size=dimension)
    vector *= clip / np.abs(vector).sum()
    encoding = Encoding.from_bits(6, dimension=dimension, clip=clip, rule="l1")
    encoded = encoding.encode(vector, coins(seed))
    assert np.abs(encoded).sum() <= encoding.l1_sensitivity == encoding.l2_sensitivity
    assert encoding.l1_sensitivity == int(encoding.l1_sensitivity)


def test_two_roundings_in_five_are_accepted_under_l1() -> None:
    encoding = Encoding.from_bits(8, dimension=400, clip=1.0, rule="l1")
    vector = np.full(400, 1 / 400)
    scaled = vector / encoding.step
    floor = np.floor(scaled)
    drawn = [floor + (coins(i).uniform(400) < scaled - floor) for i in range(300)]
    assert np.mean([d.sum() <= encoding.l1_sensitivity for d in drawn]) > 0.4
    assert l1_rounded(127.0, 400) < 127 + 400


def test_a_rotation_keeps_no_l1_norm() -> None:
    with pytest.raises(ValueError, match="rotation"):
        Encoding.from_bits(8, dimension=4, clip=1.0, rule="l1", rotation_seed=SEED)


@pytest.mark.parametrize(
    "vector",
    [np.ones(3, complex), np.ones(3, object), np.array(["1", "2", "3"]), np.ones(3, bool)],
    ids=["complex", "object", "text", "bool"],
)
def test_only_real_numbers_are_encoded(vector):
    encoding = Encoding(dimension=3, limit=1.0, bound=100)
    with pytest.raises(ValueError, match="real numbers"):
        encoding.encode(vector, coins())


def test_one_pass_leaves_other_types_to_the_careful_one():
    encoding = Encoding(dimension=3, limit=1.0, bound=100)
    assert encode_clipped(encoding, np.ones(3, np.float32), coins()) is not None
    others: list[Any] = [np.ones(3), np.ones(3, np.int64), np.ones(2, np.float32)]
    for other in others:
        assert encode_clipped(encoding, other, coins()) is None


@pytest.mark.parametrize(
    "total", [np.zeros(3), np.zeros(3, np.uint64), np.zeros(1, np.int64), np.zeros((3, 1), int)]
)
def test_only_a_centred_sum_of_its_own_length_is_decoded(total):
    with pytest.raises(ValueError, match="signed integers of shape"):
        Encoding(dimension=3, limit=1.0, bound=100).decode(total)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimension": 0}, "at least 1"),
        ({"bound": 0}, "at least 1"),
        ({"limit": 0.0}, "must be positive"),
        ({"limit": math.inf}, "must be positive"),
        ({"limit": math.nan}, "must be positive"),
    ],
)
def test_an_encoding_without_room_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Encoding(**({"dimension": 3, "limit": 1.0, "bound": 100} | changes))


def test_a_vector_that_overflows_when_rotated_is_refused():
    encoding = Encoding.from_bits(16, dimension=4, clip=1.0, rotation_seed=SEED)
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match="rotated"):
        encoding.encode(np.full(4, 1e308), coins())


def test_a_sensitivity_needs_a_clip_and_an_l1_bound_follows_from_it():
    encoding = Encoding.from_bits(8, dimension=100, clip=1.0)
    expected = l1_sensitivity(encoding.l2_sensitivity, 100)
    assert encoding.l1_sensitivity == expected > encoding.l2_sensitivity
    plain = Encoding(dimension=3, limit=1.0, bound=100)
    with pytest.raises(ValueError, match="no sensitivity"):
        _ = plain.l2_sensitivity
