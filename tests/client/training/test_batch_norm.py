"""Running statistics that cannot move are let be; those that move are sent, or refused."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.task import ClientInfo, TaskError
from zerosum.client.training.batch_norm import RunningStatistics
from zerosum.client.training.dpsgd import ExampleTrainer
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.flat_parameters import Layout, parameters_to_vector
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH = 4
STEPS = TrainSpec(steps=8, batch_size=5)
AVERAGED = TrainSpec(steps=3, batch_size=5, batchnorm="average")


class KeptInEvaluation(nn.Module):
    """A pretrained backbone whose normalisation is never trained, as many write it."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, WIDTH), norm, nn.Tanh(), nn.Linear(WIDTH, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.body(inputs)
        return outputs

    def train(self, mode: bool = True) -> "KeptInEvaluation":
        super().train(mode)
        self.body[1].eval()
        return self


class FrozenBatchNorm(nn.Module):
    """As torchvision and others have it: four buffers, and no mode."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, inputs: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        return inputs * scale + (self.bias - self.running_mean * scale)


class Rebinding(nn.Module):
    """A layer of one's own that makes its running mean anew in each pass."""

    running_mean: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(width))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.running_mean = 0.5 * self.running_mean + 0.5 * inputs.detach().mean(0)
        return inputs - self.running_mean


class Late(FrozenBatchNorm):
    """Moves from its sixth pass on, so that no trial tells."""

    passes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += 1
        if self.passes > 5:
            self.running_mean += 1
        return super().forward(inputs)


class Unregistered(nn.Module):
    running_mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["running_mean"] = torch.zeros(WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        self.running_mean += inputs.detach().mean(0)
        return inputs - self.running_mean


class Counting(nn.Module):
    """Its statistics follow from a count that no client sends."""

    running_mean: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(WIDTH))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.seen += len(inputs)
            self.running_mean += (inputs.detach().mean(0) - self.running_mean) / self.seen
        return inputs - self.running_mean


def between(norm: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(6, WIDTH), norm(), nn.Tanh(), nn.Linear(WIDTH, 3))


class Toy:
    def __init__(self, make: Callable[[], nn.Module]) -> None:
        self.make = make

    def model(self) -> nn.Module:
        return self.make()

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(client.index)
        return 2 + torch.randn(10, 6, generator=generator), torch.arange(10) % 3

    def test_data(self) -> None:
        return None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def train(task: Toy, spec: TrainSpec) -> np.ndarray:
    start = initial_vector(task, 0, spec.batchnorm)
    return LocalTrainer(task, spec).train(start, task.data(ClientInfo(0, 2)), 7)


FROZEN = {
    "a train() that leaves it in eval()": lambda: KeptInEvaluation(nn.BatchNorm1d(WIDTH)),
    "momentum 0": between(lambda: nn.BatchNorm1d(WIDTH, momentum=0.0)),
    "FrozenBatchNorm": between(lambda: FrozenBatchNorm(WIDTH)),
    "SyncBatchNorm in eval()": lambda: KeptInEvaluation(nn.SyncBatchNorm(WIDTH)),
    "without affine": lambda: KeptInEvaluation(nn.BatchNorm1d(WIDTH, affine=False)),
}


@pytest.mark.parametrize("make", FROZEN.values(), ids=FROZEN.keys())
@pytest.mark.parametrize("mode", ["refuse", "average"])
def test_statistics_that_cannot_move_are_no_coordinates(make, mode) -> None:
    torch.manual_seed(0)
    model = make().eval()
    layout = Layout.of(model, mode)
    assert not layout.statistics
    assert layout.dimension == sum(v.numel() for v in model.parameters() if v.requires_grad)
    assert not any(module.training for module in model.modules()), "the model is left as it was"


@pytest.mark.slow
@pytest.mark.parametrize("make", FROZEN.values(), ids=FROZEN.keys())
@pytest.mark.parametrize("kind", ["auto", "general", "batched"])
def test_a_frozen_layer_trains_as_torch_trains_it(make, kind) -> None:
    task = Toy(make)
    start, data = initial_vector(task, 0), task.data(ClientInfo(0, 2))
    spec = TrainSpec(epochs=2, batch_size=None)
    trainer = choose_trainer(task, spec, kind=kind)
    found = start + trainer.train(start, data, 7)
    trainer.load = trainer._load(start)  # type: ignore[attr-defined]
    model = trainer.model
    model.train()
    optimizer = torch.optim.SGD([v for v in model.parameters() if v.requires_grad], lr=spec.lr)
    for _ in range(2):
        gradients = torch.autograd.grad(
            nn.functional.cross_entropy(model(data[0]), data[1]),
            optimizer.param_groups[0]["params"],
        )
        for value, gradient in zip(optimizer.param_groups[0]["params"], gradients, strict=True):
            value.grad = gradient
        optimizer.step()
    wanted = parameters_to_vector(model)
    assert np.abs(wanted - start).max() > 0.01
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


MOVING = {
    "BatchNorm": lambda: nn.BatchNorm1d(WIDTH),
    "small momentum": lambda: nn.BatchNorm1d(WIDTH, momentum=1e-7),
    "cumulative": lambda: nn.BatchNorm1d(WIDTH, momentum=None),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(WIDTH),
    "InstanceNorm": lambda: nn.InstanceNorm1d(WIDTH, track_running_stats=True),
    "of one's own": lambda: Rebinding(WIDTH),
    "no buffer": Unregistered,
    "lazy": nn.LazyBatchNorm1d,
    "in eval() until trained": lambda: nn.BatchNorm1d(WIDTH).eval(),
    "no gradient": lambda: nn.BatchNorm1d(WIDTH).requires_grad_(False),
}


@pytest.mark.parametrize("norm", MOVING.values(), ids=MOVING.keys())
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_statistics_that_move_are_refused_and_the_ways_out_named(norm) -> None:
    with pytest.raises(TaskError, match=r"model: 1 \(.*freeze.*training\.batchnorm") as caught:
        Layout.of(between(norm)())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["auto", "general", "batched"])
def test_statistics_that_move_after_all_fail_the_client(kind) -> None:
    task = Toy(between(lambda: Late(WIDTH)))
    trainer, start = choose_trainer(task, STEPS, kind=kind), initial_vector(task, 0)
    with pytest.raises(TaskError, match=r"training moves 1\.running_mean, which no client sends"):
        trainer.train(start, task.data(ClientInfo(0, 2)), 7)


def test_statistics_that_somebody_else_moves_fail_the_client() -> None:
    class Outside(KeptInEvaluation):
        def forward(self, inputs: Tensor) -> Tensor:
            if self.training:
                self.body.get_buffer("1.running_var").mul_(1.5)
            return super().forward(inputs)

    with pytest.raises(TaskError, match=r"training moves body\.1\.running_var"):
        train(Toy(lambda: Outside(nn.BatchNorm1d(WIDTH))), STEPS)


NOT_SENT = {
    "momentum = None": (lambda: nn.BatchNorm1d(WIDTH, momentum=None), "momentum = None"),
    "no buffer": (Unregistered, "register_buffer"),
    "lazy": (nn.LazyBatchNorm1d, "num_features"),
}


@pytest.mark.parametrize(("norm", "said"), NOT_SENT.values(), ids=NOT_SENT.keys())
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_statistics_whose_average_would_be_another_are_refused(norm, said) -> None:
    with pytest.raises(TaskError, match=said):
        Layout.of(between(norm)(), "average")


def test_a_count_that_decides_and_is_not_sent_fails_the_client() -> None:
    with pytest.raises(TaskError, match=r"training moves 1\.seen, which no client sends"):
        train(Toy(between(Counting)), AVERAGED)


def test_a_trial_refuses_statistics_that_no_client_could_send() -> None:
    task = Toy(between(Counting))
    start = initial_vector(task, 0, "average")
    with pytest.raises(TaskError, match=r"training moves 1\.seen, which no client sends"):
        LocalTrainer(task, AVERAGED).trial_step(start, task.data(ClientInfo(0, 2)))


SENT = {
    "BatchNorm": lambda: nn.BatchNorm1d(WIDTH),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(WIDTH),
    "without affine": lambda: nn.BatchNorm1d(WIDTH, affine=False),
    "of one's own": lambda: Rebinding(WIDTH),
    "compiled": lambda: torch.compile(nn.BatchNorm1d(WIDTH), backend="eager"),
    "scripted": lambda: torch.jit.script(nn.BatchNorm1d(WIDTH)),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # of Dynamo
@pytest.mark.parametrize("norm", SENT.values(), ids=SENT.keys())
@pytest.mark.parametrize("kind", ["auto", "general", "batched"])
def test_the_change_of_statistics_is_that_of_the_model_itself(norm, kind) -> None:
    """Against the modules, trained by torch from the same vector; twice, as nothing outlives it."""
    task = Toy(between(norm))
    data = task.data(ClientInfo(0, 2))
    spec = TrainSpec(epochs=3, batch_size=None, batchnorm="average")
    trainer = choose_trainer(task, spec, kind=kind)
    start = initial_vector(task, 0, "average")
    start = start + np.linspace(0, 0.1, len(start), dtype=np.float32)
    first = trainer.train(start, data, 7)
    assert np.array_equal(trainer.train(start, data, 7), first)
    assert trainer.name == "general"
    model = between(norm)()
    model.load_state_dict(trainer.to_state_dict(start))
    optimizer = torch.optim.SGD(model.parameters(), lr=spec.lr)
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(data[0]), data[1]))
        optimizer.step()
    wanted = parameters_to_vector(model, "average")
    assert np.abs(wanted - start)[-WIDTH:].max() > 0.01
    np.testing.assert_allclose(start + first, wanted, rtol=0, atol=2e-6)
    # Evaluation uses the statistics of the vector.
    model.eval()
    assert torch.allclose(trainer.predict(wanted, data[0]), model(data[0]), atol=1e-6)


def test_a_client_without_records_leaves_the_statistics() -> None:
    task = Toy(between(lambda: nn.BatchNorm1d(WIDTH)))
    start = initial_vector(task, 0, "average")
    nothing = (torch.empty(0, 6), torch.empty(0, dtype=torch.int64))
    for kind in ("general", "batched"):
        change = choose_trainer(task, AVERAGED, kind=kind).train(start, nothing, 7)
        assert change.shape == start.shape
        assert not change.any()


def test_trying_out_a_layout_of_images_in_the_middle_leaves_the_statistics() -> None:
    """Batches of images of two sizes: the second size is tried out after steps on the first."""

    class Sizes(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
            side = 6 if place < 2 else 8
            generator = torch.Generator().manual_seed(place)
            return torch.randn(1, side, side, generator=generator), torch.tensor(place % 2)

    def make() -> nn.Module:
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), *head)

    from torch.utils.data import Subset

    task, spec = Toy(make), TrainSpec(epochs=1, batch_size=2, batchnorm="average", lr=1e-6)
    trainer = LocalTrainer(task, spec)
    start = initial_vector(task, 0, "average")
    order = [0, 1, 2, 3]
    for attempt in range(20):  # until the seed's order keeps sizes together
        from zerosum.client.training.batches import schedule

        found = next(iter(schedule(4, spec, attempt)))[2]
        assert found is not None
        if set(found[:2].tolist()) == {0, 1}:
            order = found.tolist()
            break
    change = trainer.train(start, Subset(Sizes(), [0, 1, 2, 3]), attempt)
    model = make()
    model.load_state_dict(trainer.to_state_dict(start))
    with torch.no_grad():
        for part in (order[:2], order[2:]):
            model(torch.stack([Sizes()[i][0] for i in part]))
    wanted = parameters_to_vector(model, "average")[-6:]
    assert np.abs(wanted - start[-6:]).max() > 0.01
    np.testing.assert_allclose(start[-6:] + change[-6:], wanted, rtol=0, atol=1e-4)


def test_a_batch_of_one_record_is_said_to_have_no_statistics() -> None:
    task = Toy(between(lambda: nn.BatchNorm1d(WIDTH)))
    spec = TrainSpec(epochs=1, batch_size=3, batchnorm="average")
    with pytest.raises(TaskError, match=r"10 records in batches of 3.*training\.batch_size"):
        train(task, spec)


PER_EXAMPLE = PrivacySpec(
    unit="example", examples=10, lot=10, clip=1.0, noise_multiplier=1.0, delta=1e-2
)


@pytest.mark.slow
def test_frozen_layers_are_trained_example_by_example() -> None:
    task = Toy(FROZEN["a train() that leaves it in eval()"])
    trainer, start = ExampleTrainer(task, STEPS, PER_EXAMPLE), initial_vector(task, 0)
    inputs, targets = task.data(ClientInfo(0, 2))
    trainer.trial_step(start, (inputs, targets))
    trainer._load(start)
    trainer.model.train()
    found = trainer._clipped.clipped_sum(inputs.double(), targets, 1e9).clone()
    losses = nn.functional.cross_entropy(trainer.model(inputs.double()), targets, reduction="sum")
    parts = torch.autograd.grad(losses, list(trainer.model.parameters()))
    wanted = torch.cat([part.reshape(-1) for part in parts])
    assert wanted.abs().max() > 0.1
    assert torch.allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("name", ["momentum 0"])
def test_layers_that_mix_a_batch_are_refused_example_by_example(name) -> None:
    with pytest.raises(TaskError, match=r"BatchNorm1d\) mixes"):
        ExampleTrainer(Toy(FROZEN[name]), STEPS, PER_EXAMPLE)
    with pytest.raises(TaskError, match=r'privacy\.unit = "client"'):
        ExampleTrainer(Toy(between(lambda: nn.BatchNorm1d(WIDTH))), AVERAGED, PER_EXAMPLE)


def test_a_parameter_of_that_name_is_trained_like_any_other() -> None:
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.running_mean = nn.Parameter(torch.zeros(WIDTH))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs - self.running_mean

    task = Toy(between(Shift))
    assert train(task, STEPS)[28:32].all()
    assert Layout.of(task.model()).names[2] == "1.running_mean"


def test_a_model_without_statistics_is_not_put_into_another_mode() -> None:
    class Watched(nn.Linear):
        def train(self, mode: bool = True) -> "Watched":
            raise AssertionError("not needed")

    assert RunningStatistics.of(Watched(2, 2), "refuse") == RunningStatistics()
