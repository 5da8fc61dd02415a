"""Linkage: unique rows by attributes, and what k-anonymity does not hide."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from narrowed import hits_of, present, view_of

from zerosum.simulations.attacks.harness.interface import Case, Defense, NotApplicable
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.published.generalisation import mondrian
from zerosum.simulations.attacks.published.linkage import Linkage
from zerosum.simulations.attacks.published.people import people
from zerosum.simulations.attacks.published.released import ReleasedSetting

ADULT = Path("../shared/data/adult.csv")
PLAIN = Defense("plain")


def fractions(setting, protection=PLAIN, seed=0):
    outcome = play(0, Cell(Linkage(), Case(setting, protection)), seed)
    assert outcome.status == "value", outcome.note
    return {name: hits_of(outcome.units, name).mean() for name in outcome.units}


@pytest.mark.parametrize("k", [2, 5, 30])
def test_k_anonymous_ranges_contain_k_rows(k):
    known = people("").known[:, :5]
    low, high = mondrian(known, k)
    assert ((low <= known) & (known <= high)).all()
    classes, sizes = np.unique(np.concatenate([low, high], axis=1), axis=0, return_counts=True)
    assert sizes.min() >= k
    assert len(classes) > len(known) / (4 * k)
    matches = ((low[None] <= known[:, None]) & (known[:, None] <= high[None])).all(2).sum(1)
    assert matches.min() >= k


def test_equal_rows_are_not_cut():
    low, high = mondrian(np.ones((9, 3), dtype=np.int64), 2)
    assert (low == high).all()


def test_k_beyond_the_table_is_refused():
    with pytest.raises(ValueError, match=r"k = 10: give 1 to 9, the records"):
        mondrian(np.ones((9, 3), dtype=np.int64), 10)


def test_unique_rows_match_pandas():
    import pandas as pd

    for attributes in (2, 3, 5):
        frame = pd.DataFrame(people("").known[:, :attributes])
        unique = (~frame.duplicated(keep=False)).mean()
        everybody = ReleasedSetting(attributes, targets=442)
        assert fractions(everybody)["unique rows"] == pytest.approx(unique)


def test_k_anonymity_leaves_many_values_certain():
    raw, anonymous = fractions(ReleasedSetting(5)), fractions(ReleasedSetting(5, k=5))
    assert raw["unique rows"] > 0.9
    assert anonymous["unique rows"] == 0
    assert 0.1 < anonymous["sensitive value certain"] < raw["sensitive value certain"]


@pytest.mark.slow
def test_noised_values_are_certain_for_nobody():
    noise = Defense("noise", clip=1.0, noise="local", sigma=2.0)
    outcome = play(0, Cell(Linkage(), Case(ReleasedSetting(5), noise)), 0)
    assert not hits_of(outcome.units, "sensitive value certain").any()
    assert hits_of(outcome.units, "unique rows").mean() > 0.9
    assert 0 < present(outcome.epsilon) < 10


@pytest.mark.slow
def test_little_noise_does_not_stop_linkage():
    noise = Defense("noise", clip=1.0, noise="local", sigma=0.3)
    assert fractions(ReleasedSetting(5), noise)["sensitive value guessed"] > 0.95


def test_register_and_rows_have_different_orders():
    scene = ReleasedSetting(5, targets=442).play(Linkage(), PLAIN, 0)
    view: Any = sealed(scene.view)
    assert (view.low[:, 0] != view.register[:, 0]).any()
    assert np.mean(view.secret == scene.truth["secret"]) < 0.9


def test_each_patient_is_in_one_seed_s_register():
    """A figure pooled over seeds counts people, and its interval assumes different ones."""
    registers = [
        {row.tobytes() for row in view_of(ReleasedSetting(7).play(Linkage(), PLAIN, seed)).register}
        for seed in range(5)
    ]
    known = people("").known[:, :7]
    twins = len(known) - len(np.unique(known, axis=0))
    assert len(set().union(*registers)) >= 5 * 88 - twins
    with pytest.raises(NotApplicable, match=r"seeds from 0 to 4 take 88 people each, of 442"):
        ReleasedSetting(7).play(Linkage(), PLAIN, 5)


def test_a_missing_file_fails_the_cell_by_name(caplog):
    setting = ReleasedSetting(path="gone/adult.csv")
    outcome = play(0, Cell(Linkage(), Case(setting, PLAIN)), 0)
    assert outcome.status == "failed"
    assert 'path = "gone/adult.csv": no such file' in outcome.note


@pytest.mark.slow
@pytest.mark.skipif(not ADULT.exists(), reason="../shared/data/adult.csv is not there")
def test_seven_attributes_make_many_census_rows_unique():
    for attributes, (low, high) in {3: (0, 0.02), 5: (0.03, 0.1), 7: (0.3, 0.55)}.items():
        setting = ReleasedSetting(attributes, targets=400, path=str(ADULT))
        unique = np.mean([fractions(setting, seed=seed)["unique rows"] for seed in range(3)])
        assert low <= unique <= high, attributes
