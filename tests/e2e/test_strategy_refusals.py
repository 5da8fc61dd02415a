"""Other people's Flower apps: what is refused before anything is sent."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from flwr.server.strategy import (
    DifferentialPrivacyClientSideFixedClipping as LegacyFixedClipping,
)
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    FedAvg,
    Krum,
)
from strategy_apps import CLIENTS, NOISY, OPEN, client_app, model

import zerosum.server.flower.strategy_checks as strategy_module
from zerosum.client.flower.private_mod import private_mod
from zerosum.client.protocol import flower_messages
from zerosum.server.config import ConfigError
from zerosum.server.flower.app_grid import AppGrid
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.flower.strategy_checks import nodes_wanted
from zerosum.server.privacy.epsilon_bound import no_bound
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.simulations.engine.grid import FIRST_NODE

REFUSED = {
    "Krum": (lambda: PrivateStrategy(Krum(), **OPEN), "looks at each client's reply"),
    "their own noise": (
        lambda: PrivateStrategy(
            DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1.0, 1.0, 6), **OPEN
        ),
        "give it the strategy within",
    ),
    "the legacy API": (
        lambda: PrivateStrategy(LegacyFedAvg(), **OPEN),  # type: ignore[arg-type]
        "to the Message API first",
    ),
    "its own noise, of the legacy API": (
        lambda: PrivateStrategy(
            LegacyFixedClipping(LegacyFedAvg(), 1.0, 1.0, 6),  # type: ignore[arg-type]
            **OPEN,
        ),
        "to the Message API first",
    ),
    "twice": (lambda: PrivateStrategy(PrivateStrategy(FedAvg(), **OPEN)), "the strategy within"),
    "a class": (lambda: PrivateStrategy(FedAvg, **OPEN), r"give an instance, FedAvg\(\)"),  # type: ignore[arg-type]
    "names of metrics": (
        lambda: PrivateStrategy(FedAvg(), **OPEN, metrics=["eval_acc"]),  # type: ignore[arg-type]
        r"metrics=\['eval_acc'\]: give each name its largest magnitude",
    ),
    "a key": (
        lambda: PrivateStrategy(FedAvg(), privacy={"clop": 1.0}),
        r"did you mean clip=1\.0\?",
    ),
    "weights under noise": (
        lambda: PrivateStrategy(FedAvg(), clip=1.0, weighting="examples"),
        "weights are uniform",
    ),
    "a clipped weight": (
        lambda: PrivateStrategy(FedAvg(), privacy={"model": "none"}, weighting="examples"),
        "a weight of up to 1",
    ),
    "metrics without noise": (
        lambda: PrivateStrategy(FedAvg(), clip=1.0, metrics={"eval_acc": 1.0}),
        "evaluation_noise",
    ),
    "examples": (
        lambda: PrivateStrategy(
            FedAvg(),
            privacy={"unit": "example", "examples": 10, "lot": 5},
            encoding={"range": 1.0},
        ),
        "clipped as a whole",
    ),
    "no masks": (lambda: PrivateStrategy(FedAvg(), secagg={"protocol": "ideal"}), "pairwise"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_private_is_refused_before_anything_starts(what):
    make, message = REFUSED[what]
    with pytest.raises(ConfigError, match=message):
        make()


AT_START: dict[str, tuple[dict[str, Any], str]] = {
    "no roster": ({"secagg": {}}, "deployment.roster and deployment.authority"),
    "delta": ({"delta": 0.5}, "is not below 1/population"),
    "survivors": (
        {"privacy": {"honest_fraction": 1.0}},
        r'privacy=\{"honest_fraction": 1\.0\} needs',
    ),
}


@pytest.mark.parametrize("what", AT_START)
def test_what_does_not_fit_the_nodes_is_refused_at_the_start(what, grid_of, tmp_path):
    changed, message = AT_START[what]
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **(NOISY | changed))
    with pytest.raises(ConfigError, match=message):
        strategy.start(grid_of(client_app([private_mod])), model(), 2)


def test_a_strategy_that_wants_more_nodes_than_the_roster_has_does_not_wait(
    grid_of, make_keys, tmp_path
):
    keys = make_keys(tmp_path / "keys", CLIENTS)
    given = {"roster": str(keys.path), "authority": keys.authority}
    strategy = PrivateStrategy(
        FedAvg(min_available_nodes=CLIENTS + 1),
        out=tmp_path / "run",
        **(NOISY | {"deployment": given}),
    )
    with pytest.raises(ConfigError, match=rf"min_available_nodes = {CLIENTS + 1} .*has {CLIENTS}"):
        strategy.start(grid_of(client_app([private_mod])), model(), 2)


@pytest.mark.parametrize("of", ["train", "evaluate", "available"])
def test_a_strategy_that_samples_more_nodes_than_there_are_does_not_wait(of, grid_of, tmp_path):
    wanted: dict[str, Any] = {"min_available_nodes": 2, f"min_{of}_nodes": CLIENTS + 1}
    given = OPEN | {"deployment": {"min_nodes": 2}}
    strategy = PrivateStrategy(FedAvg(**wanted), out=tmp_path / "run", **given)
    with pytest.raises(ConfigError, match=rf"min_{of}_nodes = {CLIENTS + 1} .*has 2 clients"):
        strategy.start(grid_of(client_app([private_mod]), 2), model(), 2)


def test_nodes_are_waited_for_that_a_strategy_samples():
    assert nodes_wanted(FedAvg(min_train_nodes=5, min_available_nodes=3)) == 5
    assert nodes_wanted(FedAvg(min_evaluate_nodes=5, fraction_evaluate=0.0)) == 2


class Growing(FedAvg):
    """One whose model has more entries from round 2 on."""

    def aggregate_train(self, server_round, replies):
        _, metrics = super().aggregate_train(server_round, replies)
        return ArrayRecord({"wide": Array(np.zeros(100))}), metrics


def test_a_model_that_grows_is_not_charged_as_a_smaller_one(grid_of, tmp_path):
    strategy = PrivateStrategy(Growing(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    with pytest.raises(ConfigError, match=r"round 2: .*of 100 .*ledger of this run is of 40"):
        strategy.start(grid_of(client_app([private_mod])), model(), 2)
    assert strategy.epsilon["sum"].value > 0  # of the round before


def test_noise_that_no_accountant_knows_is_refused(grid_of, tmp_path, monkeypatch):
    unknown = {name: no_bound(name, 0.01, "nobody knows", unit="client") for name in OBSERVERS}
    monkeypatch.setattr(strategy_module, "planned_figures", lambda *arguments: unknown)
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **NOISY)
    with pytest.raises(ConfigError, match="nobody knows"):
        strategy.start(grid_of(client_app([private_mod])), model(), 2)


def test_a_strategy_around_it_cannot_send_in_plain(grid_of):
    inner = PrivateStrategy(FedAvg(), **OPEN)
    outer = DifferentialPrivacyClientSideFixedClipping(inner, 1.0, 1.0, CLIENTS)
    with pytest.raises(ConfigError, match="goes around every other strategy"):
        outer.start(grid_of(client_app([private_mod])), model(), 1)


@pytest.mark.parametrize("missing", ["state-dir", "policy"])
def test_a_node_is_configured_by_itself_or_declines(missing, grid_of, caplog):
    grid = grid_of(client_app([private_mod]))
    given = grid._node_config
    grid._node_config = lambda index: {k: v for k, v in given(index).items() if k != missing}
    grid.send_and_receive([])
    (reply,) = AppGrid(grid, "train").send_and_receive(
        [Message(flower_messages.pack({}), FIRST_NODE, flower_messages.STAGE_TYPES["unmask"])]
    )
    assert reply.has_error()
    assert f"node config {missing} is missing" in caplog.text


@pytest.mark.slow
def test_the_code_of_the_page_runs_as_it_stands(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "flower-apps.md"
    names: dict[str, Any] = {}
    # Queries are test_survival_app's, where they have people to count.
    text = re.sub(r"\n## Apps that ask for.*?\n(?=## )", "\n", page.read_text("utf-8"), flags=re.S)
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, str(page), "exec"), names)  # noqa: S102
    grid = names["grid_of"](client_app([private_mod]), "state")
    assert len(list(grid.get_node_ids())) == 4
    assert Path(grid._node_config(0)["policy"]).name == "policy.toml"
    assert isinstance(names["strategy"], PrivateStrategy)
    monkeypatch.chdir(page.parents[1])  # whose examples have the policy
    names["local"]._out = tmp_path / "run"
    grid = names["grid_of"](client_app([private_mod]), tmp_path / "state")
    assert names["local"].start(grid, model(), 1).arrays
