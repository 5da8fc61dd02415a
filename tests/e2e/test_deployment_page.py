"""The numbers of docs/deployment.md fit together: its nodes take part in its run."""

import tomllib
from pathlib import Path

import pytest

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.flower.node_policy import PolicyError, checked_node_file
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.client.protocol.survivors import min_survivors
from zerosum.client.spec import ClientPolicy
from zerosum.secagg import NoFeasibleGraph, ServerMode
from zerosum.secagg.graph.failure_bounds import colluders_in
from zerosum.secagg.graph.parameters import graph_parameters
from zerosum.server.analytics.query_plan import plan_of
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations import api, load_experiment
from zerosum.simulations.engine.grid import InProcessGrid, nodes

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


def block(first):
    """Return the indented block of the page that begins with these words."""
    lines = PAGE[PAGE.index(f"    {first}") :].splitlines()
    end = next(i for i, line in enumerate(lines) if line and not line.startswith("    "))
    return "\n".join(line[4:] for line in lines[:end])


POLICY = block("models = ")
THEIRS = "ours.task:Task"
"""The task of the page's app, in whose place these nodes train on digits."""

QUERIES = block("[queries]")
EXPERIMENT = tomllib.loads(block("[privacy]"))


def deployed(folder, keys, policy, experiment):
    """Run one round on three nodes of a policy, with keys, in this process."""
    file = folder / "policy.toml"
    assert THEIRS in policy
    file.write_text(policy.replace(THEIRS, "digits"))
    small = {"task": "digits", "data": {"clients": 3, "limit": 200}}
    planned = api.plan(load_experiment({"rounds": 1, **experiment, **small}))
    grid = InProcessGrid(
        build_app(DeployedEnvironment),
        3,
        node_config=lambda index: {
            "state-dir": str(folder / f"state{index}"),
            "policy": str(file),
            **keys.node_config(index),
        },
    )
    entropy, roster = SystemEntropy(), Nodes(nodes(3), keys.roster)
    secagg = planned.experiment.secagg
    coordinator = Coordinator(grid, roster, secagg, run_id=b"page", entropy=entropy)
    run = RunFolder.create(folder / "run", planned.experiment)
    return FederatedTraining(planned.experiment, planned.task, 3, coordinator, entropy, run).run()


def test_the_policy_of_the_page_assumes_a_colluder():
    policy = ClientPolicy.model_validate(tomllib.loads(POLICY))
    assert colluders_in(3, 3, policy.corruption, ServerMode.MALICIOUS) == 1


def test_the_nodes_of_the_page_take_part_in_its_run(tmp_path, one_thread, make_keys):
    result = deployed(tmp_path, make_keys(tmp_path / "keys", 3), POLICY, EXPERIMENT)
    assert result.rounds[0]["survivors"] == 3
    assert result.summary["server"] == "malicious"


@pytest.mark.slow
def test_a_node_of_the_page_answers_as_often_as_it_says(tmp_path, one_thread, make_keys):
    assert "answer nine times" in " ".join(PAGE.split())
    experiment = EXPERIMENT | {"rounds": 10}
    result = deployed(tmp_path, make_keys(tmp_path / "keys", 3), POLICY, experiment)
    answered = [record["status"] != "abandoned" for record in result.rounds]
    assert answered == [True] * 9 + [False]


def test_nodes_that_assume_one_more_colluder_decline_it(tmp_path, one_thread, make_keys):
    wary = POLICY.replace("corruption = 0.34", "corruption = 0.67")
    result = deployed(tmp_path, make_keys(tmp_path / "keys", 3), wary, EXPERIMENT)
    assert result.rounds[0]["status"] == "abandoned"


def test_five_nodes_of_which_one_colludes_can_spare_one():
    five = graph_parameters(5, dropout=0.2, corruption=0.2, server="malicious")
    assert five.colluders == 1
    assert min_survivors(EXPERIMENT["privacy"]["honest_fraction"], 5, five.colluders) == 4
    with pytest.raises(NoFeasibleGraph):
        graph_parameters(3, dropout=0.34, corruption=0.34, server="malicious")


def test_the_pages_node_answers_queries_from_its_table(tmp_path):
    node = checked_node_file(tomllib.loads(f"{POLICY}\n{QUERIES}"), "the page", tmp_path)
    assert node.policy.budget_unit == "record"
    with pytest.raises(PolicyError, match="No such file"):
        node.check_table()
    (tmp_path / "patients.csv").write_text("age_years,sex\n70,Male\n")
    node.check_table()


def test_the_page_of_queries_has_a_node_file_and_a_plan_that_fit_together(tmp_path):
    start = '[table]\n    path = "patients.csv"          # CSV with a header, or .parquet; from'
    node = checked_node_file(tomllib.loads(block(start)), "the page", tmp_path)
    assert node.policy.queries is not None
    assert node.policy.queries.columns == ["age", "sex"]
    (tmp_path / "patients.csv").write_text("AGE_YEARS,sex\n70,Male\n")
    node.check_table()
    settings = tomllib.loads(block("clients = 3").replace("AUTHORITY_S_PUBLIC_KEY", "0" * 64))
    plan = plan_of({**settings, "budget": {"epsilon": 1.0}})
    assert plan.deployment is not None
    assert plan.deployment.roster == "/etc/zerosum/roster"
    assert plan.corruption == node.policy.corruption
