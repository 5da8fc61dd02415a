"""Sums of vectors that are rounded into them: those of the same vectors, one by one."""

import numpy as np
import pytest

from zerosum.secagg.randomness import insecure_keystream
from zerosum.secagg.vectors import vector_sum
from zerosum.secagg.vectors.fast_rounding import rounded
from zerosum.secagg.vectors.vector_sum import VectorSum

LENGTH = (1 << 16) + 5  # more than one piece


def coins(index):
    return insecure_keystream(5, "rounding", index)


def reals(index, length=LENGTH, scale=300.0):
    return (scale * np.random.default_rng(index).normal(size=length)).astype(np.float32)


def test_a_sum_is_that_of_the_vectors_alone():
    bounds = [None, 400, None, 32767, 3]
    total, expected = VectorSum(LENGTH + 2), np.zeros(LENGTH + 2, np.int64)
    for i, bound in enumerate(bounds):
        total.add_rounded(reals(i), 1.5, bound, coins(i))
        alone = VectorSum(LENGTH + 2)
        alone.add_rounded(reals(i), 1.5, bound, coins(i))
        integers = alone.integers()
        assert integers.dtype == np.int32
        assert (integers[:LENGTH] == rounded(reals(i), 1.5, bound, coins(i))).all()
        assert not integers[LENGTH:].any()
        expected += integers
    found = total.integers()
    assert found.dtype == np.int32
    assert (found == expected).all()
    assert np.abs(found).max() > 1000  # of zeros any sum would be right


def test_narrow_and_wide_vectors_and_parts_add_up_in_any_order():
    wide, narrow = np.full(9, 2**40), np.arange(9, dtype=np.int32)
    real, tail = reals(1, 6), np.array([7, -7], np.int32)
    rounding = rounded(real, 1.0, None, coins(1))
    expected = wide + narrow
    expected[:6] += rounding
    expected[7:] += tail
    steps = [
        lambda total: total.add(wide),
        lambda total: total.add(narrow),
        lambda total: total.add_rounded(real, 1.0, None, coins(1)),
        lambda total: total.add(tail, 7),
    ]
    for turn in range(4):
        total = VectorSum(9)
        for step in steps[turn:] + steps[:turn]:
            step(total)
        found = np.ones(9, np.int64)
        total.add_to(found)
        assert (found == expected + 1).all()


def test_roundings_of_two_lengths_are_told_apart():
    total, expected = VectorSum(9), np.zeros(9, np.int64)
    for i, length in enumerate([6, 6, 9, 4, 4]):
        total.add_rounded(reals(i, length), 1.0, None, coins(i))
        expected[:length] += rounded(reals(i, length), 1.0, None, coins(i))
    assert (total.integers() == expected).all()


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_many_vectors_do_not_overflow_their_type(monkeypatch, most):
    """As those that 2^15 largest ones would, with fewer to a sum."""
    monkeypatch.setattr(vector_sum, "_MOST_NARROW", most)
    total, expected = VectorSum(6), np.zeros(6, np.int64)
    for i in range(7):
        if i % 3:
            total.add_rounded(reals(i, 5), 1.0, 900, coins(i))
            expected[:5] += rounded(reals(i, 5), 1.0, 900, coins(i))
        else:
            total.add(np.full(6, 2**15, np.int32))
            expected += 2**15
    found = total.integers()
    assert found.dtype == (np.int32 if most == 100 else np.int64)
    assert (found == expected).all()


@pytest.mark.slow
def test_the_largest_sum_of_one_type_fits_it():
    most = vector_sum._MOST_NARROW
    total, largest = VectorSum(1), np.full(1, 32767.0, np.float32)
    for _ in range(most + 3):
        total.add_rounded(largest, 1.0, 32767, coins(0))
    assert total.integers().tolist() == [(most + 3) * 32767]


def test_a_sum_of_none_is_zero():
    assert VectorSum(3).integers().tolist() == [0, 0, 0]
    total = np.ones(3, np.int64)
    VectorSum(3).add_to(total)
    assert total.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_a_vector_that_was_added_is_left_as_it_was(kind):
    vector, total = np.ones(3, kind), VectorSum(3)
    total.add(vector)
    total.add(vector)
    assert vector.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_a_vector_that_may_be_kept_adds_up_like_any(kind):
    first, total = np.full(3, 2, kind), VectorSum(3)
    total.add(first, keep=True)
    total.add(np.full(3, 5, kind), keep=True)
    total.add_rounded(np.full(3, 7.0, np.float32), 1.0, None, coins(0))
    expected = 7 + rounded(np.full(3, 7.0, np.float32), 1.0, None, coins(0))
    found = total.integers()
    assert (found == expected).all()
    assert np.shares_memory(found, first)


def test_a_part_is_never_kept_as_the_whole():
    total = VectorSum(3)
    total.add(np.ones(2, np.int32), 1, keep=True)
    assert total.integers().tolist() == [0, 1, 1]
