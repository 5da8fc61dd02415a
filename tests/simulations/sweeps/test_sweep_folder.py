"""The folder of a sweep: taken up again as it was asked for, refused otherwise."""

import csv
import io
import json

import pytest

from zerosum.server.config import ConfigError
from zerosum.simulations.sweeps.grid import cells_of, written_choices
from zerosum.simulations.sweeps.sweep_folder import MANIFEST, TABLE, SweepFolder

LISTS = ["privacy.epsilon=1,2.5", "server.options={},{momentum=0.9}"]


def cells(*lists):
    return cells_of("digits", written_choices(lists or LISTS), [0, 3])


def test_a_manifest_reads_back_to_the_very_cells(tmp_path):
    made = SweepFolder.claim(tmp_path / "s", cells())
    assert SweepFolder.open(tmp_path / "s") == made
    assert SweepFolder.claim(tmp_path / "s", cells()) == made


def test_a_sweep_of_other_cells_is_refused_and_unchanged(tmp_path):
    SweepFolder.claim(tmp_path, cells())
    before = (tmp_path / MANIFEST).read_bytes()
    with pytest.raises(ConfigError, match=r"other cells.*--resume"):
        SweepFolder.claim(tmp_path, cells("privacy.epsilon=1,3"))
    assert (tmp_path / MANIFEST).read_bytes() == before


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match="not empty"):
        SweepFolder.claim(tmp_path, cells())
    with pytest.raises(ConfigError, match="holds no sweep"):
        SweepFolder.open(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: text.replace('"folder": "', '"folder": "../../'),
        lambda text: text.replace('"rounds"', '"ronds"'),
        lambda text: text.replace('"format": 1', '"format": 2'),
    ],
    ids=["torn", "no-object", "leads-elsewhere", "unknown-key", "newer"],
)
def test_a_damaged_manifest_is_refused(tmp_path, damage):
    SweepFolder.claim(tmp_path, cells())
    file = tmp_path / MANIFEST
    file.write_text(damage(file.read_text()))
    with pytest.raises(ConfigError):
        SweepFolder.open(tmp_path)


def test_one_process_runs_a_sweep_at_a_time(tmp_path):
    folder = SweepFolder.claim(tmp_path, cells())
    with folder.held(), pytest.raises(ConfigError, match="still goes on"), folder.held():
        pass


def test_the_table_has_a_row_a_cell_also_before_any_is_over(tmp_path):
    folder = SweepFolder.claim(tmp_path, cells())
    folder.write_table({folder.cells[1].folder: "its process was killed"})
    rows = list(csv.DictReader(io.StringIO((tmp_path / TABLE).read_text())))
    assert [row["status"] for row in rows] == ["open", "failed", *["open"] * 6]
    assert rows[1]["error"] == "its process was killed"
    assert [row["seed"] for row in rows] == ["0", "3"] * 4
    assert [row["privacy.epsilon"] for row in rows] == ["1"] * 4 + ["2.5"] * 4
    assert json.loads(rows[2]["server.options"]) == {"momentum": 0.9}
    assert list(rows[0])[-2:] == ["seconds", "error"]


@pytest.mark.parametrize("exact", [False, True])
def test_what_no_run_can_go_on_from_is_cleared(tmp_path, exact):
    lists = ["privacy.mechanism=discrete-gaussian", f"privacy.exact={str(exact).lower()}"]
    folder = SweepFolder.claim(tmp_path, cells(*lists))
    cell = folder.cells[0]
    path = folder.run_path(cell)
    path.mkdir(parents=True)
    (path / "config.toml.new").write_text("torn")
    folder.clear_unusable(cell)
    assert not path.exists()
    path.mkdir()
    (path / "config.toml").write_text("")
    folder.clear_unusable(cell)
    assert path.exists() != exact
