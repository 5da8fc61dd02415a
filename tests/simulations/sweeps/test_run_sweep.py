"""Running the cells of a sweep: what is said first, what is left out, what fails alone."""

import json
import logging

import pytest

from zerosum.server.config import ConfigError
from zerosum.simulations.sweeps import run_sweep as module
from zerosum.simulations.sweeps.grid import cells_of, written_choices
from zerosum.simulations.sweeps.sweep_folder import SweepFolder
from zerosum.simulations.sweeps.time_left import Pace


@pytest.fixture
def folder(tmp_path):
    return SweepFolder.claim(tmp_path, cells_of("digits", written_choices(["rounds=1,2"]), [0, 1]))


@pytest.mark.parametrize(("rounds", "warned"), [(2 * 86_400 + 100, 1), (1000, 0)])
def test_a_sweep_of_more_than_a_day_is_said_once_and_first(
    folder, monkeypatch, caplog, rounds, warned
):
    events = []

    def run_cells(folder, cells, workers, look, ended):
        pace = Pace(workers, 4, rounds)
        for _ in range(3):
            pace.round(1.0)
            look(pace)
            events.append(len(caplog.records))

    monkeypatch.setattr(module, "run_cells", run_cells)
    with caplog.at_level(logging.WARNING, "zerosum.simulations"):
        module.complete(folder, 2)
    assert events == [warned] * 3
    assert ["about 24 h 1 min" in record.getMessage() for record in caplog.records] == [
        True
    ] * warned


def test_cells_that_are_over_are_not_run_again_and_failures_are_told(folder, monkeypatch):
    over = folder.run_path(folder.cells[0])
    over.mkdir(parents=True)
    (over / "report.html").write_text("")
    (over / "summary.json").write_text(json.dumps({"name": "x", "nothing_learnt": "all failed"}))
    asked = []

    def run_cells(folder, cells, workers, look, ended):
        asked.extend(cells)
        ended(asked[1], "its process was killed")

    monkeypatch.setattr(module, "run_cells", run_cells)
    errors = module.complete(folder, 1)
    assert asked == list(folder.cells[1:])
    assert errors == {
        folder.cells[0].folder: "all failed",
        folder.cells[2].folder: "its process was killed",
    }
    assert [row["status"] for row in folder.rows(errors)] == ["failed", "open", "failed", "open"]


def test_a_gpu_has_one_cell_at_a_time(tmp_path):
    lists = ["device=cuda", "rounds=1,2"]
    folder = SweepFolder.claim(tmp_path / "gpu", cells_of("digits", written_choices(lists)))
    assert module.usual_workers(folder) == 1


def test_no_worker_is_refused(folder):
    with pytest.raises(ConfigError, match="workers = 0"):
        module.complete(folder, 0)
