"""A printed epsilon has three digits and is never below its value."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.server.privacy.rounding import (
    epsilon_text,
    epsilon_up,
    plain,
    remainder_text,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.981, "2.99"),
        (2.98, "2.98"),
        (3.0, "3"),
        (4.2, "4.2"),
        (6.300000000000001, "6.31"),
        (9.9999, "10"),
        (13.41, "13.5"),
        (0.10001, "0.101"),
        (999.1, "1,000"),
        (1234.0, "1,240"),
        (999_999.0, "1e6"),
        (1_234_567.0, "1.24e6"),
        (1.2341e-5, "1.24e-5"),
        (5e-324, "5e-324"),
        (0.0, "0"),
        (math.inf, "∞"),
        (None, "∞"),
    ],
)
def test_printed_epsilon_has_three_digits_and_is_rounded_up(value, shown):
    assert epsilon_text(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2464.7, "2,460"), (7.579, "7.57"), (0.12799, "0.127"), (3.0, "3"), (0.0, "0")],
)
def test_what_is_left_of_an_epsilon_has_three_digits_and_is_rounded_down(value, shown):
    assert remainder_text(value) == shown


def read(text: str) -> float:
    return float(text.replace(",", ""))


@given(st.floats(0, allow_nan=False, allow_infinity=False, allow_subnormal=True))
def test_printed_epsilon_is_never_below_its_value_and_hardly_above(value):
    for printed in (read(epsilon_text(value)), epsilon_up(value)):
        assert value <= printed
        assert printed <= value * 1.0100001 or value < 1e-300


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.84733, "0.8473"),
        (0.0, "0.0000"),
        (-3.25, "-3.2500"),
        (280.4283, "280.4283"),
        (6.4406e10, "6.441e+10"),
        (1.5e-9, "1.5e-09"),
        (math.nan, "nan"),
    ],
)
def test_metric_of_any_size_is_shown(value, shown):
    assert plain(value) == shown
