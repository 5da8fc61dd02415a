"""A ServerApp whose nodes all decline: its log says so, and it does not ask on to the end."""

import json
import logging
import re
import stat
import subprocess
import sys
from typing import Any, cast

import pytest
from flwr.app import Context, RecordDict
from policies import LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.server.flower.server_app import serve
from zerosum.simulations import NothingLearntError
from zerosum.simulations.commands.budget import spending_in
from zerosum.simulations.engine.grid import InProcessGrid

pytestmark = pytest.mark.usefixtures("no_disk", "one_thread")

CLIENTS, ROUNDS = 4, 6
EXPERIMENT = f"""
name = "declined"
task = "digits"
rounds = {ROUNDS}
[data]
limit = 200
[model]
name = "linear"
[sampling]
kind = "everyone"
[privacy]
noise_multiplier = 2.0
delta = 0.05
honest_fraction = 0.5
[secagg]
server = "semi-honest"
dropout = 0.5
[deployment]
min_nodes = {CLIENTS}
"""


def served(folder, spent=(), overrides="", number=1, **run_config):
    """Run it with nodes of which some may send one vector and no more."""
    (folder / "experiment.toml").write_text(EXPERIMENT)
    open_to_all = 'servers = ["semi-honest"]\n' + LEAST_TOML
    (folder / "open.toml").write_text(open_to_all)
    (folder / "spent.toml").write_text("max_contributions = 1\n" + open_to_all)

    def node_config(index):
        policy = folder / ("spent.toml" if index in spent else "open.toml")
        return {"state-dir": str(folder / "state" / str(index)), "policy": str(policy)}

    app = build_app(DeployedEnvironment)
    grid = InProcessGrid(app, CLIENTS, node_config=node_config, run_id=number)
    config: dict[str, bool | float | int | str] = {
        "experiment": str(folder / "experiment.toml"), "overrides": overrides,
        **(run_config or {"out": str(folder / f"run{number}")}),
    }  # fmt: skip
    context = Context(
        run_id=number, node_id=1, node_config={}, state=RecordDict(), run_config=config
    )
    return serve(grid, context, SystemEntropy())


@pytest.fixture(autouse=True)
def _all_that_is_said(caplog):
    caplog.set_level(logging.INFO)


def test_a_run_that_every_node_declines_ends_after_three_rounds(tmp_path, caplog):
    everybody = range(CLIENTS)
    served(tmp_path, everybody, "rounds=1")
    caplog.clear()
    with pytest.raises(NothingLearntError) as ended:
        served(tmp_path, everybody, number=2)
    said = str(ended.value)
    assert "all 3 rounds were abandoned" in said
    assert "every client refused, which ends a run" in said
    lines = (tmp_path / "run2" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3 < ROUNDS
    ours = [r.getMessage() for r in caplog.records if r.name == "zerosum.server"]
    abandoned = [line for line in ours if "is abandoned" in line]
    assert len(abandoned) == 3
    reasons = "4 clients declined it: the reasons are in each node's own log"
    assert all(reasons in line for line in abandoned)
    assert not any("max_contributions" in line for line in ours), "reasons stay at the nodes"
    # Nodes may have been set right since: three rounds more are played before it ends again.
    with pytest.raises(NothingLearntError, match="all 6 rounds were abandoned"):
        served(tmp_path, everybody, number=3, resume=str(tmp_path / "run2"))


def test_nodes_that_decline_after_something_was_learnt_do_not_end_the_run(tmp_path, caplog):
    result = served(tmp_path, range(CLIENTS))
    assert [r.status for r in result.rounds] == ["completed"] + (ROUNDS - 1) * ["abandoned"]


def test_a_round_line_counts_rounds_and_who_declined(tmp_path, caplog):
    served(tmp_path, [2], "rounds=2")
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("round ")]
    assert any(line.startswith("round 1/2 completed: 4 of 4 survived, ") for line in lines)
    second = next(line for line in lines if line.startswith("round 2/2 completed"))
    assert "3 of 4 survived, 1 client declined it" in second
    refused = json.loads((tmp_path / "run1" / "metrics.jsonl").read_text().splitlines()[1])
    assert refused["refused"] == {"advertise": 1}


def test_a_deployments_run_folder_is_its_owners_and_its_page_is_spoken_of(tmp_path, caplog):
    (tmp_path / "mine").mkdir(mode=0o755)
    served(tmp_path, overrides="rounds=1", out=str(tmp_path / "runs" / "new"))
    assert stat.S_IMODE((tmp_path / "runs" / "new").stat().st_mode) == 0o700
    command = f"zerosum report {tmp_path / 'runs' / 'new'}"
    assert command in caplog.text
    served(tmp_path, overrides="rounds=1", number=2, out=str(tmp_path / "mine"))
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o755, "its owner may share it"


def test_a_nodes_own_log_tells_terms_records_and_what_is_spent(tmp_path, caplog):
    """A message each, and for each an environment of its own: the record knows what was said."""
    served(tmp_path, [1], "rounds=2", number=77)
    ours = [r.getMessage() for r in caplog.records if r.name == "zerosum.client"]
    accepted = [line for line in ours if "terms accepted" in line]
    assert len(accepted) == CLIENTS, "once a node, not once a message"
    assert all(line.startswith("run 77: terms accepted: task 'digits'") for line in accepted)
    assert "privacy.model distributed, unit client, noise multiplier 2" in accepted[0]
    charged = [line for line in ours if "is charged" in line]
    assert len([line for line in charged if line.startswith("run 77, round 1: ")]) == CLIENTS
    assert len([line for line in charged if line.startswith("run 77, round 2: ")]) == CLIENTS - 1
    assert "contribution 2 of this run is charged; 2 of max_contributions" in charged[-1]
    assert any("50 records read to train" in line for line in ours)
    declined = [line for line in ours if "declined to" in line]
    assert declined == [
        "run 77: client 1 declined to advertise: the budget of max_contributions = 1 is spent"
    ]
    spent = cast(dict[str, Any], spending_in(tmp_path / "state" / "0"))
    assert list(spent["flower_runs"].values()) == ["77"]
    assert spent["flower_runs"].keys() == spent["by_run"].keys()


@pytest.mark.slow
def test_a_nodes_process_shows_its_log_with_time_name_and_run(tmp_path):
    """What a SuperNode starts has no handler of its own: Python would show warnings, bare."""
    script = (
        "from flwr.app import Context, RecordDict\n"
        "from zerosum.client.flower.client_app import DeployedEnvironment, answering\n"
        "context = Context(77, 1, {'partition-id': 3}, RecordDict(), {})\n"
        "try:\n"
        "    with answering('hello', DeployedEnvironment, context):\n"
        "        pass\n"
        "except Exception:\n"
        "    pass\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    line = next(one for one in ran.stderr.splitlines() if "declined" in one)
    stamped = (
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ WARNING zerosum.client: run 77: client 3 declined"
    )
    assert re.match(stamped, line)
