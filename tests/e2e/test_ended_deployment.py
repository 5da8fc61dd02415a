"""A ServerApp keeps its best model and ends by patience, with the figures of all planned rounds."""

import json

import pytest
from flwr.app import Context, RecordDict
from policies import LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.server.config import ConfigError
from zerosum.server.flower.server_app import serve
from zerosum.server.runs.run_folder import BEST, LEDGER
from zerosum.simulations import Result
from zerosum.simulations.engine.grid import InProcessGrid

pytestmark = pytest.mark.usefixtures("one_thread")

CLIENTS, ROUNDS = 6, 8
EXPERIMENT = """
name = "ended"
task = "digits"
rounds = 8
[data]
limit = 300
[model]
name = "linear"
[sampling]
kind = "everyone"
[privacy]
noise_multiplier = 2.0
delta = 0.05
honest_fraction = 0.6
[secagg]
server = "semi-honest"
dropout = 0.2
[evaluation]
best = "accuracy"
patience = 1
min_delta = 0.9
[deployment]
min_nodes = 6
"""


def served(folder, overrides: str = "", **run_config) -> Result:
    (folder / "experiment.toml").write_text(EXPERIMENT)
    (folder / "policy.toml").write_text('servers = ["semi-honest"]\n' + LEAST_TOML)

    def node_config(index):
        return {"state-dir": str(folder / "state" / str(index)), "policy": f"{folder}/policy.toml"}

    app, number = build_app(DeployedEnvironment), len(list(folder.iterdir()))
    grid = InProcessGrid(app, CLIENTS, node_config=node_config, run_id=number)
    config: dict[str, bool | float | int | str] = {
        "experiment": str(folder / "experiment.toml"), "overrides": overrides,
        **(run_config or {"out": str(folder / "run")}),
    }  # fmt: skip
    context = Context(
        run_id=number, node_id=1, node_config={}, state=RecordDict(), run_config=config
    )
    return serve(grid, context, SystemEntropy())


def test_a_server_app_ends_by_patience_and_charges_all_planned_rounds(tmp_path):
    result = served(tmp_path)
    assert (len(result.rounds), result.summary.ended_by) == (2, "patience")
    lines = (tmp_path / "run" / LEDGER).read_text().splitlines()[1:]
    assert {json.loads(line)["key"][0] for line in lines} == {1, 2}, "nobody is asked any more"
    for bound in result.summary.epsilon.values():
        assert bound.participations == ROUNDS
        assert bound.value > 1.5 * result.rounds[-1].epsilon[bound.observer]
    assert (tmp_path / "run" / BEST).is_file()
    again = served(tmp_path, resume=str(tmp_path / "run"))
    assert again.summary["epsilon"] == result.summary["epsilon"]
    assert again.best == result.best
    with pytest.raises(ConfigError, match="more rounds do not make it go on"):
        served(tmp_path, "rounds=9", resume=str(tmp_path / "run"))


def test_a_server_app_refuses_a_metric_that_its_tests_lack(tmp_path):
    with pytest.raises(ConfigError, match='did you mean "accuracy"'):
        served(tmp_path, "evaluation.best=acuracy evaluation.mode=max")
