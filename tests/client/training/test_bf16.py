"""bfloat16 training: near the float64 gradient, the same bits each time, or refused by name."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from pictures import CLASSES, Task, ends, images, mlp
from torch import Tensor, nn

from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training import fast, fast_dual, precision, torch_internals
from zerosum.client.training.batched import BatchedTrainer
from zerosum.client.training.deferred_linear import DeferredLinear, deferred
from zerosum.client.training.dpsgd import ExampleTrainer
from zerosum.client.training.fast import FastTrainer, choose_trainer
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.trial_step import TrialStep

native = pytest.mark.skipif(
    not torch_internals.has_native_bf16(), reason="this processor has no native bfloat16 products"
)
pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 7
DEFERRED_BEGIN = DeferredLinear.begin
STEP: dict[str, Any] = {"epochs": 1, "batch_size": None, "lr": 1.0}
LONG: dict[str, Any] = {"epochs": 2, "batch_size": 4, "lr": 0.1}

MOST = 0.06
"""Relative error of a gradient: eight bits make 0.003, and of the forty records of a tiny model one
or two have a unit or a window that rounding decides otherwise."""


def cnn(channels: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, 1, 1),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 8),
        nn.ReLU(),
        nn.Linear(8, CLASSES),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "mlp without bias": lambda: mlp(bias=False),
    "cnn": cnn,
    "strides": lambda: ends(
        36, nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, (1, 2), 0)
    ),
    "dilation": lambda: ends(
        4 * 6 * 6, nn.Conv2d(1, 3, 3, dilation=2), nn.Conv2d(3, 4, (1, 3), dilation=(2, 1))
    ),
}


def spec(values: dict[str, Any] = LONG, **changes: Any) -> TrainSpec:
    return TrainSpec(**(values | {"precision": "bf16"} | changes))


def data(count: int = 11, **options: Any) -> tuple[Tensor, Tensor]:
    inputs, targets = images(count, **options)
    return inputs.float(), targets


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def gradient(task: Task, start: np.ndarray, records: tuple[Tensor, Tensor]) -> np.ndarray:
    """One step of torch's own autograd in float64."""
    trainer = LocalTrainer(task, TrainSpec(**STEP), dtype=torch.float64)
    return trainer.train(start.astype(np.float64), (records[0].double(), records[1]), SEED)


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """Keep so many bits of each number."""
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(fraction * 2**bits) / 2**bits, exponent), np.float32)


@pytest.mark.slow
@native
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_gradient_is_that_of_float64_to_eight_bits(
    model: Callable[[], nn.Module], count: int
) -> None:
    task, records = Task(model), data(count)
    start = initial_vector(task, 0)
    wanted = gradient(task, start, records)
    found = FastTrainer(task, spec(STEP)).train(start, records, SEED)
    assert found.dtype == np.float32
    assert 1e-5 < distance(found, wanted) < MOST, "at the lower bound it would be float32"
    usual = FastTrainer(task, TrainSpec(**STEP)).train(start, records, SEED)
    assert distance(usual, wanted) < 2e-6, "the reverse: float32 is not rounded"


def test_the_control_of_three_bits_lies_outside_the_bound() -> None:
    task, records = Task(mlp), data(40)
    start = initial_vector(task, 0)
    coarse = gradient(
        task, rounded(start, 3), (torch.tensor(rounded(records[0].numpy(), 3)), records[1])
    )
    assert distance(coarse, gradient(task, start, records)) > MOST


@native
@pytest.mark.parametrize("options", [{"momentum": 0.9, "weight_decay": 0.01}, {"proximal": 0.5}])
def test_other_options_work_on_float32_weights(options: dict[str, Any]) -> None:
    task, records = Task(cnn), data(12)
    start = initial_vector(task, 0)
    found = FastTrainer(task, spec(**options)).train(start, records, SEED)
    wanted = FastTrainer(task, TrainSpec(**LONG, **options)).train(start, records, SEED)
    assert 1e-5 < distance(found, wanted) < 0.1
    other = FastTrainer(task, TrainSpec(**LONG)).train(start, records, SEED)
    assert distance(other, wanted) > 0.1, "the control: without the options"


@native
def test_small_steps_are_not_lost_in_bfloat16_weights() -> None:
    """A step of a thousandth of a weight is below bfloat16's last bit."""
    task, records = Task(mlp), data(12)
    start = initial_vector(task, 0)
    found = FastTrainer(task, spec(lr=1e-5)).train(start, records, SEED)
    wanted = FastTrainer(task, TrainSpec(**(LONG | {"lr": 1e-5}))).train(start, records, SEED)
    assert distance(found, wanted) < 0.1
    lost = torch.tensor(start + wanted).bfloat16().float().numpy() - rounded(start, 8)
    assert distance(lost, wanted) > 0.1


def wide() -> nn.Module:
    """Return a model with weights that are left alone while a few records train."""
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(60, 900),
        nn.ReLU(),
        nn.Linear(900, CLASSES),
    )


@native
@pytest.mark.parametrize("count", [1, 11, 25])
def test_deferred_steps_are_as_near_to_float64_as_others(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, records = Task(wide), data(count)
    start = initial_vector(task, 0)
    exact = LocalTrainer(task, TrainSpec(**LONG), dtype=torch.float64)
    wanted = exact.train(start.astype(np.float64), (records[0].double(), records[1]), SEED)
    late = FastTrainer(task, spec()).train(start, records, SEED)
    monkeypatch.setattr(DeferredLinear, "begin", lambda self, records: None)
    plain = FastTrainer(task, spec()).train(start, records, SEED)
    assert not np.array_equal(late, plain), "the two forms are not one"
    assert distance(plain, wanted) < MOST
    assert distance(late, wanted) < MOST
    monkeypatch.setattr(DeferredLinear, "begin", DEFERRED_BEGIN)
    monkeypatch.setattr(DeferredLinear, "end", lambda self: None)
    unmoved = FastTrainer(task, spec())
    monkeypatch.setattr(unmoved, "_agrees", lambda shape: True)
    assert distance(unmoved.train(start, records, SEED), wanted) > MOST, "the control"


@native
def test_many_records_are_not_deferred() -> None:
    """Their thin products would take more than the weights: 57 * (60 + 900) > 60 * 900."""
    task = Task(wide)
    trainer = FastTrainer(task, spec())
    (layer,) = deferred(trainer._layers or ())
    for count, wanted in ((56, True), (57, False)):
        layer.begin(count)
        assert layer.rows.active == wanted
    slow = FastTrainer(task, spec(momentum=0.5))
    (layer,) = deferred(slow._layers or ())
    layer.begin(10)
    assert not layer.rows.active, "under momentum a step is no sum of gradients alone"


def dual(*hidden: int) -> nn.Module:
    """Return a model whose first layer is trained in its dual form."""
    widths = [120, *hidden]
    layers = [
        part
        for inputs, outputs in pairwise(widths)
        for part in (nn.Linear(inputs, outputs), nn.ReLU())
    ]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], CLASSES))


@native
@pytest.mark.parametrize("hidden", [(64,), (64, 32)])
def test_dual_form_of_the_first_layer_is_rounded_too(
    hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, records, long = Task(partial(dual, *hidden)), data(40), {**LONG, "epochs": 8}
    start = initial_vector(task, 0)
    exact = LocalTrainer(task, TrainSpec(**long), dtype=torch.float64)
    wanted = exact.train(start.astype(np.float64), (records[0].double(), records[1]), SEED)
    trainer = FastTrainer(task, spec(long))
    found = trainer.train(start, records, SEED)
    assert list(filter(None, trainer._dual_programs.values())), "it takes the dual form"
    assert 1e-4 < distance(found, wanted) < 0.1
    monkeypatch.setattr(fast, "ROUNDED", fast_dual.FULL_PRECISION)
    full = FastTrainer(task, spec(long)).train(start, records, SEED)
    assert not np.array_equal(full, found)
    halved = fast_dual.LargeProduct(lambda a, b: fast_dual.rounded_product(a, b) / 2, 0.4)
    monkeypatch.setattr(fast, "ROUNDED", halved)
    wrong = FastTrainer(task, spec(long)).train(start, records, SEED)
    assert distance(wrong, wanted) > 0.1, "the control: half of each product"


@native
@pytest.mark.parametrize("model", [mlp, cnn, wide, partial(dual, 64)])
def test_clients_seen_before_change_no_bit(model: Callable[[], nn.Module]) -> None:
    task, used = Task(model), FastTrainer(Task(model), spec())
    start = initial_vector(task, 0)
    for count in (1, 40, 0, 11):
        records = data(count, seed=count)
        found = used.train(start, records, SEED)
        alone = FastTrainer(task, spec()).train(start, records, SEED)
        assert np.array_equal(found, alone)
        assert bool(found.any()) == (count > 0)


@native
def test_a_record_that_is_no_number_shows() -> None:
    inputs, targets = data()
    inputs[3, 0, 5, 5] = torch.nan
    task = Task(cnn)
    assert np.isnan(
        FastTrainer(task, spec()).train(initial_vector(task, 0), (inputs, targets), 1)
    ).any()


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - nn.functional.one_hot(targets, CLASSES)).square().sum(1)


class Doubled(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


REFUSED: dict[str, tuple[Task, str]] = {
    "one layer": (Task(lambda: ends(120)), "no other is trained"),
    "another layer": (Task(lambda: ends(120, nn.Tanh())), "no rules for Tanh"),
    "another loss": (Task(mlp, squared), "the loss is not cross-entropy"),
    "a subclass": (Task(lambda: ends(9, nn.Flatten(), Doubled(120, 9))), "no rules for Doubled"),
}


@native
@pytest.mark.parametrize(("task", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_rules_is_refused_and_not_trained_in_float32(task: Task, why: str) -> None:
    start = initial_vector(task, 0)
    with pytest.raises(TaskError, match=f'training.precision = "bf16": .*{why}'):
        FastTrainer(task, spec()).train(start, data(), SEED)
    with pytest.raises(TaskError, match=why):
        TrialStep(task, spec(), PrivacySpec(model="none"), seed=0).take(data())
    assert FastTrainer(task, TrainSpec(**LONG)).train(start, data(), SEED).any()


@native
def test_a_client_whose_records_have_no_rules_is_refused() -> None:
    task = Task(mlp)
    trainer = FastTrainer(task, spec())
    inputs, targets = data()
    with pytest.raises(TaskError, match="targets are no int64 classes"):
        trainer.train(initial_vector(task, 0), (inputs, targets.float()), SEED)


OTHERS: dict[str, Callable[[Task], Any]] = {
    "general": lambda task: choose_trainer(task, spec(), kind="general"),
    "batched": lambda task: BatchedTrainer(task, spec()),
    "local": lambda task: LocalTrainer(task, spec()),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_no_other_trainer_takes_its_place(make: Callable[[Task], Any]) -> None:
    task = Task(mlp)
    start = initial_vector(task, 0)
    with pytest.raises(TaskError, match=r'training\.precision = "bf16"'):
        make(task).train(start, data(), SEED)
    evaluated = make(task).evaluate(start, data())
    assert evaluated["count"] == 11, "evaluation is float32 whatever training is"


def test_gradients_of_single_examples_are_not_computed_in_it() -> None:
    privacy = PrivacySpec(model="none", clip=None, unit="example", examples=9, lot=3)
    with pytest.raises(TaskError, match=r"privacy\.unit"):
        ExampleTrainer(Task(mlp), spec(), privacy)


def test_a_processor_without_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_native_bf16", lambda: False)
    task = Task(mlp)
    with pytest.raises(TaskError, match="processor has no native bfloat16"):
        FastTrainer(task, spec()).train(initial_vector(task, 0), data(), SEED)
    FastTrainer(task, TrainSpec(**LONG)).train(initial_vector(task, 0), data(), SEED)


def test_the_processor_is_asked_by_torch_or_by_its_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    ask = torch_internals.has_native_bf16
    for name, found in (("_is_avx512_bf16_supported", True), ("_is_amx_tile_supported", False)):
        monkeypatch.setattr(torch.cpu, name, partial(bool, found))
    assert ask() == torch.backends.mkldnn.is_available()
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert not ask()
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    for flags, wanted in (("fma amx_bf16", True), ("fma avx512f", False)):
        (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
        monkeypatch.setattr(torch_internals, "_CPUINFO", tmp_path / "cpuinfo")
        torch_internals._processor_words.cache_clear()
        assert ask() == (wanted and torch.backends.mkldnn.is_available())
    monkeypatch.setattr(torch_internals, "_CPUINFO", tmp_path / "none")
    torch_internals._processor_words.cache_clear()
    assert not ask()
    monkeypatch.undo()
    torch_internals._processor_words.cache_clear()
