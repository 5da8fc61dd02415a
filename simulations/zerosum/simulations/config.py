"""Experiments by name or by file."""

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from zerosum.client.system import readable
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
from zerosum.server.spec import Experiment

DEFAULT_EXPERIMENT = "mnist5k"
EXTENDS = "extends"
"""Top-level key of an experiment file: a named experiment to start from."""


def load_experiment(
    source: str | Path | Mapping[str, Any] | Experiment = DEFAULT_EXPERIMENT,
    overrides: Iterable[str] = (),
) -> Experiment:
    """Return an experiment from a name, a TOML file or plain values, with overrides applied.

    Raises
    ------
    ConfigError
        For the first thing that is wrong.
    """
    overrides = list(overrides)
    if isinstance(source, Experiment):
        written: Mapping[str, Any] = to_values(source)
    else:
        written = source if isinstance(source, Mapping) else _read(str(source))
    before = _extended(written)
    values = apply_overrides(before, overrides)
    try:
        return parse_experiment(values)
    except ConfigError as error:
        given = [text.partition("=")[0].strip() for text in overrides]
        origin = str(source) if isinstance(source, str | Path) else "what is overridden"
        if not overrides and EXTENDS in written:
            given = [key for key in all_keys() if look_up(written, key) is not None]
            origin, before = str(written[EXTENDS]), _extended({EXTENDS: written[EXTENDS]})
        told = _way_out(str(error), before, values, given, origin, by_option=bool(overrides))
        raise ConfigError(f"{error}{told}") from None


def _way_out(
    message: str,
    inherited: Mapping[str, Any],
    values: Mapping[str, Any],
    given: Collection[str],
    origin: str,
    *,
    by_option: bool,
) -> str:
    """Return how a key that an error names is taken out, where another file set it.

    Only what was tried is told: without the key, the experiment has to be valid.

    Parameters
    ----------
    message : str
        The error.
    inherited, values : mapping
        What was there before, and what is wrong.
    given : collection of str
        Keys that the user set, who knows where they are.
    origin : str
        Who set the others.
    by_option : bool
        Whether the user set them by ``--set``, rather than in a file.
    """
    for key in all_keys() if given else ():
        value = look_up(inherited, key)
        if value is None or key in given or not re.search(rf"\b{re.escape(key)}\b", message):
            continue
        with suppress(ConfigError):
            parse_experiment(without(values, [key]))
            how = f"--set {key}={UNSET}" if by_option else f'{UNSET} = ["{key}"]'
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


def _read(source: str) -> dict[str, Any]:
    names = experiment_names()
    if source in names:
        return _shipped(source)
    if not source.endswith(".toml") or "\0" in source:
        near = difflib.get_close_matches(source, names, n=1)
        cure = f": did you mean {near[0]}?" if near else ""
        known = ", ".join(names)
        raise ConfigError(
            f"experiment {source[:200]!r} is neither a .toml file nor one of {known}{cure}"
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
