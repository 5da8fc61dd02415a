import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from zerosum.client.privacy.clipping import (
    clip_layers,
    clip_to_norm,
    layer_clips,
    norm_is_within,
)
from zerosum.secagg.vectors.encoding import NotFiniteError


@given(
    hnp.arrays(np.float64, st.integers(0, 20), elements=st.floats(-1e300, 1e300)),
    st.floats(1e-6, 1e6),
)
def test_the_norm_never_exceeds_the_clip(vector: np.ndarray, clip: float) -> None:
    result = clip_to_norm(vector, clip)
    assert math.hypot(*result) <= clip * (1 + 1e-12)


@given(hnp.arrays(np.float64, 8, elements=st.floats(-10, 10)))
def test_vector_within_the_clip_is_unchanged(vector: np.ndarray) -> None:
    assert (clip_to_norm(vector, 100.0) == vector).all()


def test_the_direction_is_kept() -> None:
    assert clip_to_norm([3.0, 4.0], 1.0) == pytest.approx([0.6, 0.8])


def test_zero_and_empty_vectors_pass() -> None:
    assert not clip_to_norm(np.zeros(3), 1.0).any()
    assert clip_to_norm([], 1.0).size == 0


def test_integers_are_clipped_as_reals() -> None:
    assert clip_to_norm(np.array([3, 4]), 1.0) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("value", [1e38, 1e300, 1e-300])
def test_squares_neither_overflow_nor_vanish(value: float) -> None:
    result = clip_to_norm(np.full(4, value), value)
    assert np.linalg.norm(result / value) == pytest.approx(1.0, rel=0.5)


def test_float32_squares_do_not_overflow() -> None:
    result = clip_to_norm(np.full(4, 1e38, dtype=np.float32), 2.0)
    assert result == pytest.approx(np.ones(4))


def test_the_argument_is_not_changed() -> None:
    vector = np.array([3.0, 4.0])
    clip_to_norm(vector, 1.0)
    assert list(vector) == [3.0, 4.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_inf_are_refused(bad: float) -> None:
    with pytest.raises(NotFiniteError, match="1 of 3"):
        clip_to_norm([0.0, bad, 1.0], 1.0)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_must_be_positive(clip: float) -> None:
    with pytest.raises(ValueError, match="clip norm"):
        clip_to_norm([1.0], clip)


@given(
    hnp.arrays(np.float64, st.integers(0, 20), elements=st.floats(-1e300, 1e300)),
    st.floats(1e-6, 1e6),
)
def test_an_l1_norm_never_exceeds_the_clip(vector: np.ndarray, clip: float) -> None:
    assert math.fsum(np.abs(clip_to_norm(vector, clip, 1))) <= clip * (1 + 1e-12)


@given(hnp.arrays(np.float64, 8, elements=st.floats(-1e300, 1e300)), st.floats(1e-6, 1e6))
def test_norm_is_within_agrees_with_clip_to_norm(vector: np.ndarray, clip: float) -> None:
    unchanged = bool((clip_to_norm(vector, clip) == vector).all())
    assert norm_is_within(vector, clip) <= unchanged
    assert norm_is_within(np.zeros(0), clip)


@given(
    hnp.arrays(np.float64, 12, elements=st.floats(-1e6, 1e6)),
    st.lists(st.floats(0.1, 10), min_size=3, max_size=3) | st.none(),
)
def test_layers_within_their_bounds_are_within_the_whole_clip(vector, fractions) -> None:
    layers = [slice(0, 1), slice(1, 6), slice(6, 12)]
    clips = layer_clips(2.0, 3, fractions)
    result = clip_layers(vector, layers, clips)
    for where, clip in zip(layers, clips, strict=True):
        assert math.hypot(*result[where]) <= clip * (1 + 1e-12)
    assert math.hypot(*result) <= 2.0 * (1 + 1e-12)


def test_equal_layers_share_the_bound_equally() -> None:
    assert layer_clips(1.0, 4, None) == pytest.approx([0.5] * 4)
    assert layer_clips(5.0, 2, [3.0, 4.0]) == pytest.approx([3.0, 4.0])
    with pytest.raises(ValueError, match="2 entries, and the model 3 layers"):
        layer_clips(1.0, 3, [1.0, 1.0])


def test_layers_are_clipped_one_by_one_in_a_new_array() -> None:
    vector = np.array([10.0, 0.1, 0.1])
    result = clip_layers(vector, [slice(0, 1), slice(1, 3)], [1.0, 1.0])
    assert result == pytest.approx([1.0, 0.1, 0.1])
    assert vector[0] == 10.0
    with pytest.raises(NotFiniteError):
        clip_layers([math.nan, 0.0, 0.0], [slice(0, 1), slice(1, 3)], [1.0, 1.0])
