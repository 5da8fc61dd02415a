"""Seal views: data alone pass, so that an attack reaches neither clients nor the truth."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel

from zerosum.simulations.attacks.harness.interface import View

V = TypeVar("V", bound=View)

_PLAIN = (bytes, str, bool, int, float, complex, type(None), np.generic)


class UnsealedView(TypeError):
    """A view holds more than data, which may lead to what its role did not receive."""


def sealed(view: V) -> V:
    """Return a copy of a view that holds data alone.

    Plain values, numpy arrays without Python objects, tuples, frozen sets, mappings, frozen
    dataclasses and frozen specs pass. Anything else is refused. Mappings and arrays come back
    read-only. Arrays own their memory: by the base of a slice the rest of it could be read.

    Parameters
    ----------
    view : View

    Returns
    -------
    View
        Of the same class.

    Raises
    ------
    UnsealedView
        Naming the field.
    """
    return _rebuilt(view, type(view).__name__)  # type: ignore[no-any-return]


def frozen(truth: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Return read-only copies of a scene's truth, which no score can change for the next one."""
    return {name: _frozen_array(np.asarray(value), name) for name, value in truth.items()}


def _rebuilt(value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray):
        return _frozen_array(value, where)
    if type(value) in _PLAIN or isinstance(value, np.generic):
        return value
    if type(value) is tuple:
        return tuple(_rebuilt(item, f"{where}[{i}]") for i, item in enumerate(value))
    if type(value) is frozenset:
        return frozenset(_rebuilt(item, where) for item in value)
    if isinstance(value, Mapping) and type(value) in (dict, types.MappingProxyType):
        return types.MappingProxyType(
            {_rebuilt(k, where): _rebuilt(v, f"{where}[{k!r}]") for k, v in value.items()}
        )
    if isinstance(value, BaseModel) and value.model_config.get("frozen"):
        # By way of JSON, which holds neither private attributes nor references to other objects.
        return type(value).model_validate_json(value.model_dump_json())
    if is_dataclass(value) and not isinstance(value, type):
        return _rebuilt_dataclass(value, where)
    raise UnsealedView(f"{where} is a {type(value).__name__}: a view holds data alone")


def _frozen_array(value: np.ndarray, where: str) -> np.ndarray:
    if type(value) is not np.ndarray or value.dtype.hasobject:
        raise UnsealedView(f"{where} is no plain array: a view holds data alone")
    copied = np.array(value, order="C")
    copied.setflags(write=False)
    return copied


def _rebuilt_dataclass(value: Any, where: str) -> Any:
    if not type(value).__dataclass_params__.frozen:
        raise UnsealedView(f"{where} is a {type(value).__name__}, which is not frozen")
    known = {each.name for each in fields(value)}
    more = set(getattr(value, "__dict__", {})) - known
    if more:
        raise UnsealedView(f"{where} holds {sorted(more)} beside its fields")
    # Not by its constructor, which may compute, check or add what the setting did not hand over.
    made = object.__new__(type(value))
    for name in known:
        object.__setattr__(made, name, _rebuilt(getattr(value, name), f"{where}.{name}"))
    return made
