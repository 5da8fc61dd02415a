"""Built-in tasks: data, partition and model under one name."""

from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest
import torch

from zerosum.client.spec import DataSpec, ModelSpec, TrainSpec
from zerosum.client.task import ClientInfo, TaskError, population, resolve_task
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.tasks import BuiltinTask, DigitsTask, Mnist5kTask, TableTask

pytestmark = pytest.mark.usefixtures("one_thread")


def all_rows(task: BuiltinTask, clients: int) -> list[bytes]:
    parts = [task.data(ClientInfo(client, clients))[0] for client in range(clients)]
    return [row.numpy().tobytes() for part in parts for row in part]


def test_the_default_task_has_400_clients_of_10_digits() -> None:
    task = resolve_task("mnist5k", DataSpec(pool=2), ModelSpec(), 0)
    assert isinstance(task, Mnist5kTask)
    assert population(task, DataSpec()) == 400
    inputs, targets = cast(tuple[torch.Tensor, torch.Tensor], task.data(ClientInfo(17, 400)))
    assert inputs.shape == (10, 1, 14, 14)
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)
    assert task.model()(inputs).shape == (10, 10)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards"])
def test_clients_share_nothing_with_each_other_or_with_the_test(kind: str) -> None:
    spec = DataSpec.model_validate({"partition": kind, "clients": 30})
    task = DigitsTask.from_specs(spec, ModelSpec(), 0)
    held = all_rows(task, 30)
    test = [row.numpy().tobytes() for row in task.test_data()[0]]
    assert len(held) + len(test) == 1797
    assert len(set(held)) == len(held)
    assert not set(held) & set(test)


def test_the_seed_moves_records_between_clients_and_never_into_the_test() -> None:
    first, again, other = (
        DigitsTask.from_specs(DataSpec(), ModelSpec(), seed) for seed in (0, 0, 1)
    )
    assert all_rows(first, 100) == all_rows(again, 100)
    assert all_rows(first, 100) != all_rows(other, 100)
    assert set(all_rows(first, 100)) == set(all_rows(other, 100))
    assert torch.equal(first.test_data()[0], other.test_data()[0])


def test_a_deployment_of_another_size_splits_anew() -> None:
    task = DigitsTask.from_specs(DataSpec(), ModelSpec(), 0)
    assert len(set(all_rows(task, 2))) == len(set(all_rows(task, 100)))


def test_federated_evaluation_uses_the_records_of_the_client() -> None:
    task = DigitsTask.from_specs(DataSpec(), ModelSpec(), 0)
    train, test = (task.data(ClientInfo(3, 100, split)) for split in ("train", "test"))
    assert torch.equal(train[0], test[0])


@pytest.mark.slow
def test_training_learns() -> None:
    task = DigitsTask.from_specs(DataSpec(clients=10), ModelSpec(name="linear"), 0)
    trainer = LocalTrainer(task, TrainSpec())
    model = initial_vector(task, 0)
    for turn in range(3):
        seeds = [bytes([turn, client] * 16) for client in range(10)]
        deltas = [
            trainer.train(model, task.data(ClientInfo(client, 10)), seeds[client])
            for client in range(10)
        ]
        model = model + np.mean(deltas, axis=0)
    sums = trainer.evaluate(model, task.test_data())
    assert sums["accuracy"] / sums["count"] > 0.85


def test_a_table_with_clients_of_its_own(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    site = generator.integers(0, 5, 200)
    data = {"x": generator.random(200), "y": generator.random(200), "site": site}
    pd.DataFrame(data).to_csv(tmp_path / "a.csv", index=False)
    spec = DataSpec(
        path=str(tmp_path / "a.csv"),
        label="y",
        client_column="site",
        partition="natural",
        test_fraction=0.1,
    )
    task = TableTask.from_specs(spec, ModelSpec(name="linear"), 0)
    assert population(task, spec) == 5
    assert len(all_rows(task, 5)) == 180
    inputs, targets = task.test_data()
    assert inputs.shape == (20, 1)
    assert task.loss(task.model()(inputs), targets).shape == (20,)
    trainer = LocalTrainer(task, TrainSpec())
    sums = trainer.evaluate(initial_vector(task, 0), task.test_data())
    assert set(sums) == {"loss", "count", "mean_absolute_error", "r2"}


def test_errors_come_before_anything_starts() -> None:
    with pytest.raises(DataError, match=r"data\.clients = 5000 exceeds the 4000"):
        resolve_task("mnist5k", DataSpec(clients=5000), ModelSpec(), 0)
    with pytest.raises(DataError, match=r"data\.pool = 3"):
        resolve_task("digits", DataSpec(pool=3), ModelSpec(), 0)
    with pytest.raises(TaskError, match=r'model\.name = "cnn"'):
        resolve_task("digits", DataSpec(pool=4), ModelSpec(name="cnn"), 0)
    with pytest.raises(DataError, match=r"data\.path is absent"):
        resolve_task("table", DataSpec(), ModelSpec(), 0)
