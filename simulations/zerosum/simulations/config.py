"""Experiments by name or by file."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from zerosum.client.files.operating_system import named_path, readable
from zerosum.client.given_task import GivenTask, named_or_given
from zerosum.client.nearest_word import MOST, did_you_mean
from zerosum.client.task import TaskError
from zerosum.server.config import (
    UNSET,
    ConfigError,
    all_keys,
    apply_overrides,
    look_up,
    merge,
    parse_experiment,
    read_toml,
    to_values,
    without,
)
from zerosum.server.runs.run_folder import CONFIG
from zerosum.server.spec import Experiment

DEFAULT_EXPERIMENT = "mnist5k"
EXTENDS = "extends"
"""Top-level key of an experiment file: a named experiment to start from."""


Source: TypeAlias = str | Path | Mapping[str, Any] | Experiment
"""A name, a TOML file, plain values, or what was made of them."""

T = TypeVar("T")

_GUESS = re.compile(r'; did you mean "[^"]*"\?')


def load_experiment(
    source: Source = DEFAULT_EXPERIMENT,
    overrides: Iterable[str] = (),
) -> Experiment:
    """Return an experiment from a name, a TOML file or plain values, with overrides applied.

    Parameters
    ----------
    source : str, Path, mapping or Experiment
        Shipped name, TOML file, plain values, or the experiment.
    overrides : iterable of str
        As ``--set`` takes them: ``privacy.clip=1.0``.

    Returns
    -------
    Experiment
        Complete and valid.

    Raises
    ------
    ConfigError
        For the first thing that is wrong.
    """
    overrides = list(overrides)
    written = _written(source)
    values = apply_overrides(_extended(written), overrides)
    try:
        return parse_experiment(values)
    except ConfigError as error:
        cure = _way_out(str(error), source, overrides, all_keys(), _is_valid)
        raise ConfigError(f"{error}{cure}") from None


def with_task(source: Source, task: object | None) -> Source:
    """Return an experiment with another task, as ``--set task=`` gives it one.

    Parameters
    ----------
    source : str, Path, mapping or Experiment
        As for :func:`load_experiment`.
    task : Task, class, function or str, optional
        A task, what makes one, or the name of either; the experiment's own where absent.

    Returns
    -------
    str, Path, mapping or Experiment
        For :func:`load_experiment`.

    Raises
    ------
    ConfigError
        If a file cannot be read, or the task is a plain value.
    """
    if task is None:
        return source
    return {**_written(source), "task": named_or_given(task, _as_task_name)}


def _as_task_name(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ConfigError(
        f"task = {value!r:.80}: give a task object, a class that makes one, or the name of either"
    )


def attempt(source: Source, overrides: Iterable[str], action: Callable[[Experiment], T]) -> T:
    """Load an experiment and do something with it.

    An error of its task says how a key is taken out that another experiment set: whoever gives
    ``task`` and ``data.path`` never wrote the ``data.pool`` that does not fit them.

    Parameters
    ----------
    source, overrides
        As for :func:`load_experiment`.
    action : callable
        It is done once more for each key that may be taken out, if it raises a TaskError.

    Returns
    -------
    T
        What the action returned.

    Raises
    ------
    ConfigError, TaskError
        For the first thing that is wrong.
    """
    overrides = list(overrides)
    experiment = load_experiment(source, overrides)
    try:
        return action(experiment)
    except TaskError as error:
        message = str(error)

        def is_cured(values: dict[str, Any]) -> bool:
            try:
                action(parse_experiment(values))
            except (ConfigError, TaskError) as other:  # the next thing that is wrong
                return _blamed(str(other)) != _blamed(message)
            return True

        # Only keys of sections: "name" and "task" are words of many messages.
        keys = [key for key in all_keys() if "." in key]
        cure = _way_out(message, source, overrides, keys, is_cured)
        if beside := _beside(source, message):
            message, cure = _GUESS.sub("", message), beside
        error.args = (f"{message}{cure}",)
        raise


def _beside(source: Source, message: str) -> str:
    """Return where a relative data.path leads that was meant from the experiment's own folder."""
    if not isinstance(source, str | Path) or not message.startswith("data.path = "):
        return ""
    with suppress(ConfigError, OSError, ValueError):
        path = look_up(_written(source), "data.path")
        meant = Path(source).parent / named_path(str(path))
        if not named_path(str(path)).exists() and meant.exists():
            return (
                f"; a relative path begins where the command runs, not at the experiment: write "
                f"data.path = {str(meant)!r}"
            )
    return ""


def _blamed(message: str) -> str:
    """Return what an error begins with: the key that is wrong."""
    return message.partition(" ")[0]


def _is_valid(values: dict[str, Any]) -> bool:
    with suppress(ConfigError):
        parse_experiment(values)
        return True
    return False


def _written(source: Source) -> Mapping[str, Any]:
    if isinstance(source, Experiment):
        values = to_values(source)
        given = isinstance(source.task, GivenTask)
        return values | {"task": source.task} if given else values
    return source if isinstance(source, Mapping) else _read(str(source))


def _way_out(
    message: str,
    source: Source,
    overrides: Sequence[str],
    keys: Iterable[str],
    is_cured: Callable[[dict[str, Any]], bool],
) -> str:
    """Return how a key that an error names is taken out, where another file set it.

    Only what was tried is told: without the key, the error has to be gone.

    Parameters
    ----------
    message : str
        The error.
    source, overrides
        As for :func:`load_experiment`.
    keys : iterable of str
        Which to look for.
    is_cured : callable
        Tells whether the error is gone with other values.
    """
    written = _written(source)
    inherited = _extended(written)
    values = apply_overrides(inherited, overrides)
    given = [text.partition("=")[0].strip() for text in overrides]
    origin = str(source) if isinstance(source, str | Path) else "what is overridden"
    if not overrides and EXTENDS in written:
        given = [key for key in all_keys() if look_up(written, key) is not None]
        origin, inherited = str(written[EXTENDS]), _extended({EXTENDS: written[EXTENDS]})
    for key in keys if given else ():
        value = look_up(inherited, key)
        if value is None or key in given or not re.search(rf"\b{re.escape(key)}\b", message):
            continue
        if is_cured(without(values, [key])):
            how = f"--set {key}={UNSET}" if overrides else f'{UNSET} = ["{key}"]'
            return f"; {key} = {value!r} is of {origin}: {how} takes it out"
    return ""


def experiment_names() -> list[str]:
    """Return the names of the experiments that ship with the package."""
    folder = resources.files("zerosum.simulations") / "experiments"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def experiment_text(name: str) -> str:
    """Return the TOML of a shipped experiment."""
    path = resources.files("zerosum.simulations") / "experiments" / f"{name}.toml"
    return path.read_text(encoding="utf-8")


def _files_here() -> list[str]:
    """Return the experiments' files of the current directory, as far as it can be read."""
    try:
        return [path.name for path in islice(Path().glob("*.toml"), MOST)]
    except OSError:
        return []


def _read(source: str) -> dict[str, Any]:
    names = experiment_names()
    if source in names:
        return _shipped(source)
    if not source.endswith(".toml") or "\0" in source:
        if "\0" not in source and (Path(source) / CONFIG).is_file():
            raise ConfigError(
                f"experiment {source[:200]!r} is the folder of a run: to go on, write --resume "
                "before it; to begin anew, give its config.toml"
            )
        raise ConfigError(
            f"experiment {source[:200]!r} is neither a .toml file nor one of {', '.join(names)}"
            f"{did_you_mean(source, [*names, *_files_here()])}"
        )
    path = Path(source)
    # Not the name of what it extends, under which its run folders would mix with the preset's.
    return {"name": readable(path.stem)[:80]} | read_toml(path)


def _shipped(name: str) -> dict[str, Any]:
    return tomllib.loads(experiment_text(name))


def _extended(values: Mapping[str, Any]) -> dict[str, Any]:
    base = values.get(EXTENDS)
    own = {key: value for key, value in values.items() if key not in (EXTENDS, UNSET)}
    out = values.get(UNSET, [])
    if not isinstance(out, list) or not all(isinstance(key, str) for key in out):
        raise ConfigError(
            f'{UNSET} = {out!r}: write a list of keys to take out, as ["privacy.clip"]'
        )
    if base is None:
        if out:
            raise ConfigError(
                f"{UNSET} = {out!r} takes out what another experiment sets: write {EXTENDS} = "
                f"NAME, one of {', '.join(experiment_names())}, or leave the keys out"
            )
        return own
    if base not in experiment_names():
        raise ConfigError(f"extends = {base!r} is not one of {', '.join(experiment_names())}")
    return merge(without(_extended(_shipped(base)), out), own)
