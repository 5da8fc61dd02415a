"""Which attacks there are, and how ``--set`` changes them."""

import dataclasses
import importlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from zerosum.client.task import current_directory_importable
from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.interface import Attack, parameters_of

BUILT_IN = (
    "inversion.gradient_matching",
    "inversion.first_layer",
    "inversion.likeliest_image",
    "inversion.imprint",
    "inversion.repetition",
    "inversion.differencing",
    "inference.property_inference",
    "inference.membership",
    "inference.model_inversion",
    "published.subset_sums",
    "published.small_tables",
    "published.linkage",
    "protocol.dropout_lies",
    "protocol.weak_seeds",
    "protocol.weak_masks",
    "poisoning.replacement",
    "poisoning.backdoors",
    "poisoning.opposing",
    "poisoning.hiding",
)
"""Modules of this package, each with its ``ATTACKS``; in the order of the table."""

PACKAGE = "zerosum.simulations.attacks"


def slug(attack: Attack) -> str:
    """Return an attack's name as the command line writes it."""
    return _hyphened(attack.name)


def _hyphened(name: str) -> str:
    return "-".join(re.findall(r"\w+", name))


def all_attacks() -> list[Attack]:
    """Return every built-in attack, with its default parameters."""
    modules = (importlib.import_module(f"{PACKAGE}.{name}") for name in BUILT_IN)
    return [attack for module in modules for attack in module.ATTACKS]


def choose(names: Sequence[str], settings: Iterable[str] = ()) -> list[Attack]:
    """Return the attacks of these names, all without any, with their parameters changed.

    Parameters
    ----------
    names : sequence of str
        As "gradient-inversion", or ``module:Class`` for one of your own. Attacks that share a
        name are all meant.
    settings : iterable of str
        As ``gradient-inversion.iterations=100``.

    Raises
    ------
    ConfigError
        For a name, parameter or value that is not one.
    """
    known = all_attacks()
    chosen = [a for name in names for a in _named(name, known)] if names else known
    for setting in settings:
        chosen = _changed(chosen, setting)
    return chosen


def _named(name: str, known: Sequence[Attack]) -> list[Attack]:
    found = [attack for attack in known if slug(attack) == _hyphened(name)]
    if not found and ":" in name:
        return [_made(name)]
    if not found:
        allowed = ", ".join(dict.fromkeys(map(slug, known)))
        raise ConfigError(f"{name!r} is no attack; there are: {allowed}; or give module:Class")
    return found


def _made(path: str) -> Attack:
    module, _, name = path.partition(":")
    try:
        with current_directory_importable():
            made: Any = getattr(importlib.import_module(module), name)()
    except (
        Exception,
        SystemExit,
    ) as error:  # whatever a module of the user raises as it is imported
        raise ConfigError(
            f"{path!r} is no attack ({error}): module:Class is a class that can be made without "
            "arguments, in a module that Python finds"
        ) from None
    missing = [each for each in _PARTS if not hasattr(made, each)]
    if missing or not dataclasses.is_dataclass(made):
        wanting = f"it has no {', '.join(missing)}" if missing else "it is no dataclass"
        raise ConfigError(f"{path!r} is no attack: {wanting}; docs/attacks.md says what one is")
    return cast(Attack, made)


_PARTS = ("name", "adaptive", "threat", "requires", "metrics", "cases", "baseline", "run", "score")


def _changed(attacks: Sequence[Attack], setting: str) -> list[Attack]:
    key, equals, text = setting.partition("=")
    name, dot, parameter = key.partition(".")
    if not equals or not dot:
        raise ConfigError(f"--set {setting}: write ATTACK.PARAMETER=VALUE")
    hit = [a for a in attacks if slug(a) == name and parameter in parameters_of(a)]
    if not hit:
        allowed = sorted(f"{slug(a)}.{p}" for a in attacks for p in parameters_of(a))
        raise ConfigError(
            f"--set {setting}: {key!r} is none of {', '.join(dict.fromkeys(allowed))}"
        )
    return [_with(a, parameter, text, setting) if a in hit else a for a in attacks]


def _with(attack: Attack, parameter: str, text: str, setting: str) -> Attack:
    before = parameters_of(attack)[parameter]
    value = _value(text, before, setting)
    try:
        changed: Attack = dataclasses.replace(attack, **{parameter: value})  # type: ignore[type-var]
    except ValueError as error:
        raise ConfigError(f"--set {setting}: {error}") from None
    return changed


def _value(text: str, before: Any, setting: str) -> Any:
    """Read a value of the kind that a parameter has."""
    if isinstance(before, str):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(before, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(before, tuple) and isinstance(value, list):
        value = tuple(value)
    if type(value) is not type(before):
        raise ConfigError(
            f"--set {setting}: {text!r} is no {type(before).__name__}, as {before!r} is"
        )
    return value
