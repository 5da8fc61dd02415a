"""Built-in models: linear, MLP, small CNN."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from zerosum.client.projection import Projection
from zerosum.client.spec import ModelSpec
from zerosum.client.task import TaskError, error_line
from zerosum.client.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed

MAX_PARAMETERS = 1 << 28
"""The longest vector that a client sends by default. Counted before anything is allocated: an \
absurd width would otherwise take the machine's memory with it."""


def make_model(spec: ModelSpec, shape: Sequence[int], outputs: int, seed: int) -> nn.Module:
    """Return the model that a spec names, initialised from the experiment's seed.

    Parameters
    ----------
    spec : ModelSpec
        Name and widths.
    shape : sequence of int
        Shape of one input: (features,) or (channels, height, width).
    outputs : int
        Width of the output layer.
    seed : int
        The experiment's seed.

    Raises
    ------
    TaskError
        If the model does not fit the inputs, or is larger than :data:`MAX_PARAMETERS`.
    """
    hidden = spec.hidden if spec.name == "mlp" else []
    try:
        inputs = prod(shape)
        if spec.name == "cnn" and len(shape) == 3:  # what its linear layer gets
            inputs = 32 * (shape[1] // 4) * (shape[2] // 4)
        if spec.components is not None:
            _check_inputs(spec, inputs)
            inputs = spec.components
        _check_size(spec, [inputs, *hidden, outputs])
        with seeded(derive_seed(seed, "model initialisation")):
            if spec.name == "cnn":
                model = cnn(shape, outputs)
            else:
                first = Projection(prod(shape), inputs) if spec.components else nn.Flatten()
                model = mlp(first, inputs, hidden, outputs, bias=spec.bias)
        return _zeroed(model) if spec.zero_output else model
    except TaskError:
        raise
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise TaskError(
            f"{_named(spec)} and inputs of shape {tuple(shape)} make no model: "
            f"{error_line(error)}; choose smaller widths"
        ) from error


def _check_inputs(spec: ModelSpec, inputs: int) -> None:
    if spec.inputs != inputs:
        raise TaskError(
            f"model.inputs = {spec.inputs}, and an input has {inputs} entries: write "
            f"model.inputs = {inputs}"
        )


def _zeroed(model: nn.Module) -> nn.Module:
    """Set the output layer, the last one, to zero."""
    *_, last = (module for module in model.modules() if isinstance(module, nn.Linear))
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return model


def _check_size(spec: ModelSpec, widths: list[int]) -> None:
    count = sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))
    if count > MAX_PARAMETERS:
        raise TaskError(
            f"{_named(spec)}, {widths[0]} inputs and {widths[-1]} outputs make {count} parameters; "
            f"allowed: {MAX_PARAMETERS}; choose smaller widths, or pool or drop inputs"
        )


def _named(spec: ModelSpec) -> str:
    if spec.name != "mlp":
        return f'model.name = "{spec.name}"'
    shown = str(spec.hidden)
    return f"model.hidden = {shown if len(shown) <= 80 else shown[:80] + '...'}"


def mlp(
    first: nn.Module, inputs: int, hidden: Sequence[int], outputs: int, *, bias: bool = True
) -> nn.Module:
    """Return fully connected layers with ReLU between them; without ``hidden``, a linear model.

    Parameters
    ----------
    first : nn.Module
        What makes vectors of length ``inputs`` of a batch.
    inputs, outputs : int
        Width before the first and after the last layer.
    hidden : sequence of int
        Widths between them.
    bias : bool
        Whether the last layer has one.
    """
    layers: list[nn.Module] = [first]
    width = inputs
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, outputs, bias=bias))


def cnn(shape: Sequence[int], outputs: int) -> nn.Module:
    """Return two 3x3 convolutions (16 and 32 channels), each halved by pooling, and a linear layer.

    Raises
    ------
    TaskError
        If the inputs are no images of at least 4x4 pixels.
    """
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise TaskError(
            f'model.name = "cnn" needs images of at least 4x4 pixels, and an input has shape '
            f'{tuple(shape)}; allowed here: "linear", "mlp"'
        )
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), outputs),
    )
