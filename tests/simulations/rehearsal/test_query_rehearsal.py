"""A rehearsal of queries: node files, what is told meanwhile, what each node says at the end."""

import io
import sys
from pathlib import Path

import pytest
from clinics import simulated
from flwr.app import Context, RecordDict, UserConfig
from rich.console import Console

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.server.flower.query_app import serve
from zerosum.simulations.attacks.protocol.asked_nodes import provisioned
from zerosum.simulations.commands.rehearse import kept_of
from zerosum.simulations.commands.rehearse_queries import conclude_queries, node_files
from zerosum.simulations.engine.grid import InProcessGrid
from zerosum.simulations.new.queries_app import make_queries_app
from zerosum.simulations.rehearsal import DeploymentError
from zerosum.simulations.rehearsal.rehearsal_folder import (
    QueryRehearsal,
    RehearsalFolder,
    RehearsedNodes,
)


@pytest.fixture
def clinic(tmp_path):
    make_queries_app(tmp_path / "clinic")
    return tmp_path / "clinic"


def setting(app, **changes):
    given = {"nodes": 3, "server": "malicious", "namespaces": False, **changes}
    return RehearsedNodes(str(app), **given)


def asked(kept, app, nodes, folder):
    """Ask the app's plan of nodes in this process, as a rehearsal does of SuperNodes."""
    _, keys = provisioned(folder, nodes.nodes)
    kept.nodes.mkdir(parents=True)
    for index, text in node_files(app, nodes).items():
        (kept.nodes / f"node{index}.toml").write_text(text)

    def config(index):
        own = {
            "policy": f"{kept.nodes}/node{index}.toml",
            "state-dir": f"{kept.nodes}/state{index}",
        }
        return {**keys(index), **own}

    given = keys(0)
    settings = f"deployment.roster={given['roster']} deployment.authority={given['authority']}"
    run_config: UserConfig = {
        "plan": str(app / "plan.toml"),
        "out": str(kept.path),
        "overrides": settings,
    }
    context = Context(
        run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=run_config
    )
    grid = InProcessGrid(build_app(DeployedEnvironment), nodes.nodes, node_config=config)
    return serve(grid, context)


@pytest.mark.slow
def test_the_sample_is_answered_and_each_node_says_what_it_spent(tmp_path, clinic):
    kept, nodes = kept_of(clinic, tmp_path / "out"), setting(clinic)
    answers = asked(kept, clinic, nodes, tmp_path)
    (kept.nodes / "supernode1.log").write_text(
        "ERROR: client 1: its answer to round 2 failed: no row of its table counts\n"
    )
    told = io.StringIO()
    conclude_queries(Console(file=told, width=80), kept, nodes)
    said = told.getvalue()
    assert "3 nodes, protected against a malicious server: 4 answers" in said
    assert all(answer.sentence() in said for answer in answers)
    assert "Budget      epsilon 1 of 1 is spent" in said
    for index in range(3):
        assert (
            f"Node {index}      4 contributions, epsilon 2.26 of max_epsilon = 4 of one rec" in said
        )
    assert "Failures in the nodes' own logs: 1; the first: ERROR: client 1" in said
    assert (kept.path / "report.html").is_file()


def test_an_app_with_a_plan_and_no_experiment_is_rehearsed_by_queries(tmp_path, clinic):
    assert isinstance(kept_of(clinic, tmp_path), QueryRehearsal)
    (clinic / "experiment.toml").touch()
    assert type(kept_of(clinic, tmp_path)) is RehearsalFolder


def without(file, text):
    assert text in file.read_text()
    file.write_text(file.read_text().replace(text, ""))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda node: (node / "zerosum-node.toml").unlink(), "1 of 3 has no file of its own"),
        (lambda node: (node / "patients.csv").unlink(), "table and policy.queries.columns: "),
        (lambda node: without(node / "patients.csv", "bmi"), 'no column "bmi"'),
        (lambda node: without(node / "zerosum-node.toml", "min_cohort = 3"), "min_cohort"),
        (lambda node: (node / "zerosum-node.toml").write_text("["), "is not valid TOML"),
    ],
    ids=["no file", "no table", "no column", "no key", "no TOML"],
)
def test_a_node_that_could_not_start_is_named_before_anything_starts(clinic, harm, said):
    harm(clinic / "nodes" / "1")
    with pytest.raises(DeploymentError) as caught:
        node_files(clinic, setting(clinic))
    assert said in str(caught.value)
    assert "nodes/1" in str(caught.value)


def test_a_node_without_a_folder_is_asked_for(clinic):
    with pytest.raises(DeploymentError, match="node 3 of 4 has no file of its own"):
        node_files(clinic, setting(clinic, nodes=4))


@pytest.mark.slow
def test_answers_are_told_once_each_and_an_ended_rehearsal_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["zerosum", "rehearse", "app"])
    simulated(tmp_path)
    kept = QueryRehearsal(tmp_path / "simulated")
    news = list(kept.news(0))
    assert [each.number for each in news] == [1, 2, 3, 4, 5, 6]
    assert news[0].line.startswith("query 1/6  elderly: Between ")
    assert [each.number for each in kept.news(5)] == [6]
    assert list(kept.news(6)) == []
    lines = kept.left(Path("app")).splitlines()
    assert "6 of 6 queries are answered and kept in" in lines[0]
    assert lines[-1] == f"zerosum rehearse app --resume {kept.path}"
    fresh = QueryRehearsal(tmp_path / "other")
    assert "No query was asked, so there is nothing to go on from" in fresh.left(Path("app"))
    assert list(fresh.news(0)) == []
