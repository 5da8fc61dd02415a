"""Private members of torch: each is there and does what is relied on, and may be missing.

A failure of the first half after an upgrade of torch says which member changed; see the table at
the head of ``torch_internals``. The second half takes each away.
"""

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pictures import CLASSES, Task, images, mlp
from torch import Tensor, nn

import zerosum
from zerosum.client.spec import TrainSpec
from zerosum.client.training import (
    independent_examples,
    products,
    torch_internals,
)
from zerosum.client.training.batched import BatchedTrainer
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.flat_parameters import flatten
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.model_checks import gradient_hook
from zerosum.client.training.per_example_clipping import ClippedGradients
from zerosum.client.training.restored_state import Snapshot
from zerosum.client.training.spectral_norms import SpectralNorms
from zerosum.client.training.torch_internals import MissingMember

pytestmark = pytest.mark.usefixtures("one_thread")
SPEC = TrainSpec(epochs=2, batch_size=5)
CONVOLUTIONS = {
    "padding": lambda: nn.Conv2d(2, 4, (3, 5), padding=(1, 2)),
    "stride, dilation, groups": lambda: nn.Conv2d(2, 4, 3, 2, 2, 2, groups=2, bias=False),
    "same, odd rest": lambda: nn.Conv2d(2, 4, (2, 4), padding="same", dilation=(3, 1)),
    "valid": lambda: nn.Conv2d(2, 4, 3, padding="valid"),
    "circular": lambda: nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
    "reflected same": lambda: nn.Conv2d(2, 4, 4, padding="same", padding_mode="reflect"),
}


@pytest.fixture(autouse=True)
def fresh_kernels() -> Iterator[None]:
    torch_internals.kernels.cache_clear()
    yield
    torch_internals.kernels.cache_clear()


# --- Each member is there ---


def test_kernels_give_the_gradients_of_autograd() -> None:
    kernels = torch_internals.kernels()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn((2, 3, 6, 6), generator=generator, requires_grad=True)
    upstream = torch.randn((2, 3, 6, 6), generator=generator)

    def gradient(outputs: Tensor) -> Tensor:
        (found,) = torch.autograd.grad((outputs * upstream[:, :, : outputs.shape[2]]).sum(), inputs)
        return found

    relu = kernels.threshold_backward(
        upstream, inputs.detach().relu(), 0, grad_input=torch.empty_like(upstream)
    )
    assert torch.equal(relu, gradient(inputs.relu()))
    weight = torch.randn((3, 3, 3, 3), generator=generator)
    options = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    convolved = nn.functional.conv2d(inputs, weight, padding=1)
    assert torch.equal(kernels.convolution(inputs, weight, None, *options), convolved)
    back = kernels.convolution_backward(
        upstream, inputs, weight, None, *options, [True, True, False]
    )
    assert torch.allclose(back[0], gradient(convolved), atol=1e-5)
    assert back[1].shape == weight.shape
    small = upstream[:, :, :3, :3].contiguous()
    windows: tuple[Any, ...] = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    outputs, indices = kernels.max_pool2d(inputs, *windows)
    found = kernels.max_pool2d_backward(small, inputs, *windows, indices)
    (wanted,) = torch.autograd.grad((outputs * small).sum(), inputs)
    assert torch.equal(found, wanted)
    windows = ([2, 2], [2, 2], [0, 0], False, True, None)
    outputs = kernels.avg_pool2d(inputs, *windows)
    (wanted,) = torch.autograd.grad((outputs * small).sum(), inputs)
    assert torch.allclose(kernels.avg_pool2d_backward(small, inputs, *windows), wanted)


@pytest.mark.parametrize("turned", [False, True])
def test_onednn_multiplies_by_a_transpose(turned: bool) -> None:
    generator = torch.Generator().manual_seed(4)
    left, right = (torch.randn((37, n), generator=generator).t() for n in (20, 30))
    if not turned:
        left, right = left.contiguous(), right.contiguous()
    before = left.clone()
    found = torch_internals.onednn_product(left, right)
    assert found is not None
    assert found.shape == (20, 30)
    assert found.is_contiguous()
    assert torch.equal(left, before)
    wanted = left.double() @ right.double().t()
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-5)


def test_foreach_adds_copies_and_divides_each_tensor() -> None:
    tensors, others = [torch.ones(2), torch.zeros(3)], [torch.full((2,), 3.0), torch.ones(3)]
    torch_internals.foreach_add_(tensors, others, alpha=-2.0)
    assert [t[0].item() for t in tensors] == [-5.0, -2.0]
    torch_internals.foreach_div_(tensors, 2.0)
    assert [t[0].item() for t in tensors] == [-2.5, -1.0]
    torch_internals.foreach_copy_(tensors, others)
    assert [t[0].item() for t in tensors] == [3.0, 1.0]


def test_products_by_onednn_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(3)
    left, right = (torch.randn(s, generator=generator) for s in ((20, 300), (300, 40)))
    found = torch_internals.onednn_product(left, right.t())
    assert found is not None
    wanted = left.double() @ right.double()
    off = (found.double() - wanted).norm() / wanted.norm()
    assert off < 1e-6
    assert (left.double() @ right.flip(0).double() - wanted).norm() > 0.1 * wanted.norm()


def test_hooks_of_every_public_kind_are_seen() -> None:
    plain = nn.Linear(2, 2)
    assert not torch_internals.has_any_hooks(plain)
    kinds = {
        "register_forward_hook": (True, False),
        "register_forward_pre_hook": (True, False),
        "register_full_backward_hook": (True, True),
        "register_full_backward_pre_hook": (True, True),
        "register_load_state_dict_post_hook": (False, False),
    }
    for name, (passes, backward) in kinds.items():
        layer = nn.Linear(2, 2)
        getattr(layer, name)(lambda *given: None)
        assert torch_internals.has_any_hooks(layer), name
        assert torch_internals.has_pass_hooks(layer) == passes, name
        assert torch_internals.has_backward_hooks(layer) == backward, name
    weight = plain.weight
    assert not torch_internals.has_gradient_hooks(weight)
    weight.register_hook(lambda gradient: gradient)
    assert torch_internals.has_gradient_hooks(weight)
    bias = plain.bias
    assert not torch_internals.has_accumulation_hooks(bias)
    bias.register_post_accumulate_grad_hook(lambda parameter: None)
    assert torch_internals.has_accumulation_hooks(bias)


def test_a_change_in_place_moves_the_version_also_through_a_view() -> None:
    tensor = torch.zeros(3)
    before = torch_internals.version_of(tensor)
    tensor.detach()[:1].add_(1)
    assert torch_internals.version_of(tensor) > before


def test_tables_of_a_module_hold_its_parameters_buffers_and_children() -> None:
    layer = nn.BatchNorm1d(2)
    own = vars(layer)
    assert own.keys() >= torch_internals.MODULE_TABLES.keys()
    tables = {kind: own[name] for name, kind in torch_internals.MODULE_TABLES.items()}
    assert tables["parameter"].keys() == {"weight", "bias"}
    assert tables["buffer"].keys() == {"running_mean", "running_var", "num_batches_tracked"}
    assert vars(nn.Sequential(layer))["_modules"] == {"0": layer}
    assert vars(nn.LSTM(2, 2)).keys() >= set(torch_internals.REMADE)


def test_compiled_parts_are_told_by_members_that_exist() -> None:
    assert hasattr(nn.Linear(1, 1), "_compiled_call_impl")  # in use: test_model_checks.py


def test_spectral_norms_of_both_kinds_are_told() -> None:
    for wrap in (nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm):
        assert SpectralNorms(wrap(nn.Linear(3, 3))), wrap
    assert not SpectralNorms(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))


def test_common_bases_are_those_of_torch() -> None:
    assert torch_internals.BATCH_NORM is nn.modules.batchnorm._BatchNorm
    assert torch_internals.COUNTING_NORM is nn.modules.batchnorm._NormBase
    assert torch_internals.DROPOUT is nn.modules.dropout._DropoutNd


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_padding_and_convolution_are_those_of_torch(name: str) -> None:
    layer: nn.Conv2d = CONVOLUTIONS[name]()  # type: ignore[no-untyped-call]
    wanted = list(layer._reversed_padding_repeated_twice)
    assert list(torch_internals.padding_of(layer)) == wanted
    inputs = torch.randn((3, 2, 7, 8), generator=torch.Generator().manual_seed(3))
    found = torch_internals.convolution(layer, inputs, layer.weight, layer.bias)
    assert torch.equal(found, layer(inputs))


# --- Each member may be missing ---


class Hidden:
    """Hands out what another object has, but for one name."""

    def __init__(self, of: Any, name: str) -> None:
        self._of, self._name = of, name

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            raise AttributeError(f"no {name}")
        return getattr(self._of, name)


def trains_as_general(trainer: LocalTrainer) -> bool:
    task = Task(mlp)
    start, records = initial_vector(task, 0), images()
    wanted = LocalTrainer(task, SPEC).train(start, records, 1)
    return trainer.name == "general" and np.array_equal(trainer.train(start, records, 1), wanted)


@pytest.mark.parametrize(
    "kernel",
    ["threshold_backward", "convolution", "convolution_backward", "max_pool2d_with_indices",
     "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward"],
)  # fmt: skip
def test_without_a_kernel_the_general_trainer_trains(
    kernel: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose_trainer(Task(mlp), SPEC).name != "general"
    torch_internals.kernels.cache_clear()
    monkeypatch.setattr(torch_internals, "_ATEN", Hidden(torch.ops.aten, kernel))
    with caplog.at_level("INFO", "zerosum.client"):
        assert trains_as_general(choose_trainer(Task(mlp), SPEC))
    assert "lacks a kernel" in caplog.text


def test_without_onednn_large_products_are_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "mkl_is_narrow", lambda: True)
    left, right, out = torch.randn(200, 300), torch.randn(300, 400), torch.empty(200, 400)
    product = products.product_of(200, 300, 400, torch.float32)
    assert torch.allclose(product(left, right, out), left @ right, atol=1e-4)
    assert not out.equal(left @ right) or not torch.backends.mkldnn.is_available()
    monkeypatch.setattr(products, "onednn_product", lambda left, right: None)
    assert product(left, right, out) is out
    assert out.equal(left @ right)


@pytest.mark.parametrize(
    ("words", "capability", "narrow"),
    [
        ("vendor_id : AuthenticAMD", "AVX512", True),
        ("vendor_id : GenuineIntel", "AVX512", False),
        ("vendor_id : AuthenticAMD", "AVX2", False),
    ],
)
def test_width_of_products_follows_from_the_processor(
    words: str, capability: str, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_internals, "_processor_words", lambda: frozenset(words.split()))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert torch_internals.mkl_is_narrow() == (narrow and torch.backends.mkl.is_available())


@pytest.mark.parametrize("meaning", ["absent", "another"])
def test_without_the_product_of_onednn_large_products_are_those_of_torch(
    meaning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(left: Tensor, right: Tensor, *rest: Any) -> Tensor:
        return left + right if left.shape == right.shape else left @ right.t() + 1

    default = SimpleNamespace(default=plain) if meaning == "another" else SimpleNamespace()
    operators = SimpleNamespace(mkldnn=SimpleNamespace(_linear_pointwise=default))
    monkeypatch.setattr(torch, "ops", operators)
    torch_internals._onednn_linear.cache_clear()
    try:
        left, right = torch.randn(2, 3), torch.randn(4, 3)
        assert torch_internals.onednn_product(left, right) is None
        assert torch.equal(products.product_with_transpose(left, right), left @ right.t())
    finally:
        torch_internals._onednn_linear.cache_clear()


@pytest.mark.parametrize("table", ["_FORWARD_HOOKS", "_BACKWARD_HOOKS"])
def test_without_tables_of_hooks_every_fast_way_counts_a_model_as_hooked(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_internals, table, ("_elsewhere", "_elsewhere"))
    assert trains_as_general(choose_trainer(Task(mlp), SPEC))
    assert independent_examples.known_stages(nn.Linear(2, 2)) is None
    flat = flatten(mlp().double())
    clipped = ClippedGradients(flat, partial(nn.functional.cross_entropy, reduction="none"))
    inputs, targets = images()
    clipped.clipped_sum(inputs, targets, 0.1)
    assert clipped.way != "one pass"
    if table == "_BACKWARD_HOOKS":
        assert clipped.way == "loop"
        assert "Linear._elsewhere" in str(gradient_hook(nn.Linear(2, 2)))
        assert trains_as_general(BatchedTrainer(Task(mlp), SPEC))


def test_without_accumulation_hooks_a_model_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_internals, "_ACCUMULATION_HOOKS", "_elsewhere")
    assert trains_as_general(choose_trainer(Task(mlp), SPEC))


def test_without_versions_examples_are_vectorised(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(tensor: Tensor) -> int:
        raise MissingMember("no version")

    monkeypatch.setattr(independent_examples, "version_of", missing)
    model = nn.Sequential(nn.Flatten(), nn.Linear(120, CLASSES)).double()
    losses = partial(nn.functional.cross_entropy, reduction="none")
    clipped = ClippedGradients(flatten(model), losses, apart=True)
    clipped.clipped_sum(*images(), 0.1)
    assert clipped.way == "lone layers"


def test_without_apply_tensors_are_cast_by_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def cast(tensor: Tensor) -> Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor

    layer, other = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    wanted = torch_internals.map_tensors(layer, cast).state_dict()
    monkeypatch.delattr(nn.Module, "_apply")
    found = torch_internals.map_tensors(other, cast).state_dict()
    assert {n: t.dtype for n, t in found.items()} == {n: t.dtype for n, t in wanted.items()}
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_without_names_of_tables_state_is_found_as_attributes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = {"_elsewhere": "parameter"}
    monkeypatch.setattr("zerosum.client.training.restored_state.MODULE_TABLES", tables)
    model = nn.Sequential(nn.BatchNorm1d(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    snapshot = Snapshot(model)
    model(torch.randn(5, 2))
    assert any("running_mean" in str(moved) for moved in snapshot.put_back())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_without_tables_of_hooks_older_spectral_norms_are_not_found() -> None:
    assert torch_internals.forward_pre_hooks(SimpleNamespace()) == []  # type: ignore[arg-type]


def test_a_base_that_torch_gives_up_makes_every_layer_count() -> None:
    assert torch_internals._common_base(nn.Linear, nn.BatchNorm1d) is nn.Module


@pytest.mark.slow
def test_no_other_file_names_a_private_member_of_torch() -> None:
    owners = (torch, nn.Conv2d(1, 1, 1), nn.LSTM(1, 1), torch.zeros(1), nn.modules.batchnorm,
              nn.modules.dropout)  # fmt: skip
    tables = {key for owner in owners for key in vars(type(owner)) | getattr(owner, "__dict__", {})}
    found = []
    for part in zerosum.__path__:
        for path in Path(part).rglob("*.py"):
            if path.name == "torch_internals.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case (
                        ast.Attribute(value=ast.Name(id="self" | "cls"))
                        | ast.Attribute(value=ast.Call(func=ast.Name(id="super")))
                    ):
                        continue
                    case ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                        private = name.startswith("_") and not name.startswith("__")
                    case _:
                        continue
                if private and (name in tables or any(hasattr(o, name) for o in owners)):
                    found.append(f"{path.name}:{node.lineno} {name}")
    assert not found
