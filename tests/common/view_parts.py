"""Walks a sealed view: what an attack can reach."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def parts(value: Any) -> Iterator[Any]:
    """Yield a sealed view and everything in it, depth first: what an attack can reach."""
    yield value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from parts(key)
            yield from parts(item)
    elif isinstance(value, tuple | frozenset):
        for item in value:
            yield from parts(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from parts(getattr(value, each.name))
