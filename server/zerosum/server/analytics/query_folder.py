"""The folder of a federation's queries: made once, locked while it is used, found again.

| file | what it holds |
|---|---|
| ``queries.toml`` | the plan: data, domains, budget, and every query that was asked |
| ``queries.jsonl`` | the ledger, written ahead of every sum |
| ``sums/`` | each released sum |
| ``answers.json``, ``answers/NAME.csv`` | what was made of them |
| ``refused.jsonl`` | what the budget refused |
| ``report.html`` | the page |
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zerosum.client.files.durable_append import replace_file
from zerosum.client.files.file_errors import reason
from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.client.files.private_files import OpenToOthersError
from zerosum.client.queries.errors import QueryError
from zerosum.server.analytics.query_files import QUERIES
from zerosum.server.analytics.query_plan import PlanFile, plan_toml, read_plan
from zerosum.server.runs.run_folder import LOCK, check_unused

_HEADER = "# Resolved queries of this folder. docs/analytics.md explains every key.\n"


def create_folder(path: Path, plan: PlanFile) -> Path:
    """Make a new folder of queries, with its plan.

    Parameters
    ----------
    path : Path
        New, or empty.
    plan : PlanFile
        Written as ``queries.toml``.

    Returns
    -------
    Path
        The same.

    Raises
    ------
    ConfigError
        If the path is a file, or a folder that is not empty.
    QueryError
        If it cannot be written.
    """
    if is_query_folder(path):
        raise QueryError(
            f"{path} already holds queries: choose another folder (out), or go on with zerosum "
            f'query --resume {path}, from Python Federation.resume("{path}")'
        )
    check_unused(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_plan(path, plan)
    except OSError as error:
        raise QueryError(f"--out {path} cannot be written: {reason(path, error)}") from None
    return path


def is_query_folder(path: Path) -> bool:
    """Return whether a folder holds queries."""
    return (path / QUERIES).is_file()


def write_plan(path: Path, plan: PlanFile) -> None:
    """Write the plan of a folder, whole or not at all.

    Parameters
    ----------
    path : Path
        The folder.
    plan : PlanFile
        In place of the one that is there.
    """
    replace_file(path / QUERIES, (_HEADER + plan_toml(plan)).encode())


def read_folder(path: Path) -> PlanFile:
    """Read the plan of a folder.

    Parameters
    ----------
    path : Path
        With a ``queries.toml``.

    Returns
    -------
    PlanFile
        As it was started, with the queries that were asked since.

    Raises
    ------
    QueryError
        If the folder holds no queries.
    """
    if not is_query_folder(path):
        raise QueryError(f"{path} holds no queries (no {QUERIES}): give the folder of some")
    return read_plan(path / QUERIES)


@contextmanager
def held_folder(path: Path) -> Iterator[Path]:
    """Lock a folder against other processes.

    Parameters
    ----------
    path : Path
        Of queries.

    Yields
    ------
    Path
        The same, locked.

    Raises
    ------
    QueryError
        If another process has it, or another user could hold the lock.
    """
    try:
        with held_alone(path / LOCK):
            yield path
    except HeldError as error:
        raise QueryError(f"{path}: another process asks here ({error}); stop it first") from None
    except OpenToOthersError as error:
        raise QueryError(str(error)) from None


def fingerprint(path: Path) -> str:
    """Compute the SHA-256 of a file's bytes.

    Parameters
    ----------
    path : Path
        Of the file.

    Returns
    -------
    str
        Hexadecimal.

    Raises
    ------
    QueryError
        If it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise QueryError(f"data = {str(path)!r}: {error.strerror or error}") from None
