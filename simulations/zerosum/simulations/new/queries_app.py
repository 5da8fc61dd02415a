"""Writing an app of queries: a plan, and for each node a file and a table of its own."""

import csv
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import tomli_w

from zerosum.client.files.file_errors import reason
from zerosum.client.files.operating_system import readable
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import template
from zerosum.client.queries.table_files import header
from zerosum.server.config import ConfigError
from zerosum.simulations.new.app import check_free, filled
from zerosum.simulations.new.kinds import Kind, kind_of, package_of

NODES: Final = 3
"""Nodes that the rows are dealt to."""

_FILES: Final = {
    "pyproject.toml": "queries/pyproject.toml",
    "plan.toml": "queries/plan.toml",
    "README.md": "queries/README.md",
    ".gitignore": "queries/gitignore",
}

SAMPLE: Final = "patients.csv"

_SAMPLE_SCHEMA: Final = """\
[schema]
# Domains are declared, never read from data: what is outside of them is clamped, or is (other).
age = { integer = [0, 110], bins = 11 }
sex = ["1", "2"]
bmi = { number = [10, 60] }
cholesterol = { integer = [50, 400] }
"""

_SAMPLE_QUERIES: Final = """\
[[queries]]
name = "elderly"
kind = "count"
where = "age >= 65"
epsilon = 0.2

[[queries]]
name = "ages"
kind = "histogram"
columns = ["age"]
by = ["sex"]
epsilon = 0.3

[[queries]]
name = "bmi"
kind = "mean"
column = "bmi"
epsilon = 0.25

[[queries]]
name = "cholesterol"
kind = "quantile"
column = "cholesterol"
q = [0.25, 0.5, 0.75]
epsilon = 0.25
"""

_QUERIES: Final = """\
[[queries]]
name = "records"
kind = "count"            # of all records; where = "age >= 65" counts some
epsilon = 0.1

# [[queries]]
# name = "ages"
# kind = "histogram"      # mean, sum, variance, quantile, words, bayes, marginals, oracle
# columns = ["age"]
# epsilon = 0.3
"""


@dataclass(frozen=True)
class QueriesApp:
    """An app of queries that was written.

    Attributes
    ----------
    folder : Path
        Where it is.
    rows : tuple of int
        Of each node's table.
    to_edit : bool
        Whether the plan's domains are still to be declared.
    """

    folder: Path
    rows: tuple[int, ...]
    to_edit: bool


def make_queries_app(folder: Path, data: Path | None = None) -> QueriesApp:
    """Write an app of queries into a new folder, all of it or nothing.

    Parameters
    ----------
    folder : Path
        Absent until now; its last part is the app's name.
    data : Path, optional
        A CSV or Parquet table, whose rows are dealt to three nodes. Default: a sample.

    Returns
    -------
    QueriesApp
        What was written.

    Raises
    ------
    ConfigError
        One line that names the option, its value, what is allowed and the cure.
    """
    package_of(folder.name)
    check_free(folder)
    if data is not None and kind_of(data, None) not in (Kind.CSV, Kind.PARQUET):
        raise ConfigError(f"--data {data}: queries are asked of a .csv or .parquet table")
    begun = folder.with_name(f".{folder.name}-{uuid4().hex}")
    try:
        begun.mkdir()
        made = _written(begun, folder, data)
        begun.rename(folder)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"NAME {folder}: cannot be written: {reason(folder, error)}") from None
    finally:
        shutil.rmtree(begun, ignore_errors=True)
    return made


def _written(begun: Path, folder: Path, data: Path | None) -> QueriesApp:
    file = SAMPLE if data is None else data.name
    # Of the owner alone, whatever the umask: they may be copies of private records.
    tables = [begun / "nodes" / str(index) / file for index in range(NODES)]
    (begun / "nodes").mkdir(mode=0o700)
    for table in tables:
        table.parent.mkdir(mode=0o700)
    named = readable(file)
    columns, rows = _sample(tables) if data is None else _dealt(data, tables)
    values = {
        "name": folder.name,
        "file": named,
        "rows_words": "a third of the sample's rows" if data is None else f"a third of `{named}`",
        "schema": _SAMPLE_SCHEMA if data is None else template(data),
        "queries": _SAMPLE_QUERIES if data is None else _QUERIES,
        "columns": _toml(columns),
    }
    for name, template_name in _FILES.items():
        (begun / name).write_text(filled(template_name, values), encoding="utf-8", newline="\n")
    for table in tables:
        text = filled("queries/zerosum-node.toml", values | {"file": _escaped(named)})
        (table.parent / "zerosum-node.toml").write_text(text, encoding="utf-8", newline="\n")
    return QueriesApp(folder, tuple(rows), to_edit=data is not None)


def _dealt(data: Path, tables: Sequence[Path]) -> tuple[list[str], list[int]]:
    """Deal a file's rows to tables; return its columns, and how many rows each has."""
    try:
        columns = list(header(data))
        if kind_of(data, None) is Kind.PARQUET:
            return columns, _dealt_parquet(data, tables)
        return columns, _dealt_csv(data, tables)
    except (QueryError, UnicodeError, csv.Error) as error:
        raise ConfigError(f"--data {data}: {error}") from None


def _dealt_csv(data: Path, tables: Sequence[Path]) -> list[int]:
    rows = [0] * len(tables)
    with data.open(encoding="utf-8-sig", newline="") as source:
        reader = csv.reader(source)
        files = [table.open("w", encoding="utf-8", newline="") for table in tables]
        try:
            writers = [csv.writer(file, lineterminator="\n") for file in files]
            first = next(reader)
            for writer in writers:
                writer.writerow(first)
            for number, row in enumerate(filter(None, reader)):
                writers[number % len(tables)].writerow(row)
                rows[number % len(tables)] += 1
        finally:
            for file in files:
                file.close()
    return rows


def _dealt_parquet(data: Path, tables: Sequence[Path]) -> list[int]:
    import pandas as pd

    whole = pd.read_parquet(data)
    parts = [whole.iloc[index :: len(tables)] for index in range(len(tables))]
    for part, table in zip(parts, tables, strict=True):
        part.to_parquet(table, index=False)
    return [len(part) for part in parts]


def _sample(tables: Sequence[Path]) -> tuple[list[str], list[int]]:
    """Write 442 patients that ship with scikit-learn (Efron et al. 2004), dealt to tables."""
    from sklearn.datasets import load_diabetes  # a second to import, and only needed here

    frame = load_diabetes(as_frame=True, scaled=False).data
    whole = frame.assign(
        age=frame["age"].astype(int),
        sex=frame["sex"].astype(int),
        cholesterol=frame["s1"].astype(int),
    )[["age", "sex", "bmi", "cholesterol"]]
    parts = [whole.iloc[index :: len(tables)] for index in range(len(tables))]
    for part, table in zip(parts, tables, strict=True):
        part.to_csv(table, index=False)
    return list(map(str, whole.columns)), [len(part) for part in parts]


def _toml(values: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{_escaped(value)}"' for value in values) + "]"


def _escaped(name: str) -> str:
    """Return a file's name as it stands between the quotes of TOML."""
    return tomli_w.dumps({"path": os.fspath(name)}).partition("=")[2].strip()[1:-1]
