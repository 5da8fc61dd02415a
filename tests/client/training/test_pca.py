"""Principal components: what one record can change, and what is read from a noised sum."""

import logging

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.request import ModelRequest, model_payload, moments_length
from zerosum.client.task import ClientInfo, resolve_task
from zerosum.client.training.compute import LocalComputation
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.pca import principal_components, second_moments, triangle
from zerosum.server.config import parse_experiment
from zerosum.server.privacy.protections import question_of
from zerosum.server.spec import Experiment

INPUTS = 12


def moments(data: np.ndarray) -> np.ndarray:
    return triangle(second_moments(data))


def records(count: int = 50, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (count, INPUTS))


def experiment(**model: object) -> Experiment:
    return parse_experiment(
        {
            "task": "digits",
            "data": {"clients": 4},
            "model": {"name": "mlp", "hidden": [5], "components": 3, "inputs": 64} | model,
            "privacy": {
                "unit": "example",
                "examples": 1438,
                "lot": 100,
                "clip": 1.0,
                "delta": 1e-4,
                "components_noise": 4.0,
            },
            "encoding": {"range": 10.0},
            "sampling": {"kind": "everyone"},
        }
    )


def test_moments_are_the_triangle_of_the_sum_of_outer_products() -> None:
    inside = 0.1 * records()
    inside /= np.maximum(1, np.linalg.norm(inside, axis=1, keepdims=True))
    matrix = np.sum([np.outer(x, x) for x in inside], axis=0)
    rows, columns = np.triu_indices(INPUTS)
    expected = matrix[rows, columns] * np.where(rows == columns, 1, np.sqrt(2))
    found = moments(inside)
    assert found.shape == (moments_length(INPUTS),)
    assert np.allclose(found, expected, rtol=3e-6)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e3, 1e38, 1e200, 1e308])
def test_no_record_moves_the_sum_by_more_than_one(scale: float) -> None:
    one = scale * records(1)
    assert np.linalg.norm(moments(one)) <= 1
    moved = moments(np.concatenate([records(), one])) - moments(records())
    assert np.linalg.norm(moved) <= 1


def test_without_the_weights_off_the_diagonal_a_record_would_count_for_less() -> None:
    unit = np.full((1, INPUTS), INPUTS**-0.5)
    assert np.linalg.norm(moments(unit)) == pytest.approx(1, abs=1e-5)
    rows, columns = np.triu_indices(INPUTS)
    plain = np.outer(unit, unit)[rows, columns]
    assert np.linalg.norm(plain) < 0.8


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_record_that_is_not_finite_adds_nothing(value: float) -> None:
    spoilt = np.concatenate([records(), records(1, seed=2)])
    spoilt[-1, 3] = value
    assert np.array_equal(moments(spoilt), moments(records()))


def test_no_records_have_no_moments() -> None:
    assert not moments(np.zeros((0, INPUTS))).any()


def test_components_are_the_leading_eigenvectors() -> None:
    data = records(400) * np.linspace(3, 0.1, INPUTS)
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    _, _, expected = np.linalg.svd(data, full_matrices=False)
    found = principal_components(moments(data), INPUTS, 3)
    assert found.shape == (INPUTS, 3)
    assert found.dtype == np.float32
    overlaps = np.abs((expected[:3] * found.T).sum(axis=1))
    assert np.allclose(overlaps, 1, atol=1e-4)
    assert (found[np.abs(found).argmax(axis=0), np.arange(3)] > 0).all()


class Broken(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Digits of which some raise, or have another shape."""

    def __init__(self, inputs: torch.Tensor, broken: set[int], other: set[int]) -> None:
        self.inputs, self.broken, self.other = inputs, broken, other

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index in self.broken:
            raise OSError("unreadable")
        inputs = self.inputs[index]
        return (inputs[:5] if index in self.other else inputs), torch.tensor(0)


def answer(data: object) -> np.ndarray:
    whole = experiment()
    task = resolve_task(whole.task, whole.data, whole.model, whole.seed)
    task.data = lambda client: data  # type: ignore[assignment, method-assign, return-value]
    question = question_of(whole, 0, 4, "components", noise_draw="summed")
    request = ModelRequest(question, model_payload(np.zeros(64 * 3 + 75, dtype=np.float32)))
    return LocalComputation(task).update(request, ClientInfo(0, 4), SeededEntropy(0))


def test_a_record_that_fails_leaves_the_others_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inputs = torch.rand(30, 64, generator=torch.Generator().manual_seed(1))
    kept = torch.cat([inputs[:7], inputs[9:]])
    with caplog.at_level(logging.CRITICAL):
        found = answer(Broken(inputs, {7}, {8}))
    assert found.shape == (moments_length(64),)
    assert np.allclose(found, answer((kept, torch.zeros(28, dtype=torch.long))), atol=1e-9)


def test_directions_come_before_the_trained_parameters() -> None:
    whole = experiment()
    task = resolve_task(whole.task, whole.data, whole.model, whole.seed)
    trainer = LocalTrainer(task, whole.training)
    assert trainer.public == 64 * 3 == whole.model.public
    assert trainer.layout.length == 3 * 5 + 5 + 5 * 10 + 10
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(64, 3)))[0].astype(np.float32)
    vector = np.concatenate([directions.ravel(), initial_vector(task, 0)])
    inputs = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    low = inputs.flatten(1) @ torch.from_numpy(directions)
    model = task.model()
    model.load_state_dict(trainer.to_state_dict(vector))
    assert torch.allclose(trainer.predict(vector, inputs), model[1:](low), atol=1e-6)  # type: ignore[index]
    delta = trainer.train(vector, (inputs, torch.arange(4)), 7)
    assert delta.shape == (trainer.layout.length,)
    assert delta.any()
    with pytest.raises(ValueError, match="shape"):
        trainer.train(vector[1:], (inputs, torch.arange(4)), 7)


@pytest.mark.parametrize(
    ("kind", "privacy"),
    [
        ("components", {"model": "local"}),
        ("components", {"clip": 1e-4}),
        ("components", {"unit": "client", "examples": None, "lot": None}),
        ("evaluate", {}),
    ],
)
def test_a_client_reads_no_question_whose_noise_is_another_kind_s(
    kind: str, privacy: dict[str, object]
) -> None:
    asked = question_of(experiment(), 0, 4, "components", noise_draw="per_client")
    model = np.zeros(64 * 3 + 75, dtype=np.float32)
    honest = ModelRequest(asked, model_payload(model))
    assert ModelRequest.from_bytes(honest.header, honest.payload).question == asked
    changed = asked.privacy.model_copy(update=privacy)
    forged = asked.model_copy(update={"kind": kind, "privacy": changed})
    with pytest.raises(ValueError, match="unreadable request"):
        ModelRequest.from_bytes(forged.canonical(), honest.payload)
