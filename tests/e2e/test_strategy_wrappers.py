"""Ways to put an app behind the mod: all train the model that the plain app trains."""

import sys

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from strategy_apps import CLIENTS, NOISY, OPEN, STEP, Wire, arrays_of, client_app, model, plain

import zerosum.client.flower.client_app as client_module
import zerosum.client.flower.private_mod as mod_module
import zerosum.server.flower.private_strategy as strategy_module
from zerosum.client.flower.app_request import stage_type
from zerosum.client.flower.private_mod import PrivateClientApp, private_mod
from zerosum.client.protocol import flower_messages
from zerosum.server.config import ConfigError
from zerosum.server.flower import hello_refusals
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.runs.run_folder import RunFolder
from zerosum.simulations.engine.grid import InProcessGrid

MODULE = "quickstart_wrapped.client_app"
MADE = {
    "a plain app": "client_app([])",
    "an app with the mod": "client_app([private_mod])",
    "a private app": "client_app([], make=PrivateClientApp)",
}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a function that writes the module of an app, and gives it back by its name."""
    folder = tmp_path / "app" / "quickstart_wrapped"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(folder.parent))

    def write(made):
        (folder / "client_app.py").write_text(
            "from strategy_apps import client_app\n"
            "from zerosum.client import PrivateClientApp, private_mod\n"
            f"app = {made}\n"
        )
        return PrivateClientApp(f"{MODULE}:app")

    yield write
    for name in (MODULE, MODULE.partition(".")[0]):
        sys.modules.pop(name, None)


def of_one_round(grid, tmp_path, **settings):
    settings = OPEN | settings
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    return strategy.start(grid, model(), 1)


def check_trained(result):
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=1))
    found = arrays_of(result)["layer.weight"]
    np.testing.assert_allclose(found, expected["layer.weight"], atol=10 * STEP, rtol=0)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("made", MADE)
def test_an_app_that_is_named_trains_as_it_does_alone(made, written, grid_of, tmp_path):
    check_trained(of_one_round(grid_of(written(MADE[made])), tmp_path))


@pytest.mark.slow
def test_no_stage_before_training_imports_the_app(written, grid_of, tmp_path):
    app = written("client_app([])")
    imported: dict[str | None, bool] = {}

    def watched(message, context):
        try:
            return app(message, context)
        finally:
            imported.setdefault(stage_type(message.content), MODULE in sys.modules)

    of_one_round(grid_of(watched), tmp_path)
    order = list(imported)
    contribute = order.index(flower_messages.STAGE_TYPES["contribute"])
    assert contribute > 0
    assert [imported[stage] for stage in order] == [i >= contribute for i in range(len(order))]


def test_a_name_of_a_name_is_declined(written, grid_of, tmp_path, caplog):
    app = written(f"PrivateClientApp('{MODULE}:app')")
    with pytest.raises(Exception, match="round 1"):
        of_one_round(grid_of(app), tmp_path)
    assert "names an app that names another" in caplog.text


@pytest.mark.slow
def test_an_app_without_the_function_that_is_asked_for_declines(written, grid_of, tmp_path, caplog):
    """Under noise it would be a zero in the sum that nobody hears of."""
    app = PrivateClientApp()
    app.train()(lambda message, context: message)
    settings = NOISY | {"metrics": {"eval_loss": 10.0}, "evaluation_noise": 2.0}
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **settings)
    result = strategy.start(grid_of(app), model(), 1)
    assert result.evaluate_metrics_clientapp == {}
    assert "the app has no function for messages of type 'evaluate'" in caplog.text


@pytest.fixture
def simulated(monkeypatch):
    """Stand-ins for what says that Flower's simulation runtime is here."""
    for module in (client_module, mod_module):
        monkeypatch.setattr(module, "is_simulated", lambda context: True)
    monkeypatch.setattr(strategy_module, "is_simulation", lambda grid: True)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("made", ["mod", "private", "named"])
def test_simulated_nodes_need_no_settings_and_no_keys(made, simulated, written, tmp_path, caplog):
    """The documented two lines, under a server that may lie, as is the default."""
    apps = {
        "mod": lambda: client_app([private_mod]),
        "private": lambda: client_app([], make=PrivateClientApp),
        "named": lambda: written("client_app([])"),
    }
    wire = Wire(apps[made]())
    result = of_one_round(InProcessGrid(wire, CLIENTS), tmp_path, secagg={"dropout": 0.4})
    check_trained(result)
    assert flower_messages.STAGE_TYPES["confirm"] in {stage_type(sent) for sent in wire.sent}
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert summary.engine == {"name": "flower"}
    assert summary.noise_from_seed is False
    assert caplog.text.count("nobody is protected") == 2


def test_the_control_a_node_that_is_not_simulated_declines_everything(
    tmp_path, caplog, monkeypatch
):
    """The same bare nodes, the same messages, and nothing that says that they are simulated."""
    monkeypatch.setattr(hello_refusals, "FINAL_REFUSALS", 1)
    grid = InProcessGrid(client_app([private_mod]), CLIENTS)
    with pytest.raises(ConfigError, match=rf"all {CLIENTS} nodes"):
        of_one_round(grid, tmp_path, deployment={"min_nodes": CLIENTS})
    assert "node config policy is missing" in caplog.text


def test_noise_of_simulated_nodes_is_not_drawn_from_the_seed(simulated, tmp_path):
    models = []
    for number in range(2):
        strategy = PrivateStrategy(
            FedAvg(fraction_evaluate=0.0), out=tmp_path / str(number), **NOISY
        )
        result = strategy.start(InProcessGrid(client_app([private_mod]), CLIENTS), model(), 1)
        models.append(arrays_of(result)["layer.weight"])
    assert not np.array_equal(*models)


def test_a_simulation_with_too_few_nodes_says_so(simulated, tmp_path):
    strategy = PrivateStrategy(FedAvg(min_available_nodes=9), out=tmp_path / "run", **OPEN)
    with pytest.raises(ConfigError, match=rf"has {CLIENTS} nodes, and the run is for 9"):
        strategy.start(InProcessGrid(client_app([private_mod]), CLIENTS), model(), 1)


def test_a_simulated_node_says_why_it_declines(simulated, tmp_path, written):
    app = PrivateClientApp("quickstart_wrapped.cleint_app:app")
    written("client_app([])")
    with pytest.raises(ConfigError, match=r"6 of 6 simulated nodes .*no module quickstart_wrapp"):
        of_one_round(InProcessGrid(app, CLIENTS), tmp_path)
