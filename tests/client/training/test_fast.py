"""Hand-derived training is LocalTrainer's to rounding, layer by layer and option by option."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pictures import CLASSES, Task, ends, images, mlp
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from zerosum.client.spec import TrainSpec
from zerosum.client.training import fast
from zerosum.client.training.batches import schedule
from zerosum.client.training.fast import FastTrainer, choose_trainer
from zerosum.client.training.fast_layers import Arena, Linear, Parameter, Update
from zerosum.client.training.fast_model import Program
from zerosum.client.training.initial_model import build_model, initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.projection import Projection
from zerosum.client.training.torch_seed import seeded

pytestmark = pytest.mark.usefixtures("one_thread")
SEED = 7


def cnn(channels: int = 1, *, bias: bool = True) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 5, padding=2, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 8),
        nn.ReLU(),
        nn.Linear(8, CLASSES),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: ends(120),
    "one layer alone": lambda: nn.Sequential(nn.Flatten(), nn.Linear(120, CLASSES, bias=False)),
    "mlp": mlp,
    "mlp without bias": lambda: mlp(bias=False),
    "relu first": lambda: ends(120, nn.ReLU(), nn.ReLU()),
    "relu last": lambda: nn.Sequential(ends(120), nn.ReLU()),
    "cnn": cnn,
    "cnn without bias": lambda: cnn(bias=False),
    "strides": lambda: ends(
        36, nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, (1, 2), 0)
    ),
    "dilation": lambda: ends(
        4 * 6 * 6, nn.Conv2d(1, 3, 3, dilation=2), nn.Conv2d(3, 4, (1, 3), dilation=(2, 1))
    ),
    "same padding": lambda: ends(240, nn.Conv2d(1, 2, (3, 5), padding="same"), nn.ReLU()),
    "uneven padding": lambda: ends(2 * 12 * 14, nn.Conv2d(1, 2, 3, padding=2)),
    "average": lambda: ends(
        60, nn.Conv2d(1, 2, 3, padding=1), nn.AvgPool2d(2, ceil_mode=True), nn.ReLU()
    ),
    "overlapping pools": lambda: ends(
        2 * 4 * 5, nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1, 1)
    ),
    "pool first": lambda: ends(30 * 2, nn.MaxPool2d(2), nn.Conv2d(1, 2, 1), nn.ReLU()),
    "flattened before relu": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.ReLU(), nn.Linear(40, CLASSES)
    ),
}

SPECS = {
    "plain": TrainSpec(epochs=2, batch_size=4),
    "all": TrainSpec(epochs=3, batch_size=None),
    "momentum": TrainSpec(epochs=2, batch_size=4, momentum=0.9),
    "decay": TrainSpec(epochs=2, batch_size=4, weight_decay=0.1),
    "proximal": TrainSpec(epochs=2, batch_size=4, proximal=0.5),
    "steps": TrainSpec(steps=5, batch_size=3),
    "everything": TrainSpec(steps=7, batch_size=5, momentum=0.5, weight_decay=0.01, proximal=0.1),
}


def both(
    task: Any, spec: TrainSpec, data: Any, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Train one client in both ways; the first must go by hand-derived rules alone."""
    start = initial_vector(task, 0) * np.float32(scale)
    hand = FastTrainer(task, spec, dtype=dtype)
    assert hand.name == "fast"
    hand._step = never  # type: ignore[method-assign, assignment]  # whatever is asked
    return hand.train(start, data, SEED), LocalTrainer(task, spec, dtype=dtype).train(
        start, data, SEED
    )


def never(*arguments: Any) -> None:
    raise AssertionError("the general path was taken")


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("spec", [SPECS["plain"], SPECS["everything"]], ids=["plain", "everything"])
def test_every_layer_trains_as_autograd_does(
    model: Callable[[], nn.Module], spec: TrainSpec
) -> None:
    found, wanted = both(Task(model), spec, images())
    assert np.abs(wanted).max() > 1e-3
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("model", [mlp, cnn])
def test_every_option_trains_as_torch_does(model: Callable[[], nn.Module], spec: TrainSpec) -> None:
    found, wanted = both(Task(model), spec, images())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    found, wanted = both(Task(model), spec, images(), torch.float32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)


def bare_rounds(
    make: Callable[[], nn.Module], spec: TrainSpec, dtype: torch.dtype, rounds: int, clients: int
) -> np.ndarray:
    """Average models over rounds by Module, autograd and torch.optim.SGD; flat, shape (d,)."""
    model = build_model(Task(make), 0).to(dtype)
    for turn in range(rounds):
        begin = {name: value.clone() for name, value in model.state_dict().items()}
        ends = []
        for client in range(clients):
            model.load_state_dict(begin)
            inputs, targets = images(7 + 2 * client, seed=client)
            optimizer = torch.optim.SGD(
                model.parameters(), spec.lr, spec.momentum, weight_decay=spec.weight_decay
            )
            for _, number, order in schedule(len(targets), spec, 100 * turn + client):
                size = spec.batch_size or len(targets)
                rows = (torch.arange(len(targets)) if order is None else order)[
                    number * size : (number + 1) * size
                ]
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs[rows].to(dtype)), targets[rows])
                for name, value in model.named_parameters():
                    loss = loss + spec.proximal / 2 * (value - begin[name]).square().sum()
                loss.backward()
                optimizer.step()
            ends.append({name: value.clone() for name, value in model.state_dict().items()})
        model.load_state_dict({name: sum(end[name] for end in ends) / clients for name in begin})
    flat: np.ndarray = nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    return flat


def trainer_rounds(
    trainer: LocalTrainer, make: Callable[[], nn.Module], rounds: int, clients: int
) -> np.ndarray:
    """Average models over the same rounds, each client by the trainer."""
    vector = initial_vector(Task(make), 0).astype(str(trainer.dtype).removeprefix("torch."))
    for turn in range(rounds):
        vector = vector + sum(
            trainer.train(vector, images(7 + 2 * client, seed=client), 100 * turn + client)
            for client in range(clients)
        ) / np.asarray(clients, vector.dtype)
    return vector


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(make, id=name, marks=() if name in ("mlp", "cnn") else pytest.mark.slow)
        for name, make in MODELS.items()
    ],
)
@pytest.mark.parametrize("kind", [FastTrainer, LocalTrainer])
def test_every_layer_and_option_is_federated_averaging_as_torch_writes_it(
    model: Callable[[], nn.Module], kind: type[LocalTrainer]
) -> None:
    for spec in SPECS.values():
        trainer = kind(Task(model), spec, dtype=torch.float64)
        assert trainer.name == {FastTrainer: "fast", LocalTrainer: "general"}[kind]
        wanted = bare_rounds(model, spec, torch.float64, 3, 3)
        found = trainer_rounds(trainer, model, 3, 3)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
        wanted = bare_rounds(model, spec, torch.float32, 1, 3)
        found = trainer_rounds(kind(Task(model), spec), model, 1, 3)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert np.abs(wanted - initial_vector(Task(model), 0)).max() > 1e-3


@pytest.mark.parametrize("channels", [2, 3])
def test_images_of_several_channels_train_alike(channels: int) -> None:
    found, wanted = both(Task(lambda: cnn(channels)), SPECS["plain"], images(9, channels))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_components_come_before_the_parameters() -> None:
    task = Task(lambda: nn.Sequential(Projection(120, 6), nn.Linear(6, CLASSES)))
    start = np.concatenate(
        [np.random.default_rng(0).normal(size=720), initial_vector(task, 0)]
    ).astype(np.float32)
    hand, plain = (
        make(task, SPECS["plain"], dtype=torch.float64) for make in (FastTrainer, LocalTrainer)
    )
    assert hand.name == "fast"
    delta = hand.train(start, images(), SEED)
    np.testing.assert_allclose(delta, plain.train(start, images(), SEED), rtol=0, atol=1e-12)
    assert np.abs(delta).max() > 1e-3


class Flipped(Dataset[Any]):
    """A random transform an access."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, targets = images()
        flip = bool(torch.rand(()) < 0.5)
        return inputs[index].flip(-1) if flip else inputs[index], targets[index]


@pytest.mark.parametrize("kind", ["dataset", "subset", "arrays", "half", "large"])
def test_every_kind_of_data_set_trains_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = images()
    if kind == "large":
        monkeypatch.setattr(fast, "HELD_BYTES", 100)
    data = {
        "dataset": Flipped(),
        "subset": Subset(TensorDataset(inputs, targets), [4, 0, 7, 5, 6, 3]),
        "arrays": (inputs.numpy(), targets.numpy()),
        "half": Subset(TensorDataset(inputs.half(), targets), [1, 2, 3, 4, 5]),
        "large": (inputs, targets),
    }[kind]
    found, wanted = both(Task(cnn), SPECS["plain"], data)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_one_record_or_none_is_a_client_too() -> None:
    found, wanted = both(Task(cnn), SPECS["plain"], images(1))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    found, wanted = both(Task(cnn), SPECS["plain"], images(0), torch.float32)
    assert found.dtype == np.float32
    assert np.array_equal(found, wanted)
    assert not found.any()


def test_nan_stays_nan() -> None:
    inputs, targets = images()
    inputs[3, 0, 5, 5] = float("nan")
    for model in (mlp, cnn):
        found, wanted = both(Task(model), SPECS["plain"], (inputs, targets))
        assert np.isnan(wanted).any()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_bits_do_not_depend_on_clients_before() -> None:
    task, spec = Task(cnn), SPECS["plain"]
    start = initial_vector(task, 0)
    start.flags.writeable = False
    fresh = FastTrainer(task, spec).train(start, images(), SEED)
    used = FastTrainer(task, spec)
    for count in (3, 30, 0, 1, 7):
        used.train(start * 2, images(count), count)
    used.train(start, (images()[0] * np.nan, images()[1]), SEED)
    with pytest.raises(IndexError):
        used.train(start, (images()[0], images()[1] + CLASSES), SEED)
    wide = torch.zeros(4, 1, 20, 20), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(RuntimeError):
        used.train(start, wide, SEED)
    held = images()[0].float().numpy()
    shifted: Any = np.frombuffer(b"\0" * 4 + held.tobytes(), np.float32, offset=4).reshape(
        held.shape
    )
    assert np.array_equal(used.train(start, images(), SEED), fresh)
    assert np.array_equal(used.train(start, (shifted.copy(), images()[1]), SEED), fresh)
    assert not np.array_equal(used.train(start, images(), SEED + 1), fresh)


def test_no_global_generator_moves() -> None:
    with seeded(5):  # only so that this test itself puts torch's generator back
        before = torch.get_rng_state()
        FastTrainer(Task(lambda: mlp()), SPECS["plain"]).train(
            np.zeros(120 * 9 + 9 + 9 * 5 + 5, np.float32), images(), SEED
        )
        # The model's initialisation is seeded too.
        assert torch.equal(torch.get_rng_state(), before)


def test_memory_grows_to_the_largest_batch_and_no_further() -> None:
    trainer = FastTrainer(Task(cnn), TrainSpec(batch_size=None, epochs=1))
    start = initial_vector(trainer.task, 0)
    for count in (2, 40, 5, 40, 9):
        trainer.train(start, images(count), SEED)
    grown = trainer._arena.grown
    for count in (3, 40, 17):
        trainer.train(start, images(count), SEED)
    assert trainer._arena.grown == grown


def test_cross_entropy_written_in_another_way_is_known() -> None:
    task = Task(mlp, lambda a, b: a.logsumexp(1) - a.gather(1, b[:, None])[:, 0])
    found, wanted = both(task, SPECS["plain"], images())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_a_model_evaluates_as_before_after_fast_training() -> None:
    task, spec = Task(cnn), SPECS["plain"]
    start = initial_vector(task, 0)
    chosen, plain = choose_trainer(task, spec), LocalTrainer(task, spec)
    chosen.train(start, images(), SEED)
    assert chosen.evaluate(start, images(30)) == plain.evaluate(start, images(30))


CHECKED = """
import sys, torch
from zerosum.client.training.fast import FastTrainer
from zerosum.client.spec import TrainSpec

class Task:
    def model(self):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))

    def loss(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

trainer = FastTrainer(Task(), TrainSpec())
data = torch.ones(5, 2, 2), torch.arange(5) % 3
trainer.train(torch.zeros(15).numpy(), data, 0)
print(trainer.name, "sympy" in sys.modules)
"""


@pytest.mark.slow
def test_checks_load_no_algebra_that_takes_a_second() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECKED], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["fast", "False"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4, float("nan")])
def test_the_gradient_of_cross_entropy_errs_no_more_than_autograds(
    scale: float, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn((9, 7), generator=generator, dtype=dtype)
    scores[0] *= scale  # one record, beside others
    targets = torch.arange(9) % 7

    def by_autograd(dtype: torch.dtype) -> Tensor:
        leaf = scores.to(dtype, copy=True).requires_grad_()
        nn.functional.cross_entropy(leaf, targets).backward()
        assert leaf.grad is not None
        return leaf.grad

    same = torch.eye(7, dtype=dtype)
    layers = [Linear(Parameter(same, same.clone(), Update(None)), None)]
    program = Program(layers, (9, 7), Arena(dtype), inner=True)
    program.outputs(scores)
    found, exact = program.descend(targets).clone(), by_autograd(torch.float64)
    assert torch.equal(found.isnan(), exact.isnan())
    allowed = (by_autograd(dtype) - exact).nan_to_num().abs().max() + torch.finfo(dtype).eps / 9
    assert (found - exact).nan_to_num().abs().max() <= allowed
    program.outputs(scores)
    wrong = program.descend(targets.roll(1)).double()
    assert not torch.allclose(wrong, exact, equal_nan=True)
