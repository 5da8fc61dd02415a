"""Read columns of CSV and Parquet files as they are written: texts, or Python's numbers."""

import csv
import logging
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from zerosum.client.queries.errors import QueryError

log = logging.getLogger("zerosum.client")


def header(path: str | Path) -> tuple[str, ...]:
    """Return the names of a file's columns, and read nothing else.

    Parameters
    ----------
    path : path

    Returns
    -------
    tuple of str

    Raises
    ------
    QueryError
        If the file cannot be read or has no header.
    """
    if _is_parquet(path):
        return tuple(_parquet(path).schema_arrow.names)
    try:
        with _opened(path) as file:
            return _names(path, csv.reader(file, skipinitialspace=True))
    except OSError as error:
        raise QueryError(f"{path}: {error.strerror}") from None


def read_columns(path: str | Path, names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Read some of a file's columns.

    Parameters
    ----------
    path : path
    names : sequence of str
        As the header has them.

    Returns
    -------
    dict of str to sequence
        Of one length. A row with more or fewer fields than the header holds blanks alone.

    Raises
    ------
    QueryError
        If the file cannot be read.
    """
    distinct = list(dict.fromkeys(names))
    if _is_parquet(path):
        return _parquet_columns(path, distinct)
    try:
        with _opened(path) as file:
            return _csv_columns(path, file, distinct)
    except OSError as error:
        raise QueryError(f"{path}: {error.strerror}") from None


def _is_parquet(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".parquet"


def _opened(path: str | Path) -> IO[str]:
    # A byte that is no UTF-8 spoils its own value, not the file: no domain holds its replacement.
    return Path(path).open(newline="", encoding="utf-8-sig", errors="replace")


def _names(path: str | Path, reader: Iterator[list[str]]) -> tuple[str, ...]:
    first = next(_rows(reader), None)
    if not first:
        raise QueryError(f"{path}: no header; its first line names the columns")
    return tuple(name.strip() for name in first)


def _rows(reader: Iterator[list[str]]) -> Iterator[list[str] | None]:
    """Yield the rows but blank lines; None for a row that is no CSV."""
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield None
        else:
            if row:
                yield row


def _csv_columns(path: str | Path, file: IO[str], names: list[str]) -> dict[str, Sequence[Any]]:
    reader = csv.reader(file, skipinitialspace=True)
    known = _names(path, reader)
    places = [known.index(name) for name in names]
    # One place alone would be taken as a value, not as a tuple of one.
    pick = itemgetter(*places, places[0])
    blank = ("",) * (len(places) + 1)
    rows, spoiled = [], 0
    for row in _rows(reader):
        if row is None or len(row) != len(known):
            rows.append(blank)
            spoiled += 1
        else:
            rows.append(pick(row))
    if spoiled:
        log.warning(
            "%s: %d of %d rows have not the header's %d fields; they count as missing",
            path,
            spoiled,
            len(rows),
            len(known),
        )
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return dict(zip(names, columns, strict=False))


def _parquet(path: str | Path) -> Any:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise QueryError(
            f'{path}: Parquet needs pyarrow; pip install "zerosum[parquet]", or write CSV'
        ) from None
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise QueryError(f"{path}: {str(error).splitlines()[0]}") from None


def _parquet_columns(path: str | Path, names: list[str]) -> dict[str, Sequence[Any]]:
    file = _parquet(path)
    try:
        with file:
            table = file.read(columns=names)
    except (OSError, ValueError) as error:
        raise QueryError(f"{path}: {str(error).splitlines()[0]}") from None
    return {name: table.column(name).to_pylist() for name in names}
