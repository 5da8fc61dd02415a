"""The harness: who is handed what, and what becomes of cells that have no value."""

import csv
import io
import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from narrowed import hits_of, present

from zerosum.server.runs.run_folder import REPORT
from zerosum.simulations.attacks.folder import LOG, ROWS, TABLE, AttackFolder
from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    NotApplicable,
    Scene,
    ThreatModel,
    View,
)
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Ranking
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.play_all import jobs_of, play_all
from zerosum.simulations.attacks.harness.results import POOLED, rows_of, shown, strongest, to_csv
from zerosum.simulations.attacks.report.table import figure_text, to_markdown
from zerosum.simulations.attacks.run import AttackRun

PLAIN, MASKED = Defense("plain"), Defense("masked", masking="double")
BITS = 64


@dataclass(frozen=True)
class BitsView(View):
    bits: np.ndarray | None = None
    masked: np.ndarray | None = None


@dataclass(frozen=True)
class BitsSetting:
    """Private bits; whoever sees them unmasked sees them."""

    name: str = "bits"
    smuggle: bool = False
    fails: bool = False

    def play(self, attack, protection, seed):
        if self.fails:
            raise RuntimeError("nothing can be played here")
        bits = np.random.default_rng(seed).random(BITS) < 0.5
        stopped = "the client declined" if protection.budget == 0 else ""
        seen = None if protection.masked or stopped else bits
        view = BitsView(attack.threat, protection, stopped, bits=seen)
        if self.smuggle:
            view = BitsView(attack.threat, protection, masked=[bits])  # type: ignore[arg-type] # a list, which no view may hold
        return Scene(view, {"bits": bits}, math.inf)


@dataclass(frozen=True)
class Reading:
    """Reads what it sees, up to a part of it."""

    part: float = 1.0
    adaptive: str = "reads"
    where: tuple = (Case(BitsSetting(), PLAIN),)
    name: str = "reading"
    threat: ThreatModel = field(default_factory=lambda: ThreatModel("curious server"))
    requires: tuple = ("bits",)
    metrics: tuple = (Metric("bits right"),)

    def cases(self, suite):
        return self.where

    def baseline(self, view, rng):
        return Guess({"bits": rng.random(BITS) < 0.5})

    def run(self, view, rng):
        known = np.arange(BITS) < self.part * BITS
        return Guess({"bits": np.where(known, view.bits, rng.random(BITS) < 0.5)}, "read")

    def score(self, guess, truth):
        return {"bits right": Proportion(guess["bits"] == truth["bits"])}


def against(protection, attack=None, setting=None):
    return Cell(attack or Reading(), Case(setting or BitsSetting(), protection))


def test_a_value_stands_beside_its_baseline_and_epsilon():
    cells = [against(PLAIN)]
    rows = rows_of(cells, play_all(cells, range(3), 1))
    assert [row.seed for row in rows] == ["0", "1", "2", POOLED]
    pooled = rows[-1]
    assert (pooled.value, pooled.high, pooled.status) == (1, 1, "value")
    assert present(pooled.low) > 0.97  # 192 bits
    assert 0.3 < present(pooled.baseline) < 0.7
    assert pooled.epsilon == math.inf
    assert not pooled.at_baseline


def test_what_is_no_better_than_the_baseline_is_at_baseline():
    cells = [against(PLAIN, Reading(part=0.0))]
    assert rows_of(cells, play_all(cells, range(3), 1))[-1].at_baseline


def test_a_field_that_is_not_there_makes_the_cell_not_applicable_and_never_zero():
    cells = [against(MASKED)]
    row = rows_of(cells, play_all(cells, [0], 1))[-1]
    assert (row.status, row.value, row.low) == ("not applicable", None, None)
    assert row.note == "the view holds no bits"


def test_an_attack_that_was_stopped_guesses_as_the_baseline_does():
    cells = [against(Defense("budget", budget=0))]
    row = rows_of(cells, play_all(cells, range(3), 1))[-1]
    assert (row.status, row.note) == ("stopped", "the client declined")
    assert row.value == row.baseline


def test_one_cell_that_fails_leaves_the_others_and_is_seen():
    cells = [against(PLAIN, setting=BitsSetting("broken", fails=True)), against(PLAIN)]
    found = play_all(cells, [0], 1)
    assert [outcome.status for outcome in found] == ["failed", "value"]
    assert "nothing can be played here" in found[0].note


def test_a_view_that_holds_more_than_data_fails_the_cell():
    outcome = play(0, against(PLAIN, setting=BitsSetting(smuggle=True)), 0)
    assert outcome.status == "failed"
    assert "UnsealedView" in outcome.note


def test_an_attack_that_scores_other_metrics_than_it_declares_fails():
    attack = Reading(metrics=(Metric("another"),))
    assert "its metrics are" in play(0, against(PLAIN, attack), 0).note


def test_the_same_cell_has_the_same_coins_and_another_has_others():
    first, again = (play(0, against(PLAIN, Reading(part=0.0)), 3) for _ in range(2))
    other = play(0, against(PLAIN, Reading(part=0.0, adaptive="otherwise")), 3)
    key = "bits right"
    np.testing.assert_array_equal(hits_of(first.units, key), hits_of(again.units, key))
    assert not np.array_equal(hits_of(first.units, key), hits_of(other.units, key))


def test_cells_of_one_setting_and_seed_share_a_process():
    cells = [against(PLAIN), against(MASKED), against(PLAIN, setting=BitsSetting("others"))]
    jobs = jobs_of(cells, [0, 1])
    assert [(job.seed, [number for number, _ in job.cells]) for job in jobs] == [
        (0, [0, 1]),
        (1, [0, 1]),
        (0, [2]),
        (1, [2]),
    ]


def test_the_table_takes_the_strongest_of_a_name():
    weak, strong = Reading(part=0.5, adaptive="half"), Reading(adaptive="all")
    cells = [against(PLAIN, weak), against(PLAIN, strong), against(MASKED, weak)]
    rows = rows_of(cells, play_all(cells, range(3), 1))
    best = strongest(rows, {("reading", "bits right"): True})
    assert [(row.protection, row.adaptive) for row in best] == [
        ("plain", "all"),
        ("masked", "half"),
    ]
    worst = strongest(rows, {("reading", "bits right"): False})
    assert worst[0].adaptive == "half"


def test_a_metric_of_two_attacks_has_a_direction_for_each():
    lower = (Metric("bits right", higher=False),)
    weak, strong = Reading(part=0.5, adaptive="half"), Reading(adaptive="all")
    cells = [
        against(PLAIN, replace(each, name=name, metrics=metrics))
        for name, metrics in (("more", weak.metrics), ("less", lower))
        for each in (weak, strong)
    ]
    rows = rows_of(cells, play_all(cells, range(3), 1))
    assert [(row.attack, row.adaptive) for row in shown(cells, rows)] == [
        ("more", "all"),
        ("less", "half"),
    ]


def test_rows_survive_the_file():
    cells = [against(PLAIN), against(MASKED)]
    rows = rows_of(cells, play_all(cells, range(3), 1))
    read = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert len(read) == len(rows) == 8
    assert read[3]["epsilon"] == "inf"
    assert read[3]["value"] == "1"
    assert read[-1]["value"] == ""


def interrupted_at(number, path, seeds=(0,)):
    """Return a run that was interrupted as a cell's outcome came."""

    def interrupt(outcome):
        if outcome.number == number:
            raise KeyboardInterrupt

    cells = [against(PLAIN), against(MASKED), against(PLAIN, setting=BitsSetting("never"))]
    run = AttackRun(cells, seeds, AttackFolder.create(path))
    with pytest.raises(KeyboardInterrupt):
        run.play(1, interrupt)
    return run


def rows_in(folder):
    return list(csv.DictReader(io.StringIO((folder / ROWS).read_text())))


def test_a_run_leaves_rows_and_table_also_where_it_is_interrupted(tmp_path):
    interrupted_at(1, tmp_path)
    assert {row["protection"] for row in rows_in(tmp_path)} == {"plain", "masked"}
    assert "not applicable" in (tmp_path / TABLE).read_text()


def test_what_an_interrupted_run_leaves_says_that_it_is_incomplete(tmp_path):
    interrupted_at(1, tmp_path, seeds=(0, 1))
    for name in (TABLE, REPORT):
        assert (
            "Incomplete: the attacks were ended after 2 of 6 plays" in (tmp_path / name).read_text()
        )
    (pooled,) = (r for r in rows_in(tmp_path) if r["seed"] == POOLED and r["protection"] == "plain")
    assert pooled["status"] == "partly not played"


def test_a_run_that_was_not_interrupted_does_not_say_so(tmp_path):
    AttackRun([against(PLAIN)], [0], AttackFolder.create(tmp_path)).play(1)
    assert "Incomplete" not in (tmp_path / TABLE).read_text()


class Interrupting(BitsSetting):
    def play(self, attack, protection, seed):
        raise KeyboardInterrupt


def test_a_run_that_ended_before_anything_came_still_leaves_its_files(tmp_path):
    cells = [against(PLAIN, setting=Interrupting())]
    run = AttackRun(cells, [0], AttackFolder.create(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run.play(1)
    assert run.unwritten == []
    assert "after 0 of 1 plays" in (tmp_path / REPORT).read_text()


@pytest.mark.parametrize("lost", [ROWS, TABLE, REPORT])
def test_a_file_that_cannot_be_written_costs_no_other(tmp_path, lost):
    (tmp_path / f"{lost}.new").mkdir()  # where it would be written first
    run = AttackRun([against(PLAIN)], [0], AttackFolder(tmp_path))
    run.play(1)
    (said,) = run.unwritten
    assert said == f"{lost} was not written: Is a directory"
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        ROWS,
        TABLE,
        REPORT,
    } - {lost}


def test_what_cannot_be_drawn_costs_no_figure(tmp_path, monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("no axis")

    monkeypatch.setattr("zerosum.simulations.attacks.run.write_attack_report", broken)
    run = AttackRun([against(PLAIN)], [0], AttackFolder.create(tmp_path))
    run.play(1)
    assert run.unwritten == ["report.html was not written: ZeroDivisionError: no axis"]
    assert "no axis" in (tmp_path / LOG).read_text()
    assert rows_in(tmp_path)


def test_what_fails_is_told_in_the_log(tmp_path):
    cells = [against(PLAIN, setting=BitsSetting("broken", fails=True))]
    AttackRun(cells, [0], AttackFolder.create(tmp_path)).play(1)
    assert "nothing can be played here" in (tmp_path / LOG).read_text()


def test_units_of_two_kinds_cost_their_own_row_alone():
    class Fickle(Reading):
        def score(self, guess, truth):
            right = guess["bits"] == truth["bits"]
            counted = Mean(right.astype(float)) if truth["bits"][0] else Proportion(right)
            return {"bits right": counted}

    cells = [against(PLAIN, Fickle()), against(PLAIN)]
    rows = rows_of(cells, play_all(cells, range(4), 1))
    pooled = [row for row in rows if row.seed == POOLED]
    assert [row.status for row in pooled] == ["failed", "value"]
    assert pooled[0].note.startswith("no figure: ")


def test_names_that_no_file_can_hold_are_written_as_escapes(tmp_path):
    cells = [against(PLAIN, setting=BitsSetting("lone \udce9 surrogate"))]
    run = AttackRun(cells, [0], AttackFolder.create(tmp_path))
    run.play(1)
    assert run.unwritten == []
    assert "lone \\udce9 surrogate" in (tmp_path / ROWS).read_text()


@dataclass(frozen=True)
class Helped(BitsSetting):
    """Plays with more attackers than the attack speaks of."""

    def play(self, attack, protection, seed):
        scene = super().play(attack, protection, seed)
        helped = replace(attack.threat, colluders=3)
        return replace(scene, view=replace(scene.view, threat=helped))


def test_a_row_says_whom_its_view_was_of():
    cells = [against(PLAIN, setting=Helped()), against(MASKED, setting=Helped()), against(PLAIN)]
    rows = rows_of(cells, play_all(cells, [0], 1))
    helped, missing, alone = (row.threat for row in rows if row.seed == POOLED)
    assert helped == missing == "curious server + 3"
    assert alone == "curious server"
    assert "curious server + 3: reads" in to_markdown(rows, "Attacks", "")


@pytest.mark.slow
def test_processes_find_what_one_process_finds():
    cells = [against(PLAIN), against(PLAIN, setting=BitsSetting("others"))]
    alone, many = (rows_of(cells, play_all(cells, range(2), n)) for n in (1, 2))
    assert [(row.value, row.baseline) for row in alone] == [
        (row.value, row.baseline) for row in many
    ]


@dataclass(frozen=True)
class Unlucky(BitsSetting):
    """Ends in another way with seed 1 than with others."""

    ending: str = "failed"

    def play(self, attack, protection, seed):
        if seed != 1:
            return super().play(attack, protection, seed)
        if self.ending == "failed":
            raise RuntimeError("bad luck")
        if self.ending == "not applicable":
            raise NotApplicable("not here")
        return super().play(attack, Defense("budget", budget=0), seed)


@pytest.mark.parametrize(
    ("ending", "why"),
    [("failed", "bad luck"), ("not applicable", "not here"), ("stopped", "the client declined")],
)
def test_no_figure_hides_how_one_of_its_seeds_ended(ending, why):
    cells = [against(PLAIN, setting=Unlucky("unlucky", ending=ending))]
    row = rows_of(cells, play_all(cells, range(3), 1))[-1]
    assert row.status == f"partly {ending}"
    shown = figure_text(row)
    assert f"partly {ending}" in shown
    assert why in shown
    assert shown[0].isdigit()


def test_of_attackers_that_do_the_same_the_cheaper_is_shown():
    rows = rows_of([against(PLAIN)], play_all([against(PLAIN)], [0], 1))
    dear = [replace(row, adaptive="dear", cpu_seconds=9.0) for row in rows]
    cheap = [replace(row, adaptive="cheap", cpu_seconds=1.0) for row in rows]
    (best,) = strongest([*dear, *cheap], {("reading", "bits right"): True})
    assert best.adaptive == "cheap"


@pytest.mark.parametrize("ending", [SystemExit(0), RuntimeError("no")])
def test_an_attack_that_exits_or_raises_fails_its_cell_alone(ending):
    class Ending(Reading):
        def run(self, view, rng):
            raise ending

    found = play_all([against(PLAIN, Ending()), against(PLAIN)], [0], 1)
    assert [outcome.status for outcome in found] == ["failed", "value"]


@pytest.mark.parametrize(
    "units",
    [
        lambda: Proportion(np.zeros(0, dtype=bool)),
        lambda: Proportion(np.zeros((2, 2), dtype=bool)),
        lambda: Proportion(np.array([0.2, 0.3])),
        lambda: Mean(np.array([np.nan])),
        lambda: Mean(np.array([])),
        lambda: Ranking(np.array([1.0, 2.0]), np.array([True, True])),
        lambda: Ranking(np.array([np.nan, 2.0]), np.array([True, False])),
        lambda: 0.5,
    ],
)
def test_units_that_no_figure_can_be_computed_of_fail_the_cell(units):
    class Odd(Reading):
        def score(self, guess, truth):
            return {"bits right": units()}

    assert play(0, against(PLAIN, Odd()), 0).status == "failed"


def test_a_score_cannot_change_the_truth():
    class Meddling(Reading):
        def score(self, guess, truth):
            truth["bits"][:] = guess["bits"]
            return super().score(guess, truth)

    outcome = play(0, against(PLAIN, Meddling(part=0.0)), 0)
    assert outcome.status == "failed"
    assert "read-only" in outcome.note


def test_an_attacker_that_failed_stays_beside_the_strongest():
    class Broken(Reading):
        def run(self, view, rng):
            raise RuntimeError("broken")

    cells = [against(PLAIN, Broken(adaptive="broken")), against(PLAIN, Reading(part=0.5))]
    best = strongest(
        rows_of(cells, play_all(cells, range(3), 1)), {("reading", "bits right"): True}
    )
    assert [row.adaptive for row in best] == ["reads", "broken"]
    assert "broken" in figure_text(best[1])
