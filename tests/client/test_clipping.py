import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from zerosum.client.clipping import NotFiniteError, clip_to_norm


@given(
    hnp.arrays(np.float64, st.integers(0, 20), elements=st.floats(-1e300, 1e300)),
    st.floats(1e-6, 1e6),
)
def test_the_norm_never_exceeds_the_clip(vector: np.ndarray, clip: float) -> None:
    result = clip_to_norm(vector, clip)
    assert math.hypot(*result) <= clip * (1 + 1e-12)


@given(hnp.arrays(np.float64, 8, elements=st.floats(-10, 10)))
def test_what_is_within_the_clip_is_unchanged(vector: np.ndarray) -> None:
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


def test_float32_infinities_of_squares_do_not_arise() -> None:
    result = clip_to_norm(np.full(4, 1e38, dtype=np.float32), 2.0)
    assert result == pytest.approx(np.ones(4))


def test_the_argument_is_not_changed() -> None:
    vector = np.array([3.0, 4.0])
    clip_to_norm(vector, 1.0)
    assert list(vector) == [3.0, 4.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_reported(bad: float) -> None:
    with pytest.raises(NotFiniteError, match="1 of 3"):
        clip_to_norm([0.0, bad, 1.0], 1.0)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_must_be_positive(clip: float) -> None:
    with pytest.raises(ValueError, match="clip norm"):
        clip_to_norm([1.0], clip)
