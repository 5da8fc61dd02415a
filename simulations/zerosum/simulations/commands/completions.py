"""Values that a shell completes: experiments, keys of ``--set``, attacks, run folders.

Nothing here may import torch: a shell waits for it at every tab.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from zerosum.simulations.terminal.shell_completion import Completes

Pairs = list[tuple[str, str]]

MOST_FOLDERS = 100
"""Run folders that are offered, the newest first."""


def _experiments(incomplete: str) -> Pairs:
    """Return shipped experiments, and the TOML files of this folder."""
    from zerosum.simulations.commands.listing import experiments

    files = [(path.name, "file") for path in sorted(Path().glob("*.toml"))]
    return [*experiments(), *files]


def _tasks() -> Pairs:
    from zerosum.simulations.commands.listing import tasks

    return [row for row in tasks() if ":" not in row[0]]


def _attacks(incomplete: str) -> Pairs:
    from zerosum.simulations.commands.listing import attacks

    return [row for row in attacks() if ":" not in row[0]]


def _attack_parameters(incomplete: str) -> Pairs:
    return [(f"{name}.", meaning) for name, meaning in _attacks(incomplete)]


def _folders(incomplete: str) -> list[str]:
    """Return the run folders under ``runs/``, the newest first."""
    from zerosum.server.runs.run_folder import RUNS

    if not RUNS.is_dir():
        return []
    folders = [path for path in RUNS.iterdir() if path.is_dir()]
    newest = sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)
    return [str(path) for path in newest[:MOST_FOLDERS]]


def _settings(incomplete: str) -> Pairs:
    """Return keys, each with its section; after ``=``, the key's values where they are known."""
    from zerosum.server.config import fields_of

    key, has_value, value = incomplete.partition("=")
    fields = fields_of(with_meaning=True)
    if has_value:
        # Of a sweep's list the last value is completed.
        start = value[: value.rfind(",") + 1]
        return [(f"{key}={start}{word}", meaning) for word, meaning in _values(key, fields)]
    # A key with its usual value beside the bare one: of one word alone, a shell would go on to the
    # next with a space after "=".
    rows: Pairs = []
    for name, field in fields.items():
        meaning = (field.description or "").partition(". ")[0]
        rows.append((f"{name}=", meaning))
        rows += [(f"{name}={word}", "usual") for word in _usual(field) if shlex.quote(word) == word]
    return rows


def _values(key: str, fields: dict[str, FieldInfo]) -> Pairs:
    """Return the values of a key that is one of some words; else the usual one."""
    if key == "task":
        return _tasks()
    field = fields.get(key)
    if field is None:
        return []
    words = dict.fromkeys(_words(field.annotation, field.metadata)) or _usual(field)
    # A space or a quote would have to be written otherwise.
    return [(word, "") for word in words if shlex.quote(word) == word]


def _words(annotation: Any, metadata: list[Any]) -> Iterator[str]:
    """Yield the words that a type allows."""
    from zerosum.client.spec import Choices

    for choices in metadata:
        if isinstance(choices, Choices):
            yield from choices.names()
    if annotation is bool:
        yield from ("true", "false")
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from _words(part, list(getattr(part, "__metadata__", ())))


def _usual(field: FieldInfo) -> list[str]:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return [str(value).lower()]
    return [str(value)] if isinstance(value, int | float | str) and not field.is_required() else []


EXPERIMENTS = Completes(_experiments)
SETTINGS = Completes(_settings, other="")
DATA_SETTINGS = Completes(
    lambda incomplete: [row for row in _settings(incomplete) if row[0].startswith("data.")], ""
)
ATTACKS = Completes(_attacks)
ATTACK_PARAMETERS = Completes(_attack_parameters, other="")
RUN_FOLDERS = Completes(_folders, other="dir")


def words(*known: str) -> Completes:
    """Return the completion of a text that is one of some words.

    Parameters
    ----------
    *known : str
        The words, as the option takes them.

    Returns
    -------
    Completes
        To stand in the option's ``Annotated``.
    """
    return Completes(lambda incomplete: list(known), other="")
