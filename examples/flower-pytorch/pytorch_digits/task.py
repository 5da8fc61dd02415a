"""Model, data and training: nothing here knows of Flower, or of privacy."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

TRAIN = 1_500


def make_model() -> nn.Module:
    """Return a new model for 8x8 digits; the first one of every run is the same."""
    with torch.random.fork_rng(devices=[]):  # nobody else's random numbers change by it
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def _digits() -> tuple[Tensor, Tensor]:
    found = load_digits()
    return torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)


def load_data(partition: int, partitions: int) -> TensorDataset:
    """Return one node's share of the training digits."""
    inputs, targets = _digits()
    mine = slice(partition, TRAIN, partitions)
    return TensorDataset(inputs[mine], targets[mine])


def train(model: nn.Module, data: TensorDataset, epochs: int, lr: float, seed: int) -> float:
    """Train in place and return the loss of the last batch."""
    order = torch.Generator().manual_seed(seed)
    loader = DataLoader(data, batch_size=32, shuffle=True, generator=order)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: nn.Module) -> float:
    """Return the accuracy on the digits that no node trains on."""
    inputs, targets = _digits()
    found = model(inputs[TRAIN:]).argmax(1)
    return (found == targets[TRAIN:]).float().mean().item()
