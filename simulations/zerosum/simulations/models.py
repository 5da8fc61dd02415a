"""Built-in models: linear, MLP, small CNN."""

from collections.abc import Sequence
from math import prod

from torch import nn

from zerosum.client.spec import ModelSpec
from zerosum.client.task import TaskError
from zerosum.client.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed


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
        If the model does not fit the inputs.
    """
    with seeded(derive_seed(seed, "model initialisation")):
        if spec.name == "linear":
            return mlp(prod(shape), [], outputs)
        if spec.name == "mlp":
            return mlp(prod(shape), spec.hidden, outputs)
        return cnn(shape, outputs)


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Module:
    """Return fully connected layers with ReLU between them; without ``hidden``, a linear model."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = inputs
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, outputs))


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
