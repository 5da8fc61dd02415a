"""A first linear layer trained by its Gram matrix: the same change as by its weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pictures import CLASSES, Task, ends, images, mlp
from torch import Tensor, nn

from zerosum.client.spec import TrainSpec
from zerosum.client.training import fast_dual
from zerosum.client.training.fast import FastTrainer
from zerosum.client.training.fast_dual import (
    FULL_PRECISION,
    DualLayer,
    DualProgram,
    LargeProduct,
    full_precision,
)
from zerosum.client.training.fast_layers import Linear, Parameter, Update
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer

pytestmark = pytest.mark.usefixtures("one_thread")
SEED = 7

MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "without bias": lambda: mlp(bias=False),
    "one layer alone": lambda: nn.Sequential(nn.Flatten(), nn.Linear(120, CLASSES)),
    "relu last": lambda: nn.Sequential(ends(120), nn.ReLU()),
    "three layers": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(120, 7), nn.ReLU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 5)
    ),
}
SPECS = {
    "epochs": TrainSpec(epochs=3, batch_size=4),
    "one epoch": TrainSpec(epochs=1, batch_size=4),
    "everything at once": TrainSpec(epochs=3, batch_size=None),
    "one step": TrainSpec(steps=1, batch_size=None),
    "less than an epoch": TrainSpec(steps=2, batch_size=3),
    "one epoch and a part": TrainSpec(steps=6, batch_size=3),
    "records one by one": TrainSpec(epochs=2, batch_size=1),
}


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count clients that end in the dual form."""
    ended: list[int] = []
    change = DualProgram.change

    def counting(self: DualProgram, model: np.ndarray, client: int) -> np.ndarray:
        ended.append(self.form.count)
        return change(self, model, client)

    with monkeypatch.context() as patch:
        patch.setattr(DualProgram, "change", counting)
        yield ended


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the dual form also where it costs more."""
    monkeypatch.setattr(DualLayer, "pays", lambda self, count, size, steps: True)


@pytest.mark.quick_one_in(6)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_every_model_and_schedule_trains_as_autograd_does(
    model: Callable[[], nn.Module], spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, start = Task(model), initial_vector(Task(model), 0)
    for count in (1, 11):
        wanted = LocalTrainer(task, spec, dtype=torch.float64).train(start, images(count), SEED)
        with counted(monkeypatch) as ended:
            found = FastTrainer(task, spec, dtype=torch.float64).train(start, images(count), SEED)
        assert ended == [count]
        assert np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.quick_one_in(2)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("steps", [1, 2])
def test_a_record_that_no_step_reads_has_no_part(steps: int) -> None:
    task, start = Task(mlp), initial_vector(Task(mlp), 0)
    spec, (inputs, targets) = TrainSpec(steps=steps, batch_size=3), images(11)
    finite = []
    for place in range(11):
        spoilt = inputs.clone()
        spoilt[place].view(-1)[0] = torch.nan
        wanted = LocalTrainer(task, spec, dtype=torch.float64).train(start, (spoilt, targets), SEED)
        found = FastTrainer(task, spec, dtype=torch.float64).train(start, (spoilt, targets), SEED)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
        finite.append(np.isfinite(wanted).all())
    assert finite.count(False) == 3 * steps  # the control: others were read


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("epochs", "compared"),
    [(1, ((40, 400), (40, 400))), (3, ((60, 400), (60, 400)))],  # of one epoch what a step reads
)
def test_a_large_client_takes_three_large_products(
    epochs: int, compared: tuple[tuple[int, int], ...]
) -> None:
    task, start, data = wide_client()
    trainer = FastTrainer(task, TrainSpec(epochs=epochs, batch_size=20))
    shapes = []

    def counting(left: Tensor, right: Tensor) -> Tensor:
        shapes.append((tuple(left.shape), tuple(right.shape)))
        return FULL_PRECISION.multiply(left, right)

    assert trainer._dual is not None
    trainer._dual = replace(trainer._dual, large=LargeProduct(counting, FULL_PRECISION.cost))
    trainer.train(start, data, SEED)
    # Outputs of all records, Gram matrix, change.
    assert shapes == [((60, 400), (100, 400)), compared, ((100, 60), (400, 60))]


def wide_client() -> tuple[Task, np.ndarray, tuple[Tensor, Tensor]]:
    task = Task(lambda: nn.Sequential(nn.Linear(400, 100), nn.ReLU(), nn.Linear(100, 10)))
    generator = torch.Generator().manual_seed(3)
    inputs = torch.rand((60, 400), generator=generator)
    return task, initial_vector(task, 0), (inputs, torch.randint(10, (60,), generator=generator))


def bf16_product(left: Tensor, right: Tensor) -> Tensor:
    return torch.mm(left.bfloat16(), right.bfloat16().t()).to(left.dtype)


def test_float32_errs_no_more_than_autograd_does_and_bf16_would() -> None:
    task, start, data = wide_client()
    spec = TrainSpec(epochs=5, batch_size=20)
    exact = LocalTrainer(task, spec, dtype=torch.float64).train(start, data, SEED)

    def error(trainer: LocalTrainer) -> float:
        return float(np.linalg.norm(trainer.train(start, data, SEED) - exact))

    dual, rounded = FastTrainer(task, spec), FastTrainer(task, spec)
    assert dual._dual is not None
    rounded._dual = replace(dual._dual, large=LargeProduct(bf16_product, 0.5))
    assert rounded._dual is not None
    allowed = 1.5 * error(LocalTrainer(task, spec))
    assert error(dual) <= allowed < 1e-4 * np.linalg.norm(exact)
    assert error(rounded) > 10 * allowed


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("scale", [1e25, 1e-25, float("nan"), float("inf")])
def test_records_beyond_a_gram_matrix_keep_the_bits_of_the_weights_form(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, spec, (inputs, targets) = Task(mlp), SPECS["epochs"], images()
    start, data = initial_vector(task, 0), (inputs.float(), targets)
    data[0][3 if scale != 1e-25 else ...] *= scale  # one record, or all of them
    with counted(monkeypatch) as ended:
        found = FastTrainer(task, spec).train(start, data, SEED)
    assert not ended
    monkeypatch.setattr(DualLayer, "pays", lambda self, count, size, steps: False)
    wanted = FastTrainer(task, spec).train(start, data, SEED)
    assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.usefixtures("always")
def test_records_of_zeros_train_the_biases_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    task, spec = Task(mlp), SPECS["epochs"]
    start, data = initial_vector(task, 0), (torch.zeros(6, 1, 10, 12), torch.arange(6) % CLASSES)
    with counted(monkeypatch) as ended:
        found = FastTrainer(task, spec).train(start, data, SEED)
    assert ended == [6]
    wanted = LocalTrainer(task, spec).train(start, data, SEED)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    assert not found[:1080].any()
    assert found[1080:1089].any()


@pytest.mark.usefixtures("always")
def test_bits_do_not_depend_on_clients_before() -> None:
    task, spec = Task(mlp), SPECS["epochs"]
    start = initial_vector(task, 0)
    start.flags.writeable = False
    fresh = FastTrainer(task, spec).train(start, images(), SEED)
    used = FastTrainer(task, spec)
    for count in (3, 90, 0, 1, 7, 200):
        used.train(start * 2, images(count), count)
    used.train(start, (images()[0] * np.nan, images()[1]), SEED)
    assert np.array_equal(used.train(start, images(), SEED), fresh)
    held = images()[0].float().numpy()
    shifted: Any = np.frombuffer(b"\0" * 4 + held.tobytes(), np.float32, offset=4)
    records = torch.tensor(shifted.reshape(held.shape)), images()[1]
    assert np.array_equal(used.train(start, records, SEED), fresh)
    assert not np.array_equal(used.train(start, images(), SEED + 1), fresh)


@pytest.mark.usefixtures("always")
def test_a_loss_that_weighs_by_what_a_batch_holds_is_noticed() -> None:
    def balanced(outputs: Tensor, targets: Tensor) -> Tensor:
        counts = torch.bincount(targets, minlength=CLASSES)
        share = len(targets) / (counts > 0).sum() / counts[targets]
        return nn.functional.cross_entropy(outputs, targets, reduction="none") * share

    task, spec = Task(mlp, balanced), TrainSpec(epochs=2, batch_size=7)
    start = initial_vector(task, 0)
    chosen = FastTrainer(task, spec)
    assert chosen.name == "fast"  # on as many records of each class it is cross-entropy
    wanted = LocalTrainer(task, spec).train(start, images(), SEED)
    assert np.array_equal(chosen.train(start, images(), SEED), wanted)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("more", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"proximal": 0.1}])
def test_other_steps_than_plain_ones_keep_the_weights_form(
    more: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(mlp)
    with counted(monkeypatch) as ended:
        FastTrainer(task, TrainSpec(epochs=3, batch_size=4, **more)).train(  # type: ignore[arg-type]
            initial_vector(task, 0), images(), SEED
        )
    assert not ended


@pytest.mark.parametrize(
    ("count", "size", "steps", "taken"),
    [
        (100, 20, 25, True),
        (100, 20, 10, True),
        (100, 20, 5, False),  # one epoch: the Gram matrix costs what it saves
        (100, 100, 1, True),  # one step needs none
        (784, 20, 4000, False),  # as many records as inputs
        (783, 20, 4000, True),
        (4, 4, 1, False),  # too little to notice
    ],
)
def test_the_dual_form_is_taken_where_it_saves_operations(
    count: int, size: int, steps: int, taken: bool
) -> None:
    assert layer(784, 200).pays(count, size, steps) == taken


@pytest.mark.parametrize("narrow", [False, True])
def test_one_epoch_takes_the_dual_form_where_large_products_are_twice_as_fast(
    narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_dual, "mkl_is_narrow", lambda: narrow)
    has_onednn = fast_dual.has_onednn_product()
    for dtype, taken in ((torch.float32, narrow and has_onednn), (torch.float64, False)):
        trainer = FastTrainer(Task(lambda: nn.Linear(784, 200)), SPECS["epochs"], dtype=dtype)
        assert trainer._dual is not None
        assert trainer._dual.pays(100, 20, 5) == taken
    monkeypatch.setattr(fast_dual, "has_onednn_product", lambda: False)
    assert not replace(layer(784, 200), large=full_precision(torch.float32)).pays(100, 20, 5)


def layer(inputs: int, width: int) -> DualLayer:
    value = torch.zeros(width, inputs)
    return DualLayer(Linear(Parameter(value, value.clone(), Update(0.1)), None), 0.1)


def test_the_dual_form_is_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert layer(9000, 2).pays(4000, 20, 10**6)
    assert not layer(9000, 2).pays(4100, 20, 10**6)
    monkeypatch.setattr(fast_dual, "LARGEST_BYTES", 4 * 100 * 199)
    assert not layer(784, 200).pays(100, 20, 25)


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("dual", [False, True])
def test_memory_of_smaller_clients_is_let_go(dual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DualLayer, "pays", lambda self, count, size, steps: dual)
    trainer = FastTrainer(Task(mlp), SPECS["epochs"])
    start = initial_vector(trainer.task, 0)
    for count in range(1, 40):
        trainer.train(start, images(count), SEED)
    kept = trainer._dual_programs if dual else trainer._held
    rows = {one.rows.untyped_storage().data_ptr() for one in kept.values() if one is not None}
    assert len(rows) == 1
    for count in (5, 3, 5):  # these fit
        trainer.train(start, images(count), SEED)
    assert len(kept) == 3
