"""Kinds of data that ``zerosum new`` reads, and names that an app may have."""

import importlib.util
import keyword
import re
import sys
from enum import StrEnum
from pathlib import Path

from zerosum.client.files.operating_system import readable
from zerosum.server.config import ConfigError
from zerosum.simulations.config import experiment_names


class Kind(StrEnum):
    """File format of the records."""

    CSV = "csv"
    PARQUET = "parquet"
    NPZ = "npz"
    IMAGES = "images"


SUFFIXES = {".csv": Kind.CSV, ".parquet": Kind.PARQUET, ".pq": Kind.PARQUET, ".npz": Kind.NPZ}

WORDS = {
    Kind.CSV: "a .csv file",
    Kind.PARQUET: "a .parquet file",
    Kind.NPZ: "an .npz file",
    Kind.IMAGES: "a folder of images, one folder for each class",
}

_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?", re.ASCII)
_NAME_WORDS = (
    "allowed: up to 32 letters, digits and hyphens, a letter first and no hyphen last, as my-app"
)

_LEFT_OUT = frozenset(
    {"build", "data", "dist", "eggs", "env", "lib", "lib64", "parts", "runs", "state", "venv"}
)
"""Folders of an app that Flower, or the app's own .gitignore, does not send to nodes."""


def package_of(name: str) -> str:
    """Return the name of an app's Python package: my_app for my-app.

    Parameters
    ----------
    name : str
        The app's name.

    Returns
    -------
    str
        The package's.

    Raises
    ------
    ConfigError
        If Flower takes no app of that name, a shipped experiment has it, or the package would hide
        another from the nodes.
    """
    name = readable(name)
    if not _NAME.fullmatch(name):
        better = re.sub(r"[^A-Za-z0-9]+", "-", name, flags=re.ASCII).strip("-0123456789")[:32]
        cure = f'; did you mean "{better}"?' if _NAME.fullmatch(better) else ""
        raise ConfigError(f"NAME {name[:100]!r}: no name of a Flower app; {_NAME_WORDS}{cure}")
    package = name.lower().replace("-", "_")
    if name.lower() in experiment_names():
        raise ConfigError(
            f"NAME {name}: an experiment that ships with zerosum, which `zerosum run {name}` would "
            f"mean; choose another, as my-{name}"
        )
    # The folder of an app comes first where Python looks for modules.
    if package in _LEFT_OUT or keyword.iskeyword(package) or package in sys.stdlib_module_names:
        reason = "a word that Python or Flower has a use for"
    elif importlib.util.find_spec(package) is not None:
        reason = f"the name of the installed package {package}, which the app would hide"
    else:
        return package
    raise ConfigError(f"NAME {name!r}: {reason}; choose another, as my-{name}"[:300])


def kind_of(data: Path, kind: Kind | None) -> Kind:
    """Return the kind that was named, or else the kind that a path's ending says.

    Parameters
    ----------
    data : Path
        A file or folder.
    kind : Kind or None
        What ``--kind`` named.

    Returns
    -------
    Kind
        The kind.

    Raises
    ------
    ConfigError
        If nothing is there, or its ending says nothing.
    """
    guessed = Kind.IMAGES if data.is_dir() else SUFFIXES.get(data.suffix.lower())
    *first, last = WORDS.values()
    allowed = f"{', '.join(first)} or {last}"
    if not data.exists():
        raise ConfigError(f"--data {data}: nothing is there; give {allowed}")
    if guessed is None and kind is None:
        raise ConfigError(
            f'--data {data}: unknown kind "{data.suffix}"; give {allowed}, or its --kind'
        )
    if kind is not None and (kind is Kind.IMAGES) != data.is_dir():
        what = "folder" if data.is_dir() else "file"
        raise ConfigError(f"--kind {kind}: --data {data} is a {what}; give {WORDS[kind]}")
    chosen = kind if kind is not None else guessed
    if chosen is None or not (data.is_dir() or data.is_file()):
        raise ConfigError(f"--data {data}: neither a file nor a folder; give {allowed}")
    return chosen
