"""One line says what was read of a file: in the terminal, the summary and the report."""

import html
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.server.runs.run_folder import REPORT, SUMMARY
from zerosum.simulations.commands.main import app
from zerosum.simulations.data.tasks import DigitsTask

FAST = ["task=table", "rounds=1", "data.clients=4", "engine=serial", "model.name=linear",
        "privacy.model=none", "secagg.protocol=ideal", "data.partition=iid"]  # fmt: skip

LINE = (
    "t.csv: 60 records; label y (2 classes: 0, 1); 1 input: a; left out: note (text, 60 values); "
    'read as separator ";", decimal ","; caution: a counts the records; 12 records are public '
    "(data.test_fraction): they set the scales, and nothing protects them"
)


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    rows = [f"{i};n, {i};{i % 2},0" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a;note;y", *rows]) + "\n")
    given = [*FAST, f"data.path={tmp_path / 't.csv'}", "data.label=y"]
    return [f"--set={each}" for each in given]


@pytest.mark.usefixtures("one_thread")
def test_terminal_summary_and_report_say_the_same_line(tmp_path: Path, settings: list[str]) -> None:
    out = tmp_path / "run"
    done = CliRunner().invoke(app, ["run", "cross-silo", *settings, "--out", str(out)])
    assert done.exit_code == 0, done.output
    summary = json.loads((out / SUMMARY).read_text())
    assert summary["data"]["line"] == LINE
    assert summary["data"]["left_out"] == {"note": "text, 60 values"}
    assert LINE in [line.removeprefix("Data").strip() for line in done.output.splitlines()]
    page = html.unescape((out / REPORT).read_text())
    assert LINE in page


def test_a_dry_run_says_it_before_anything_runs(settings: list[str]) -> None:
    done = CliRunner().invoke(app, ["run", "cross-silo", *settings, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert LINE in done.output


def test_a_plan_says_it_too(settings: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", "cross-silo", *settings])
    assert done.exit_code == 0, done.output
    assert f"Data: {LINE}" in done.output


@pytest.mark.quick_one_in(2)
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("experiment", "key", "value"),
    [("mnist5k", "data.pool", "2"), ("cross-silo", "data.partition", "dirichlet")],
)
def test_an_inherited_key_that_does_not_fit_the_file_is_named_with_a_cure(
    settings: list[str], experiment: str, key: str, value: str
) -> None:
    """Whoever runs a table never wrote what an experiment says of other records."""
    given = [each for each in settings if "partition" not in each]
    given += ["--set=data.target=values", "--set=sampling.kind=everyone"]
    for command in (["run"], ["run", "--dry-run"], ["plan"]):
        asked = [*command, experiment, *given]
        refused = CliRunner().invoke(app, asked)
        assert refused.exit_code == 2
        assert f" is of {experiment}: --set {key}=unset takes it out" in refused.output
        own = CliRunner().invoke(app, [*asked, f"--set={key}={value}"])
        assert own.exit_code == 2
        assert "takes it out" not in own.output, "the control: the user's own key"
    cured = CliRunner().invoke(app, [*asked, f"--set={key}=unset"])
    assert cured.exit_code == 0, cured.output


def test_data_that_ship_with_libraries_say_nothing() -> None:
    assert DigitsTask.from_specs(DataSpec(), ModelSpec(), 0).data_summary() is None
