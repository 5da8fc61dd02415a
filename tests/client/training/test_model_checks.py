"""Checks of a model before training, and its state after."""

import copy
import logging
from typing import Any, cast

import numpy as np
import pytest
import torch
from other_models import MovesBuffer, Net, TwoNames, mlp, old_spectral_norm, spectral_norm
from torch import Tensor, nn
from without_data import WithoutData

from zerosum.client.spec import TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training.batched import BatchedTrainer
from zerosum.client.training.evaluation import evaluate
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.model_checks import cast_of, converted, usable
from zerosum.client.training.stacked_records import Member, TrainedClient

pytestmark = pytest.mark.usefixtures("one_thread")

SPEC = TrainSpec(epochs=1, batch_size=4, lr=0.1)


class MadeTask(WithoutData):
    def __init__(self, make: Any) -> None:
        self.make = make

    def model(self) -> nn.Module:
        made: nn.Module = self.make()
        return made

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def records(seed: int = 0, count: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=generator)
    return x, torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.slow
def test_a_compiled_model_is_trained_without_compiling() -> None:
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    def whole() -> Any:
        return torch.compile(mlp(), backend=backend)

    def inside() -> nn.Module:
        net = mlp()
        net[0] = cast(nn.Module, torch.compile(net[0], backend=backend))
        net[2].compile(backend=backend)
        return net

    for make in (whole, inside):
        task = MadeTask(make)
        local = LocalTrainer(task, SPEC)
        found = local.train(initial_vector(task, 0), records(), 1)
        plain = LocalTrainer(MadeTask(mlp), SPEC)
        wanted = plain.train(initial_vector(MadeTask(mlp), 0), records(), 1)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7)
        assert list(local.model.state_dict()) == list(make().state_dict())
    assert not compiled
    torch.compiler.reset()  # after many compiled models torch runs the next ones as written
    whole()(records()[0])
    assert compiled


def test_a_group_leaves_a_module_of_two_names_its_own_weights() -> None:
    task = MadeTask(TwoNames)
    grouped, alone, start = BatchedTrainer(task, SPEC), LocalTrainer(task, SPEC), None
    start = initial_vector(task, 0)
    found = list(grouped.train_cohort(start, [Member(lambda: records(), i) for i in range(3)]))
    assert all(isinstance(one, TrainedClient) and one.together for one in found)
    end = start + found[0].delta  # type: ignore[union-attr]
    wanted = alone.evaluate(end, records(1))
    assert grouped.evaluate(end, records(1)) == wanted
    assert alone.evaluate(start, records(1)) != wanted
    again = grouped.train(start, records(), 0)
    np.testing.assert_array_equal(again, alone.train(start, records(), 0))


class Padded(nn.Module):
    """Looks up a padded word by the function, which no check of modules sees."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(9, 4)), nn.Linear(4, 3)

    def forward(self, words: Tensor) -> Tensor:
        found = nn.functional.embedding(words, self.table, padding_idx=0)
        outputs: Tensor = self.head(found.mean(1))
        return outputs


@pytest.mark.parametrize(
    "make",
    [
        Padded,
        lambda: nn.Sequential(nn.Embedding(9, 3, padding_idx=0), nn.Flatten(), nn.Linear(12, 3)),
    ],
    ids=["function", "module"],
)
def test_padded_rows_of_every_client_of_a_group_stay(make: Any) -> None:
    task = MadeTask(make)
    words = torch.randint(0, 9, (11, 4), generator=torch.Generator().manual_seed(1))
    words[:, 0] = 0
    data, start = (words, records()[1]), initial_vector(task, 0)
    members = [Member(lambda: data, i) for i in range(3)]
    alone = LocalTrainer(task, SPEC)
    for place, one in enumerate(BatchedTrainer(task, SPEC).train_cohort(start, members)):
        assert isinstance(one, TrainedClient)
        np.testing.assert_allclose(one.delta, alone.train(start, data, place), rtol=0, atol=1e-6)


def test_what_moves_and_is_not_sent_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    task = MadeTask(MovesBuffer)
    local, start = LocalTrainer(task, SPEC), initial_vector(task, 0)
    with caplog.at_level(logging.WARNING, "zerosum.client"):
        for seed in (1, 2):
            local.train(start, records(), seed)
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 1
    assert "training moves MovesBuffer.scale, and only trained parameters are averaged" in said[0]


def test_still_buffers_are_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    def make() -> nn.Module:
        net = Net()
        net.register_buffer("still", torch.ones(3))
        return net

    task = MadeTask(make)
    with caplog.at_level(logging.WARNING, "zerosum.client"):
        LocalTrainer(task, SPEC).train(initial_vector(task, 0), records(), 1)
    assert not caplog.records


def test_views_of_one_storage_that_do_not_meet_are_several_parameters() -> None:
    whole = torch.randn(8, 6)
    net = nn.ParameterList([whole[::2], whole[1::2]])
    assert usable(net) is net
    net = nn.ParameterList([whole[:5], whole[4:]])
    with pytest.raises(TaskError, match="0 and 1 share memory"):
        usable(net)
    net = nn.ParameterList([whole[::2], whole[::4]])
    with pytest.raises(TaskError, match="share memory"):
        usable(net)


def test_frozen_tensors_may_share_memory() -> None:
    net = Net()
    net.register_buffer("first", torch.ones(3))
    net.register_buffer("second", net.get_buffer("first")[:2])
    assert usable(net) is net


def test_the_view_that_a_norm_leaves_is_no_second_tensor() -> None:
    net = nn.utils.spectral_norm(nn.Linear(3, 3))
    assert usable(net) is net


def test_a_model_kept_by_its_task_is_taken_as_copies() -> None:
    kept = Net()
    task = MadeTask(lambda: copy.deepcopy(kept))
    start = initial_vector(task, 0)
    LocalTrainer(task, SPEC).train(start, records(), 1)
    np.testing.assert_array_equal(initial_vector(task, 0), start)


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("make", [old_spectral_norm, spectral_norm])
def test_a_spectral_norm_is_that_of_the_weights_loaded(make: Any) -> None:
    task = MadeTask(make)
    local, start = LocalTrainer(task, SPEC), initial_vector(task, 0)
    other = np.random.default_rng(1).normal(size=start.shape).astype(np.float32)
    inputs = records()[0]
    model = make()
    nn.utils.vector_to_parameters(torch.from_numpy(other), model.parameters())
    with torch.no_grad():
        stale = model.eval()(inputs)  # by vectors that do not go with these weights
        for _ in range(1000):
            model.train()(inputs)
        wanted = model.eval()(inputs)
    found = local.predict(other, inputs)
    assert (found - wanted).abs().max() < 0.02 * wanted.abs().max()
    assert (stale - wanted).abs().max() > 0.2 * wanted.abs().max()
    np.testing.assert_array_equal(local.predict(other, inputs), found)


def test_a_new_spectral_norm_is_trained_from_the_vectors_that_it_has() -> None:
    task = MadeTask(spectral_norm)
    local, start = LocalTrainer(task, SPEC), initial_vector(task, 0)
    local.evaluate(np.ones_like(start), records())
    again = LocalTrainer(task, SPEC).train(start, records(), 1)
    np.testing.assert_array_equal(local.train(start, records(), 1), again)


@pytest.mark.parametrize(
    ("dtype", "wide"), [(torch.float32, torch.complex64), (torch.float64, torch.complex128)]
)
def test_conversion_keeps_imaginary_parts_and_integers(
    dtype: torch.dtype, wide: torch.dtype
) -> None:
    net = nn.Module()
    net.register_buffer("turn", torch.tensor([0.6 + 0.8j]))
    net.register_buffer("order", torch.tensor([2, 1]))
    net.register_buffer("short", torch.tensor([0.5], dtype=torch.float16))
    made = converted(net, torch.device("cpu"), dtype)
    assert made.get_buffer("turn").dtype == wide
    assert made.get_buffer("turn").imag.item() == pytest.approx(0.8)
    assert made.get_buffer("order").dtype == torch.int64
    assert made.get_buffer("short").dtype == dtype


def test_a_frozen_complex_weight_does_not_make_inputs_complex() -> None:
    net = nn.Sequential(nn.Linear(6, 3))
    net.phase = nn.Parameter(torch.tensor(1j), requires_grad=False)
    assert next(net.parameters()).is_complex()
    found = evaluate(net, records(), MadeTask(lambda: net))
    assert found["loss"] > 0


def test_a_cast_of_what_is_trained_is_put_into_words() -> None:
    net = Net()
    assert cast_of(net, torch.float32) is None
    net.body.half()
    net.head.requires_grad_(False)
    assert cast_of(net, torch.float32) == (
        "model: 2 parameters are float16, and all are trained and kept as float32"
    )
