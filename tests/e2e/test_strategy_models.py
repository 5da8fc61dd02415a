"""Other people's Flower apps behind masks: the model and metrics of the plain strategy."""

from itertools import pairwise

import numpy as np
import pytest
from flwr.serverapp.strategy import (
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
)
from policies import LEAST_TOML
from strategy_apps import (
    CLIENTS,
    NOISY,
    OPEN,
    STEP,
    Wire,
    arrays_of,
    carried,
    client_app,
    model,
    plain,
    says,
    sizes,
)

from zerosum.client.flower.app_request import AppQuestion, stage_type
from zerosum.client.flower.private_mod import PrivateClientApp, private_mod
from zerosum.client.protocol import flower_messages
from zerosum.secagg import Session
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.simulations.engine.grid import InProcessGrid

STRATEGIES = {
    "FedAvg": lambda **settings: FedAvg(**settings),
    "FedProx": lambda **settings: FedProx(proximal_mu=0.1, **settings),
    "FedAvgM": lambda **settings: FedAvgM(server_momentum=0.5, **settings),
    "FedAdam": lambda **settings: FedAdam(eta=0.1, tau=0.1, **settings),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRATEGIES)
def test_without_noise_the_model_is_that_of_the_plain_strategy(kind, grid_of, tmp_path):
    make = STRATEGIES[kind]
    expected = arrays_of(plain(make(fraction_evaluate=0.0)))
    strategy = PrivateStrategy(make(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    found = arrays_of(strategy.start(grid_of(client_app([private_mod])), model(), 3))
    assert found.keys() == expected.keys()
    for name in ("layer.weight", "layer.bias"):
        moved = np.abs(expected[name] - model()[name].numpy()).max()
        assert moved > 0.02, "a model that stayed where it was would show nothing"
        # FedAdam divides by as little as tau = 0.1.
        np.testing.assert_allclose(found[name], expected[name], atol=100 * STEP, rtol=0)
        assert found[name].shape == expected[name].shape
    assert found["batches"] == 3, "counters are the server's"


@pytest.mark.slow
def test_counters_are_integers_in_the_result_so_that_another_start_goes_on(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    first = strategy.start(grid, model(), 1)
    assert first.arrays["batches"].numpy().dtype == np.int64
    once = strategy.epsilon["sum"].value
    # A counter that became a float would be one more coordinate of another ledger.
    again = strategy.start(grid, first.arrays, 1)
    assert arrays_of(again)["batches"] == 3
    assert strategy.epsilon["sum"].value > once


class OwnStart(FedAvg):
    """One that takes less than Flower's own, and something else."""

    def start(self, grid, initial_arrays, num_rounds=3, *, named="nobody"):  # type: ignore[override]
        self.named = named
        return super().start(grid, initial_arrays, num_rounds)


@pytest.mark.slow
def test_a_start_of_somebodys_own_takes_what_it_takes(grid_of, tmp_path):
    inner = OwnStart(fraction_evaluate=0.0)
    strategy = PrivateStrategy(inner, out=tmp_path / "run", **OPEN)
    result = strategy.start(grid_of(client_app([private_mod])), model(), num_rounds=1, named="me")
    assert inner.named == "me"
    assert list(result.train_metrics_clientapp) == [1]
    again = PrivateStrategy(inner, out=tmp_path / "again", **OPEN)
    with pytest.raises(TypeError, match="timeout"):  # what was asked for is not left out
        again.start(grid_of(client_app([private_mod])), model(), 1, timeout=5)


@pytest.mark.slow
def test_what_is_sent_survives_flowers_own_bytes(grid_of, tmp_path):
    expected = arrays_of(plain(FedAvg(), rounds=2))
    strategy = PrivateStrategy(
        FedAvg(), out=tmp_path / "run", metrics={"eval_loss": 10.0, "eval_acc": 1.0}, **OPEN
    )
    result = strategy.start(grid_of(carried(client_app([private_mod]))), model(), 2)
    np.testing.assert_allclose(
        arrays_of(result)["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )
    assert set(result.evaluate_metrics_clientapp[2]) == {"eval_loss", "eval_acc"}


@pytest.mark.slow
def test_an_adaptive_clip_follows_the_norms(grid_of, tmp_path):
    settings = NOISY | {"privacy": {"honest_fraction": 0.6, "clipping": "adaptive"}, "clip": 1e-3}
    seen = Wire(client_app([private_mod]))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    strategy.start(grid_of(seen), model(), 3)
    headers = [
        c[flower_messages.RECORD]["request"]
        for c in seen.sent
        if "request" in c[flower_messages.RECORD]
    ]
    clips = [AppQuestion.model_validate_json(h).privacy.clip for h in headers[::CLIENTS]]
    # 1[norm <= 0.001] is never true: a step up each round, or, as noise makes of it, one down.
    assert clips[0] == 1e-3
    assert len(clips) == 3
    assert all(before != after for before, after in pairwise(clips))


@pytest.mark.slow
def test_groups_are_sums_of_their_own(grid_of, tmp_path):
    settings = OPEN | {"secagg": {"server": "semi-honest", "dropout": 0.0, "groups": 2}}
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    seen = Wire(client_app([private_mod]))
    result = strategy.start(grid_of(seen), model(), 2)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=2))
    np.testing.assert_allclose(
        arrays_of(result)["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )
    opening = [c for c in seen.sent if stage_type(c) == flower_messages.STAGE_TYPES["advertise"]]
    cohorts = [
        Session.from_bytes(flower_messages.bytes_field(c, "session")).cohort for c in opening
    ]
    assert {len(cohort) for cohort in cohorts} == {3}


@pytest.mark.slow
def test_evaluation_is_skipped_unless_its_metrics_are_named(grid_of, tmp_path, caplog):
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **OPEN)
    result = strategy.start(grid_of(client_app([private_mod])), model(), 2)
    assert not result.evaluate_metrics_clientapp
    assert caplog.text.count("federated evaluation is skipped") == 1


@pytest.mark.slow
def test_named_metrics_are_those_of_a_plain_evaluation(grid_of, tmp_path):
    expected = plain(FedAvg(), client_app([], sizes), rounds=1).evaluate_metrics_clientapp[1]
    strategy = PrivateStrategy(
        FedAvg(), out=tmp_path / "run", metrics={"eval_loss": 10.0, "eval_acc": 1.0}, **OPEN
    )
    seen = Wire(client_app([private_mod], sizes))
    found = strategy.start(grid_of(seen), model(), 1).evaluate_metrics_clientapp[1]
    assert set(found) == set(expected)
    assert dict(found) == pytest.approx(dict(expected), abs=1e-3)
    assert not any(says(content, b"eval_loss") for content in seen.replies)


WEIGHTED = OPEN | {"weighting": "examples", "max_examples": 40}


def test_weights_are_one_more_coordinate_under_the_mask(grid_of, tmp_path):
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), client_app([], sizes)))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **WEIGHTED)
    app = client_app([private_mod], sizes)
    found = arrays_of(strategy.start(grid_of(app), model(), 3))
    np.testing.assert_allclose(
        found["layer.weight"], expected["layer.weight"], atol=30 * STEP, rtol=0
    )
    uniform = arrays_of(plain(FedAvg(fraction_evaluate=0.0)))["layer.weight"]
    assert np.abs(uniform - expected["layer.weight"]).max() > 0.05, "weights make a difference"


@pytest.mark.slow
def test_the_server_withstood_may_be_a_lying_one(grid_of, tmp_path, make_keys):
    keys = make_keys(tmp_path / "keys", CLIENTS)
    policy = tmp_path / "strict.toml"
    policy.write_text('models = ["none"]\n' + LEAST_TOML)
    grid = InProcessGrid(
        client_app([private_mod]),
        CLIENTS,
        node_config=lambda index: {
            "state-dir": str(tmp_path / "state" / str(index)),
            "policy": str(policy),
            **keys.node_config(index),
        },
    )
    settings = OPEN | {
        "secagg": {"server": "malicious", "dropout": 0.3},
        "deployment": {"roster": str(keys.path), "authority": keys.authority},
    }
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    result = strategy.start(grid, model(), 2)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=2))
    np.testing.assert_allclose(
        arrays_of(result)["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )


@pytest.mark.slow
@pytest.mark.parametrize("given", [None, {"lr": 0.1, "name": "x"}])
def test_a_run_config_is_that_of_the_run_or_the_one_that_is_given(given, grid_of, tmp_path):
    grid = grid_of(client_app([private_mod]))
    grid._run_config = {"lr": 0.1, "name": "x"}
    if given is None:
        grid.run.override_config = dict(grid._run_config)
    strategy = PrivateStrategy(
        FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", run_config=given, **OPEN
    )
    result = strategy.start(grid, model(), 1)
    assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS


@pytest.mark.slow
def test_a_private_app_is_an_app_like_any_other(grid_of, tmp_path):
    app = client_app([], make=PrivateClientApp)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=1))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    found = arrays_of(strategy.start(grid_of(app), model(), 1))
    np.testing.assert_allclose(
        found["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )
