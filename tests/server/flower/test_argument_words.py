"""What a constructor's error tells to write can be pasted into the call."""

import re
from typing import Any

import pytest
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from strategy_apps import client_app

from zerosum.client import PrivateClientApp, private_mod
from zerosum.server import ConfigError, Counts, PrivateQueries, PrivateStrategy, Reals
from zerosum.server.flower.argument_words import as_arguments
from zerosum.simulations import InProcessGrid

NOISY: dict[str, Any] = {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-3}
OPEN: dict[str, Any] = {"privacy": {"model": "none", "clip": "none"}, "encoding": {"range": 4.0}}
METRICS = {"metrics": {"eval_loss": 10.0}}
DECLARED = {"results": {"ages": Counts(10)}}
ASKED: dict[str, Any] = {"epsilon": 0.5, "budget": 1.0}

STRATEGY: list[tuple[dict[str, Any], str]] = [
    ({"privacy": {"model": "none", "clip": "none"}}, 'encoding={"range": 1.0}'),
    (NOISY | {"clip": "none"}, "clip=0.5"),
    (NOISY | {"epsilon": "none", "noise_multiplier": None}, "epsilon=None"),
    (NOISY | {"noise_multiplier": 0.0}, 'privacy={"model": "none"}'),
    (NOISY | {"privacy": {"clp": 1.0}}, "clip=1.0"),
    (NOISY | {"encoding": {"rang": 2.0}}, 'encoding={"range": 2.0}'),
    (NOISY | {"privacy": {"range": 2.0}}, 'encoding={"range": 2.0}'),
    (NOISY | {"deployment": {"pipline": False}}, 'deployment={"pipeline": False}'),
    (NOISY | {"privacy": "none"}, 'privacy={"model": "none"}'),
    (NOISY | {"encoding": 4.0}, 'encoding={"range": 1.0}'),
    (NOISY | {"sampling": "poisson"}, 'sampling={"kind": "poisson", "cohort": 100}'),
    (NOISY | {"secagg": {"protocol": "ideal"}}, 'secagg={"protocol": "pairwise"}'),
    (NOISY | {"privacy": {"model": "central"}}, 'secagg={"server": "semi-honest"}'),
    (NOISY | {"privacy": {"clipping": "per-layer"}}, '{"unit": "client", "clipping": "flat"}'),
    (NOISY | {"privacy": {"noise_draw": "summed"}}, 'privacy={"noise_draw": "per_client"}'),
    (NOISY | {"privacy": {"mechanism": "geometric"}}, 'privacy={"mechanism": "skellam"}'),
    (NOISY | {"privacy": {"clip_quantile": "none"}}, 'privacy without "clip_quantile" gives'),
    (NOISY | {"weighting": "examples"}, 'weighting="uniform"'),
    (OPEN | {"encoding": {"range": 0.5}, "weighting": "examples"}, 'encoding={"range": 1.0}'),
    (NOISY | METRICS, "evaluation_noise=2.1"),
    (NOISY | METRICS | {"evaluation_noise": 0.0}, "evaluation_noise=2.1"),
    (NOISY | METRICS | {"evaluation_noise": 0.0}, "metrics=None"),
    (OPEN | {"metrics": {"eval_loss": -1.0}}, 'metrics={"eval_loss": 10.0, "eval_acc": 1.0}'),
    (OPEN | {"metrics": {"eval_loss": True}}, 'metrics={"eval_loss": 10.0, "eval_acc": 1.0}'),
    ({"epsilon": 3.0, "evaluation_noise": 1.0} | METRICS,
     "noise_multiplier=2.0, evaluation_noise=2.1"),
]  # fmt: skip
QUERIES: list[tuple[Any, dict[str, Any], str]] = [
    (None, ASKED, 'PrivateQueries(grid, {"query_results": {"age": Counts(10)}}, epsilon=0.5'),
    ({"results": {"ages": 9}}, ASKED, "Counts(10)"),
    ({"results": {"ages": Counts(10, sensitivity=0)}}, ASKED, "Counts(10, sensitivity=1)"),
    ({"results": {"ages": Reals(10)}}, ASKED, "Reals(10, sensitivity=5.0)"),
    ({"results": {"ages": Counts(10, most=None)}}, ASKED, "Counts(10, most=100)"),  # type: ignore[arg-type]
    (DECLARED, {}, "epsilon=0.5, budget=1.0"),
    (DECLARED, ASKED | {"privacy": {"epsilonn": 1}}, "epsilon=1"),
    (DECLARED, ASKED | {"privacy": {"unti": "record"}}, 'privacy={"unit": '),
    (DECLARED, ASKED | {"privacy": "none"}, 'privacy={"model": "none"}'),
    (DECLARED, ASKED | {"secagg": "semi-honest"}, 'secagg={"server": "semi-honest"}'),
    (DECLARED, ASKED | {"secagg": {"protocol": "ideal"}}, 'secagg={"protocol": "pairwise"}'),
    (DECLARED, ASKED | {"deployment": {"nodes": 3}}, 'deployment={"min_nodes": 3}'),
]

A_KEY_OF_A_FILE = re.compile(
    r"\b(privacy|encoding|secagg|deployment|sampling|training|evaluation)\.\w+ ?= ?[\w\"'.-]"
)


def check(refused, cure):
    message = str(refused.value)
    assert cure in message
    assert not A_KEY_OF_A_FILE.search(message)
    assert "\n" not in message


@pytest.mark.parametrize(("given", "cure"), STRATEGY)
def test_a_cure_of_private_strategy_can_be_pasted(given, cure):
    with pytest.raises(ConfigError) as refused:
        PrivateStrategy(FedAvg(), **given)
    check(refused, cure)


@pytest.mark.parametrize(("sums", "given", "cure"), QUERIES)
def test_a_cure_of_private_queries_can_be_pasted(sums, given, cure):
    with pytest.raises(ConfigError) as refused:
        PrivateQueries(InProcessGrid(client_app([private_mod]), 2), sums, **given)
    check(refused, cure)


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (("own.client_app",), 'PrivateClientApp("own.client_app:app")'),
        (("own/client_app.py",), 'PrivateClientApp("quickstart.client_app:app")'),
        ((ClientApp(),), 'PrivateClientApp("quickstart.client_app:app")'),
        ((ClientApp(),), "app = ClientApp(mods=[private_mod])"),
        ((None, private_mod), "mods=[my_mod]"),
        (("own:app", [private_mod]), "leave mods out"),
    ],
)
def test_a_cure_of_private_client_app_can_be_pasted(given, cure):
    with pytest.raises((ValueError, TypeError)) as refused:
        PrivateClientApp(*given)
    check(refused, cure)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("set encoding.range = 80.0: 5 of 9", 'set encoding={"range": 80.0}: 5 of 9'),
        ("encoding.bits = 24 with encoding.ring_bits = 30",
         'encoding={"bits": 24} with encoding={"ring_bits": 30}'),
        ("write encoding.rotate=false (it is true)",
         'write encoding={"rotate": False} (it is true)'),
        ("write privacy.mechanism=discrete-gaussian, or", 'write privacy={"mechanism": '
         '"discrete-gaussian"}, or'),
        ("lower encoding.range or training.lr", "lower encoding.range or the app's learning rate"),
        ("encoding.bits = absent, privacy.clip = 1e-05", "encoding.bits = absent, clip=1e-05"),
        ("evaluation.federated_every = 1: under it; write evaluation.federated_every=0",
         "metrics: under it; write metrics=None"),
        ("lower it, or raise data.clients", "lower it, or connect more nodes"),
        ("docs/privacy.md and a.privacy.clip = 3", "docs/privacy.md and a.privacy.clip = 3"),
    ],
)  # fmt: skip
def test_keys_with_a_value_become_arguments(said, wanted):
    assert as_arguments(said) == wanted
    assert as_arguments(wanted) == wanted
