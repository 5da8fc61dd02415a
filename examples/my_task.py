"""A task of one's own: handwritten digits of 8x8 pixels, dealt to clients like cards.

From this folder: ``zerosum run --set task=my_task:task``
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from zerosum.client import ClientInfo


class MyTask:
    """What zerosum asks of a task: a model, each client's data, public test data, a loss."""

    def __init__(self) -> None:
        digits = load_digits()
        self.inputs = torch.tensor(digits.data / 16, dtype=torch.float32)
        self.targets = torch.tensor(digits.target)

    def model(self) -> nn.Module:
        """Return a new model; zerosum seeds its initialisation."""
        return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

    def num_clients(self) -> int:
        """Return how many clients there are unless ``data.clients`` says otherwise."""
        return 100

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        """Return the records of one client: every ``count``-th of the first 1,500."""
        mine = slice(client.index, 1500, client.count)
        return self.inputs[mine], self.targets[mine]

    def test_data(self) -> tuple[Tensor, Tensor]:
        """Return the rest, which no client holds."""
        return self.inputs[1500:], self.targets[1500:]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return one loss per example."""
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


task = MyTask()
