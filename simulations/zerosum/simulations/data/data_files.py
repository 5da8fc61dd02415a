"""Read files of data; a missing, damaged or unfit one is named in one line."""

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from zerosum.client.files.named_files import named_files
from zerosum.client.files.operating_system import named_path
from zerosum.client.nearest_word import nearest
from zerosum.client.spec import DataSpec
from zerosum.client.task import TaskError, error_line
from zerosum.simulations.terminal.printable import printable

MAX_CLASSES = 100_000
"""Labels above are mistakes: identifiers, or values to regress on."""


class DataError(TaskError):
    """Data that the configuration asks for cannot be had; the message is one line."""


def required_file(spec: DataSpec, task: str, kind: str) -> Path:
    """Return the one file that ``data.path`` names, for a task that reads one.

    Parameters
    ----------
    spec : DataSpec
        ``path``.
    task : str
        Name of the task that needs the file.
    kind : str
        What kind of file is wanted, for the message.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DataError
        If the key is absent or a list, or the file cannot be read.
    """
    return readable_file(one_path(spec, task, kind), kind)


def required_files(spec: DataSpec, task: str, kind: str) -> tuple[Path, ...]:
    """Return the files that ``data.path`` names: one, or those of a list or a pattern.

    Parameters
    ----------
    spec : DataSpec
        ``path``.
    task : str
        Name of the task that needs them.
    kind : str
        What kind of file is wanted, for the message.

    Returns
    -------
    tuple of Path
        The files, one or more.

    Raises
    ------
    DataError
        If one is absent, no file or named twice, or a pattern fits none.
    """
    if spec.path is None:
        raise DataError(f'data.path is absent; task "{task}" needs it: {kind}')
    names = spec.path if isinstance(spec.path, list | tuple) else [spec.path]
    files: list[Path] = []
    for name in names:
        try:
            files += named_files(name) or [readable_file(name, kind)]
        except (OSError, RuntimeError, ValueError, TypeError):
            files.append(readable_file(name, kind))  # which says what is wrong with it
    checked = [readable_file(str(file), kind) for file in files]
    check_distinct(checked, "data.path")
    return tuple(checked)


def existing_paths(spec: DataSpec) -> tuple[Path, ...]:
    """Return what ``data.path`` names if it is there: a server need not have any data.

    Parameters
    ----------
    spec : DataSpec
        ``path``: one, a list or a pattern.

    Returns
    -------
    tuple of Path
        Files or folders, in order; none where nothing is there at all.

    Raises
    ------
    DataError
        If some of several are there and others are not, or one is named twice.
    """
    try:
        named = () if spec.path is None else named_files(spec.path)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise DataError(f"data.path = {spec.path!r}: {error_line(error)}"[:300]) from None
    absent = [str(path) for path in named if not path.exists()]
    if absent and len(absent) < len(named):
        raise DataError(f"data.path: {listed(absent)}: not there, and others of the list are")
    check_distinct(named, "data.path")
    return () if absent else tuple(named)


def check_distinct(files: Sequence[Path], key: str) -> None:
    """Raise a DataError that names a file that is among others twice, under whatever names.

    Parameters
    ----------
    files : sequence of Path
        That are there.
    key : str
        Begins the message.

    Raises
    ------
    DataError
        If its records would count twice.
    """
    seen: dict[Path, Path] = {}
    for file in files:
        if (first := seen.setdefault(file.resolve(), file)) is not file:
            same = f'"{file}"' if first == file else f'"{first}" and "{file}"'
            raise DataError(f"{key}: {same} is one file, named twice; take one of them out")


def one_path(spec: DataSpec, task: str, kind: str) -> str:
    """Return ``data.path`` where it is one text.

    Parameters
    ----------
    spec : DataSpec
        ``path``.
    task : str
        Name of the task that needs it.
    kind : str
        What is wanted, for the message.

    Returns
    -------
    str
        The path.

    Raises
    ------
    DataError
        If it is absent, or a list.
    """
    if spec.path is None:
        raise DataError(f'data.path is absent; task "{task}" needs it: {kind}')
    if isinstance(spec.path, list | tuple):
        raise DataError(f'data.path is a list; task "{task}" takes one path: {kind}')
    return spec.path


def readable_file(given: str, kind: str) -> Path:
    """Return the file that a text names, if it can be read.

    Parameters
    ----------
    given : str
        As ``data.path`` has it.
    kind : str
        What kind of file is wanted, for the message.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DataError
        If nothing is there, or no file, or it may not be read: with the nearest name beside it.
    """
    name = str(given)
    name = name if len(name) <= 200 else f"{name[:200]}..."
    hint = ""
    try:
        path = named_path(given)
        if path.is_file():
            path.open("rb").close()  # a reader's own words would name its code
            return path
        if path.is_dir():
            hint = " (it is a folder)"
        elif path.parent.is_dir():
            near = nearest(path.name, (entry.name for entry in path.parent.iterdir()))
            hint = f'; did you mean "{path.parent / near}"?' if near else ""
    except PermissionError as error:  # of the file, or of a folder above it
        raise DataError(
            f'data.path = "{name}" cannot be read: {error.strerror}; let this user read it'
        ) from None
    # OSError: too long, or a loop of links. RuntimeError: ~ of nobody.
    # ValueError: a NUL. TypeError: a number in a node's configuration.
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        hint = f" ({error_line(error)})"
    raise DataError(f'data.path = "{name}": no such file; give {kind}{hint[:300]}')


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a reader raises on a damaged file into one line.

    Parameters
    ----------
    path : Path
        The file being read.
    kind : str
        What kind of file is wanted, for the message.

    Yields
    ------
    None
        While the reader runs.

    Raises
    ------
    DataError
        Names the file, the reader's error and the kind of file that is allowed.
    """
    try:
        yield
    except (DataError, ImportError):  # a reader that is not installed is no fault of the file
        raise
    except Exception as error:  # damaged files make readers raise nearly anything
        raise DataError(
            f'data.path = "{path}" cannot be read: {error_line(error)}; give {kind}'
        ) from error


def read_npz(path: Path, kind: str, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of an npz under the given keys, or all; pickled ones are refused.

    Parameters
    ----------
    path : Path
    kind : str
        What kind of file is wanted, for the message.
    keys : iterable of str, optional
        Names of the arrays; all where absent.

    Returns
    -------
    dict of str to numpy.ndarray
        The arrays by name.

    Raises
    ------
    DataError
        If the file is no npz or damaged, or lacks a key.
    """
    # Opened here, because numpy leaves the file open when its archive is damaged.
    with reading(path, kind), path.open("rb") as file:
        if not zipfile.is_zipfile(file):  # numpy would speak of pickles
            raise DataError(f'data.path = "{path}" cannot be read: it is no npz; give {kind}')
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            missing = [key for key in keys or () if key not in arrays.files]
            if missing:
                raise DataError(
                    f'data.path = "{path}" lacks {", ".join(missing)}; it has '
                    f"{listed(arrays.files)}; give {kind}"
                )
            if len(set(arrays.files)) < len(arrays.files):
                raise DataError(f'data.path = "{path}" holds two arrays of one name; give {kind}')
            wanted = {key: arrays[key] for key in (arrays.files if keys is None else keys)}
    for key, values in wanted.items():
        if not isinstance(values, np.ndarray):  # numpy gives the bytes of what is no array
            raise DataError(f'data.path = "{path}": {key} is no array; give {kind}')
    return wanted


LONGEST_NAME = 100
"""Characters of a name in a line: a file whose separator is another has one column, its header, and
one that is read in a wrong encoding may have all its records there."""


def listed(names: Iterable[str]) -> str:
    """Return names as one short printable line."""
    printed = map(printable, names)
    known = [
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in printed
    ]
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return ", ".join(known[:20]) + more if known else "nothing"


def counted(count: int, what: str) -> str:
    """Return a number of things, in words that agree: 1 input, 2 inputs.

    Parameters
    ----------
    count : int
        How many.
    what : str
        The noun, in the singular.

    Returns
    -------
    str
        The number with its noun.
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def as_float32(values: np.ndarray, key: str) -> np.ndarray:
    """Return numbers as float32, of the same shape.

    Parameters
    ----------
    values : numpy.ndarray
        Any shape.
    key : str
        Begins every message.

    Returns
    -------
    numpy.ndarray
        float32, of the same shape.

    Raises
    ------
    DataError
        If they are no numbers, not finite, or beyond float32; it starts with ``key``.
    """
    if values.dtype.kind not in "biuf":
        raise DataError(f"{key} is not numeric; encode it as numbers, or leave it out")
    if not np.isfinite(values).all():
        raise DataError(f"{key} has missing values or infinities; fill them, or leave it out")
    with np.errstate(over="ignore"):
        cast = values.astype(np.float32)
    if not np.isfinite(cast).all():
        raise DataError(f"{key} has values beyond float32; allowed: magnitudes up to 3.4e38")
    return cast


def class_indices(labels: np.ndarray, key: str) -> np.ndarray:
    """Return labels that are class indices already, as int64 of shape (n,).

    Parameters
    ----------
    labels : numpy.ndarray
        Shape (n,).
    key : str
        Begins every message.

    Returns
    -------
    numpy.ndarray
        int64, shape (n,).

    Raises
    ------
    DataError
        If they are not whole numbers in [0, 100000), one a record; it starts with ``key``.
    """
    allowed = f"allowed: one whole number from 0 to {MAX_CLASSES - 1} a record"
    if labels.ndim != 1:
        raise DataError(f"{key} has shape {labels.shape}; {allowed}")
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{key} is not numeric; {allowed}")
    # A NaN fails every comparison.
    fits = (labels >= 0) & (labels < MAX_CLASSES) & (labels == np.floor(labels))
    if not fits.all():
        raise DataError(f"{key} has the label {labels[~fits][0]}; {allowed}")
    return labels.astype(np.int64)


def count_classes(targets: np.ndarray, key: str) -> int:
    """Return one more than the largest class index.

    Parameters
    ----------
    targets : numpy.ndarray
        Class indices, int64, shape (n,).
    key : str
        Begins every message.

    Returns
    -------
    int
        Number of classes that the model has outputs for.

    Raises
    ------
    DataError
        If all records are of one class, from which nothing is learned; it starts with ``key``.
    """
    if (targets == targets[0]).all():
        raise DataError(f"{key}: all labels are the same; allowed: two classes or more")
    return int(targets.max()) + 1
