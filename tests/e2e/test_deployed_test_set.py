"""A ServerApp leaves confusion and a reference, and refuses baselines: it has no records."""

import pytest
from flwr.app import Context, RecordDict
from policies import LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.server.config import ConfigError
from zerosum.server.flower.server_app import serve
from zerosum.simulations.engine.grid import InProcessGrid

pytestmark = pytest.mark.usefixtures("one_thread")

CLIENTS = 6
EXPERIMENT = """
task = "digits"
rounds = 1
data = { limit = 300 }
model = { name = "linear" }
sampling = { kind = "everyone" }
privacy = { noise_multiplier = 2.0, delta = 0.05, honest_fraction = 0.6 }
secagg = { server = "semi-honest", dropout = 0.2 }
deployment = { min_nodes = 6 }
"""


def served(folder, overrides=""):
    (folder / "experiment.toml").write_text(EXPERIMENT)
    (folder / "policy.toml").write_text('servers = ["semi-honest"]\n' + LEAST_TOML)

    def node_config(index):
        return {"state-dir": str(folder / "state" / str(index)), "policy": f"{folder}/policy.toml"}

    app = build_app(DeployedEnvironment)
    grid = InProcessGrid(app, CLIENTS, node_config=node_config, run_id=1)
    config = {"experiment": str(folder / "experiment.toml"), "overrides": overrides}
    config |= {"out": str(folder / "run")}
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    return serve(grid, context, SystemEntropy())


@pytest.mark.slow
def test_a_server_app_leaves_confusion_calibration_and_a_reference(tmp_path):
    result = served(tmp_path)
    figures = result.test_set
    assert figures["accuracy"] == pytest.approx(result.metrics["test_accuracy"])
    assert sum(map(sum, figures["confusion"])) == figures["examples"]
    assert 0 <= figures["calibration"]["ece"] <= 1
    supports = [each["examples"] for each in figures["per_class"]]
    assert result.reference["test_accuracy"] == max(supports) / sum(supports)


def test_a_server_app_refuses_baselines(tmp_path):
    with pytest.raises(ConfigError, match="baselines = true is of zerosum run alone"):
        served(tmp_path, "baselines=true")
    assert not (tmp_path / "run").exists()
