"""Draw the records that are attacked, for each client, and spare ones that no client holds."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import ClientInfo
from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.data import datasets
from zerosum.simulations.data.datasets import Collection
from zerosum.simulations.data.models import make_model


@dataclass(frozen=True)
class RecordsTask:
    """Records drawn by a seed, so many for each client."""

    spec: ModelSpec
    inputs: np.ndarray  # float32, (n, records, ...)
    labels: np.ndarray  # int64, (n, records)
    spare: datasets.Records
    classes: int
    seed: int

    @classmethod
    def drawn(
        cls, task: str, model: ModelSpec, shape: tuple[int, int], auxiliary: int, seed: int
    ) -> "RecordsTask":
        """Draw the clients' records, and others that no client holds.

        Parameters
        ----------
        task : str
            As :func:`collection_of` has it.
        model : ModelSpec
        shape : tuple of int
            Clients, and records of each.
        auxiliary : int
            Other records, at most.
        seed : int

        Raises
        ------
        ValueError
            If there are not so many records.
        """
        collection = collection_of(task)
        order = numpy_generator(seed, "attacked records").permutation(len(collection.train))
        count = shape[0] * shape[1]
        if count > len(order):
            raise ValueError(f"{count} records of {task}: there are {len(order)}")
        chosen = collection.train.take(order[:count])
        spare = collection.test.take(np.arange(min(auxiliary, len(collection.test))))
        return cls(
            model,
            chosen.inputs.reshape(*shape, *chosen.inputs.shape[1:]),
            chosen.targets.reshape(shape),
            spare,
            collection.classes or 1,
            seed,
        )

    def model(self) -> nn.Module:
        """Return the model, its weights drawn by the seed."""
        return make_model(self.spec, self.inputs.shape[2:], self.classes, self.seed)

    def data(self, client: ClientInfo) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a client's records."""
        return torch.tensor(self.inputs[client.index]), torch.tensor(self.labels[client.index])

    def test_data(self) -> None:
        """Return nothing: no model is tested here."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of each record.

        Parameters
        ----------
        outputs : Tensor
            Logits, shape (n, classes).
        targets : Tensor
            int64, shape (n,).

        Returns
        -------
        Tensor
            Shape (n,).
        """
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def collection_of(task: str) -> Collection:
    """Return the records of a data set that ships with a library.

    Parameters
    ----------
    task : str
        "mnist5k" or "digits".

    Returns
    -------
    Collection

    Raises
    ------
    ValueError
        For any other.
    """
    known = {"mnist5k": datasets.mnist5k, "digits": datasets.digits}
    if task not in known:
        raise ValueError(f"task = {task!r}: attacks are played on {', '.join(known)}")
    return known[task](DataSpec())
