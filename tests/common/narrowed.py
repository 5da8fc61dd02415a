"""Narrows types to what a test knows: a value that is there, a scene's view, an attack's units."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import Scene
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Units

T = TypeVar("T")

UNUSED: Any = object()
"""Given where a type asks for a part that the test never reaches, as a task that nobody trains."""


def present(value: T | None) -> T:
    """Return a value that must be there."""
    assert value is not None
    return value


def view_of(scene: Scene) -> Any:
    """Return a scene's view, whose further fields no type of the harness has: its setting's."""
    return scene.view


def hits_of(units: Mapping[str, Units], metric: str) -> np.ndarray:
    """Return what came true of a metric that is a proportion: bool, shape (n,)."""
    found = units[metric]
    assert isinstance(found, Proportion)
    return found.hits


def values_of(units: Mapping[str, Units], metric: str) -> np.ndarray:
    """Return the observations of a metric that is a mean: float, shape (n,)."""
    found = units[metric]
    assert isinstance(found, Mean)
    return found.values
