"""The example: an ordinary Flower app in PyTorch, made private by the lines its page shows."""

import json
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from zerosum.simulations.engine.grid import InProcessGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-pytorch"
RUN_CONFIG: dict[str, Any] = {"rounds": 3, "local-epochs": 2, "lr": 0.1}
STEP = 4.0 / (2**23 - 1)


@pytest.fixture
def example(monkeypatch):
    """Return the example's modules: client_app, server_app and task."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import pytorch_digits.client_app  # type: ignore[import-not-found] # of the example
    import pytorch_digits.server_app  # type: ignore[import-not-found] # of the example
    import pytorch_digits.task  # type: ignore[import-not-found] # of the example

    yield pytorch_digits
    for name in [name for name in sys.modules if name.startswith("pytorch_digits")]:
        del sys.modules[name]


def plain_model(example, nodes):
    """Train the same app without its mod, under the plain strategy."""
    app = ClientApp()
    app.train()(example.client_app.train)
    grid = InProcessGrid(app, nodes, run_config=RUN_CONFIG)
    result = FedAvg(fraction_evaluate=0.0).start(
        grid,
        ArrayRecord(example.task.make_model().state_dict()),
        RUN_CONFIG["rounds"],
        train_config=ConfigRecord({"lr": RUN_CONFIG["lr"]}),
    )
    return result.arrays.to_torch_state_dict()


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        # Rounding in one round moves the gradients of the next a little.
        np.testing.assert_allclose(found[name], value, atol=500 * STEP, rtol=0)


@pytest.mark.slow
def test_the_private_app_learns_what_the_plain_one_does(example, tmp_path, one_thread):
    nodes = 4
    grid = InProcessGrid(
        example.client_app.app,
        nodes,
        run_config=RUN_CONFIG | {"nodes": nodes, "save-to": str(tmp_path / "model.pt")},
        node_config=lambda index: {
            "state-dir": str(tmp_path / str(index)),
            "policy": str(EXAMPLE / "policy.toml"),
        },
    )
    context = grid._context(1_000)
    with chdir(tmp_path):
        example.server_app.app(grid, context)
    found = torch.load(tmp_path / "model.pt")
    assert_same(found, plain_model(example, nodes))
    model = example.task.make_model()
    before = example.task.test(model)
    model.load_state_dict(found)
    assert example.task.test(model) > max(0.8, before)


def test_the_page_shows_every_line_that_was_added():
    page = (EXAMPLE / "README.md").read_text()
    added = {line[5:].strip() for line in page.splitlines() if line.startswith("    +")}
    for name in ("client_app", "server_app"):
        lines = (EXAMPLE / "pytorch_digits" / f"{name}.py").read_text().splitlines()
        ours = [line for line in lines if "rivate" in line and not line.startswith('"""')]
        assert len(ours) == 2
        assert {line.strip() for line in ours} <= added


def against_a_server_that_lies(app, keys):
    """Change the settings that the page names: of the strategy, and of the nodes' policy."""
    changes = {
        app / "policy.toml": ("semi-honest", "malicious"),
        app / "pytorch_digits" / "server_app.py": (
            '"semi-honest", "dropout": 0.0},\n    "deployment": {',
            '"malicious", "dropout": 0.0},\n    "deployment": '
            f'{{"roster": "{keys.path}", "authority": "{keys.authority}", ',
        ),
    }
    for file, (before, after) in changes.items():
        text = file.read_text()
        assert text.count(before) == 1
        file.write_text(text.replace(before, after))


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("server", ["semi-honest", "malicious"])
def test_it_runs_on_a_real_superlink_with_three_supernodes(
    federation, example, tmp_path, one_thread, make_keys, server
):
    app, keys = tmp_path / "app", make_keys(tmp_path / "keys", 3)
    shutil.copytree(EXAMPLE, app)
    if server == "malicious":
        against_a_server_that_lies(app, keys)
    federation.superlink()
    for index in range(3):
        given = keys.node_config(index) if server == "malicious" else {}
        federation.supernode(index, 3, {"policy": f"{app}/policy.toml", **given})
    federation.flwr("run", ".", "test", "--run-config", f'nodes=3 save-to="{tmp_path}/model.pt"')
    status = federation.wait_for_run(seconds=1400)
    assert status == "finished:completed", (tmp_path / "superlink.log").read_text()[-3000:]
    assert_same(torch.load(tmp_path / "model.pt"), plain_model(example, 3))
    (run,) = (tmp_path / "runs").iterdir()
    rounds = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["survivors"] for record in rounds] == [3, 3, 3]
    assert all(("confirm" in record["dropouts"]) == (server == "malicious") for record in rounds)
