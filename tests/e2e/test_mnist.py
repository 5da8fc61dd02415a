"""The experiments on all of MNIST, where the file is there."""

from pathlib import Path

import numpy as np
import pytest

from zerosum.server.runs.run_folder import MODEL
from zerosum.simulations import api

DATA = Path(__file__).parents[3] / "shared" / "data" / "mnist.npz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data/mnist.npz"),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("features"))


def run(name: str, folder: Path, cache: str, *overrides: str):
    where = [f"data.path={DATA}", f"data.cache={cache}"]
    return api.run(name, overrides=[*where, *overrides], out=folder, report=False)


def test_masked_steps_give_the_bits_of_trusted_ones(tmp_path: Path, cache: str) -> None:
    short = ["rounds=2", "privacy.noise_draw=per_client"]
    for protocol in ("pairwise", "ideal"):
        run("mnist-dpsgd", tmp_path / protocol, cache, f"secagg.protocol={protocol}", *short)
    found = [(tmp_path / protocol / MODEL).read_bytes() for protocol in ("pairwise", "ideal")]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("epsilon", "lr", "rounds", "least"),
    [(8.0, 24.0, 220, 0.985), (2.0, 12.0, 220, 0.983), (0.5, 5.0, 146, 0.975)],
)
def test_digits_are_learnt_without_a_trusted_curator(
    epsilon: float, lr: float, rounds: int, least: float, tmp_path: Path, cache: str
) -> None:
    settings = [f"privacy.epsilon={epsilon}", f"server.lr={lr}", f"rounds={rounds}"]
    result = run("mnist-dpsgd", tmp_path / "run", cache, *settings, "seed=1")
    assert result.summary["epsilon"]["sum"]["value"] <= epsilon
    assert result.metrics["test_accuracy"] >= least


@pytest.mark.parametrize(
    ("noise", "project", "epsilon", "least"), [(2.0, 60, 4.4, 0.72), (4.0, 45, 2.0, 0.52)]
)
def test_each_client_once_with_all_of_the_noise(
    noise: float, project: int, epsilon: float, least: float, tmp_path: Path, cache: str
) -> None:
    settings = [f"privacy.noise_multiplier={noise}", f"data.project={project}"]
    accuracy = []
    for seed in range(3):
        result = run("mnist-local", tmp_path / str(seed), cache, f"seed={seed}", *settings)
        assert result.summary["epsilon"]["local"]["value"] <= epsilon
        accuracy.append(result.metrics["test_accuracy"])
    assert np.mean(accuracy) >= least
