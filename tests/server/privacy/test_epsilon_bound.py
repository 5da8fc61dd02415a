"""An epsilon is built whole or not at all."""

import math
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound

PARTS: dict[str, Any] = {
    "value": 2.5,
    "delta": 1e-5,
    "slack": 1e-9,
    "adjacency": "zero_out",
    "unit": "client",
    "observer": "sum",
    "accountant": "pld",
    "participations": 3,
    "assumptions": ("masking is in force",),
}


@pytest.mark.parametrize("name", [f.name for f in fields(EpsilonBound) if f.name != "reason"])
def test_figure_without_a_part_cannot_be_built(name):
    EpsilonBound(**PARTS)
    with pytest.raises(TypeError, match=name):
        EpsilonBound(**{key: value for key, value in PARTS.items() if key != name})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"observer": "nobody"}, "observer 'nobody': one of release, sum, local"),
        ({"unit": "round"}, "unit 'round': one of client, example"),
        ({"value": -0.1}, "epsilon_sum = -0.1 is no bound"),
        ({"value": math.nan}, "epsilon_sum = nan is no bound"),
        ({"delta": math.nan}, "epsilon_sum at delta = nan: no probability"),
        ({"delta": 1.5}, "epsilon_sum at delta = 1.5"),
        ({"slack": -1e-9}, "epsilon_sum at slack = -1e-09"),
        ({"assumptions": ()}, "epsilon_sum = 2.5 states no assumption"),
        ({"value": math.inf}, "an infinite figure has one"),
        ({"value": math.inf, "reason": ""}, "an infinite figure has one"),
        ({"reason": "too much noise"}, "a finite figure has none"),
    ],
)
def test_figure_that_states_nothing_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        EpsilonBound(**PARTS | changed)


def test_figure_cannot_be_lowered_once_built():
    bound = EpsilonBound(**PARTS)
    with pytest.raises(FrozenInstanceError):
        bound.value = 0.1  # type: ignore[misc]


def test_infinite_figure_has_a_reason_and_no_assumption():
    bound = no_bound("local", 1e-5, "no noise", unit="example")
    assert (bound.value, bound.finite, bound.reason) == (math.inf, False, "no noise")
    assert (bound.observer, bound.unit, bound.assumptions) == ("local", "example", ())
