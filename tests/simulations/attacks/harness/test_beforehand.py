"""What a table will lack is said before it is played, and it does lack that."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from attack_rows import MASKED, PLAIN, Named

from zerosum.simulations.attacks.harness.beforehand import said_beforehand
from zerosum.simulations.attacks.harness.interface import Case
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.registry import built_in
from zerosum.simulations.attacks.harness.results import ENOUGH


@dataclass(frozen=True)
class _Counted:
    """An attack of which it is known how many units a seed has."""

    name: str = "counted"
    units: int = 1

    def units_of_seed(self, setting):
        return self.units


@dataclass(frozen=True)
class _Short:
    """A setting that has records for some seeds alone."""

    name: str
    most_seeds: int


Counted: Any = _Counted
Short: Any = _Short
FEW = "2 seeds: too few to say which noise stops an attack; give --seeds 3 or more"


def cells(attack, *settings):
    return [Cell(attack, Case(each, of)) for each in settings for of in (PLAIN, MASKED)]


def test_nothing_is_said_of_enough_seeds_and_units():
    assert said_beforehand(cells(Counted(), Named("a")), ENOUGH) == []
    assert said_beforehand(cells(Named("mine"), Named("a")), ENOUGH) == []


def test_few_seeds_and_few_units_are_said_once_an_attack():
    lines = said_beforehand(cells(Counted(), Named("a"), Named("b")), 2)
    assert lines == [FEW, "too few units for a figure (fewer than 3): counted: a; b"]
    assert said_beforehand(cells(Counted(units=2), Named("a")), 2) == [FEW]
    # Of an attack that says nothing of its units nothing is foretold.
    assert said_beforehand(cells(Named("mine"), Named("a")), 2) == [FEW]


def test_seeds_beyond_the_records_are_said():
    (line,) = said_beforehand(cells(Counted(units=9), Short("a", 4), Short("b", 5)), 5)
    assert line == (
        "a: records for 4 of 5 seeds, which share none; of the others nothing is played (counted)"
    )
    lines = said_beforehand(cells(Counted(), Short("a", 2)), 3)
    assert [line[:13] for line in lines] == ["too few units", "a: records fo"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gradient-inversion", "differencing"])
def test_units_that_are_foretold_are_those_that_are_played(name, one_thread):
    attack = built_in([name])[-1]
    case = next(iter(attack.cases("quick")))
    units = getattr(attack, "units_of_seed")(case.setting)  # noqa: B009 (no part of the protocol)
    scene = case.setting.play(attack, case.protection, 0)
    guess = attack.baseline(scene.view, np.random.default_rng(0))
    assert attack.score(guess, scene.truth)[attack.metrics[0].name].count == units


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("name", ["reconstruction-from-subset-sums", "all-consistent-records",
                                  "linkage-on-quasi-identifiers"])  # fmt: skip
def test_people_are_foretold_to_last_for_as_many_seeds_as_they_do(name, one_thread):
    attack = built_in([name])[0]
    case = next(iter(attack.cases("quick")))
    most = getattr(case.setting, "most_seeds")  # noqa: B009
    case.setting.play(attack, case.protection, most - 1)
    with pytest.raises(Exception, match="nobody is counted twice"):
        case.setting.play(attack, case.protection, most)
