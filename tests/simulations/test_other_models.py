"""Whole runs of other people's models are federated averaging of plain PyTorch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from model_rows import ROWS, Row
from plain_training import RowTask, trained_plainly

from zerosum.client.spec import TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training.initial_model import initial_vector
from zerosum.secagg.randomness import derive_seed
from zerosum.server.runs.run_folder import SERVER_LOG
from zerosum.simulations import api

pytestmark = pytest.mark.usefixtures("one_thread")

CLIENTS, ROUNDS = 3, 2
SPEC = TrainSpec(epochs=2, batch_size=4, lr=0.1, momentum=0.5, weight_decay=0.01)
SETTINGS = [
    "task=other:task", "engine=serial", f"rounds={ROUNDS}", f"data.clients={CLIENTS}",
    f"sampling.cohort={CLIENTS}", "sampling.kind=fixed", "privacy.model=none",
    "privacy.clip=none", "encoding.range=4.0", "encoding.bits=32", "secagg.protocol=ideal",
    "training.epochs=2", "training.batch_size=4", "training.lr=0.1", "training.momentum=0.5",
    "training.weight_decay=0.01",
    *(f"faults.{at}=0" for at in ("advertise", "share", "contribute", "confirm", "unmask")),
]  # fmt: skip
NAMES = (
    "scalar parameter", "empty parameter", "tied weights", "LoRA adapter", "unused parameters",
    "float16", "frozen complex weight and buffer", "state kept from batch to batch", "LSTM",
)  # fmt: skip
KNOWN = {one.name: one for one in ROWS}


def by_hand(one: Row, spec: TrainSpec) -> np.ndarray:
    model = initial_vector(RowTask(one), 0)
    for turn in range(1, ROUNDS + 1):
        changes = []
        for client in range(CLIENTS):
            seed = int.from_bytes(derive_seed(0, "local training", turn, client), "little")
            before, after = trained_plainly(
                one, spec, torch.float32, start=model, client=client, number=seed
            )
            changes.append(after - before)
        model = (model + np.mean(changes, axis=0)).astype(np.float32)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_protection_is_averaging_by_hand(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = KNOWN[name]
    monkeypatch.setattr(api, "resolve_task", lambda *arguments: RowTask(one))
    result = api.run("digits", overrides=SETTINGS, out=tmp_path / "run", report=False)
    trained = [n for n, p in one.make().named_parameters() if p.requires_grad]
    found = np.concatenate([np.asarray(result.model[n]).reshape(-1) for n in trained])
    np.testing.assert_allclose(found, by_hand(one, SPEC), rtol=0, atol=1e-6)
    other = SPEC.model_copy(update={"momentum": 0.4})
    assert np.abs(found - by_hand(one, other)).max() > 1e-4


@pytest.mark.slow
def test_a_model_of_another_dtype_is_said_once_to_be_trained_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "resolve_task", lambda *arguments: RowTask(KNOWN["bfloat16"]))
    api.run("digits", overrides=SETTINGS, out=tmp_path / "run", report=False)
    said = "model: 4 parameters are bfloat16, and all are trained and kept as float32"
    assert (tmp_path / "run" / SERVER_LOG).read_text().count(said) == 1


@pytest.mark.parametrize("name", ["lazy", "complex weights", "inputs by name", "items of one dict"])
def test_a_plan_refuses_what_cannot_be_trained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = KNOWN[name]
    monkeypatch.setattr(api, "resolve_task", lambda *arguments: RowTask(one))
    with pytest.raises(TaskError, match=one.refused.replace("(", r"\(").replace(")", r"\)")):
        api.plan(api.load_experiment("digits", SETTINGS))
