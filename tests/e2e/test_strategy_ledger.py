"""Other people's Flower apps under noise: what is charged, and which run folder goes on."""

import json
import logging
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import (
    FedAvg,
)
from narrowed import present
from strategy_apps import CLIENTS, NOISY, POLICY, arrays_of, client_app, model, trained

from zerosum.client.flower.private_mod import private_mod
from zerosum.server.config import ConfigError
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.planning.spent_budget import RunSpending
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.resume import held
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.commands.budget import spending_in
from zerosum.simulations.report import write_public_report, write_report


def test_the_noise_is_what_was_promised_and_its_epsilon_is_reported(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    big = ArrayRecord({"layer": Array(np.zeros(4_000, dtype=np.float32))})
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    result = strategy.start(grid_of(client_app([private_mod])), big, 2)
    updates = [trained(big, i, {"server-round": 1})["layer"].numpy() for i in range(CLIENTS)]
    again = [trained(big, i, {"server-round": 2})["layer"].numpy() for i in range(CLIENTS)]
    mean = sum(u / max(1.0, np.linalg.norm(u)) for u in updates + again) / CLIENTS
    errors = arrays_of(result)["layer"] - mean
    promised = np.sqrt(2) * 2.0 / np.sqrt(0.6) / CLIENTS
    assert errors.std() == pytest.approx(promised, rel=0.06)
    rounds = RunFolder(tmp_path / "run").read_rounds()
    # In each round, as zerosum's own loop writes it.
    norms = [np.sqrt(4_000) * promised / np.sqrt(2)] * 2
    assert [record.noise_norm for record in rounds] == pytest.approx(norms, rel=0.01)
    assert "the noise of a round's mean has norm 27.2, " in caplog.text
    figures = strategy.epsilon
    assert 0 < figures["release"].value < figures["sum"].value < figures["local"].value
    first, second = (cast(float, result.train_metrics_clientapp[r]["epsilon-sum"]) for r in (1, 2))
    assert first < second == figures["sum"].value
    assert f"{epsilon_text(figures['sum'].value)} (sum, zero_out)" in caplog.text
    lines = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds == ["run", *2 * ("contributions", "sum", "survived")]
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "epsilon" in page
    assert "an app keeps its own evaluation" in page
    assert "not tested" not in page
    assert "[model]" not in page  # its defaults: nobody trained that


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("ignored", ["", "/run/\n"])
def test_a_folder_that_flower_would_send_to_nodes_is_told(ignored, grid_of, tmp_path, caplog):
    (tmp_path / "pyproject.toml").write_text('[tool.flwr.app]\npublisher = "somebody"\n')
    (tmp_path / ".gitignore").write_text(ignored)
    start = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY).start
    start(grid_of(client_app([private_mod])), model(), 1)
    assert caplog.text.count("write a line /run/ into") == int(not ignored)


@pytest.mark.slow
def test_no_settings_are_told_that_the_apps_code_decides(grid_of, tmp_path):
    start = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY).start
    start(grid_of(client_app([private_mod])), model(), 1)
    write_public_report(tmp_path / "run", tmp_path / "public")
    told = json.loads((tmp_path / "public" / "summary.json").read_text())["settings"]
    assert told["training"] == {"weighting": "uniform", "max_examples": 10_000}
    assert told["privacy"]["noise_multiplier"] == 2.0
    assert not {"model", "data", "server"} & told.keys()
    assert "[model]" not in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.slow
def test_a_second_start_goes_on_with_the_first_ones_ledger(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 1)
    once = strategy.epsilon["sum"]
    strategy.start(grid, model(), 1)
    twice = strategy.epsilon["sum"]
    assert twice.participations == 2 * present(once.participations) == 2
    assert twice.value > once.value


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_rounds_are_numbered_on_in_one_file(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 2)
    strategy.start(grid, model(), 1)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]
    assert RunFolder(tmp_path / "run").experiment.rounds == 3
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 3


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"noise_multiplier": 3.0}, r"noise_multiplier=3\.0: the run in"),
        ({"clip": 2.0}, r"clip=2\.0: the run in"),
        (
            {"sampling": {"kind": "poisson", "cohort": 6}},
            r'sampling=\{"kind": "poisson"\}: the run in',
        ),
    ],
)
def test_a_folder_of_other_settings_is_left_as_it_was(changed, message, grid_of, tmp_path):
    out, grid = tmp_path / "run", grid_of(client_app([private_mod]))
    PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=out, **NOISY).start(grid, model(), 1)
    before = files(out)
    other = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=out, **(NOISY | changed))
    with pytest.raises(ConfigError, match=message):
        other.start(grid, model(), 1)
    assert files(out) == before


@pytest.mark.slow
def test_a_folder_in_use_is_refused(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 1)
    with held(RunFolder(tmp_path / "run")):
        before = files(tmp_path / "run")
        with pytest.raises(ConfigError, match="still goes on in another process"):
            strategy.start(grid, model(), 1)
    assert files(tmp_path / "run") == before


def test_a_used_folder_without_its_ledger_is_refused(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 1)
    (tmp_path / "run" / "ledger.jsonl").unlink()
    with pytest.raises(ConfigError, match="what was spent is not known"):
        strategy.start(grid, model(), 1)


def test_whoever_is_asked_once_is_not_asked_by_a_second_start(grid_of, tmp_path):
    settings = NOISY | {"sampling": {"kind": "once", "cohort": 3}}
    settings |= {"secagg": {"server": "semi-honest", "dropout": 0.0}}
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 1)
    with pytest.raises(ConfigError, match="clients were asked already"):
        strategy.start(grid, model(), 1)
    assert strategy.epsilon == {}


def test_a_folder_of_something_else_is_refused_before_nodes_are_met(grid_of, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    with pytest.raises(ConfigError, match="is not an empty folder"):
        strategy.start(grid_of(client_app([private_mod])), model(), 1)
    assert list(files(tmp_path / "run")) == ["thesis.txt"]


@pytest.mark.slow
def test_a_target_epsilon_is_met(grid_of, tmp_path):
    settings = NOISY | {"noise_multiplier": None, "epsilon": 3.0}
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    strategy.start(grid_of(client_app([private_mod])), model(), 3)
    assert 2.9 < strategy.epsilon["release"].value <= 3.0


@pytest.mark.slow
def test_cohorts_of_ones_own_sampling_are_amplified(grid_of, tmp_path):
    def spent(**sampling):
        settings = NOISY | {"secagg": {"server": "semi-honest", "dropout": 0.0}}
        out = tmp_path / f"run{len(sampling)}"
        strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=out, **settings, **sampling)
        result = strategy.start(grid_of(client_app([private_mod]), clients=12), model(), 2)
        assert result.arrays
        return strategy.epsilon["release"]

    known = spent()
    drawn = spent(sampling={"kind": "poisson", "cohort": 6})
    assert "no amplification" in " ".join(known.assumptions)
    assert "Poisson samples" in " ".join(drawn.assumptions)
    assert drawn.value < known.value


@pytest.mark.slow
def test_a_noised_evaluation_is_charged(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    settings = NOISY | {"evaluation_noise": 0.5, "metrics": {"eval_loss": 10.0, "eval_acc": 1.0}}
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **settings)
    result = strategy.start(grid_of(client_app([private_mod])), model(), 2)
    assert strategy.epsilon["sum"].participations == 4
    for metrics in result.evaluate_metrics_clientapp.values():
        names = {"eval_loss": 10.0, "eval_acc": 1.0}
        assert set(metrics) == {*names, *(f"{name}_noise_std" for name in names)}
        for name, largest in names.items():
            assert -largest <= cast(float, metrics[name]) <= largest
            assert 0 < cast(float, metrics[f"{name}_noise_std"]) < largest
    spent = cast(RunSpending, spending_in(tmp_path / "run"))
    assert spent.observers.keys() == strategy.epsilon.keys()
    for name, against in spent.observers.items():
        assert against.bound.value == strategy.epsilon[name].value
    node = cast(dict[str, Any], spending_in(tmp_path / "state" / "0"))
    assert (node["contributions"], list(node["by_run"].values())) == (4, [4])
    write_public_report(tmp_path / "run", tmp_path / "public")
    assert "publish what zerosum report RUN --public OUT writes" in caplog.text
    public = (tmp_path / "public" / "metrics.jsonl").read_text()
    assert "federated_eval_acc_noise_std" in public
    assert "survivors" not in public


@pytest.mark.slow
def test_a_client_whose_epsilon_is_spent_declines_before_it_trains(grid_of, tmp_path, caplog):
    calls = []
    policy = tmp_path / "bounded.toml"
    policy.write_text(POLICY.replace("max_epsilon = inf", "max_epsilon = 4.5"))
    app = client_app([private_mod], fails=lambda index, round: calls.append(round))
    grid = grid_of(app, policy=str(policy))
    start = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY).start
    start(grid, model(), 3)
    assert calls == [number for number in range(1, 4) for _ in range(CLIENTS)]
    with pytest.raises(NothingLearntError, match=r"0 passed contribute \(6 refused it\)"):
        start(grid, model(), 1)
    assert len(calls) == 3 * CLIENTS, "a new run is no new budget"
    assert "above the policy's max_epsilon = 4.5" in caplog.text
