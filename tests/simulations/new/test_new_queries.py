"""zerosum new --queries: an app whose nodes have files and no code, or one line, nothing made."""

import csv
import stat
import tomllib

import pandas as pd
import pytest
from typer.testing import CliRunner

from zerosum.client.flower.node_policy import read_node_file
from zerosum.server.analytics.query_plan import read_plan
from zerosum.simulations.commands.main import app


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_sample_is_three_nodes_that_are_ready(tmp_path):
    done = invoke("new", tmp_path / "clinic", "--queries")
    assert done.exit_code == 0, done.output
    assert "three nodes with 148, 147, 147 rows" in done.output
    assert [entry.name for entry in tmp_path.iterdir()] == ["clinic"]
    for index in range(3):
        own = tmp_path / "clinic" / "nodes" / str(index) / "zerosum-node.toml"
        read_node_file(str(own)).check_table()


def test_what_an_app_sends_holds_nothing_of_its_nodes(tmp_path):
    invoke("new", tmp_path / "clinic", "--queries")
    clinic = tmp_path / "clinic"
    assert "/nodes/" in (clinic / ".gitignore").read_text().splitlines()
    assert not list(clinic.rglob("*.py")), "no code of its own"
    app_config = tomllib.loads((clinic / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app_config["components"]["serverapp"] == "zerosum.server.flower.query_app:app"
    assert stat.S_IMODE((clinic / "nodes").stat().st_mode) == 0o700


ROWS = [["age of entry", 'the "kind"', "note"], *([str(i), "a, b", "x\ny"] for i in range(7))]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_own_rows_are_dealt_and_their_domains_are_left_to_declare(tmp_path, ending):
    data = tmp_path / f"our rows.{ending}"
    if ending == "csv":
        with data.open("w", newline="") as file:
            csv.writer(file).writerows(ROWS)
    else:
        pytest.importorskip("pyarrow")
        pd.DataFrame(ROWS[1:], columns=ROWS[0]).to_parquet(data)
    done = invoke("new", tmp_path / "clinic", "--queries", "--data", data)
    assert done.exit_code == 0, done.output
    assert "three nodes with 3, 2, 2 rows" in done.output
    assert "Declare the domains in plan.toml" in done.output
    nodes = tmp_path / "clinic" / "nodes"
    found = []
    for index in range(3):
        own = read_node_file(str(nodes / str(index) / "zerosum-node.toml"))
        own.check_table()
        assert own.policy.queries is not None
        assert own.policy.queries.columns == ROWS[0]
        table = nodes / str(index) / data.name
        frame = pd.read_csv(table, dtype=str) if ending == "csv" else pd.read_parquet(table)
        assert list(frame.columns) == ROWS[0]
        found += frame.to_numpy().tolist()
    assert sorted(found) == sorted(ROWS[1:])
    plan = tmp_path / "clinic" / "plan.toml"
    assert "0, 100" in plan.read_text()
    assert "6" not in plan.read_text().partition("[schema]")[2].partition("[[queries]]")[0]
    refused = invoke("query", plan, "--data", data)
    assert refused.exit_code == 2
    assert "no column in a section [schema]" in refused.output
    plan.write_text(plan.read_text().replace("# note =", "note ="))
    assert [draft.kind for draft in read_plan(plan).queries] == ["count"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--label", "ill"], "--label ill: --queries has no use for it"),
        (["--kind", "npz"], "--kind npz: --queries has no use for it"),
        (["--data", "none.csv"], "--data none.csv: nothing is there"),
        (["--data", "table.npz"], "queries are asked of a .csv or .parquet table"),
        (["--data", "empty.csv"], "--data empty.csv: "),
    ],
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_made(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.npz").touch()
    (tmp_path / "empty.csv").touch()
    before = sorted(tmp_path.iterdir())
    done = invoke("new", "clinic", "--queries", *options)
    assert done.exit_code == 2
    assert said in done.output
    assert len(done.output.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
