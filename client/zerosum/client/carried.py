"""State that a pass over some examples could carry on to others, and how it is put back.

Centres, queues, codebooks, counters: what a model moves while it computes would let an example
reach those after it, and no clip bounds that. So all that can be found of it is put back after
every pass, and each is computed from the same state. Found are parameters, buffers and attributes
of modules and of the task, through containers and objects, and class attributes. Not found is what
lies elsewhere: in globals, closures, defaults of functions, files, iterators, slots, or a task's
large arrays and containers.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

Kind = Literal["parameter", "buffer", "attribute"]

LARGEST = 1 << 14
"""Entries of a task's arrays that are kept: its records are larger, and are not looked at."""

_DEEP = 1000
"""Items of a task's containers: of those with more, what the items hold is not looked at."""

_TABLES: dict[str, Kind] = {"_parameters": "parameter", "_buffers": "buffer"}
_REMADE = ("_flat_weights", "_flat_weight_refs")
"""Lists of a recurrent module's parameters, which torch makes anew whenever it is called."""

_ATOMS = (int, float, complex, str, bytes, bool, type(None))
_CODE = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)


@dataclass(frozen=True)
class Moved:
    """Something that was not as before.

    Attributes
    ----------
    kind : str
        "parameter", "buffer" or "attribute".
    name : str
        Path from the model, or from the task.
    """

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


PutBack = Callable[[], Iterator[Moved]]


class Snapshot:
    """What a model and its task hold now.

    Parameters
    ----------
    model : nn.Module or None
        Kept whole.
    others : objects
        The task, or whatever else a loss may belong to: kept without large arrays.
    """

    def __init__(self, model: nn.Module | None, *others: Any) -> None:
        self._kept: list[PutBack] = []
        self._seen: set[int] = set()
        self._alive: list[Any] = []  # an id is one object's only as long as that lives
        self._largest = self._deep = math.inf
        self._walk(model, "", "attribute")
        self._largest, self._deep = LARGEST, _DEEP
        for other in others:
            self._walk(other, type(other).__name__, "attribute")

    def put_back(self) -> list[Moved]:
        """Put everything back, and return what had moved."""
        with torch.no_grad():
            return [moved for back in self._kept for moved in back()]

    def _walk(self, value: Any, name: str, kind: Kind) -> None:
        if isinstance(value, (*_ATOMS, *_CODE)) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._alive.append(value)
        if isinstance(value, torch.Tensor):
            if value.numel() <= self._largest and not nn.parameter.is_lazy(value):
                kept = value.detach().clone()
                self._kept.append(lambda: _tensor_back(value, kept, Moved(kind, name)))
        elif isinstance(value, np.ndarray):
            if value.size <= self._largest and value.flags.writeable:
                copy = value.copy()
                self._kept.append(lambda: _array_back(value, copy, Moved(kind, name)))
        elif (generator := _generator_back(value)) is not None:
            self._kept.append(generator)
        elif isinstance(value, dict):
            self._walk_table(value, name, kind)
        elif isinstance(value, list | deque | set | bytearray | tuple | frozenset):
            self._walk_items(value, name, kind)
        else:
            self._walk_object(value, name, kind)

    def _walk_items(self, value: Any, name: str, kind: Kind) -> None:
        items = list(value)
        if not isinstance(value, tuple | frozenset):
            self._kept.append(lambda: _items_back(value, items, Moved(kind, name)))
        for place, item in enumerate(items if len(items) <= self._deep else ()):
            self._walk(item, f"{name}[{place}]", kind)

    def _walk_table(self, table: dict[Any, Any], name: str, kind: Kind, dot: str = "") -> None:
        items = dict(table)
        self._kept.append(lambda: _table_back(table, items, name, kind, dot))
        for key, item in (items if len(items) <= self._deep else {}).items():
            self._walk(item, _path(name, key, dot), kind)

    def _walk_object(self, value: Any, name: str, kind: Kind) -> None:
        own = getattr(value, "__dict__", None)
        if not isinstance(own, dict):
            return
        tables = {"_modules": kind} | _TABLES if isinstance(value, nn.Module) else {}
        for key, inner in tables.items():
            self._seen.add(id(own[key]))
            self._alive.append(own[key])
            self._walk_table(own[key], name, inner, ".")
        if isinstance(value, nn.Module):
            self._walk_empty({k: t for k, t in own.items() if isinstance(t, dict) and not t}, name)
        self._walk_table(own, name, kind, ".")
        for base in type(value).__mro__[:-1]:
            if base.__module__.partition(".")[0] not in ("torch", "builtins", "typing", "abc"):
                self._walk_class(base)

    def _walk_empty(self, tables: dict[str, dict[Any, Any]], name: str) -> None:
        """Keep the many tables of a module that are empty, of hooks most of all, at once."""
        self._seen.update(map(id, tables.values()))
        self._alive.append(tables)
        self._kept.append(lambda: _emptied(tables, name))

    def _walk_class(self, base: type) -> None:
        if id(base) in self._seen:
            return
        self._seen.add(id(base))
        items = {key: item for key, item in vars(base).items() if _is_data(key, item)}
        self._kept.append(lambda: _class_back(base, items))
        for key, item in items.items():
            self._walk(item, f"{base.__name__}.{key}", "attribute")


def _path(name: str, key: Any, dot: str) -> str:
    if not dot:
        return f"{name}[{key!r}]"
    return f"{name}{dot}{key}" if name else str(key)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    atoms = type(one) is type(other) and isinstance(one, _ATOMS)
    return atoms and (one == other or (one != one and other != other))


def _tensor_back(value: torch.Tensor, kept: torch.Tensor, moved: Moved) -> Iterator[Moved]:
    if value.shape == kept.shape and value.dtype == kept.dtype:
        if torch.equal(value, kept) or bool(
            ((value == kept) | (kept != kept) & (value != value)).all()
        ):
            return
        value.detach().copy_(kept)
    else:
        value.data = kept.clone()
    yield moved


def _array_back(value: np.ndarray, kept: np.ndarray, moved: Moved) -> Iterator[Moved]:
    if value.tobytes() != kept.tobytes():
        value[...] = kept
        yield moved


def _generator_back(value: Any) -> PutBack | None:
    """Return what rewinds a generator: with coins of its own, all examples are given the same."""
    rewind: Callable[[], object]
    if type(value) is torch.Generator:
        coins = value.get_state()
        rewind = lambda: value.set_state(coins)  # noqa: E731
    elif isinstance(value, np.random.Generator):
        state = value.bit_generator.state
        rewind = lambda: setattr(value.bit_generator, "state", state)  # noqa: E731
    elif isinstance(value, random.Random):
        inner = value.getstate()
        rewind = lambda: value.setstate(inner)  # noqa: E731
    else:
        return None

    def back() -> Iterator[Moved]:
        rewind()
        return iter(())

    return back


def _items_back(value: Any, kept: list[Any], moved: Moved) -> Iterator[Moved]:
    now = list(value)
    if isinstance(value, set):
        same = {id(item) for item in now} == {id(item) for item in kept} or value == set(kept)
    else:
        same = len(now) == len(kept) and all(map(_same, now, kept))
    if not same:
        value.clear()
        value.update(kept) if isinstance(value, set) else value.extend(kept)
        yield moved


def _emptied(tables: dict[str, dict[Any, Any]], name: str) -> Iterator[Moved]:
    for key, table in tables.items():
        if table:
            table.clear()
            yield Moved("attribute", _path(name, key, "."))


def _table_back(
    table: dict[Any, Any], kept: dict[Any, Any], name: str, kind: Kind, dot: str
) -> Iterator[Moved]:
    changed = [
        key
        for key in kept | table
        if key not in _REMADE
        and (key not in kept or key not in table or not _same(table[key], kept[key]))
    ]
    if not changed:
        return
    if kept.keys() == table.keys():
        table.update({key: kept[key] for key in changed})
    else:  # the order is part of it
        table.clear()
        table.update(kept)
    for key in changed:
        yield Moved(kind, _path(name, key, dot))


def _class_back(base: type, kept: dict[str, Any]) -> Iterator[Moved]:
    now = {key: item for key, item in vars(base).items() if _is_data(key, item)}
    for key in kept | now:
        if key not in kept:
            delattr(base, key)
        elif key not in now or not _same(now[key], kept[key]):
            setattr(base, key, kept[key])
        else:
            continue
        yield Moved("attribute", f"{base.__name__}.{key}")


def _is_data(key: str, item: Any) -> bool:
    """Tell an attribute of a class that holds something from what the class is made of."""
    made = isinstance(item, _CODE) or hasattr(type(item), "__get__")
    return not made and not key.startswith(("__", "_abc_"))
