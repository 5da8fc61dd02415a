"""The page for those who come from Flower's own protections: its code runs, its claims hold."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.serverapp.strategy import FedAvg
from policies import LEAST_TOML

from zerosum.server import PrivateStrategy
from zerosum.server.flower import private_strategy
from zerosum.simulations.bench.counted_app import CountedApp
from zerosum.simulations.engine.grid import InProcessGrid

PAGE = Path(__file__).parents[3] / "docs" / "porting-from-flower.md"
CLIENTS, LR = 4, 0.1
STEP = 8.0 / (2**21 - 1)
START = [np.zeros((3, 2), np.float32), np.ones(5, np.float32)]


def trained(parameters, lr):
    return [np.asarray(each - lr * np.float32(i + 1)) for i, each in enumerate(parameters)]


def blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def block_with(text):
    [block] = [each for each in blocks() if text in each]
    return block


def run(text, **given):
    names: dict[str, Any] = {"trained": trained, **given}
    exec(compile(block_with(text), str(PAGE), "exec"), names)  # noqa: S102
    return names


@pytest.fixture
def node_config(tmp_path):
    policy = 'models = ["none"]\nservers = ["semi-honest"]\n' + LEAST_TOML
    (tmp_path / "policy.toml").write_text(policy)
    return lambda index: {
        "state-dir": str(tmp_path / str(index)),
        "policy": str(tmp_path / "policy.toml"),
    }


@pytest.mark.slow
def test_the_ported_app_learns_what_the_numpy_client_did(node_config, tmp_path, monkeypatch):
    pytest.importorskip("flwr.client", reason="this Flower has no NumPyClient")
    client = run("class Client(NumPyClient)")["Client"]()
    expected = START
    for _ in range(3):
        expected, _, _ = client.fit(expected, {"lr": LR})
    settings = run('"bits": 22')["settings"]
    app = run("@app.train()")["app"]
    left = {}

    class Watched(PrivateStrategy):
        def start(self, grid, initial_arrays, *given, **named):  # type: ignore[override]
            left["model"] = super().start(grid, initial_arrays, *given, **named).arrays
            return left

    monkeypatch.setattr("zerosum.server.PrivateStrategy", Watched)
    within = {**settings, "out": tmp_path / "run", "run_config": {}}
    server = run("@app.main()", settings=within, initial=START)["app"]
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    server(grid=InProcessGrid(app, CLIENTS, node_config=node_config), context=context)
    for found, wanted in zip(left["model"].to_numpy_ndarrays(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=4 * STEP)
        assert np.abs(wanted - START[0 if wanted.ndim == 2 else 1]).max() > 100 * STEP


def test_the_server_before_is_a_legacy_app():
    pytest.importorskip("flwr.server", reason="this Flower has no legacy server")
    parts = run("ServerAppComponents(", initial=None)["server_fn"](None)
    assert parts.config.num_rounds == 3


def test_the_settings_of_flowers_dp_are_accepted():
    names = run("LocalDpMod(clipping_norm")
    for name in ("fixed", "adaptive", "local"):
        PrivateStrategy(FedAvg(min_available_nodes=50), **names[name])
    central: dict[str, Any] = {"privacy": {"model": "central"}, "secagg": {"server": "semi-honest"}}
    PrivateStrategy(FedAvg(min_available_nodes=50), **names["fixed"], **central)
    std = 1.0 * math.sqrt(2 * math.log(1.25 / 1e-5)) / 1.0
    local = names["local"]
    assert local["noise_multiplier"] * local["clip"] == pytest.approx(std, rel=1e-3)


# --- What the page says of SecAgg+ ---


def test_a_client_of_secaggplus_hands_out_shares_of_both_its_secrets():
    mod = pytest.importorskip("flwr.client.mod.secure_aggregation.secaggplus_mod")
    from flwr.common.secure_aggregation.secaggplus_constants import Key

    state = mod.SecAggPlusState()
    state.nid, state.threshold = 1, 1
    state.rd_seed_share_dict, state.sk1_share_dict = {2: b"seed"}, {2: b"key"}
    asked = ConfigRecord({Key.ACTIVE_NODE_ID_LIST: [2], Key.DEAD_NODE_ID_LIST: [2]})
    assert mod._unmask(state, asked)[Key.SHARE_LIST] == [b"seed", b"key"]


def test_numbers_of_examples_leave_a_client_of_secaggplus_in_plain():
    secaggplus = pytest.importorskip("zerosum.simulations.bench.secaggplus")
    sent: list[Any] = []
    app = secaggplus.app_of(lambda index: np.zeros(4, np.float32))

    def watched(message, context):
        reply = app(message, context)
        sent.extend(v for record in reply.content.metric_records.values() for v in record.values())
        return reply

    settings = {"shares": 3, "threshold": 2, "bits": 16, "clipping_range": 4.0}
    secaggplus.play(InProcessGrid(CountedApp(watched), 3), 4, 1, begin=lambda: None, **settings)
    assert sent.count(1) >= 3


def test_the_page_is_where_flower_apps_are_told_of():
    apps = PAGE.with_name("flower-apps.md").read_text(encoding="utf-8")
    assert "(porting-from-flower.md)" in apps


def test_the_wrappers_that_go_are_refused():
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

    within = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 4)
    with pytest.raises(private_strategy.ConfigError):
        PrivateStrategy(within, clip=1.0, noise_multiplier=1.0, delta=1e-5)
