"""``zerosum attack``: from names and settings to a table, a folder and an exit code."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.catalog import all_attacks, choose, parameters_of, slug
from zerosum.simulations.cli import app

EXAMPLES = Path(__file__).parents[3] / "examples"
MINE = "my_attack:LabelLeak"


@pytest.fixture
def in_examples(monkeypatch):
    monkeypatch.chdir(EXAMPLES)


def attack(*arguments):
    return CliRunner().invoke(app, ["attack", *map(str, arguments)])


def test_an_attack_of_ones_own_gets_its_table(in_examples, tmp_path, one_thread):
    done = attack(MINE, "--workers", 1, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "labels right" in done.output
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    plain = next(r for r in rows if r["protection"] == "plain" and r["seed"] == "pooled")
    assert float(plain["value"]) == 1
    assert float(plain["low"]) > 0.9
    assert float(plain["baseline"]) < 0.3
    masked = next(r for r in rows if r["protection"] == "masked" and r["seed"] == "pooled")
    assert masked["status"] == "not applicable"


def test_a_parameter_changes_the_attack(in_examples):
    (changed,) = choose([MINE], ["label-leak.lr=1"])
    assert changed.lr == 1.0
    assert isinstance(changed.lr, float)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-attack"], "is no attack"),
        (["nowhere:Attack"], "No module named 'nowhere'"),
        (["my_attack:PLAIN"], "is no attack"),
        (["numpy:float64"], "it has no name"),
        ([MINE, "--suite", "slow"], "--suite slow: write quick or full"),
        ([MINE, "--set", "label-leak.lr"], "write ATTACK.PARAMETER=VALUE"),
        ([MINE, "--set", "label-leak.rate=1"], "none of label-leak.lr"),
        ([MINE, "--set", "label-leak.lr=fast"], "'fast' is no float, as 0.1 is"),
        ([MINE, "--set", "label-leak.lr=true"], "is no float"),
    ],
)
def test_a_mistake_costs_one_line_and_exit_code_2(in_examples, arguments, said):
    done = attack(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


def test_a_folder_that_is_not_empty_is_left_alone(in_examples, tmp_path):
    (tmp_path / "mine").write_text("mine")
    done = attack(MINE, "--out", tmp_path)
    assert done.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_cell_that_fails_ends_with_exit_code_1_and_a_table(in_examples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_attack.py").write_text(
        f"import sys\nsys.path.insert(0, {str(EXAMPLES)!r})\n"
        "from dataclasses import dataclass\nfrom my_attack import LabelLeak\n\n"
        "@dataclass(frozen=True)\nclass Broken(LabelLeak):\n"
        "    def run(self, view, rng):\n        raise RuntimeError('broken on purpose')\n"
    )
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    done = attack("broken_attack:Broken", "--workers", 1, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "broken on purpose" in done.output
    assert (tmp_path / "out" / "results.csv").exists()


@pytest.mark.parametrize("suite", ["quick", "full"])
def test_every_built_in_attack_has_cells_with_names_of_their_own(suite):
    for each in all_attacks():
        labels = [
            (case.setting.name, case.protection.name, repr(case)) for case in each.cases(suite)
        ]
        assert labels, each.name
        assert len({label[:2] for label in labels}) == len(labels), each.name


def test_every_built_in_attack_is_found_by_its_name():
    for each in all_attacks():
        assert each in choose([slug(each)])
        assert parameters_of(each) is not None


def test_an_unknown_attack_names_those_there_are():
    with pytest.raises(ConfigError, match="there are: "):
        choose(["nothing"])
