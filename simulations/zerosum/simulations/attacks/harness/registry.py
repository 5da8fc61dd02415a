"""Find attacks by name, and change their parameters."""

import dataclasses
import importlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, cast

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.task import current_directory_importable
from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.harness.built_in import BUILT_IN, PACKAGE
from zerosum.simulations.attacks.harness.interface import Attack, Metric, ThreatModel, parameters_of
from zerosum.simulations.attacks.harness.parameters import refusal, value_of


def slug(attack: Attack) -> str:
    """Return an attack's name as the command line writes it."""
    return _hyphened(attack.name)


def _hyphened(name: str) -> str:
    return "-".join(re.findall(r"\w+", name))


def built_in(names: Iterable[str] = BUILT_IN) -> list[Attack]:
    """Return the built-in attacks of these names, in the table's order, as they are unless set.

    Parameters
    ----------
    names : iterable of str
        Keys of :data:`BUILT_IN`; all by default.
    """
    wanted = set(names)
    targets = [target for name, each in BUILT_IN.items() if name in wanted for target in each]
    modules = dict.fromkeys(target.partition(":")[0] for target in targets)
    return [
        attack
        for module in modules
        for attack in importlib.import_module(f"{PACKAGE}.{module}").ATTACKS
        if slug(attack) in wanted
    ]


def choose(names: Sequence[str], settings: Iterable[str] = ()) -> list[Attack]:
    """Return the attacks of these names, all without any, with their parameters changed.

    Parameters
    ----------
    names : sequence of str
        As "gradient-inversion", or ``module:Class`` for one of your own. Attacks that share a
        name are all meant.
    settings : iterable of str
        As ``gradient-inversion.iterations=100``.

    Returns
    -------
    list of Attack
        Each once.

    Raises
    ------
    ConfigError
        For a name, parameter or value that is not one.
    """
    chosen = [attack for name in names for attack in _named(name)] if names else built_in()
    for setting in settings:
        chosen = _changed(chosen, setting)
    return list({(type(each), repr(each)): each for each in chosen}.values())  # each once


def _named(name: str) -> list[Attack]:
    if _hyphened(name) in BUILT_IN:
        return built_in([_hyphened(name)])
    if ":" in name:
        return [_made(name)]
    raise ConfigError(
        f"{name!r} is no attack; there are: {', '.join(BUILT_IN)}; or give module:Class"
        f"{did_you_mean(name, list(BUILT_IN))}"
    )


def _made(path: str) -> Attack:
    module, _, name = path.partition(":")
    try:
        with current_directory_importable():
            made: Any = getattr(importlib.import_module(module), name)()
    except (Exception, SystemExit) as error:  # whatever a module of the user's raises
        raise ConfigError(
            f"{path!r} is no attack ({error}): module:Class is a class that can be made without "
            "arguments, in a module of the current folder or of an installed package"
        ) from None
    missing = [each for each in _REQUIRED if not hasattr(made, each)]
    if missing or not dataclasses.is_dataclass(made):
        wanting = f"it has no {', '.join(missing)}" if missing else "it is no dataclass"
        raise ConfigError(f"{path!r} is no attack: {wanting}; docs/attacks.md says what one is")
    try:
        _Description(**{each.name: getattr(made, each.name) for each in fields(_Description)})
    except ValidationError as error:
        raise ConfigError(f"{path!r} is no attack: its {refusal(error)}") from None
    return cast(Attack, made)


@checked_dataclass(config=ConfigDict(strict=True))
class _Description:
    """An attack's description of itself, checked: a text alone would pass for a list of letters."""

    name: str
    adaptive: str
    threat: ThreatModel
    requires: tuple[str, ...]
    metrics: tuple[Metric, ...]


_REQUIRED = (*(each.name for each in fields(_Description)), "cases", "baseline", "run", "score")


def _changed(attacks: Sequence[Attack], setting: str) -> list[Attack]:
    key, equals, text = setting.partition("=")
    name, dot, parameter = key.partition(".")
    if not equals or not dot:
        raise ConfigError(f"--set {setting}: write ATTACK.PARAMETER=VALUE")
    named = [attack for attack in attacks if slug(attack) == _hyphened(name)]
    if not named:
        raise ConfigError(f"--set {setting}: {_not_played(name, attacks)}")
    hit = [attack for attack in named if parameter in parameters_of(attack)]
    if not hit:
        own = list(dict.fromkeys(p for attack in named for p in parameters_of(attack)))
        raise ConfigError(
            f"--set {setting}: {slug(named[0])} has no {parameter!r}; it has "
            f"{', '.join(own) or 'no parameters'}{did_you_mean(parameter, own)}"
        )
    return [_with(a, parameter, text, setting) if a in hit else a for a in attacks]


def _not_played(name: str, attacks: Sequence[Attack]) -> str:
    """Say why no attack is called so."""
    names = list(dict.fromkeys(map(slug, attacks)))
    if _hyphened(name) in BUILT_IN:
        return f"{name} is not played; name it too, beside {', '.join(names)}"
    return f"{name!r} is no attack; there are: {', '.join(names)}{did_you_mean(name, names)}"


def _with(attack: Attack, parameter: str, text: str, setting: str) -> Attack:
    try:
        value = value_of(attack, parameter, text)
        changed: Attack = dataclasses.replace(attack, **{parameter: value})  # type: ignore[type-var]
    except (ValueError, TypeError) as error:  # of the attack's own checks, too
        raise ConfigError(f"--set {setting}: {error}") from None
    return changed
