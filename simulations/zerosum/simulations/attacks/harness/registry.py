"""Which attacks there are, and how ``--set`` changes them."""

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.task import current_directory_importable
from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.harness.interface import Attack, Metric, ThreatModel, parameters_of
from zerosum.simulations.attacks.harness.parameters import value_of

BUILT_IN = (
    "inversion.gradient_matching",
    "inversion.first_layer",
    "inversion.features",
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
    "protocol.request_binding",
    "protocol.weak_seeds",
    "protocol.weak_masks",
    "poisoning.replacement",
    "poisoning.backdoors",
    "poisoning.opposing",
    "poisoning.hiding",
    "poisoning.tailored",
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
        chosen = _changed(chosen, setting, known)
    return list({(type(each), repr(each)): each for each in chosen}.values())  # each once


def _named(name: str, known: Sequence[Attack]) -> list[Attack]:
    found = [attack for attack in known if slug(attack) == _hyphened(name)]
    if not found and ":" in name:
        return [_made(name)]
    if not found:
        names = list(dict.fromkeys(map(slug, known)))
        raise ConfigError(
            f"{name!r} is no attack; there are: {', '.join(names)}; or give module:Class"
            f"{did_you_mean(name, names)}"
        )
    return found


def _made(path: str) -> Attack:
    module, _, name = path.partition(":")
    try:
        with current_directory_importable():
            made: Any = getattr(importlib.import_module(module), name)()
    except (Exception, SystemExit) as error:  # whatever a module of the user's raises
        raise ConfigError(
            f"{path!r} is no attack ({error}): module:Class is a class that can be made without "
            "arguments, in a module that Python finds"
        ) from None
    missing = [each for each in _PARTS if not hasattr(made, each)]
    if missing or not dataclasses.is_dataclass(made):
        wanting = f"it has no {', '.join(missing)}" if missing else "it is no dataclass"
        raise ConfigError(f"{path!r} is no attack: {wanting}; docs/attacks.md says what one is")
    wrong = [part for part, fits in _KINDS.items() if not fits(getattr(made, part))]
    if wrong:
        raise ConfigError(f"{path!r} is no attack: its {wrong[0]} is no {_WORDS[wrong[0]]}")
    return cast(Attack, made)


def _are(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(isinstance(v, kind) for v in value)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str),
    "adaptive": lambda value: isinstance(value, str),
    "threat": lambda value: isinstance(value, ThreatModel),
    "requires": _are(str),  # a text alone would be taken for fields of one letter each
    "metrics": _are(Metric),
}
_WORDS = {
    "name": "text",
    "adaptive": "text",
    "threat": "ThreatModel",
    "requires": "tuple of fields' names",
    "metrics": "tuple of Metric",
}


_PARTS = ("name", "adaptive", "threat", "requires", "metrics", "cases", "baseline", "run", "score")


def _changed(attacks: Sequence[Attack], setting: str, known: Sequence[Attack]) -> list[Attack]:
    key, equals, text = setting.partition("=")
    name, dot, parameter = key.partition(".")
    if not equals or not dot:
        raise ConfigError(f"--set {setting}: write ATTACK.PARAMETER=VALUE")
    named = [attack for attack in attacks if slug(attack) == _hyphened(name)]
    if not named:
        raise ConfigError(f"--set {setting}: {_not_played(name, attacks, known)}")
    hit = [attack for attack in named if parameter in parameters_of(attack)]
    if not hit:
        own = list(dict.fromkeys(p for attack in named for p in parameters_of(attack)))
        raise ConfigError(
            f"--set {setting}: {slug(named[0])} has no {parameter!r}; it has "
            f"{', '.join(own) or 'no parameters'}{did_you_mean(parameter, own)}"
        )
    return [_with(a, parameter, text, setting) if a in hit else a for a in attacks]


def _not_played(name: str, attacks: Sequence[Attack], known: Sequence[Attack]) -> str:
    """Say why no attack is called so."""
    names = list(dict.fromkeys(map(slug, attacks)))
    if _hyphened(name) in map(slug, known):
        return f"{name} is not played; name it too, beside {', '.join(names)}"
    return f"{name!r} is no attack; there are: {', '.join(names)}{did_you_mean(name, names)}"


def _with(attack: Attack, parameter: str, text: str, setting: str) -> Attack:
    try:
        value = value_of(attack, parameter, text)
        changed: Attack = dataclasses.replace(attack, **{parameter: value})  # type: ignore[type-var]
    except (ValueError, TypeError) as error:  # of the attack's own checks, too
        raise ConfigError(f"--set {setting}: {error}") from None
    return changed
