"""The arrays of other people's models as one flat vector, and back.

The vector holds the floating-point arrays, in the order of their names. Integer and boolean arrays,
as the counters of batch normalisation, are not averaged: everybody keeps the server's.
"""

from dataclasses import dataclass
from math import prod
from typing import Self

import numpy as np
from flwr.app import Array, ArrayRecord


class UnusableArraysError(ValueError):
    """Arrays that cannot be summed; the message names them and says why."""


@dataclass(frozen=True)
class ArrayLayout:
    """Names, shapes and dtypes of the arrays in a flat vector of shape (d,), in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    @classmethod
    def of(cls, record: ArrayRecord) -> Self:
        """Return the layout of a record.

        Parameters
        ----------
        record : flwr.app.ArrayRecord
            A model.

        Returns
        -------
        ArrayLayout
            Of its floating-point arrays, by name.

        Raises
        ------
        UnusableArraysError
            If an array is of no real type, or none is of a floating-point type.
        """
        arrays = {name: _numpy(name, record[name]) for name in sorted(record)}
        for name, value in arrays.items():
            if value.dtype.kind not in "fiub":
                raise UnusableArraysError(f"array {name!r} has dtype {value.dtype}, not a real one")
        floats = {name: value for name, value in arrays.items() if value.dtype.kind == "f"}
        if not any(value.size for value in floats.values()):
            raise UnusableArraysError(
                "no array is of a floating-point type and has entries: nothing to average"
            )
        return cls(
            tuple(floats),
            tuple(value.shape for value in floats.values()),
            tuple(value.dtype for value in floats.values()),
        )

    @property
    def length(self) -> int:
        """Coordinates of the vector (d)."""
        return sum(prod(shape) for shape in self.shapes)

    def vector(self, record: ArrayRecord) -> np.ndarray:
        """Return a record's arrays as one vector.

        Parameters
        ----------
        record : flwr.app.ArrayRecord
            Of this layout.

        Returns
        -------
        numpy.ndarray
            Shape (d,), float32; float64 if an array of the layout is wider.

        Raises
        ------
        UnusableArraysError
            If an array is missing or has another shape, or is of no real type.
        """
        wide = any(dtype.itemsize > 4 for dtype in self.dtypes)
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            if name not in record:
                raise UnusableArraysError(f"array {name!r} is missing")
            value = _numpy(name, record[name])
            if value.shape != shape or value.dtype.kind not in "fiub":
                raise UnusableArraysError(
                    f"array {name!r} has shape {value.shape} and dtype {value.dtype}, and was sent "
                    f"with shape {shape}"
                )
            parts.append(value.reshape(-1).astype(np.float64 if wide else np.float32))
        return np.concatenate(parts)

    def moved(self, record: ArrayRecord, step: np.ndarray) -> ArrayRecord:
        """Add a step to a record's floating-point arrays.

        Parameters
        ----------
        record : ArrayRecord
            Of this layout; arrays that are not in the vector are taken over.
        step : numpy.ndarray
            float64.

        Returns
        -------
        flwr.app.ArrayRecord
            With the dtypes of the layout.
        """
        target = self.vector(record).astype(np.float64) + step
        arrays, start = dict(record), 0
        for name, shape, dtype in zip(self.names, self.shapes, self.dtypes, strict=True):
            end = start + prod(shape)
            arrays[name] = Array(target[start:end].reshape(shape).astype(dtype))
            start = end
        return ArrayRecord(arrays)


def _numpy(name: str, array: Array) -> np.ndarray:
    try:
        value = array.numpy()
    except Exception as error:  # of Flower's format, numpy's, or of a zip file, which numpy reads
        raise UnusableArraysError(f"array {name!r} cannot be read: {error}") from None
    if not isinstance(value, np.ndarray):
        raise UnusableArraysError(f"array {name!r} cannot be read: it is a {type(value).__name__}")
    return value
