"""Define a first layer that projects inputs on public directions, which nobody trains."""

import torch
from torch import nn


class Projection(nn.Module):
    """Maps inputs of shape (n, ...) to their coordinates along directions, shape (n, count).

    Directions are zero until they are found (see :mod:`zerosum.client.training.pca`); they travel
    before the trained parameters in the vector of a request.

    Parameters
    ----------
    inputs : int
        Entries of one input.
    count : int
        Directions.
    """

    def __init__(self, inputs: int, count: int) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.zeros(inputs, count), requires_grad=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the inputs' coordinates."""
        return inputs.flatten(1) @ self.directions


def projection_of(model: nn.Module) -> tuple[str, nn.Parameter] | None:
    """Return name and value of the directions that a model projects its inputs on, if it does."""
    for name, module in model.named_modules():
        if isinstance(module, Projection):
            return f"{name}.directions" if name else "directions", module.directions
    return None
