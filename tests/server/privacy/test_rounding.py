"""An epsilon is never shown below what it is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.server.privacy.rounding import plain, rounded_up


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.981, "2.99"),
        (2.98, "2.98"),
        (13.41, "13.5"),
        (0.10001, "0.101"),
        (999.1, "1e+03"),
        (1234.0, "1.24e+03"),
        (0.0, "0"),
        (math.inf, "inf"),
        (None, "none"),
    ],
)
def test_figures_are_rounded_up(value, shown):
    assert rounded_up(value) == shown


@given(st.floats(1e-12, 1e12), st.integers(2, 6))
def test_what_is_shown_is_no_less_and_hardly_more(value, figures):
    shown = float(rounded_up(value, figures))
    assert value * (1 - 1e-8) <= shown <= value * (1 + 1.0001 * 10.0 ** (1 - figures))


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
def test_a_metric_of_any_size_is_shown(value, shown):
    assert plain(value) == shown
