"""``zerosum attack --task`` and ``attack(task=...)``: one call from a task to a table."""

import csv
import json
from pathlib import Path
from typing import Any

import own_tasks
import pytest
from typer.testing import CliRunner

from zerosum.simulations import attack as attack_from_python
from zerosum.simulations.attacks.harness.results import POOLED
from zerosum.simulations.commands.main import app

COMMON = Path(own_tasks.__file__).parent


@pytest.fixture
def beside_the_task(monkeypatch):
    monkeypatch.chdir(COMMON)


def attack(*arguments):
    return CliRunner().invoke(app, ["attack", *map(str, arguments)])


@pytest.mark.slow
def test_a_task_of_ones_own_gets_the_same_table(beside_the_task, tmp_path, one_thread):
    out = tmp_path / "out"
    done = attack(
        *("imprint-on-one-client", "model-inversion", "linkage-on-quasi-identifiers"),
        *("--task", "own_tasks:Texts", "--workers", 1, "--out", out),
    )
    assert done.exit_code == 2  # nothing of these is for texts
    assert not out.exists()
    done = attack(
        *("imprint-on-one-client", "linkage-on-quasi-identifiers"),
        *("--task", "own_tasks:Images", "--workers", 1, "--out", out),
    )
    assert done.exit_code == 0, done.output
    said = "not applicable: linkage on quasi-identifiers is played on records of its own alone"
    assert said in done.output
    with (out / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == POOLED]
    assert {row["setting"] for row in rows} == {"own_tasks:Images: 8 clients, 8 records each"}
    by_protection = {row["protection"]: float(row["value"]) for row in rows}
    assert by_protection["masked, no request hash"] > by_protection["masked"]
    for name in ("table.md", "report.html"):
        text = (out / name).read_text()
        assert "Attacked was own_tasks:Images" in text
        assert json.loads((out / "attack.json").read_text())["task"] == "own_tasks:Images"
    assert said in (out / "table.md").read_text()


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["model-inversion", "--task", "own_tasks:Values"],
            "not applicable: model inversion needs images, and a record has the shape (6,)",
        ),
        (["--task", "own_tasks:DictInputs"], "attacks need records that are one tensor each"),
        (["--task", "own_tasks:Missing"], "own_tasks has no Missing"),
        (["--task", "digits", "--set", "data.clientz=3"], "data.clients"),
        (["--run", "nowhere"], "nowhere holds no run"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_cannot_be_attacked_costs_one_line_and_exit_code_2(beside_the_task, arguments, said):
    done = attack(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


@pytest.mark.slow
def test_a_task_object_is_attacked_from_python(tmp_path, one_thread):
    class Local(own_tasks.Images):
        """One that no other process can import."""

    rows = attack_from_python(
        ["imprint-on-one-client"], seeds=1, out=tmp_path / "out", task=Local(), workers=2
    )
    values: Any = {row.protection: row.value for row in rows if row.seed == POOLED}
    assert values["masked, no request hash"] > values["masked"]
