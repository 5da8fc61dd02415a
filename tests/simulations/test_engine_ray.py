"""Clients computed by Ray actors: on one machine, and on a cluster that loses a node."""

import importlib.util

import pytest

from zerosum.server.config import ConfigError
from zerosum.server.runs import METRICS, MODEL
from zerosum.simulations import api
from zerosum.simulations.engine import choice

SMALL = [
    "rounds=4",
    "data.clients=24",
    "sampling.cohort=12",
    "training.epochs=1",
    "privacy.delta=1e-2",
    "privacy.honest_fraction=0.5",
    "secagg.dropout=0.4",
    "privacy.noise_draw=per_client",
]

installed = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs the extra ray"
)


def run(out, *settings, **more):
    return api.run("digits", overrides=[*SMALL, *settings], out=out, report=False, **more)


def model(result):
    assert '"abandoned"' not in (result.folder / METRICS).read_text()
    return (result.folder / MODEL).read_bytes()


@pytest.fixture
def cluster():
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.second = cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@installed
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("protocol", ["ideal", "pairwise"])
def test_a_node_lost_in_the_middle_costs_time_and_nothing_else(tmp_path, cluster, protocol):
    settings = [f"secagg.protocol={protocol}"]
    rounds = []

    def lose_a_node(record):
        rounds.append(record)
        if len(rounds) == 1:
            cluster.remove_node(cluster.second, allow_graceful=False)

    lost = run(tmp_path / "ray", *settings, "engine=ray", "workers=3", on_round=lose_a_node)
    assert len(rounds) == 4
    assert model(lost) == model(run(tmp_path / "here", *settings, "engine=serial"))


def test_without_ray_it_is_asked_for_by_name(monkeypatch):
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'engine = "ray".*zerosum\[ray\]'):
        choice.workers_of(api.load_experiment("digits", ["engine=ray"]))
