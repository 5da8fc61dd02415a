"""Values to regress on of any size are learnt, and reported in their own unit."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.server.runs.run_folder import SUMMARY
from zerosum.simulations import api
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.datasets import Collection, Records
from zerosum.simulations.data.tabular.targets import scaled_targets
from zerosum.simulations.data.tasks import TableTask

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 2)).round(3)
SETTINGS = [
    "task=table",
    "data.label=price",
    "data.partition=iid",
    "data.clients=5",
    "privacy.model=none",
    "secagg.protocol=ideal",
    "engine=serial",
    "model.name=linear",
    "rounds=8",
]

pytestmark = pytest.mark.usefixtures("one_thread")


def prices(path: Path, scale: float, shift: float) -> Path:
    values = (shift + scale * (X @ [2.0, -1.0] + 0.1 * RNG.normal(size=300))).tolist()
    rows = [f"{a},{b},{y!r}" for (a, b), y in zip(X.tolist(), values, strict=True)]
    path.write_text("\n".join(["a,b,price", *rows]) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "shift"), [(1e5, 2e5), (1e-6, 0.0), (1.0, 1e9)])
def test_values_of_any_size_are_learnt(tmp_path: Path, scale: float, shift: float) -> None:
    data = prices(tmp_path / "p.csv", scale, shift)
    given = [*SETTINGS, f"data.path={data}"]
    result = api.run("cross-silo", overrides=given, out=tmp_path / "run", report=False)
    assert result.metrics["test_r2"] > 0.95
    assert result.metrics["test_mean_absolute_error"] < 0.3 * scale
    read = json.loads((tmp_path / "run" / SUMMARY).read_text())["data"]
    assert read["line"].endswith(f"/ {read['target']['deviation']:.9g}")
    assert read["target"]["mean"] == pytest.approx(shift, abs=scale)


def test_what_is_reported_is_what_scikit_learn_says_of_the_labels_themselves(
    tmp_path: Path,
) -> None:
    data = prices(tmp_path / "p.csv", 1e5, 2e5)
    given = [*SETTINGS, f"data.path={data}", "rounds=1"]
    result = api.run("cross-silo", overrides=given, out=tmp_path / "run", report=False)
    spec = DataSpec(path=str(data), label="price", clients=5)
    task = TableTask.from_specs(spec, ModelSpec(name="linear"), 0)
    model = task.model()
    weights = {name: torch.from_numpy(np.array(v)) for name, v in result.model.items()}
    model.load_state_dict(weights, strict=False)
    inputs, targets = task.test_data()
    read = task.data_summary()
    assert read is not None
    mean, deviation = read["target"]["mean"], read["target"]["deviation"]
    with torch.no_grad():
        predicted = model(inputs).squeeze(1).numpy() * deviation + mean
    labels = targets.numpy() * deviation + mean
    metrics = result.metrics
    assert metrics["test_loss"] == pytest.approx(mean_squared_error(labels, predicted), rel=1e-4)
    error = mean_absolute_error(labels, predicted)
    assert metrics["test_mean_absolute_error"] == pytest.approx(error, rel=1e-4)
    assert metrics["test_r2"] == pytest.approx(r2_score(labels, predicted), abs=1e-4)
    assert error > 1000, "the control: in scaled units it would be below 1"


@pytest.mark.slow
def test_federated_losses_are_in_the_same_unit(tmp_path: Path) -> None:
    data = prices(tmp_path / "p.csv", 1e5, 2e5)
    given = [*SETTINGS, f"data.path={data}", "evaluation.federated_every=1"]
    result = api.run("cross-silo", overrides=given, out=tmp_path / "run", report=False)
    assert result.metrics["federated_loss"] == pytest.approx(result.metrics["test_loss"], rel=0.5)


def test_constants_are_those_of_the_public_records_alone() -> None:
    def collection(private: float) -> Collection:
        train = Records(np.zeros((3, 1), np.float32), np.array([1.0, 2.0, private]))
        return Collection(train, Records(np.zeros((2, 1), np.float32), np.array([4.0, 8.0])), None)

    for private in (3.0, 1e30):
        scaled, scale = scaled_targets(collection(private))
        assert (scale.mean, scale.deviation) == (6.0, 2.0)
        assert scaled.test.targets.tolist() == [-1.0, 1.0]
    with pytest.raises(DataError, match="beyond float32 once scaled"):
        scaled_targets(collection(1e300))
