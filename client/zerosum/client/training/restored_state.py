"""Put back the state by which a pass over some examples could influence others.

Centres, queues, codebooks, counters: what a model moves while it computes would let an example
reach those after it, and no clip bounds that. So all that can be found of it is put back after
every pass, and each is computed from the same state. Found are parameters, buffers and attributes
of modules and of the task, through containers, objects and their classes, and what functions found
there hold: defaults, attributes, closures. Iterators, which nothing rewinds, are refused. Not found
is what lies elsewhere: in globals, files, or a task's large arrays.
"""

import array
import random
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch
from torch import nn

from zerosum.client.task import TaskError
from zerosum.client.training.torch_internals import MODULE_TABLES, REMADE, Kind

LARGEST = 1 << 14
"""Entries of a task's arrays that are kept: its records are larger, and are not looked at."""

_DEEP = 1000
"""Of a task's containers with more items, what the items hold is not looked at."""

_ATOMS = (int, float, complex, str, bytes, bool, type(None))
_CODE = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)
_CACHED: Any = type(lru_cache(len))
_LIBRARIES = ("torch", "numpy", "builtins", "typing", "abc", "functools", "collections")
"""Modules whose classes and functions carry nothing."""


_NOTHING: Any = object()
"""What a variable or slot holds before it is given anything."""


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
    """The present state of a model and its task.

    Parameters
    ----------
    model : nn.Module or None
        Kept whole.
    others : objects
        The task, or whatever else a loss may belong to: kept without large arrays.
    loaded : sequence of torch.Tensor
        Tensors of the model whose values somebody else puts back.
    """

    def __init__(
        self, model: nn.Module | None, *others: Any, loaded: Sequence[torch.Tensor] = ()
    ) -> None:
        self._kept: list[PutBack] = []
        self._seen: set[int] = {id(tensor) for tensor in loaded}
        self._alive: list[Any] = [*loaded]  # an id is one object's only as long as that lives
        self._largest: float = float("inf")
        self._walk(model, "", "attribute")
        self._largest = LARGEST
        for other in others:
            self._walk(other, type(other).__name__, "attribute")

    def put_back(self) -> list[Moved]:
        """Put everything back, and return what had moved."""
        with torch.no_grad():
            return [moved for back in self._kept for moved in back()]

    def _walk(self, value: Any, name: str, kind: Kind) -> None:
        if isinstance(value, (*_ATOMS, ModuleType)) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._alive.append(value)
        if isinstance(value, torch.Tensor | np.ndarray):
            self._walk_array(value, name, kind)
        elif isinstance(value, bytearray | array.array):
            flat = value[:]
            self._kept.append(lambda: _flat_back(value, flat, Moved(kind, name)))
        elif (generator := _generator_back(value)) is not None:
            self._kept.append(generator)
        elif isinstance(value, type):
            self._walk_class(value)
        elif isinstance(value, FunctionType):
            self._walk_function(value, name)
        elif isinstance(value, _CACHED):
            if self._largest > LARGEST:  # a task's is emptied by nobody: it may hold its records
                value.cache_clear()
                self._kept.append(lambda: _cache_back(value, Moved("attribute", name)))
            self._walk(value.__wrapped__, name, "attribute")
        elif isinstance(value, MethodType | BuiltinFunctionType | partial | weakref.ref):
            self._walk_bound(value, name)
        elif isinstance(value, dict):
            self._walk_table(value, name, kind)
            self._walk_own(value, name)
        elif isinstance(value, list | deque | set | tuple | frozenset):
            self._walk_items(value, name, kind)
            self._walk_own(value, name)
        else:
            self._walk_object(value, name, kind)

    def _walk_array(self, value: Any, name: str, kind: Kind) -> None:
        size = value.numel() if isinstance(value, torch.Tensor) else value.size
        if size > self._largest:
            self._seen.discard(id(value))  # it may be the model's as well
        elif isinstance(value, np.ndarray):
            for place, item in enumerate(value.flat if value.dtype == object else ()):
                self._walk(item, f"{name}[{place}]", kind)
            if value.flags.writeable:
                copy = value.copy()
                self._kept.append(lambda: _array_back(value, copy, Moved(kind, name)))
        elif not nn.parameter.is_lazy(value):
            original = value.detach().clone()
            self._kept.append(lambda: _tensor_back(value, original, Moved(kind, name)))
            if value.is_leaf:
                grad, trained = value.grad, value.requires_grad
                self._kept.append(lambda: _leaf_back(value, grad, trained, name))
                self._walk(grad, f"{name}.grad", "attribute")
            self._walk_own(value, name)

    def _walk_items(self, value: Any, name: str, kind: Kind) -> None:
        items = list(value)
        if not isinstance(value, tuple | frozenset):
            self._kept.append(lambda: _items_back(value, items, Moved(kind, name)))
        for place, item in enumerate(items if self._looked_at(items) else ()):
            self._walk(item, f"{name}[{place}]", kind)

    def _looked_at(self, items: Any) -> bool:
        return len(items) <= _DEEP or self._largest > LARGEST

    def _walk_table(self, table: dict[Any, Any], name: str, kind: Kind, dot: str = "") -> None:
        items = dict(table)
        self._kept.append(lambda: _table_back(table, items, name, kind, dot))
        for key, item in (items if self._looked_at(items) else {}).items():
            self._walk(key, f"{name} key", kind)
            self._walk(item, _path(name, key, dot), kind)

    def _walk_own(self, value: Any, name: str) -> None:
        """Keep what a tensor or container was given beside what it holds."""
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._walk_table(own, name, "attribute", ".")

    def _walk_function(self, value: FunctionType, name: str) -> None:
        """Keep what a function holds; of arrays no large ones, which may be anybody's records."""
        if _of_library(value):
            return
        before, self._largest = self._largest, min(self._largest, LARGEST)
        self._walk_own(value, name)
        self._walk((value.__defaults__, value.__kwdefaults__), f"{name} default", "attribute")
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            content = _content(cell)
            moved = Moved("attribute", f"{name} closure {variable}")
            self._kept.append(partial(_cell_back, cell, content, moved))
            self._walk(content, moved.name, "attribute")
        self._largest = before

    def _walk_bound(self, value: Any, name: str) -> None:
        """Keep what a method, a partial call or a weak reference is bound to."""
        if isinstance(value, weakref.ref):
            self._walk(value(), name, "attribute")
        elif isinstance(value, partial):
            self._walk((value.func, value.args, value.keywords), name, "attribute")
            self._walk_own(value, name)
        else:
            self._walk(value.__self__, name, "attribute")
            self._walk(getattr(value, "__func__", None), name, "attribute")

    def _walk_object(self, value: Any, name: str, kind: Kind) -> None:
        made = type(value)
        own = getattr(value, "__dict__", None)
        if own is None and hasattr(made, "__next__"):
            raise TaskError(
                f"{name} is an iterator ({made.__name__}): nothing can put it back, so it would "
                "carry one example or client into others; keep a list and a position instead"
            )
        self._walk_slots(value, name)
        if not isinstance(own, dict):
            return
        self._kept.append(lambda: _class_kept(value, made, Moved("attribute", f"{name}.__class__")))
        tables = MODULE_TABLES if isinstance(value, nn.Module) else {}
        for key, inner in tables.items():
            if key not in own:  # then it is an attribute like others
                continue
            self._seen.add(id(own[key]))
            self._alive.append(own[key])
            self._walk_table(own[key], name, inner, ".")
        if isinstance(value, nn.Module):
            self._walk_empty(
                {k: t for k, t in own.items() if type(t) in (dict, OrderedDict) and not t}, name
            )
        self._walk_table(own, name, kind, ".")
        self._walk(made, made.__name__, "attribute")

    def _walk_slots(self, value: Any, name: str) -> None:
        for base in type(value).__mro__[:-1]:
            for slot in () if _of_library(base) else list(vars(base).values()):
                if isinstance(slot, MemberDescriptorType):
                    content = _in_slot(slot, value)
                    moved = Moved("attribute", f"{name}.{slot.__name__}")
                    self._kept.append(partial(_slot_back, slot, value, content, moved))
                    self._walk(content, moved.name, "attribute")

    def _walk_empty(self, tables: dict[str, dict[Any, Any]], name: str) -> None:
        """Keep the many tables of a module that are empty, of hooks most of all, at once."""
        self._seen.update(map(id, tables.values()))
        self._alive.append(tables)
        self._kept.append(lambda: _emptied(tables, name))

    def _walk_class(self, made: type) -> None:
        if _of_library(made):
            return
        for base in made.__mro__[1:-1]:
            self._walk(base, base.__name__, "attribute")
        items = {key: item for key, item in vars(made).items() if _is_data(key, item)}
        self._kept.append(lambda: _class_back(made, items))
        for key, item in list(vars(made).items()):
            # Of methods the function: a default may hold what one call leaves for the next.
            inner = getattr(item, "__func__", getattr(item, "fget", item))
            if isinstance(inner, FunctionType) or not key.startswith(("__", "_abc_")):
                self._walk(inner, f"{made.__name__}.{key}", "attribute")


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
    if value.layout != torch.strided:
        if value.shape != kept.shape or not torch.equal(value.to_dense(), kept.to_dense()):
            value.data = kept.clone()
            yield moved
        return
    if value.shape == kept.shape and value.dtype == kept.dtype:
        if torch.equal(value, kept) or bool(
            ((value == kept) | (kept != kept) & (value != value)).all()
        ):
            return
        value.detach().copy_(kept)
    else:
        value.data = kept.clone()
    yield moved


def _leaf_back(
    value: torch.Tensor, grad: torch.Tensor | None, wanted: bool, name: str
) -> Iterator[Moved]:
    if value.grad is not grad:
        value.grad = grad
        yield Moved("attribute", f"{name}.grad")
    if value.requires_grad != wanted:
        value.requires_grad_(wanted)
        yield Moved("attribute", f"{name}.requires_grad")


def _flat_back(value: Any, kept: Any, moved: Moved) -> Iterator[Moved]:
    if value != kept:
        value[:] = kept
        yield moved


def _cache_back(value: Any, moved: Moved) -> Iterator[Moved]:
    if value.cache_info().currsize:
        value.cache_clear()
        yield moved


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _NOTHING


def _cell_back(cell: CellType, held: Any, moved: Moved) -> Iterator[Moved]:
    if _same(_content(cell), held):
        return
    if held is _NOTHING:
        del cell.cell_contents
    else:
        cell.cell_contents = held
    yield moved


def _in_slot(slot: Any, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:
        return _NOTHING


def _slot_back(slot: Any, value: Any, held: Any, moved: Moved) -> Iterator[Moved]:
    if _same(_in_slot(slot, value), held):
        return
    if held is _NOTHING:
        slot.__delete__(value)
    else:
        slot.__set__(value, held)
    yield moved


def _class_kept(value: Any, made: type, moved: Moved) -> Iterator[Moved]:
    if type(value) is not made:
        value.__class__ = made
        yield moved


def _of_library(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in _LIBRARIES


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
        if key not in REMADE
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
