"""A DP-SGD step without its noise, beside the plain step, on one core: ours, and Opacus's hooks."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from zerosum.client.training.flat_parameters import FlatModel, flatten
from zerosum.client.training.independent_examples import keeps_apart
from zerosum.client.training.per_example_clipping import ClippedGradients
from zerosum.client.training.sgd import Sgd
from zerosum.client.training.torch_seed import seeded
from zerosum.simulations.bench.process import Values

CLASSES = 62
CLIP = 1.0
LEARNING_RATE = 1e-6

Step = Callable[[], None]


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


def run(batch: int = 100, seconds: float = 3.0, models: tuple[str, ...] = ("mlp", "cnn")) -> Values:
    """Measure every method on every model, in turns, and return the best time of each.

    Parameters
    ----------
    batch : int
        Examples in a step.
    seconds : float
        Time for one method on one model, at least.
    models : tuple of str
        Keys of :data:`MODELS`.

    Returns
    -------
    dict
        ``rows``, each with method, model, batch, ms and ratio_to_plain; ``missing``, why a method
        was left out.
    """
    torch.set_num_threads(1)
    rows: list[Values] = []
    missing: dict[str, str] = {}
    for name in models:
        steps = dict(_steps(name, batch, missing))
        best = _best_of_turns(steps, seconds)
        rows += [
            {
                "method": method,
                "model": name,
                "batch": batch,
                "ms": 1e3 * spent,
                "ratio_to_plain": spent / best["plain"],
            }
            for method, spent in best.items()
        ]
    return {"rows": rows, "missing": missing}


def _steps(name: str, batch: int, missing: dict[str, str]) -> Iterator[tuple[str, Step]]:
    inputs, targets = _batch(batch)
    yield "plain", _plain(_flat(name), inputs, targets)
    yield "per-example", _clipped(_flat(name), inputs, targets, layerwise=True)
    yield "torch.func", _clipped(_flat(name), inputs, targets, layerwise=False)
    try:
        yield "opacus", _opacus(name, inputs, targets)
    except ImportError as error:
        missing["opacus"] = f"{error}: install the extra opacus"


def _batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 1, 28, 28, generator=generator)
    return inputs, torch.randint(0, CLASSES, (count,), generator=generator)


def _flat(name: str) -> FlatModel:
    with seeded(0):
        return flatten(MODELS[name]())


@keeps_apart
def _losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def _plain(flat: FlatModel, inputs: torch.Tensor, targets: torch.Tensor) -> Step:
    def step() -> None:
        flat.gradients.zero_()
        losses = _losses(flat.model(inputs), targets)
        torch.autograd.backward(losses, torch.full_like(losses, 1 / len(losses)))
        Sgd(LEARNING_RATE).step(flat.weights, flat.gradients)

    return step


def _clipped(
    flat: FlatModel, inputs: torch.Tensor, targets: torch.Tensor, *, layerwise: bool
) -> Step:
    clipped = ClippedGradients(flat, _losses, layerwise=layerwise)

    def step() -> None:
        total = clipped.clipped_sum(inputs, targets, CLIP)
        Sgd(LEARNING_RATE / len(targets)).step(flat.weights, total)

    return step


def _opacus(name: str, inputs: torch.Tensor, targets: torch.Tensor) -> Step:
    """Return the step of Opacus: per-example gradients by hooks, clipped and summed."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    with seeded(0):
        model: Any = GradSampleModule(MODELS[name]())
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=len(targets),
    )

    def step() -> None:
        optimizer.zero_grad()
        losses = nn.functional.cross_entropy(model(inputs), targets)
        losses.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _best_of_turns(steps: dict[str, Step], seconds: float) -> dict[str, float]:
    """Return each step's shortest time; turns, so that a busy machine is busy for all alike."""
    for step in steps.values():
        step()
    best = dict.fromkeys(steps, float("inf"))
    spent = dict.fromkeys(steps, 0.0)
    while max(best.values()) == float("inf") or min(spent.values()) < seconds:
        for name, step in steps.items():
            if spent[name] >= seconds and best[name] < float("inf"):
                continue
            started = time.perf_counter()
            step()
            took = time.perf_counter() - started
            spent[name] += took
            best[name] = min(best[name], took)
    return best
