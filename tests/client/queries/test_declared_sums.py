"""Declared sums: integers of an app's values, and how far one unit of privacy moves them."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from zerosum.client.queries.declared_sums import (
    DeclaredSum,
    SumQuestion,
    dimension_of,
    moves_of,
)
from zerosum.client.spec.sum_privacy import SumPrivacy
from zerosum.secagg.randomness import Keystream

RECORD = SumPrivacy(model="distributed", law="geometric", scale=3.0)
CLIENT = SumPrivacy(model="distributed", law="geometric", scale=3.0, unit="client")
PLAIN = SumPrivacy(model="none")


def declared(**changes: Any) -> DeclaredSum:
    values: dict[str, Any] = {
        "record": "results",
        "key": "totals",
        "kind": "reals",
        "form": "list",
        "shape": (6,),
        "most": 100.0,
        "sensitivity": 2.5,
        "resolution": 1024,
    }
    return DeclaredSum(**(values | changes))


def counts(**changes: Any) -> DeclaredSum:
    return declared(**({"kind": "counts", "sensitivity": 1.0, "resolution": 1} | changes))


def coins(seed):
    return Keystream(int(seed).to_bytes(32, "little"))


def neighbours(rng, one):
    """Two clients' values that differ by one unit's sensitivity, and by no more."""
    values = rng.normal(scale=20, size=one.cells)
    step = rng.normal(size=one.cells) * rng.integers(0, 2, one.cells)
    if not step.any():
        step[0] = 1.0
    return values, values + step * one.sensitivity / np.abs(step).sum()


@pytest.mark.parametrize("resolution", [1, 16, 1024])
def test_one_unit_moves_real_numbers_by_their_weight_at_most(resolution):
    one = declared(resolution=resolution)
    rng, furthest = np.random.default_rng(resolution), 0
    for seed in range(400):
        before, after = neighbours(rng, one)
        moved = one.integers(after, RECORD, coins(seed)) - one.integers(before, RECORD, coins(seed))
        furthest = max(furthest, int(np.abs(moved).sum()))
    assert furthest <= one.weight
    assert furthest > resolution  # what the rounding of several numbers adds is there


def test_rounding_has_the_right_mean():
    one = declared(resolution=4, sensitivity=1.0)
    found = [one.integers(np.full(6, 1.3), RECORD, coins(seed)) for seed in range(500)]
    # 3,000 roundings of 5.2 to 5 or 6: deviation .4.
    assert np.mean(found) == pytest.approx(5.2, abs=6 * 0.4 / np.sqrt(3000))


@pytest.mark.parametrize("kind", ["reals", "counts"])
def test_a_client_that_is_the_unit_is_within_the_weight_whatever_it_holds(kind):
    one = declared() if kind == "reals" else counts(sensitivity=7.0, resolution=21)
    rng = np.random.default_rng(0)
    for seed in range(200):
        values = rng.normal(scale=rng.uniform(0, 60), size=one.cells)
        values = values if kind == "reals" else np.abs(np.rint(values))
        assert np.abs(one.integers(values, CLIENT, coins(seed))).sum() <= one.weight
    beyond = np.full(one.cells, 50.0)
    assert np.abs(one.integers(beyond, RECORD, coins(0))).sum() > one.weight  # a record's is not


def test_counts_are_whole_numbers_of_integer_units():
    one = counts(sensitivity=3.0, resolution=1024)
    assert one.times == 341
    assert one.weight == 1023
    values = np.array([0.0, 1.0, 2.0, 99.0, 100.0, 101.0])
    integers = one.integers(values, RECORD, coins(0))
    np.testing.assert_array_equal(integers, 341 * np.array([0, 1, 2, 99, 100, 100]))
    np.testing.assert_array_equal(one.values(integers + 170), [0, 1, 2, 99, 100, 100])


def test_sums_without_noise_lose_nothing():
    one = declared(sensitivity=None, resolution=1 << 40)
    values = np.random.default_rng(1).normal(scale=30, size=(50, 6))
    total = sum(one.integers(row, PLAIN, coins(i)) for i, row in enumerate(values))
    assert isinstance(total, np.ndarray)
    np.testing.assert_allclose(one.values(total), values.sum(axis=0), atol=50 * one.step)
    assert counts(sensitivity=None).integers(np.arange(6.0), PLAIN, coins(0)).tolist() == [
        *range(6)
    ]


@pytest.mark.parametrize(
    ("one", "zero_out", "replace"),
    [
        (declared(), (1030,), (2060,)),
        (declared(form="number", shape=()), (1025,), (2050,)),
        (counts(), (1,), (1, 1)),
        (counts(form="number", shape=()), (1,), (1,)),
        (counts(form="array", shape=(2, 3), sensitivity=4.0, resolution=4), (4,), (4, 4)),
        (counts(sensitivity=None), (), ()),
    ],
    ids=["reals", "a real", "counts", "a count", "an array", "no noise"],
)
def test_moves_are_those_of_the_adjacency(one, zero_out, replace):
    assert one.moves("zero_out") == zero_out
    assert one.moves("replace") == replace
    assert moves_of([one, one], "replace") == 2 * replace
    assert dimension_of([one, one]) == 2 * one.cells


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "counts", "sensitivity": 1.5}, "counts change by whole numbers"),
        ({"form": "number"}, "a number has no shape"),
        ({"shape": (2, 3)}, "a list has no shape"),
        ({"most": 1e20}, "most = 1e[+]20 is too large beside its sensitivity: at most"),
        ({"resolution": 0}, "resolution"),
        ({"shape": (0,)}, "shape"),
        ({"most": float("nan")}, "most"),
        ({"sensitivity": 0.0}, "sensitivity"),
    ],
    ids=str,
)
def test_what_cannot_be_summed_is_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        declared(**changes)


def question(**changes: Any) -> SumQuestion:
    values: dict[str, Any] = {
        "round": 1,
        "seed": 0,
        "population": 4,
        "privacy": RECORD,
        "sums": (declared(),),
    }
    return SumQuestion(**(values | changes))


def test_a_question_is_written_in_one_way():
    asked = question()
    assert SumQuestion.from_canonical(asked.canonical()) == asked
    with pytest.raises(ValueError, match="canonical"):
        SumQuestion.from_canonical(asked.canonical() + b" ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sums": ()}, "sums"),
        ({"sums": (declared(), declared())}, "declared twice"),
        ({"privacy": PLAIN}, "a sensitivity is for noise"),
        ({"sums": (declared(sensitivity=None),)}, "noise needs one"),
    ],
    ids=["nothing", "twice", "no noise", "no sensitivity"],
)
def test_a_question_protects_all_that_it_sums(changes, said):
    with pytest.raises(ValidationError, match=said):
        question(**changes)


@pytest.mark.parametrize(
    "values",
    [
        {"model": "distributed"},
        {"model": "distributed", "law": "geometric"},
        {"model": "none", "law": "geometric", "scale": 1.0},
        {"model": "none", "scale": 1.0},
        {"model": "local", "law": "geometric", "scale": 1.0},
        {"model": "distributed", "law": "geometric", "scale": 1e-9},
    ],
    ids=str,
)
def test_noise_has_a_law_and_a_scale_and_no_noise_has_neither(values):
    with pytest.raises(ValidationError):
        SumPrivacy(**values)
