"""Data sets that are taken, and the messages that refuse others."""

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from zerosum.client.task import TaskError
from zerosum.client.training.examples import as_examples, moved, rows_of

X, Y = torch.arange(8.0).view(4, 2), torch.tensor([0, 1, 0, 1])
CPU = torch.device("cpu")


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(X, Y, strict=True))


class LongStream(Stream):
    """Tells a length, as many do for progress bars: it has no places all the same."""

    def __len__(self) -> int:
        return 4


class Rows:
    """Rows of one dict, as Hugging Face's data sets give them."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"text": X[place], "label": int(Y[place])}


Frame = type("DataFrame", (dict,), {"__module__": "pandas.core.frame"})
Series = type("Series", (), {"__module__": "pandas.core.series", "__len__": lambda self: 4})

REFUSED: dict[str, tuple[Any, str]] = {
    "DataLoader": (DataLoader(TensorDataset(X, Y), 2), "loader.dataset"),
    "stream": (Stream(), "Stream is an IterableDataset.*return list"),
    "stream that tells a length": (LongStream(), "LongStream is an IterableDataset"),
    "dict of arrays": ({"x": X, "y": Y}, "a dict with the keys x, y.*return two of its values"),
    "dict of splits": (collections.OrderedDict(train=Rows()), "keys train.*one split"),
    "pandas series": (Series(), "a pandas Series: return a pair of arrays"),
    "rows of one dict": (Rows(), r"keys text, label.*\(item, item.pop\('label'\)\)"),
    "three tensors": (TensorDataset(X, X, Y), r"a tuple of 3 parts.*\(\(a, b, ...\), target\)"),
    "one tensor": (TensorDataset(X), "a tuple of 1 parts"),
    "a matrix": (X, "an item is a Tensor, and no pair"),
    "a matrix of two rows": (X[:2], "an item is a Tensor, and no pair"),
    "targets of several parts": ([(X[0], (1, 2)), (X[1], (1, 2))], "a target is a tuple of 2"),
    "targets in words": ([(X[0], "cat"), (X[1], "dog")], "a target is a str"),
    "targets in a dict": ([(X[0], {"a": 1}), (X[1], {"a": 1})], "a dict with the keys a"),
    "a dict of inputs": (({"a": X}, Y), r"a dict with the keys a.*list of \(input, target\)"),
    "nothing": (None, "NoneType is neither"),
    "a generator": (zip(X, Y, strict=True), "zip is neither"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_forms_of_data_are_refused_in_one_line_with_the_cure(name: str) -> None:
    dataset, said = REFUSED[name]
    with pytest.raises(TaskError, match=said) as caught:
        as_examples(dataset, torch.float32, CPU).take(torch.arange(2))
    assert "\n" not in str(caught.value)


Pair = collections.namedtuple("Pair", ["left", "right"])


def test_namedtuples_and_dicts_keep_their_kind_as_a_data_loader_keeps_it() -> None:
    items: Any = [
        (Pair(x, collections.OrderedDict(a=x.double())), y) for x, y in zip(X, Y, strict=True)
    ]
    inputs, targets = as_examples(items, torch.float32, CPU).take(torch.tensor([2, 0]))
    assert type(inputs) is Pair
    assert type(inputs.right) is collections.OrderedDict
    assert inputs.right["a"].dtype == torch.float32
    np.testing.assert_array_equal(inputs.left, X[[2, 0]])
    np.testing.assert_array_equal(targets, Y[[2, 0]])
    some = rows_of(moved(inputs, CPU), torch.tensor([1]))
    np.testing.assert_array_equal(some.right["a"], X[[0]])
