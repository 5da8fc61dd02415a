"""Cells of a sweep: the product of lists of values, or their zip, once for each seed."""

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zerosum.server.config import UNSET, ConfigError, apply_overrides, look_up
from zerosum.server.loggers.installed import check_loggers
from zerosum.server.spec import Experiment
from zerosum.simulations.config import Source, load_experiment

MOST_CELLS = 100_000
"""Cells of a sweep at most: each is a folder, a process, a line of the table."""

_OPEN, _CLOSE = "[{(", "]})"


@dataclass(frozen=True)
class Choice:
    """One value of a key: as ``--set`` takes it, and as tables show it."""

    override: str
    value: Any


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes
    ----------
    folder : str
        Its name under ``cells/``.
    values : dict of str to object
        Of each key that changes over the sweep; None for one that is taken out.
    experiment : Experiment
        Complete, as it is run: computed serially, for the cells share the cores.
    """

    folder: str
    values: Mapping[str, Any]
    experiment: Experiment


def split_values(text: str) -> list[str]:
    """Split a value at the commas that stand outside brackets and quotes.

    Parameters
    ----------
    text : str
        As "SGD,Adam" or "[64],[64, 32]".

    Returns
    -------
    list of str
        Stripped.
    """
    parts, depth, quote, start = [], 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote and text[place - 1] != "\\" else quote
        elif character in "\"'":
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in [*parts, text[start:]]]


def written_choices(settings: Iterable[str]) -> dict[str, list[Choice]]:
    """Read ``KEY=A,B`` of the command line.

    Parameters
    ----------
    settings : iterable of str
        As ``--set`` takes them, with a list where a key changes.

    Returns
    -------
    dict of str to list of Choice
        By key, in their order.

    Raises
    ------
    ConfigError
        If one is not of this form, or a key comes twice.
    """
    choices: dict[str, list[Choice]] = {}
    for text in settings:
        key, equals, raw = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--set {text!r} is not of the form key=value, as rounds=10,20")
        if key in choices:
            raise ConfigError(f"--set {text}: {key} has a list already; write one, as {key}=A,B")
        parts = split_values(raw)
        if len(parts) > 1 and not all(parts):
            raise ConfigError(f"--set {text}: a value of the list is empty; write {key}=A,B")
        overrides = [f"{key}={part}" for part in parts]
        choices[key] = [Choice(one, look_up(apply_overrides({}, [one]), key)) for one in overrides]
    return choices


def given_choices(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[Choice]]:
    """Read a grid of Python values; None takes a key out.

    Parameters
    ----------
    grid : mapping of str to sequence
        Values by key.

    Returns
    -------
    dict of str to list of Choice
        By key, in their order.

    Raises
    ------
    ConfigError
        If a key has no list of values, or a value that no configuration can hold.
    """
    choices = {}
    for key, values in grid.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise ConfigError(f"grid[{key!r}] = {values!r}: write a list of values, as [1, 2]")
        values = [value.item() if hasattr(value, "item") else value for value in values]
        choices[key] = [Choice(f"{key}={_toml(key, value)}", value) for value in values]
    return choices


def seeds_of(seeds: str | int | Iterable[int]) -> list[int]:
    """Read seeds: ``"0-4"``, ``"1,5,7-9"``, a number, or numbers.

    Parameters
    ----------
    seeds : str, int or iterable of int
        Not negative, none twice.

    Returns
    -------
    list of int
        In their order.

    Raises
    ------
    ConfigError
        If they are something else.
    """
    if isinstance(seeds, str):
        found = [seed for part in seeds.split(",") for seed in _seed_range(seeds, part.strip())]
    else:
        found = [int(seed) for seed in ([seeds] if isinstance(seeds, int) else seeds)]
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"seeds {seeds!r}: give each once, and at least one, as 0-4")
    return found


def cells_of(
    source: Source,
    choices: Mapping[str, Sequence[Choice]],
    seeds: Sequence[int] | None = None,
    *,
    zipped: bool = False,
    together: Sequence[str] = (),
) -> list[Cell]:
    """Build all cells of a sweep, each checked as far as its configuration goes.

    Parameters
    ----------
    source : str, Path, mapping or Experiment
        As for :func:`load_experiment`.
    choices : mapping of str to sequence of Choice
        By key; a key of one choice has it in all cells.
    seeds : sequence of int, optional
        Default: the experiment's own.
    zipped : bool
        Whether the first values go together, and the second ones, in place of the product.
    together : sequence of str
        Keys for whose lists alone that holds; the others multiply.

    Returns
    -------
    list of Cell
        Seeds change fastest.

    Raises
    ------
    ConfigError
        If there are none, too many, or a configuration is wrong.
    """
    if seeds is not None and "seed" in choices:
        raise ConfigError("seed: give seeds or values of the key seed, not both")
    if empty := next((key for key, listed in choices.items() if not listed), None):
        raise ConfigError(f"{empty}: its list has no value; give one, or leave the key out")
    changing = [key for key, listed in choices.items() if len(listed) > 1]
    if zipped and together:
        raise ConfigError("zip: all lists go together, or those of the keys named: not both")
    if absent := [key for key in together if key not in changing]:
        raise ConfigError(f"together: {absent[0]} has no list of values; give it one with --set")
    zipped_keys = [key for key in changing if zipped or key in together]
    numbers = seeds if seeds is not None else [None]
    count = math.prod(len(choices[key]) for key in changing if key not in zipped_keys[1:])
    if count * len(numbers) > MOST_CELLS:
        raise ConfigError(f"{count * len(numbers):,} cells: at most {MOST_CELLS:,}; give fewer")
    cells: list[Cell] = []
    for row in _rows(choices, zipped_keys):
        for seed in numbers:
            overrides = [row[key].override for key in choices]
            overrides += [] if seed is None else [f"seed={seed}"]
            experiment = load_experiment(source, overrides)
            check_loggers(experiment)
            # As JSON gives them back: the cells of a folder are compared with those asked for.
            values = {key: json.loads(json.dumps(row[key].value, default=str)) for key in changing}
            # The cells share the cores: within each, clients are computed one after another.
            serial = experiment.model_copy(update={"engine": "serial", "workers": "auto"})
            name = _folder(len(cells), {**values, "seed": serial.seed})
            cells.append(Cell(name, values, serial))
    return cells


def shown(value: Any) -> str:
    """Write a value of a key as tables and names of folders have it."""
    if value is None:
        return UNSET
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return json.dumps(value, ensure_ascii=False)


def _rows(
    choices: Mapping[str, Sequence[Choice]], together: Sequence[str]
) -> Iterator[dict[str, Choice]]:
    """Yield the product of the lists; those that go together are one of its factors."""
    lengths = {key: len(choices[key]) for key in together}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise ConfigError(f"zip: lists of one length go together, and these have {listed} values")
    columns = [choices[key] for key in together]
    zipped = [dict(zip(together, row, strict=True)) for row in zip(*columns, strict=True)]
    factors: list[list[dict[str, Choice]]] = []
    for key, values in choices.items():
        if key not in together:
            factors.append([{key: value} for value in values])
        elif key == together[0]:
            factors.append(zipped)
    for factor in factors:
        seen = [_canonical(each) for each in factor]
        if len(set(seen)) < len(seen):
            keys = ", ".join(factor[0])
            raise ConfigError(f"{keys}: a value is in its list twice; the same cell runs once")
    for row in itertools.product(*factors):
        yield {key: choice for part in row for key, choice in part.items()}


def _canonical(row: Mapping[str, Choice]) -> str:
    return json.dumps([choice.value for choice in row.values()], sort_keys=True, default=str)


def _seed_range(whole: str, part: str) -> Iterable[int]:
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first or last - first >= MOST_CELLS:
        raise ConfigError(f"seeds {whole!r}: write a range as 0-4, or a list as 0,3,7")
    return range(first, last + 1)


def _folder(index: int, values: Mapping[str, Any]) -> str:
    """Return a name that people can read; its number alone makes it unique."""
    words = [f"{key.rpartition('.')[2]}={shown(value)}" for key, value in values.items()]
    return f"{index:04d}-" + re.sub(r"[^A-Za-z0-9._=+-]+", "_", "-".join(words))[:80].rstrip(".")


def _toml(key: str, value: Any) -> str:
    """Write a value as TOML has it in one line."""
    if value is None:
        return UNSET
    if isinstance(value, Mapping):
        inner = (f"{json.dumps(str(k))} = {_toml(key, v)}" for k, v in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(key, each) for each in value) + "]"
    if isinstance(value, str):
        # Half of a surrogate, which a name of a file may have, TOML has no escape for.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return json.dumps(value) if not isinstance(value, float) else repr(value)
    raise ConfigError(f"grid[{key!r}]: {value!r} is neither a number, text, list nor mapping")
