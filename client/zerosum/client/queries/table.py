"""Hold a client's table, coded by the schema, and read it from CSV or Parquet."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.schema import Schema


@dataclass(frozen=True)
class Table:
    """A client's rows, coded by a schema.

    Parameters
    ----------
    schema : Schema
    columns : dict of str to ndarray
        Each of shape (size,): an integer is int64, its value less `low`, -1 where missing; a
        category is int64, the number of its cell, `(other)` the last; a number is float64,
        clamped, NaN where missing; a text is a numpy str, empty where missing.
    size : int
        Number of rows.
    """

    schema: Schema
    columns: dict[str, NDArray[Any]]
    size: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.size

    def take(self, rows: NDArray[np.integer[Any]] | NDArray[np.bool_]) -> "Table":
        """Return some of the rows: their numbers, or a mask."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        size = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Table(self.schema, columns, size)

    @classmethod
    def of(cls, mapping: Mapping[str, Any], schema: Schema) -> "Table":
        """Code the values of a mapping from column to sequence."""
        raise NotImplementedError

    @classmethod
    def empty(cls, schema: Schema) -> "Table":
        """Return a table without rows."""
        return cls.of({name: [] for name in schema.columns}, schema)


def read_table(path: str | Path, schema: Schema, rename: Mapping[str, str] | None = None) -> Table:
    """Read a CSV or Parquet file; `rename` maps the schema's names to the file's."""
    raise NotImplementedError
