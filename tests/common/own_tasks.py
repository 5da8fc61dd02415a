"""Tasks of users' own that attacks are tried on: images, tables, and odd ones."""

import numpy as np
import torch
from torch import nn

CLIENTS = 8


class Images:
    """Colour images of 2 x 4 x 4 in three classes, each class with a mean of its own."""

    shape: tuple[int, ...] = (2, 4, 4)
    width = 48
    held = 24
    public = 120
    lowest, scale = 0.0, 1.0

    def __init__(self, **changed):
        for name, value in changed.items():
            setattr(self, name, value)
        rng = np.random.default_rng(5)
        count = CLIENTS * self.held + self.public
        self.labels = torch.tensor(rng.integers(0, 3, count))
        means = rng.uniform(0.2, 0.8, (3, *self.shape))
        noise = rng.normal(0, 0.15, (count, *self.shape))
        pixels = np.clip(means[self.labels.numpy()] + noise, 0, 1)
        self.inputs = torch.tensor(self.lowest + self.scale * pixels, dtype=torch.float32)

    def model(self):
        size = int(np.prod(self.shape))
        return nn.Sequential(
            nn.Flatten(), nn.Linear(size, self.width), nn.ReLU(), nn.Linear(self.width, 3)
        )

    def num_clients(self):
        return CLIENTS

    def data(self, client):
        mine = slice(client.index * self.held, (client.index + 1) * self.held)
        return self.inputs[mine], self.labels[mine]

    def test_data(self):
        if not self.public:
            return None
        return self.inputs[-self.public :], self.labels[-self.public :]

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


class Written(nn.Module):
    """The same model as code of one's own."""

    def __init__(self, size, width):
        super().__init__()
        self.second = nn.Linear(width, 3)
        self.first = nn.Linear(size, width)

    def forward(self, inputs):
        return self.second(torch.relu(self.first(inputs.flatten(1))))


class WrittenImages(Images):
    """Images whose model is a class, its layers declared in another order than they are called."""

    def model(self):
        return Written(int(np.prod(self.shape)), self.width)


class Values(Images):
    """Regression: values in place of classes."""

    shape = (6,)

    def model(self):
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))

    def data(self, client):
        inputs, _ = super().data(client)
        return inputs, inputs.sum(1)

    def test_data(self):
        inputs = self.inputs[-self.public :]
        return inputs, inputs.sum(1)

    def loss(self, outputs, targets):
        return (outputs.squeeze(1) - targets).square()


class Texts(Images):
    """Sequences of symbols: integers, which no gradient finds."""

    def model(self):
        return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))

    def data(self, client):
        rng = np.random.default_rng(client.index)
        return torch.tensor(rng.integers(0, 9, (self.held, 5))), super().data(client)[1]

    def test_data(self):
        rng = np.random.default_rng(99)
        return torch.tensor(rng.integers(0, 9, (self.public, 5))), super().test_data()[1]


class Named(nn.Module):
    """A model whose output is a dict."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 3)

    def forward(self, inputs):
        return {"logits": self.layer(inputs.flatten(1))}


class DictOutputs(Images):
    """A loss that reads a dict."""

    def model(self):
        return Named()

    def loss(self, outputs, targets):
        return super().loss(outputs["logits"], targets)


class DictInputs(Images):
    """Records of several tensors each."""

    def data(self, client):
        inputs, labels = super().data(client)
        return [({"a": row, "b": row}, label) for row, label in zip(inputs, labels, strict=True)]


class OneClass(Images):
    """One output, and every record of the one class."""

    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 1))

    def data(self, client):
        inputs, labels = super().data(client)
        return inputs, torch.zeros_like(labels)

    def loss(self, outputs, targets):
        return nn.functional.softplus(-outputs.squeeze(1))
