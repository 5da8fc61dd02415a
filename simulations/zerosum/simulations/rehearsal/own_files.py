"""A file of its own for each node of a rehearsal, as `--data 0=a.csv 1=b.csv` names them."""

import glob
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zerosum.client.files.named_files import named_files
from zerosum.simulations.data.data_files import DataError, check_distinct
from zerosum.simulations.rehearsal.processes import DeploymentError

ALLOWED = "give each node its file, as --data 0=a.csv 1=b.csv 2=c.csv"

DIGITS = 6
"""Of a node's index, at most."""

LINKS = "data"
"""Folder beside the nodes' own in which the server finds the files that it tests on."""


def own_files(words: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes' files in the order of the nodes.

    Parameters
    ----------
    words : sequence of str
        Each a node's index, an equals sign and a path, in any order.

    Returns
    -------
    tuple of str
        Whole paths.

    Raises
    ------
    DeploymentError
        One line, if a word is no such pair, an index is given twice or left out, or a file is not
        there or is two nodes' own.
    """
    named: dict[int, Path] = {}
    for word in words:
        index, sign, path = word.partition("=")
        if not (sign and path and index.isascii() and index.isdigit() and len(index) <= DIGITS):
            raise DeploymentError(f"--data {word}: no node and file; {ALLOWED}")
        if int(index) in named:
            raise DeploymentError(f"--data {word}: node {int(index)} has a file already; {ALLOWED}")
        named[int(index)] = Path(path).expanduser().absolute()
    absent = [number for number in range(len(named)) if number not in named]
    if absent:
        numbers = ", ".join(map(str, absent[:10]))
        raise DeploymentError(f"--data names no file for node {numbers}; nodes count from 0")
    files = [named[number] for number in range(len(named))]
    for number, file in enumerate(files):
        if not file.is_file():
            what = "a folder" if file.is_dir() else "not there"
            raise DeploymentError(f"--data {number}={file}: it is {what}; {ALLOWED}")
        if any(mark in str(file) for mark in "\"'\\\n"):
            raise DeploymentError(
                f"--data {number}={str(file)!r}: Flower takes no path with quotes, backslashes or "
                "line breaks; move the file"
            )
    try:
        check_distinct(files, "--data")
    except DataError as error:
        raise DeploymentError(str(error)) from None
    return tuple(map(str, files))


def check_count(files: Sequence[str], experiment: dict[str, Any], app: Path) -> None:
    """Raise a DeploymentError where an experiment is of another number of clients.

    Parameters
    ----------
    files : sequence of str
        The nodes' own.
    experiment : dict
        As the app's TOML has it.
    app : Path
        Its folder.

    Raises
    ------
    DeploymentError
        One line with both numbers.
    """
    task = experiment.get("task")
    if not (isinstance(task, str) and ":" in task):
        raise DeploymentError(
            f'--data: task = "{task}" takes a node\'s file for a copy of all data; only an app of '
            "zerosum new --data trains on a file a node"
        )
    deployment = experiment.get("deployment")
    fewest = deployment.get("min_nodes") if isinstance(deployment, dict) else None
    clients = count_of(experiment, app)
    wanted = clients or fewest
    if isinstance(wanted, int) and (len(files) < wanted or (clients and len(files) > clients)):
        raise DeploymentError(
            f"--data names {len(files)} files, and the experiment is for {wanted} nodes; {ALLOWED}"
        )


def count_of(experiment: dict[str, Any], app: Path) -> int | None:
    """Return how many files an experiment names, where each is a client; else None.

    Parameters
    ----------
    experiment : dict
        As the app's TOML has it.
    app : Path
        Its folder, from which relative paths lead.

    Returns
    -------
    int or None
        Two or more.
    """
    data = experiment.get("data")
    if not isinstance(data, dict) or data.get("partition") != "natural":
        return None
    count = len(paths_of(data.get("path"), app))
    return count if count > 1 else None


def paths_of(path: object, app: Path) -> tuple[Path, ...]:
    """Return what ``data.path`` names, seen from an app's folder; nothing where it is no path.

    Parameters
    ----------
    path : object
        A text or a list of texts, as TOML has it.
    app : Path
        The folder.

    Returns
    -------
    tuple of Path
        Whole paths that are there.
    """
    given = path if isinstance(path, list) else [path]
    names = [name for name in given if isinstance(name, str)]
    if len(names) < len(given):
        return ()
    found: list[Path] = []
    for name in names:
        whole = (app / Path(name).expanduser()).resolve()
        if whole.exists():
            found.append(whole)
        else:
            pattern = os.path.join(glob.escape(str(app)), os.path.expanduser(name))
            found += named_files(pattern) if glob.has_magic(name) else ()
    return tuple(file for file in found if file.exists())


def linked(files: Sequence[Path], folder: Path) -> str:
    """Make a folder of links to files, and return the pattern that names them all.

    Flower's run config carries one text, and no list of paths.

    Parameters
    ----------
    files : sequence of Path
        Whole paths.
    folder : Path
        In which ``data`` is made, or made anew.

    Returns
    -------
    str
        As ``data.path`` takes it.
    """
    place = folder / LINKS
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    # A pattern passes over names that begin with a dot.
    numbered = len({file.name for file in files}) < len(files) or any(
        file.name.startswith(".") for file in files
    )
    for number, file in enumerate(files):
        (place / (f"{number}-{file.name}" if numbered else file.name)).symlink_to(file)
    return str(Path(glob.escape(str(place))) / "*")
