"""The workload that engines are compared on: many small clients, synthetic, the same for all.

Records stand in files that every engine maps into its memory: they are made once, and held once
however many processes read them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import ClientInfo
from zerosum.secagg.randomness import numpy_generator

if TYPE_CHECKING:
    import torch
    from torch import nn

SHAPE = (1, 28, 28)
CLASSES = 62
BATCH = 20
LEARNING_RATE = 0.1

FLOAT32 = "float32"

STORED_CLIENTS = 1000
"""Clients whose records are made and stored: 314 MB at a hundred records each."""

_INPUTS, _TARGETS = "inputs.npy", "targets.npy"
_BLOCK = 50


@dataclass(frozen=True)
class Workload:
    """Federated averaging: an epoch or more of SGD at each client of a cohort.

    Parameters
    ----------
    model : str
        ``"mlp"`` or ``"cnn"``.
    folder : str
        Where :meth:`write` put the records.
    clients, records, cohort : int
        Clients, records of each, clients in a round. Clients beyond :data:`STORED_CLIENTS` have the
        records of those: a population of any size costs no time to make and no memory to hold.
    rounds : int
        Rounds that will be asked for.
    seed : int
        Of records, model and cohorts.
    device : str
        Where to train: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    trainer : str
        Local training of our rows, as the configuration names it.
    epochs : int
        Passes of a client over its records.
    precision : str
        Of our rows, as the configuration names it.
    """

    model: str
    folder: str
    clients: int = 1000
    records: int = 100
    cohort: int = 100
    rounds: int = 7
    seed: int = 0
    device: str = "cpu"
    trainer: str = "auto"
    epochs: int = 1
    precision: str = FLOAT32

    def write(self) -> None:
        """Make the records, those of a few clients at a time."""
        rng = numpy_generator(self.seed, "bench records")
        path, stored = Path(self.folder), min(self.clients, STORED_CLIENTS)
        inputs = np.lib.format.open_memmap(
            path / _INPUTS, "w+", np.float32, (stored, self.records, *SHAPE)
        )
        for start in range(0, stored, _BLOCK):
            block = inputs[start : start + _BLOCK]
            rng.random(out=block, dtype=np.float32)
        inputs.flush()
        np.save(path / _TARGETS, rng.integers(0, CLASSES, (stored, self.records)))

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return inputs, shape (stored, records, 1, 28, 28), and targets, (stored, records).

        ``stored`` is the number of clients, and at most :data:`STORED_CLIENTS`.
        """
        # Copy on write, because torch wants what it could write to; nobody does.
        inputs = np.load(Path(self.folder) / _INPUTS, mmap_mode="c")
        return inputs, np.load(Path(self.folder) / _TARGETS)

    def tensors(self) -> "list[tuple[torch.Tensor, torch.Tensor]]":
        """Return the records of each client: views of the mapped files."""
        import torch

        inputs, targets = map(torch.from_numpy, self.arrays())
        stored = list(zip(inputs, targets, strict=True))
        return [stored[index % len(stored)] for index in range(self.clients)]

    def network(self) -> "nn.Module":
        """Return the model, initialised from the seed."""
        from zerosum.client.training.torch_seed import seeded
        from zerosum.simulations.bench.dpsgd import MODELS

        with seeded(self.seed):
            return MODELS[self.model]()

    def cohorts(self) -> np.random.Generator:
        """Return the generator that draws cohorts and batches, for engines that draw none."""
        return numpy_generator(self.seed, "bench cohorts")

    def flops(self) -> float:
        """Return the floating-point operations of one round.

        Those of the products and convolutions of forward and backward pass, a multiplication and
        an addition counted as two; nothing for the gradient of the inputs, which nobody asks for.
        """
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            self.network()(torch.zeros(1, *SHAPE)).sum().backward()
        return float(counter.get_total_flops()) * self.cohort * self.records * self.epochs


class WorkloadTask:
    """The workload as a task: ``data.path``, ``data.clients`` and ``model.name`` say which."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._data = workload.tensors()

    @classmethod
    def from_specs(cls, data: DataSpec, model: ModelSpec, seed: int) -> Self:
        """Map the records of a folder that :meth:`Workload.write` filled.

        Parameters
        ----------
        data : DataSpec
            ``path`` is the folder, ``clients`` how many there are.
        model : ModelSpec
            ``name``.
        seed : int
            Of the initial model and the cohorts.

        Returns
        -------
        WorkloadTask
            The task.

        Raises
        ------
        ValueError
            If no folder is named, or no number of clients.
        """
        if not isinstance(data.path, str) or data.clients is None:
            raise ValueError("data.path is the folder of the records of data.clients clients")
        return cls(Workload(model.name, data.path, data.clients, seed=seed))

    def num_clients(self) -> int:
        """Return how many clients there are."""
        return len(self._data)

    def model(self) -> "nn.Module":
        """Return the network of the workload."""
        return self._workload.network()

    def data(self, client: ClientInfo) -> "tuple[torch.Tensor, torch.Tensor]":
        """Return the records of a client."""
        return self._data[client.index]

    def test_data(self) -> None:
        """Return nothing: only training is measured."""

    def loss(self, outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        """Return cross-entropy, shape (n,).

        Parameters
        ----------
        outputs : torch.Tensor
            Logits, shape (n, 62).
        targets : torch.Tensor
            Class indices, shape (n,).

        Returns
        -------
        torch.Tensor
            Shape (n,).
        """
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, targets, reduction="none")
