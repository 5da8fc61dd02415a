"""Local training is torch.optim.SGD, federated averaging is ten lines, and nothing leaks."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from zerosum.client.spec import TrainSpec
from zerosum.client.task import ClientInfo, TaskError
from zerosum.client.training.evaluation import evaluate
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed, numpy_generator

SEED = b"s" * 32
NUMBER = int.from_bytes(SEED, "little")


pytestmark = pytest.mark.usefixtures("one_thread")


class Toy:
    """Three classes in six dimensions."""

    def __init__(self, make: Callable[[], nn.Module] | None = None) -> None:
        self.make = make or (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)))

    def model(self) -> nn.Module:
        return self.make()

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(client.index)
        inputs = torch.randn(7 + client.index, 6, generator=generator, dtype=torch.float64)
        return inputs, torch.randint(0, 3, (len(inputs),), generator=generator)

    def test_data(self) -> None:
        return None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def trainer(spec: TrainSpec, task: Toy | None = None, **options: Any) -> LocalTrainer:
    return LocalTrainer(task or Toy(), spec, dtype=torch.float64, **options)


def batches(count: int, spec: TrainSpec, seed: int) -> Iterator[np.ndarray]:
    """The documented order, written again."""
    generator, size = numpy_generator(seed, "batch order"), spec.batch_size or count
    done, limit = 0, spec.steps if spec.steps is not None else 10**9
    for _ in range(spec.epochs or 10**9):
        order = generator.permutation(count) if size < count else np.arange(count)
        for start in range(0, count, size):
            if done == limit:
                return
            done += 1
            yield order[start : start + size]


def reference(
    start: np.ndarray,
    data: tuple[Tensor, Tensor],
    spec: TrainSpec,
    seed: int,
    task: Toy | None = None,
) -> Any:
    """Centralised torch.optim.SGD; the proximal term is part of the loss."""
    model = (task or Toy()).model().double()
    nn.utils.vector_to_parameters(torch.tensor(start), model.parameters())
    origin = torch.tensor(start)
    optimizer = torch.optim.SGD(
        model.parameters(), spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay
    )
    for batch in batches(len(data[1]), spec, seed):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data[0][batch]), data[1][batch])
        distance = nn.utils.parameters_to_vector(model.parameters()) - origin
        total = loss + spec.proximal / 2 * distance.square().sum()
        torch.autograd.backward(total)
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


SPECS = {
    "plain": TrainSpec(batch_size=4),
    "one batch": TrainSpec(batch_size=None, epochs=3),
    "momentum": TrainSpec(batch_size=4, momentum=0.9),
    "decay": TrainSpec(batch_size=4, weight_decay=0.1),
    "proximal": TrainSpec(batch_size=4, proximal=0.5),
    "steps": TrainSpec(batch_size=4, steps=5),
    "fewer steps than an epoch": TrainSpec(batch_size=2, steps=2, momentum=0.5),
    "all": TrainSpec(batch_size=3, epochs=4, momentum=0.9, weight_decay=0.01, proximal=0.1, lr=0.3),
}


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_one_client_equals_centralised_sgd(spec: TrainSpec) -> None:
    start = initial_vector(Toy(), 0).astype(np.float64)
    data = Toy().data(ClientInfo(3, 4))
    expected = reference(start, data, spec, NUMBER)
    actual = start + trainer(spec).train(start, data, SEED)
    assert np.abs(actual - start).max() > 0.01
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


def test_federated_averaging_equals_a_reference_loop() -> None:
    spec, clients = SPECS["all"], 4
    task, local = Toy(), trainer(SPECS["all"])
    model = expected = initial_vector(task, 0).astype(np.float64)
    for turn in range(3):
        deltas, references = [], []
        for client in range(clients):
            seed = derive_seed(0, "local training", turn, client)
            data = task.data(ClientInfo(client, clients))
            deltas.append(local.train(model, data, seed))
            references.append(reference(expected, data, spec, int.from_bytes(seed, "little")))
        model = model + np.mean(deltas, axis=0)
        expected = np.mean(references, axis=0)
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)


def test_the_delta_is_float32_by_default_and_repeats_bit_for_bit() -> None:
    task = Toy()
    start, data = initial_vector(task, 0), task.data(ClientInfo(1, 2))
    first = LocalTrainer(task, SPECS["all"])
    delta = first.train(start, data, SEED)
    first.train(start, task.data(ClientInfo(0, 2)), SEED)
    assert delta.dtype == np.float32
    assert np.array_equal(first.train(start, data, SEED), delta)
    assert np.array_equal(LocalTrainer(task, SPECS["all"]).train(start, data, SEED), delta)
    assert not np.array_equal(first.train(start, data, b"t" * 32), delta)


def test_a_client_whose_training_blows_up_leaves_nothing_behind() -> None:
    task = Toy()
    start, data = initial_vector(task, 0), task.data(ClientInfo(1, 2))
    local = LocalTrainer(task, SPECS["momentum"])
    delta = local.train(start, data, SEED)
    bad = local.train(start, (data[0] * float("inf"), data[1]), SEED)
    assert not np.isfinite(bad).all()
    with pytest.raises(IndexError):
        local.train(start, (data[0], data[1] + 5), SEED)
    assert np.array_equal(local.train(start, data, SEED), delta)


def test_a_client_without_data_changes_nothing() -> None:
    start = initial_vector(Toy(), 0)
    nothing = (torch.empty(0, 6), torch.empty(0, dtype=torch.int64))
    assert not LocalTrainer(Toy(), TrainSpec()).train(start, nothing, SEED).any()


class Pairs(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


@pytest.mark.parametrize("wrap", [Pairs, TensorDataset, lambda x, y: (x.numpy(), y.numpy())])
def test_every_kind_of_data_set_trains_alike(wrap: Callable[[Tensor, Tensor], Any]) -> None:
    start = initial_vector(Toy(), 0)
    data = Toy().data(ClientInfo(3, 4))
    local = LocalTrainer(Toy(), SPECS["all"])
    assert np.array_equal(local.train(start, wrap(*data), SEED), local.train(start, data, SEED))


class Tripled(TensorDataset):
    """A data set of tensors that gives other items than they are."""

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        inputs, target = super().__getitem__(index)
        return 3 * inputs, target


class TripledPart(Subset[tuple[Tensor, ...]]):
    """Some of a data set's items, changed."""

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        inputs, target = super().__getitem__(index)
        return 3 * inputs, target

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, ...]]:
        return [self[index] for index in indices]


@pytest.mark.parametrize(
    "wrap", [Tripled, lambda x, y: TripledPart(TensorDataset(x, y), range(len(y)))]
)
def test_a_data_set_that_changes_its_tensors_is_trained_on_what_it_gives(wrap: Any) -> None:
    inputs, targets = Toy().data(ClientInfo(3, 4))
    local, start = LocalTrainer(Toy(), SPECS["plain"]), initial_vector(Toy(), 0)
    found = local.train(start, wrap(inputs, targets), SEED)
    np.testing.assert_array_equal(found, local.train(start, (3 * inputs, targets), SEED))
    assert not np.array_equal(found, local.train(start, (inputs, targets), SEED))


def test_two_records_in_a_list_are_records() -> None:
    inputs, targets = Toy().data(ClientInfo(0, 4))
    records = [(inputs[0], targets[0]), (inputs[1], targets[1])]
    local, start = LocalTrainer(Toy(), SPECS["plain"]), initial_vector(Toy(), 0)
    found = local.train(start, records, SEED)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, local.train(start, (inputs[:2], targets[:2]), SEED))


class Counting(nn.Module):
    """A buffer that grows with every batch, and dropout."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen = self.seen + 1
        dropped = nn.functional.dropout(inputs, 0.5, self.training)
        outputs: Tensor = self.linear(dropped) * self.seen
        return outputs


def test_buffers_do_not_carry_over_and_dropout_repeats() -> None:
    task = Toy(Counting)
    start, data = initial_vector(task, 0), task.data(ClientInfo(3, 4))
    local = LocalTrainer(task, TrainSpec(epochs=2))
    delta = local.train(start, data, SEED)
    assert np.array_equal(local.train(start, data, SEED), delta)
    assert not np.array_equal(local.train(start, data, b"t" * 32), delta)
    assert local.model.seen == 0
    with pytest.raises(IndexError):
        local.train(start, (data[0], data[1] + 5), SEED)
    assert np.array_equal(local.train(start, data, SEED), delta)


@pytest.mark.parametrize("spec", [TrainSpec(steps=3), TrainSpec(steps=3, momentum=0.9)])
def test_sparse_embeddings_are_trained_like_dense_ones(spec: TrainSpec) -> None:
    class Words(Toy):
        def __init__(self, sparse: bool) -> None:
            self.sparse = sparse

        def model(self) -> nn.Module:
            table = nn.EmbeddingBag(7, 4, mode="sum", sparse=self.sparse)
            return nn.Sequential(table, nn.Linear(4, 3))

    tokens = torch.arange(40).view(10, 4) % 7
    data = tokens, tokens[:, 0] % 3
    start = initial_vector(Words(False), 0)
    dense, sparse = (trainer(spec, Words(kind)).train(start, data, 0) for kind in (False, True))
    assert np.abs(dense).max() > 0
    assert np.allclose(dense, sparse, rtol=0, atol=1e-6)


def test_no_global_generator_moves_or_matters() -> None:
    task = Toy(Counting)

    def everything() -> np.ndarray:
        start = initial_vector(task, 0)
        local = LocalTrainer(task, TrainSpec(batch_size=2))
        delta = local.train(start, task.data(ClientInfo(0, 1)), SEED)
        local.evaluate(start + delta, task.data(ClientInfo(0, 1)))
        return delta

    with seeded(5):  # only so that this test itself puts torch's generator back
        before = global_states()
        first = everything()
        assert global_states() == before
        torch.rand(3)
        assert np.array_equal(everything(), first)


def global_states() -> tuple[Any, ...]:
    legacy = np.random.get_state(legacy=False)  # noqa: NPY002
    return torch.get_rng_state().tolist(), str(legacy), random.getstate()


def test_another_experiment_seed_starts_elsewhere() -> None:
    assert np.array_equal(initial_vector(Toy(), 1), initial_vector(Toy(), 1))
    assert not np.array_equal(initial_vector(Toy(), 1), initial_vector(Toy(), 2))


def test_evaluation_returns_sums_over_all_batches() -> None:
    task = Toy()
    data = task.data(ClientInfo(5, 9))
    model = task.model().double()
    sums = evaluate(model, data, task, batch_size=5)
    outputs = model(data[0])
    assert sums["count"] == 12
    assert sums["accuracy"] == (outputs.argmax(1) == data[1]).sum()
    expected = nn.functional.cross_entropy(outputs, data[1], reduction="sum").item()
    assert sums["loss"] == pytest.approx(expected, rel=1e-12)
    empty = (data[0][:0], data[1][:0])
    assert evaluate(model, empty, task) == {"loss": 0.0, "count": 0.0}


def test_metrics_of_ones_own_replace_accuracy() -> None:
    class Own(Toy):
        def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
            return {"second": targets == 1}

    data = Own().data(ClientInfo(0, 1))
    sums = evaluate(Own().model().double(), data, Own())
    assert set(sums) == {"loss", "second", "count"}
    assert sums["second"] == (data[1] == 1).sum()


def test_mistakes_in_a_task_are_named() -> None:
    class Mean(Toy):
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return nn.functional.cross_entropy(outputs, targets)

    class Bad(Toy):
        def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
            return {"mean": (targets == 1).double().mean()}

    start, data = initial_vector(Toy(), 0), Toy().data(ClientInfo(0, 1))
    with pytest.raises(TaskError, match='reduction="none"'):
        LocalTrainer(Mean(), TrainSpec()).train(start, data, SEED)
    with pytest.raises(TaskError, match="mean as shape"):
        evaluate(Bad().model().double(), data, Bad())
    local = LocalTrainer(Toy(), TrainSpec())
    with pytest.raises(TaskError, match="one target an input"):
        local.train(start, (data[0], data[1][:2]), SEED)
    with pytest.raises(TaskError, match="generator"):
        local.train(start, (x for x in [1]), SEED)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(53,\)"):
        local.train(start[:7], data, SEED)


LAYOUTS: list[bool] = []
"""Global, because what a model keeps itself is put back after each client."""


class Seen(nn.Module):
    """A convolution that tells the layout of what it was given, and may read it by memory."""

    def __init__(self, view: str) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 2, 3)
        self.last = nn.Linear(2 * 4 * 4, 3)
        self.view = view

    def forward(self, images: Tensor) -> Tensor:
        LAYOUTS.append(images.is_contiguous())
        if self.view == "needs":
            images = images.view(len(images), -1).view(images.shape)
        if self.view == "misreads":
            images = images.as_strided(images.shape, (108, 36, 6, 1))
        outputs: Tensor = self.last(self.convolution(images).flatten(1))
        return outputs


@pytest.mark.parametrize(("view", "kept"), [("", False), ("needs", True), ("misreads", True)])
def test_images_are_laid_out_anew_only_for_a_model_that_does_not_mind(
    view: str, kept: bool
) -> None:
    class Images(Toy):
        def model(self) -> nn.Module:
            return Seen(view)

    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(8, 3, 6, 6, generator=generator, dtype=torch.float64)
    data = (inputs, torch.arange(8) % 3)
    spec, start = TrainSpec(epochs=2, batch_size=4), initial_vector(Images(), 0).astype(float)
    one = trainer(spec, Images())
    delta = one.train(start, data, 0)
    assert LAYOUTS[-1] is kept
    wanted = reference(start, data, spec, 0, Images())
    np.testing.assert_allclose(start + delta, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("view", ["misreads", "drops"])
def test_a_layout_is_judged_at_weights_that_say_something(view: str) -> None:
    """With a last layer of zeros all outputs are alike, whatever was read."""

    class Images(Toy):
        def model(self) -> nn.Module:
            module: Any = Seen(view)
            if view == "drops":
                module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Dropout(0.5), nn.Flatten())
                module.append(nn.Linear(32, 3))
            last = module.last if view == "misreads" else module[-1]
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
            return module

    inputs = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(1)).double()
    data, spec = (inputs, torch.arange(8) % 3), TrainSpec(epochs=1, batch_size=4, lr=0.5)
    start = initial_vector(Images(), 0).astype(float)
    first = trainer(spec, Images())
    middle = start + first.train(start, data, 0)
    again = trainer(spec, Images())  # as after a crash, or with --resume
    np.testing.assert_array_equal(first.train(middle, data, 1), again.train(middle, data, 1))
    if view == "misreads":
        wanted = reference(start, data, spec, 0, Images())
        np.testing.assert_allclose(middle, wanted, rtol=0, atol=1e-12)
