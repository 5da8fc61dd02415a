"""Read columns of CSV and Parquet files as they are written: texts, or Python's numbers."""

import csv
import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from zerosum.client.queries.errors import QueryError

ROWS_AT_ONCE = 1 << 16
"""Rows in memory as texts."""

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


def read_columns(path: str | Path, names: Sequence[str]) -> Iterator[dict[str, Sequence[Any]]]:
    """Read some of a file's columns, some rows at a time: texts take far more room than codes.

    Parameters
    ----------
    path : path
    names : sequence of str
        As the header has them.

    Yields
    ------
    dict of str to sequence
        Of one length. A row with more or fewer fields than the header holds blanks alone.

    Raises
    ------
    QueryError
        If the file cannot be read.
    """
    distinct = list(dict.fromkeys(names))
    if _is_parquet(path):
        yield from _parquet_columns(path, distinct)
        return
    try:
        with _opened(path) as file:
            yield from _csv_columns(path, file, distinct)
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


def _rows(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows but blank lines; an empty one for a row that is no CSV."""
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield []
        else:
            if row:
                yield row


def _csv_columns(
    path: str | Path, file: IO[str], names: list[str]
) -> Iterator[dict[str, Sequence[Any]]]:
    reader = csv.reader(file, skipinitialspace=True)
    known = _names(path, reader)
    places = [known.index(name) for name in names]
    # One place alone would be taken as a value, not as a tuple of one.
    pick = itemgetter(*places, places[0])
    blank = ("",) * (len(places) + 1)
    seen = spoiled = 0
    rows = _rows(reader)
    while part := list(islice(rows, ROWS_AT_ONCE)):
        fit = [len(row) == len(known) for row in part]
        whole = (pick(row) if fits else blank for row, fits in zip(part, fit, strict=True))
        yield dict(zip(names, zip(*whole, strict=True), strict=False))
        seen += len(part)
        spoiled += fit.count(False)
    if spoiled:
        log.warning(
            "%s: %d of %d rows have not the header's %d fields; they count as missing",
            *(path, spoiled, seen, len(known)),
        )


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


def _parquet_columns(path: str | Path, names: list[str]) -> Iterator[dict[str, Sequence[Any]]]:
    try:
        with _parquet(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=names):
                yield {name: batch.column(name).to_pylist() for name in names}
    except (OSError, ValueError) as error:
        raise QueryError(f"{path}: {str(error).splitlines()[0]}") from None
