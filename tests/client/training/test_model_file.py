"""The file of a run's model is a whole state dict: torch loads it strictly, and it is the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from zerosum.client.spec import TrainSpec
from zerosum.client.task import ClientInfo, TaskError
from zerosum.client.training.flat_parameters import Layout, from_state_dict
from zerosum.client.training.initial_model import build_model, initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.model_file import as_arrays, entries
from zerosum.client.training.projection import Projection
from zerosum.client.training.torch_seed import seeded

pytestmark = pytest.mark.usefixtures("one_thread")

INPUTS = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
TARGETS = torch.arange(6) % 3


class Toy:
    def __init__(self, make: Callable[[], nn.Module]) -> None:
        self.make = make

    def model(self) -> nn.Module:
        return self.make()

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        return INPUTS, TARGETS

    def test_data(self) -> None:
        return None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.float(), targets, reduction="none")


class Lora(nn.Module):
    """A frozen base and two thin matrices that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 3).requires_grad_(False)
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.base(inputs) + self.up(self.down(inputs))
        return outputs


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.decode.weight = self.encode.weight

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.decode(self.encode(inputs)))
        return outputs


class Buffers(nn.Module):
    """Buffers of every kind: integers, truths, half floats, empty, scalar, not contiguous."""

    keep: Tensor
    scale: Tensor
    wide: Tensor
    turned: Tensor
    scratch: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("keep", torch.tensor([True, False, True, True]))
        self.register_buffer("scale", torch.rand(4).bfloat16())
        self.register_buffer("wide", torch.rand(4).double())
        self.register_buffer("none", torch.zeros(0, 3))
        self.register_buffer("turned", torch.rand(3, 4).t())
        self.register_buffer("scratch", torch.rand(4), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        seen = inputs * self.keep * self.scale.float() + self.wide.float() + self.turned[:, 0]
        outputs: Tensor = self.layer(seen + self.scratch * 0)
        return outputs


class Turned(nn.Module):
    """A parameter that does not lie in the order of its axes, and one in no branch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4).t())
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight


class TensorState(nn.Linear):
    def get_extra_state(self) -> Any:
        return torch.tensor([1.0, 2.0])

    def set_extra_state(self, state: Any) -> None:
        self.seen = state


def spectral() -> nn.Module:
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 5)), nn.Linear(5, 3))


def old_norms() -> nn.Module:
    first = nn.utils.spectral_norm(nn.Linear(4, 5))
    return nn.Sequential(first, nn.utils.weight_norm(nn.Linear(5, 3)))


class HalfFrozen(nn.Module):
    """A frozen table in half floats beside weights in whole ones."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 4).bfloat16(), requires_grad=False)
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs @ self.table.to(inputs.dtype))
        return outputs


class FrozenInEval(nn.Sequential):
    def train(self, mode: bool = True) -> "FrozenInEval":
        super().train(mode)
        self[1].eval()
        return self


ZOO: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Linear(4, 3)),
    "lora": Lora,
    "tied": Tied,
    "buffers": Buffers,
    "not contiguous": Turned,
    "extra state that is a tensor": lambda: TensorState(4, 3),
    "spectral norm": spectral,
    "old norms": old_norms,
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(4, 3)),
    "orthogonal": lambda: nn.Sequential(
        parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 3)
    ),
    "half floats": HalfFrozen,
    "frozen batch norm": lambda: FrozenInEval(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)),
    "group norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)),
    "scripted": lambda: torch.jit.script(
        nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    ),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)),
}


def trained(make: Callable[[], nn.Module], path: Path) -> tuple[LocalTrainer, np.ndarray]:
    """Train a little and write the file, as a run does."""
    task = Toy(make)
    spec = TrainSpec(steps=3, batch_size=None, batchnorm="average")
    trainer, start = LocalTrainer(task, spec, seed=5), initial_vector(task, 5, "average")
    vector = start + trainer.train(start, (INPUTS, TARGETS), 1)
    assert not np.array_equal(vector, start)
    save_file(trainer.to_state_dict(vector), path)
    return trainer, vector


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("make", ZOO.values(), ids=ZOO.keys())
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_file_loads_strictly_and_predicts_as_the_trainer_does(make, tmp_path: Path) -> None:
    trainer, vector = trained(make, tmp_path / "model.safetensors")
    state = load_file(tmp_path / "model.safetensors")
    with seeded(99):  # another seed: what is not in the file shows
        model = make()
    assert state.keys() == model.state_dict().keys()
    model.load_state_dict(state, strict=True)
    model.eval()
    with torch.no_grad():
        outputs = model(INPUTS)
    assert torch.allclose(outputs, trainer.predict(vector, INPUTS), atol=1e-6)
    arrays = as_arrays(state)
    assert np.array_equal(from_state_dict(arrays, Layout.of(make(), "average")), vector)


def test_what_is_not_trained_is_as_the_seed_builds_it_in_its_own_dtype(tmp_path: Path) -> None:
    trained(Buffers, tmp_path / "buffers")
    trained(HalfFrozen, tmp_path / "half")
    state, built = load_file(tmp_path / "buffers"), build_model(Toy(Buffers), 5).state_dict()
    for name in ("steps", "keep", "scale", "wide", "none", "turned"):
        assert state[name].dtype == built[name].dtype
        assert torch.equal(state[name], built[name]), name
    state = load_file(tmp_path / "half")
    assert state["table"].dtype == torch.bfloat16
    assert as_arrays(state)["table"].dtype == np.float32


def test_a_buffer_that_repeats_its_memory_fails_no_client() -> None:
    def make() -> nn.Module:
        model = nn.Linear(4, 3)
        model.register_buffer("spread", torch.rand(1, 4).expand(6, 4))
        return model

    trainer, start = LocalTrainer(Toy(make), TrainSpec(steps=1)), initial_vector(Toy(make), 0)
    assert trainer.train(start, (INPUTS, TARGETS), 1).any()


def test_tied_weights_stand_under_each_of_their_names(tmp_path: Path) -> None:
    trainer, vector = trained(Tied, tmp_path / "model")
    state = load_file(tmp_path / "model")
    assert torch.equal(state["encode.weight"], state["decode.weight"])
    assert torch.equal(state["encode.weight"].reshape(-1), torch.tensor(vector[:16]))
    assert trainer.layout.length == 16 + 4 + 4 + 12 + 3


def test_components_stand_in_their_place() -> None:
    task = Toy(lambda: nn.Sequential(Projection(4, 2), nn.Linear(2, 3)))
    trainer = LocalTrainer(task, TrainSpec())
    vector = np.arange(trainer.public + 9, dtype=np.float32)
    state = trainer.to_state_dict(vector)
    assert list(state) == ["0.directions", "1.weight", "1.bias"]
    assert np.array_equal(np.concatenate([v.reshape(-1) for v in state.values()]), vector)


def test_averaged_statistics_and_a_count_of_batches_that_stays_are_in_the_file(tmp_path) -> None:
    _, vector = trained(ZOO["batch norm"], tmp_path / "model")
    state = load_file(tmp_path / "model")
    assert np.array_equal(state["1.running_mean"].numpy(), vector[-10:-5])
    assert np.array_equal(state["1.running_var"].numpy(), vector[-5:])
    assert state["1.num_batches_tracked"].dtype == torch.int64
    assert int(state["1.num_batches_tracked"]) == 0


def with_buffer(value: Tensor) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = nn.Linear(4, 3)
        model.register_buffer("odd", value)
        return model

    return make


class Dictionary(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"epoch": 3}

    def set_extra_state(self, state: Any) -> None: ...


UNWRITABLE = {
    "extra state": (lambda: Dictionary(4, 3), r"_extra_state is extra state \(dict\)"),
    "complex128": (with_buffer(torch.zeros(2, dtype=torch.complex128)), "odd.*complex128"),
    "sparse": (with_buffer(torch.eye(3).to_sparse()), "odd.*sparse"),
}


@pytest.mark.parametrize(("make", "said"), UNWRITABLE.values(), ids=UNWRITABLE.keys())
def test_what_no_file_holds_is_refused_before_anything_is_trained(make, said) -> None:
    with pytest.raises(TaskError, match=said) as caught:
        LocalTrainer(Toy(make), TrainSpec())
    assert "model.safetensors cannot hold" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_entries_are_the_model_s_own_tensors() -> None:
    model = Tied()
    assert entries(model)["decode.weight"] is model.encode.weight
