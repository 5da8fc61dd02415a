"""View each kind of data set that a Task may return as a length and batches by index."""

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from zerosum.client.task import TaskError
from zerosum.secagg.randomness import Keystream

if TYPE_CHECKING:
    from zerosum.client.task import Dataset


class Examples(Protocol):
    """Inputs and targets that can be taken by index.

    Whatever batch is handed out is the receiver's own: models, losses and metrics may work in
    place, and the records are the user's.
    """

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def take(self, indices: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return the batch (inputs, targets) at int64 indices of shape (n,)."""
        ...

    def all(self) -> tuple[Any, torch.Tensor]:
        """Return every example, in order."""
        ...


@dataclass(frozen=True)
class TensorExamples:
    """Two tensors with one row an example, each batch cast and moved as it is taken."""

    inputs: torch.Tensor = field(repr=False)
    targets: torch.Tensor = field(repr=False)
    dtype: torch.dtype
    device: torch.device

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return rows by index."""
        return self._moved(self.inputs[indices]), self._moved(self.targets[indices])

    def all(self) -> tuple[Any, torch.Tensor]:
        """Return all rows, in order."""
        inputs, targets = self.shared()
        return _apart(inputs, self.inputs), _apart(targets, self.targets)

    def shared(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all rows without a copy where they are as wanted: to be read, by our own code."""
        return self._moved(self.inputs), self._moved(self.targets)

    def _moved(self, part: torch.Tensor) -> torch.Tensor:
        moved: torch.Tensor = _move(part, self.dtype, self.device)
        return moved


@dataclass(frozen=True)
class SubsetExamples:
    """Some rows of tensors that hold more, gathered only as they are taken."""

    whole: TensorExamples
    rows: torch.Tensor = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, indices: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return rows by index."""
        return self.whole.take(self.rows[indices])

    def all(self) -> tuple[Any, torch.Tensor]:
        """Return all rows."""
        return self.whole.take(self.rows)

    def shared(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all rows, which have to be gathered."""
        return self.whole.take(self.rows)


@dataclass(frozen=True)
class DatasetExamples:
    """A map-style torch Dataset of pairs (input, target), collated as a DataLoader would.

    With ``alike``, a batch whose items differ in structure, shape or dtype is refused: collation
    would have one item decide which keys and dtype the others are given.
    """

    dataset: Any = field(repr=False)
    dtype: torch.dtype
    device: torch.device
    alike: bool = False

    def __len__(self) -> int:
        return len(self.dataset)

    def take(self, indices: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return items by index, collated."""
        items = [plain(self.dataset[i]) for i in indices.tolist()]
        for item in items:
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise TaskError(_no_pair(item))
        if self.alike and any(_form(item) != _form(items[0]) for item in items[1:]):
            raise TaskError("data: a batch has items of different structure, shape or dtype")
        inputs, targets = default_collate(items)
        if not isinstance(targets, torch.Tensor):
            raise TaskError(
                f"data: a target is {_described(items[0][1])}: give numbers, one tensor an item "
                "(of several, torch.stack), and take it apart in loss()"
            )
        return _move(inputs, self.dtype, self.device), _move(targets, self.dtype, self.device)

    def all(self) -> tuple[Any, torch.Tensor]:
        """Return every item, collated."""
        return self.take(torch.arange(len(self)))


def as_examples(
    dataset: "Dataset", dtype: torch.dtype, device: torch.device, *, alike: bool = False
) -> Examples:
    """Wrap a data set; floating-point tensors are cast to ``dtype``, integers kept.

    Parameters
    ----------
    dataset : torch Dataset or pair of tensors or arrays
        The records.
    dtype : torch.dtype
        Of floating-point inputs and targets.
    device : torch.device
        Where batches go.
    alike : bool
        Refuse batches whose items differ in form, where no item may decide over others.

    Returns
    -------
    examples : Examples
        Hands out batches of the data set, by index.

    Raises
    ------
    TaskError
        If it is neither a pair of tensors or arrays of one length nor a map-style Dataset.
    """
    # Exactly these types: a subclass may give other items than its tensors.
    if type(dataset) is Subset and type(dataset.dataset) is TensorDataset:
        whole = as_examples(dataset.dataset, dtype, device)
        if isinstance(whole, TensorExamples):
            return SubsetExamples(whole, torch.as_tensor(dataset.indices))
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        dataset = (dataset.tensors[0], dataset.tensors[1])
    if isinstance(dataset, tuple | list) and _is_pair(dataset):
        inputs, targets = (_tensor(part) for part in dataset)
        if len(inputs) != len(targets):
            raise TaskError(
                f"data: {len(inputs)} inputs and {len(targets)} targets; give one target an input"
            )
        return TensorExamples(inputs, targets, dtype, device)
    reason = _not_by_index(dataset)
    if reason is not None:
        raise TaskError(f"data: {reason}")
    return DatasetExamples(dataset, dtype, device, alike)


def _not_by_index(dataset: Any) -> str | None:
    """Return why a data set's records cannot be had by index, and what to return instead."""
    if isinstance(dataset, DataLoader):
        return (
            "a DataLoader makes batches of its own: return what it loads, loader.dataset, and set "
            "training.batch_size"
        )
    if isinstance(dataset, IterableDataset):
        return (
            f"{type(dataset).__name__} is an IterableDataset, whose records have no places, and "
            "batches are drawn by place: return list(dataset), or tensors"
        )
    if isinstance(dataset, Mapping):
        return (
            f"{_described(dataset)}, and what is wanted is a pair (inputs, targets): return two of "
            "its values; of a dict of splits, one split"
        )
    if type(dataset).__module__.partition(".")[0] == "pandas":
        return (
            f"a pandas {type(dataset).__name__}: return a pair of arrays, as "
            '(frame[features].to_numpy(), frame["label"].to_numpy())'
        )
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return None
    return (
        f"{type(dataset).__name__} is neither a pair (inputs, targets) of tensors nor a torch "
        "Dataset with __len__ and __getitem__"
    )


def _no_pair(item: Any) -> str:
    cure = "return (input, target) from __getitem__"
    if isinstance(item, Mapping):
        last = list(item)[-1] if item else "label"
        cure = f"return pairs, as (item, item.pop({last!r})), from __getitem__"
    elif isinstance(item, tuple | list):
        cure = "return ((a, b, ...), target) from __getitem__, and take the first apart in forward"
    return f"data: an item is {_described(item)}, and no pair (input, target): {cure}"


def _described(part: Any) -> str:
    if isinstance(part, Mapping):
        return f"a {type(part).__name__} with the keys {', '.join(map(str, part))}"
    if isinstance(part, tuple | list):
        return f"a {type(part).__name__} of {len(part)} parts"
    return f"a {type(part).__name__}"


def _is_pair(dataset: Sequence[Any]) -> bool:
    """Tell a pair of arrays from two records in a list."""
    return len(dataset) == 2 and not all(isinstance(part, tuple | list) for part in dataset)


def _tensor(part: Any) -> torch.Tensor:
    if isinstance(part, torch.Tensor):
        tensor: torch.Tensor = plain(part)
        return tensor
    if isinstance(part, np.ndarray):
        return torch.tensor(part)
    raise TaskError(
        f"data: {_described(part)} is neither a tensor nor a numpy array: give two of these, or a "
        "list of (input, target)"
    )


def _apart(part: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Return a tensor in memory of its own: a cast or a move has made one, or none was needed."""
    same = part.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
    return part.clone() if same else part


def _move(part: Any, dtype: torch.dtype, device: torch.device) -> Any:
    return _each(part, lambda t: t.to(device, dtype if t.is_floating_point() else t.dtype))


def _each(part: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a structure with each tensor changed: dicts and namedtuples of the kind they are."""
    if isinstance(part, torch.Tensor):
        return change(part)
    if isinstance(part, Mapping):
        values = {key: _each(value, change) for key, value in part.items()}
        if type(part) is dict or not isinstance(part, MutableMapping):
            return values
        copied_part = copy.copy(part)
        copied_part.update(values)
        return copied_part
    if isinstance(part, tuple | list):
        items = [_each(value, change) for value in part]
        if hasattr(part, "_fields"):
            return type(part)(*items)
        return tuple(items) if isinstance(part, tuple) else items
    return part


def plain(part: Any) -> Any:
    """Return what a data set gives with plain tensors in it.

    A tensor's subclass brings code of its own, which would be run on whole batches.
    """
    if isinstance(part, torch.Tensor):
        return part if type(part) is torch.Tensor else part.as_subclass(torch.Tensor)
    if type(part) is dict:
        return {key: plain(value) for key, value in part.items()}
    if type(part) in (tuple, list):
        return type(part)(plain(value) for value in part)
    return part


def moved(part: Any, device: torch.device) -> Any:
    """Return a batch's inputs or targets on a device, in the dtypes they have.

    Parameters
    ----------
    part : tensor or structure of tensors
        A batch, examples along dimension 0.
    device : torch.device
        Where to.

    Returns
    -------
    tensor or structure of tensors
        Of the same form.
    """
    return _each(part, lambda t: t.to(device))


def copied(part: Any) -> Any:
    """Return a batch's inputs, targets or outputs for somebody who may work in place."""
    return _each(part, torch.Tensor.clone)


def rows_of(part: Any, rows: torch.Tensor) -> Any:
    """Return some rows of a batch's inputs, by index.

    Parameters
    ----------
    part : tensor or structure of tensors
        A batch, examples along dimension 0.
    rows : torch.Tensor
        int64, shape (k,).

    Returns
    -------
    tensor or structure of tensors
        Of the same form, k examples.
    """
    return _each(part, lambda t: t[rows])


def _form(item: Any) -> Any:
    """Return all that collation reads from an item but its values."""
    if isinstance(item, torch.Tensor | np.ndarray):
        return type(item), item.dtype, tuple(item.shape)
    if isinstance(item, Mapping):
        return type(item), {key: _form(value) for key, value in item.items()}
    if isinstance(item, tuple | list):
        return type(item), [_form(value) for value in item]
    return type(item)


def draw(count: int, rate: float, coins: Keystream) -> torch.Tensor:
    """Draw a Poisson sample of indices below ``count``: each by its own coin.

    Parameters
    ----------
    count : int
        Examples there are.
    rate : float
        Probability with which each is drawn.
    coins : Keystream
        Secret from everybody else: the sample is what amplifies privacy.

    Returns
    -------
    torch.Tensor
        int64, shape (drawn,), ascending.
    """
    return torch.from_numpy(np.flatnonzero(coins.uniform(count) < rate))
