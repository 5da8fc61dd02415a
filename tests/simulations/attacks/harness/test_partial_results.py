"""Outcomes that a run of attacks keeps, to go on with."""

import math
from dataclasses import dataclass, field, fields
from typing import cast

import numpy as np
import pytest

from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.harness.interface import Attack, ThreatModel
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Ranking
from zerosum.simulations.attacks.harness.parameters import value_of
from zerosum.simulations.attacks.harness.partial_results import PLAYS, kept_outcomes, save_outcome
from zerosum.simulations.attacks.harness.play import Cell, Outcome

RANKING = Ranking(np.array([0.1, 2.0, 1e-300]), np.array([True, False, True]), at=0.1)

WHOLE = Outcome(
    number=1,
    seed=7,
    status="stopped",
    note="a reason: ∞",
    units={
        "right, of all": Proportion(np.array([True, False])),
        "mean": Mean(np.array([1.5, -2.0])),
        "rate": RANKING,
    },
    baseline={"mean": Mean(np.array([0.1 + 0.2]))},
    epsilon=math.inf,
    delta=1e-5,
    cpu_seconds=0.25,
    pictures={"found": np.arange(8, dtype=np.uint8).reshape(1, 2, 2, 2)},
    threat=ThreatModel("outsider", 3, frozenset({"clip", "labels"}), 2),
)

CELLS = cast(list[Cell], [None, None])
"""Of cells, their number alone matters here."""


def assert_same(found, wanted):
    for each in fields(wanted):
        one, other = getattr(found, each.name), getattr(wanted, each.name)
        if each.name in ("units", "baseline"):
            assert list(one) == list(other), "their order is that of the table"
            for name in other:
                assert type(one[name]) is type(other[name])
                for part in fields(other[name]):
                    np.testing.assert_array_equal(
                        getattr(one[name], part.name), getattr(other[name], part.name)
                    )
        elif each.name == "pictures":
            assert list(one) == list(other)
            for name in other:
                np.testing.assert_array_equal(one[name], other[name])
                assert one[name].dtype == other[name].dtype
        else:
            assert one == other, each.name


@pytest.mark.parametrize("outcome", [WHOLE, Outcome(0, 3, "not applicable", "no labels")])
def test_an_outcome_is_read_back_as_it_was(tmp_path, outcome):
    save_outcome(tmp_path, outcome)
    (found,) = kept_outcomes(tmp_path, CELLS, [3, 7])
    assert_same(found, outcome)


class Own(Proportion):
    """Units of an attack's own class."""


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(0, 0, "failed", "out of memory"),
        Outcome(0, 0, "value", units={"right": Own(np.array([True]))}),
    ],
    ids=["failed", "own class"],
)
def test_what_has_to_be_played_again_is_not_kept(tmp_path, outcome):
    save_outcome(tmp_path, outcome)
    assert kept_outcomes(tmp_path, CELLS[:1], [0]) == []


@pytest.mark.parametrize("damage", [lambda data: data[:50], lambda data: b"\x80\x04N."])
def test_a_damaged_file_is_named_and_nothing_in_it_is_run(tmp_path, damage):
    save_outcome(tmp_path, WHOLE)
    (file,) = (tmp_path / PLAYS).iterdir()
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ConfigError, match=r"1-7\.npz is damaged .*; delete it, and it is played"):
        kept_outcomes(tmp_path, CELLS, [7])


@dataclass(frozen=True)
class Mapped:
    """An attack that is set by a table."""

    rates: dict[str, float] = field(default_factory=dict)
    name: str = "mapped"


def test_no_number_of_a_table_is_infinite_or_none():
    assert value_of(cast(Attack, Mapped()), "rates", '{"a": 0.5}') == {"a": 0.5}
    for number in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(ValueError, match="finite"):
            value_of(cast(Attack, Mapped()), "rates", f'{{"a": {number}}}')
