"""Experiments by name or by file."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from zerosum.client.system import readable
from zerosum.server.config import (
    ConfigError,
    apply_overrides,
    merge,
    parse_experiment,
    read_toml,
    to_values,
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
    if isinstance(source, Experiment):
        values = to_values(source)
    elif isinstance(source, Mapping):
        values = _extended(source)
    else:
        values = _extended(_read(str(source)))
    return parse_experiment(apply_overrides(values, overrides))


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
    own = {key: value for key, value in values.items() if key != EXTENDS}
    if base is None:
        return own
    if base not in experiment_names():
        raise ConfigError(f"extends = {base!r} is not one of {', '.join(experiment_names())}")
    return merge(_extended(_shipped(base)), own)
