"""What is done to each record by itself, the same to all: features that cost no privacy."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.simulations.datasets import Collection, DataError, Records
from zerosum.simulations.scattering import random_projection, scattering

PROJECTION_SEED = 0
"""Directions are the same in every experiment."""


def transformed(collection: Collection, spec: DataSpec) -> Collection:
    """Return records as ``data.transform`` and ``data.project`` say.

    Raises
    ------
    DataError
        If the records are no images that scatter.
    """
    return replace(
        collection,
        train=_transformed(collection.train, spec),
        test=_transformed(collection.test, spec),
    )


class _Same:
    """An array that equals itself alone: the key of a cache."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


def _transformed(records: Records, spec: DataSpec) -> Records:
    inputs = records.inputs
    if spec.transform == "scattering":
        try:
            inputs = _scattered(_Same(inputs))
        except ValueError as error:
            raise DataError(f'data.transform = "scattering": {error}') from None
    elif spec.transform == "unit":
        flat = inputs.reshape(len(inputs), -1)
        norms = np.linalg.norm(flat, axis=1, keepdims=True)
        inputs = flat / np.maximum(norms, np.float32(1e-12))
    if spec.project is not None:
        flat = inputs.reshape(len(inputs), -1)
        inputs = random_projection(flat, spec.project, PROJECTION_SEED)
    return replace(records, inputs=inputs)


@lru_cache(maxsize=2)
def _scattered(images: _Same) -> np.ndarray:
    """Return features, kept for the next run of this process: they take a minute or two."""
    return scattering(images.array)
