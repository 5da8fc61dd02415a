"""Built-in models: linear, MLP and small CNN; LSTM and transformer for text."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from zerosum.client.spec import ModelSpec
from zerosum.client.task import TaskError, error_line
from zerosum.client.training.projection import Projection
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed
from zerosum.simulations.data.text_models import Lstm, Transformer

MAX_PARAMETERS = 1 << 28
"""The longest vector that a client sends by default. Counted before anything is allocated: an \
absurd width would otherwise take the machine's memory with it."""


TEXT = ("lstm", "transformer")
"""Models whose inputs are symbols."""


def make_model(
    spec: ModelSpec, shape: Sequence[int], outputs: int, seed: int, *, text: bool = False
) -> nn.Module:
    """Return the model that a spec names, initialised from the experiment's seed.

    Parameters
    ----------
    spec : ModelSpec
        Name and widths.
    shape : sequence of int
        Shape of one input: (features,) or (channels, height, width).
    outputs : int
        Width of the output layer; of text, the symbols there are.
    seed : int
        The experiment's seed.
    text : bool
        Whether inputs are symbols of a sequence.

    Returns
    -------
    nn.Module
        Takes batches of shape (n, *shape), returns (n, outputs); of text (n, length, symbols).

    Raises
    ------
    TaskError
        If the model does not fit the inputs, or is larger than :data:`MAX_PARAMETERS`.
    """
    _check_kind(spec, text)
    hidden = spec.hidden if spec.name == "mlp" else []
    try:
        if text:
            _check_count(spec, _text_size(spec, outputs), f"{outputs} symbols")
            with seeded(derive_seed(seed, "model initialisation")):
                model = text_model(spec, outputs)
            return _zeroed(model) if spec.zero_output else model
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


def _check_kind(spec: ModelSpec, text: bool) -> None:
    if text != (spec.name in TEXT):
        found, allowed = ("text", TEXT) if text else ("numbers", ("linear", "mlp", "cnn"))
        raise TaskError(
            f'model.name = "{spec.name}": the inputs are {found}; allowed here: '
            + ", ".join(f'"{name}"' for name in allowed)
        )


def text_model(spec: ModelSpec, symbols: int) -> nn.Module:
    """Return the model of text that a spec names.

    Parameters
    ----------
    spec : ModelSpec
        Name and widths.
    symbols : int
        Of the alphabet.

    Returns
    -------
    nn.Module
        From int64 (n, length) to float (n, length, symbols).

    Raises
    ------
    TaskError
        If the blocks of a transformer differ in width.
    """
    if spec.name == "lstm":
        return Lstm(symbols, spec.hidden)
    if len(set(spec.hidden)) != 1:
        raise TaskError(f'{_named(spec)}: the blocks of "transformer" are all as wide; write so')
    return Transformer(symbols, spec.hidden[0], len(spec.hidden))


def _text_size(spec: ModelSpec, symbols: int) -> int:
    """Return roughly how many parameters a model of text has, and no fewer."""
    first, last = spec.hidden[0], spec.hidden[-1]
    fed = [first, *spec.hidden[:-1]]
    layers = sum(
        8 * width * max(width, below) + 9 * width
        for below, width in zip(fed, spec.hidden, strict=True)
    )
    return symbols * (first + last + 1) + layers


def _check_size(spec: ModelSpec, widths: list[int]) -> None:
    count = sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))
    _check_count(spec, count, f"{widths[0]} inputs and {widths[-1]} outputs")


def _check_count(spec: ModelSpec, count: int, ends: str) -> None:
    if count > MAX_PARAMETERS:
        raise TaskError(
            f"{_named(spec)}, {ends} make {count} parameters; allowed: {MAX_PARAMETERS}; choose "
            "smaller widths, or pool or drop inputs"
        )


def _named(spec: ModelSpec) -> str:
    if spec.name not in ("mlp", *TEXT):
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

    Returns
    -------
    nn.Module
        Returns shape (n, outputs).
    """
    layers: list[nn.Module] = [first]
    width = inputs
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, outputs, bias=bias))


def cnn(shape: Sequence[int], outputs: int) -> nn.Module:
    """Return two 3x3 convolutions (16 and 32 channels), each halved by pooling, and a linear layer.

    Parameters
    ----------
    shape : sequence of int
        Of one image: (channels, height, width).
    outputs : int
        Classes.

    Returns
    -------
    nn.Module
        Returns shape (n, outputs).

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
