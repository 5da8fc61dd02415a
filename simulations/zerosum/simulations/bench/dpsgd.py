"""A DP-SGD step without its noise, beside the plain step, on one core: ours, and Opacus's.

``plain`` is the step that most people write, in float32: forward, ``loss.backward()`` and
``torch.optim.SGD``. Each method has the same model and batch, and its sum of clipped gradients is
compared with ours before anything is measured.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

from zerosum.client.task import error_line
from zerosum.client.training.flat_parameters import FlatModel, flatten
from zerosum.client.training.independent_examples import keeps_apart
from zerosum.client.training.per_example_clipping import ClippedGradients
from zerosum.client.training.sgd import Sgd
from zerosum.client.training.torch_seed import seeded
from zerosum.simulations.bench.process import BenchError, Values

CLASSES = 62
CLIP = 1.0
LEARNING_RATE = 1e-6

TURNS = 7
"""Turns of each method: a median of less moves with whatever else the machine does."""

_TOLERANCE = 1e-3
"""Difference from our sum, in parts of it. Opacus adds 1e-6 to each norm; a sum that is not clipped
differs by itself."""


@dataclass(frozen=True)
class Method:
    """One way to take a step: ``step`` takes it, ``total`` returns its clipped sum, shape (d,)."""

    step: Callable[[], None]
    total: Callable[[], torch.Tensor]


def mlp() -> nn.Module:
    """Return 784-200-62, the smaller network of federated EMNIST."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, CLASSES))


def cnn() -> nn.Module:
    """Return the network of McMahan et al. (2017): 5x5x32, 5x5x64, pooling, 512."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, CLASSES),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "cnn": cnn}


def run(
    batch: int = 100,
    seconds: float = 3.0,
    models: tuple[str, ...] = ("mlp", "cnn"),
    peers: str | None = None,
) -> Values:
    """Measure every method on every model, in turns.

    Parameters
    ----------
    batch : int
        Examples in a step.
    seconds : float
        CPU seconds for one method on one model, at least.
    models : tuple of str
        Keys of :data:`MODELS`.
    peers : str, optional
        A folder of packages that stand behind those installed.

    Returns
    -------
    dict
        ``rows``, each with method, model, batch, steps, ms (CPU time of a step) and the ratios
        to_plain and to_ours, medians of the ratios of one turn; ``missing``, why a method was left
        out.
    """
    torch.set_num_threads(1)
    if peers is not None:
        sys.path.append(peers)
    rows: list[Values] = []
    missing: dict[str, str] = {}
    for name in models:
        methods = dict(_methods(name, batch, missing))
        rows += [{"model": name, "batch": batch, **row} for row in _rows(methods, seconds)]
    return {"rows": rows, "missing": missing}


def _methods(name: str, batch: int, missing: dict[str, str]) -> Iterator[tuple[str, Method]]:
    inputs, targets = _batch(batch)
    yield "plain", _plain(name, inputs, targets)
    ours = _clipped(name, inputs, targets, torch.float32)
    ours.step()
    expected = ours.total().clone()
    yield "per-example", ours
    wide = _clipped(name, inputs.double(), targets, torch.float64)
    peers = {"opacus-hooks": _opacus_hooks, "opacus-ghost": _opacus_ghost}
    for method, make in {"per-example-float64": lambda *_: wide, **peers}.items():
        try:
            peer = make(name, inputs, targets)
            peer.step()
        except ImportError as error:
            missing[method] = f"{error}: install the extra opacus, or name a folder by --peers"
        except Exception as error:  # whatever a release of it runs into
            missing[method] = f"it fails: {error_line(error)}"
        else:
            difference = float((peer.total().float() - expected).norm() / expected.norm())
            if not difference < _TOLERANCE:
                raise BenchError(f"{method} has another sum than ours, by {difference:.2g} of it")
            yield method, peer


def _batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 1, 28, 28, generator=generator)
    return inputs, torch.randint(0, CLASSES, (count,), generator=generator)


@keeps_apart
def _losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def _model(name: str) -> nn.Module:
    with seeded(0):
        return MODELS[name]()


def _plain(name: str, inputs: torch.Tensor, targets: torch.Tensor) -> Method:
    model = _model(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return Method(step, lambda: _gradients(model, len(targets)))


def _clipped(name: str, inputs: torch.Tensor, targets: torch.Tensor, dtype: torch.dtype) -> Method:
    flat: FlatModel = flatten(_model(name).to(dtype))
    clipped = ClippedGradients(flat, _losses)
    sgd = Sgd(LEARNING_RATE / len(targets))

    def step() -> None:
        sgd.step(flat.weights, clipped.clipped_sum(inputs, targets, CLIP))

    return Method(step, lambda: flat.gradients)


def _opacus_hooks(name: str, inputs: torch.Tensor, targets: torch.Tensor) -> Method:
    """Return Opacus's default: a gradient an example by hooks, clipped and summed."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model: Any = GradSampleModule(_model(name))
    optimizer = DPOptimizer(**_noiseless(model, len(targets)))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return Method(step, lambda: _gradients(model, len(targets)))


def _opacus_ghost(name: str, inputs: torch.Tensor, targets: torch.Tensor) -> Method:
    """Return Opacus's ``grad_sample_mode="ghost"``: norms first, then a second backward pass.

    What ``PrivacyEngine.make_private`` wraps model, optimizer and loss in.
    """
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    model: Any = GradSampleModuleFastGradientClipping(
        _model(name), max_grad_norm=CLIP, use_ghost_clipping=True
    )
    optimizer = DPOptimizerFastGradientClipping(**_noiseless(model, len(targets)))
    losses = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss())

    def step() -> None:
        optimizer.zero_grad()
        losses(model(inputs), targets).backward()
        optimizer.step()

    return Method(step, lambda: _gradients(model, len(targets)))


def _noiseless(model: nn.Module, batch: int) -> Values:
    return {
        "optimizer": torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        "noise_multiplier": 0.0,
        "max_grad_norm": CLIP,
        "expected_batch_size": batch,
    }


def _gradients(model: nn.Module, batch: int) -> torch.Tensor:
    """Return the sum whose mean the last step left in a model."""
    parts = [value.grad for value in model.parameters() if value.grad is not None]
    return torch.cat([part.reshape(-1) for part in parts]) * batch


def _rows(methods: dict[str, Method], seconds: float) -> Iterator[Values]:
    """Let methods take turns, so that a busy machine is busy for all alike."""
    for method in methods.values():
        method.step()
    steps = dict.fromkeys(methods, 0)
    turns: list[dict[str, float]] = []
    for _ in range(TURNS if seconds else 1):
        turns.append({})
        for name, method in methods.items():
            turns[-1][name], taken = _mean_cpu(method.step, seconds / TURNS)
            steps[name] += taken
    for name in methods:
        yield {
            "method": name,
            "steps": steps[name],
            "ms": 1e3 * median(turn[name] for turn in turns),
            "ratio_to_plain": median(turn[name] / turn["plain"] for turn in turns),
            "ratio_to_ours": median(turn[name] / turn["per-example"] for turn in turns),
        }


def _mean_cpu(step: Callable[[], None], seconds: float) -> tuple[float, int]:
    """Return the CPU seconds of a step, and the number of steps that they are the mean of."""
    started, count, spent = time.process_time(), 0, 0.0
    while not count or spent < seconds:
        step()
        count += 1
        spent = time.process_time() - started
    return spent / count, count
