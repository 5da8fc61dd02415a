"""Reading an experiment: TOML, dotted overrides, and errors that a person can act on."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from zerosum.client.files import toml_file
from zerosum.client.files.operating_system import readable
from zerosum.client.nearest_word import nearest
from zerosum.client.spec.complaints import complaints
from zerosum.client.spec.section import described
from zerosum.client.user_error import UserError
from zerosum.server.spec import RULE_KEYS, Experiment
from zerosum.server.spec.app_settings import without_app_settings


class ConfigError(UserError, ValueError):
    """The user's configuration is wrong; the message is one line: key, value, allowed, cure."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read an experiment file.

    Parameters
    ----------
    path : Path
        Of a TOML file.

    Returns
    -------
    dict
        Its tables.

    Raises
    ------
    ConfigError
        If the file is missing, unreadable or not TOML.
    """
    try:
        return toml_file.read_toml(path, "experiment file")
    except toml_file.TomlError as error:
        raise ConfigError(str(error)) from None


def apply_overrides(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return ``values`` with overrides ``a.b=c`` applied; ``c`` is TOML, or else a bare string.

    The bare word ``unset`` takes a key, or a section, out: its default holds again. So does
    ``none`` where by default there is none, as of ``data.limit``. Setting one of
    two exclusive keys (``privacy.epsilon`` and ``noise_multiplier``, ``training.epochs`` and
    ``steps``) takes the other out by itself, and so does setting what a key depends on to a value
    under which it means nothing, as ``privacy.unit=client`` for ``privacy.lot``.

    Parameters
    ----------
    values : mapping
        Of an experiment.
    overrides : iterable of str
        As "privacy.clip=1.0".

    Returns
    -------
    dict
        A new one.

    Raises
    ------
    ConfigError
        If an override has no ``=``, its key runs through a value, or a key to take out is none.
    """
    result = _deep_copy(values)
    given = [_split_override(readable(text)) for text in overrides]
    for key, value in given:
        if value is _UNSET:
            result = without(result, [key])
            continue
        *parents, last = key.split(".")
        section = result
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise ConfigError(f"--set {key}: {parent} is a value, not a section")
        section[last] = value
        siblings = {
            k.rpartition(".")[2] for k, _ in given if k.rpartition(".")[0] == ".".join(parents)
        }
        _drop_rival(section, last, siblings)
    return result


def without(values: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return values without some keys or sections, which need not be there.

    Parameters
    ----------
    values : mapping
        Of an experiment.
    keys : iterable of str
        Dotted, as "privacy.epsilon".

    Returns
    -------
    dict
        A new one.

    Raises
    ------
    ConfigError
        If one is no key that there is.
    """
    result = _deep_copy(values)
    known = _keys()
    for key in keys:
        if key not in known and not any(other.startswith(f"{key}.") for other in known):
            raise ConfigError(_unknown_key(key, "unset"))
        *parents, last = key.split(".")
        section: Any = result
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section.pop(last, None)
    return result


def look_up(values: Mapping[str, Any], key: str) -> Any:
    """Return what values say of a dotted key; None where they say nothing.

    Parameters
    ----------
    values : mapping
        Of an experiment.
    key : str
        Dotted.

    Returns
    -------
    object
        A value, or the values of a section.
    """
    current: Any = values
    for part in key.split("."):
        if not isinstance(current, Mapping) or part not in current:
            return None
        current = current[part]
    return current


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` laid on top, section by section.

    Parameters
    ----------
    base, over : mapping
        Of an experiment; the second wins.

    Returns
    -------
    dict
        A new one.
    """
    result = _deep_copy(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
        _drop_rival(result, key, set(over))
    return result


def parse_experiment(values: Mapping[str, Any]) -> Experiment:
    """Validate plain values into an experiment.

    Parameters
    ----------
    values : mapping
        Sections and keys, as TOML has them.

    Returns
    -------
    Experiment
        With every default.

    Raises
    ------
    ConfigError
        For the first thing that is wrong, naming its key, its value and what is allowed.
    """
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, values)) from None


def to_values(experiment: Experiment) -> dict[str, Any]:
    """Return plain values that :func:`parse_experiment` reads back to the same experiment."""
    values = _without_none(experiment.model_dump(mode="json"))
    # What TOML cannot say by absence, where the default is another value, is said by name.
    if experiment.privacy.clip is None:
        values["privacy"]["clip"] = "none"
    if experiment.training.batch_size is None:
        values["training"]["batch_size"] = "all"
    return without_app_settings(values)


def to_toml(experiment: Experiment) -> str:
    """Write a resolved experiment as TOML that reads back to the same experiment."""
    return tomli_w.dumps(to_values(experiment))


def all_keys(model: type[BaseModel] = Experiment, prefix: str = "") -> list[str]:
    """Return every valid dotted key.

    Parameters
    ----------
    model : type of BaseModel
        Whose fields, sections included.
    prefix : str
        Of each key.

    Returns
    -------
    list of str
        In the order of the fields.
    """
    return list(fields_of(model, prefix))


_RIVALS = [frozenset({"epsilon", "noise_multiplier"}), frozenset({"epochs", "steps"})]


_MEANINGLESS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("model", "none"): ("noise_multiplier", "epsilon", "components_noise"),
    ("unit", "client"): ("examples", "lot"),
    ("clipping", "flat"): ("clip_fractions",),
    ("clipping", "adaptive"): ("clip_fractions",),
}
"""Keys of the same section that a value leaves without a meaning."""

_UNSET = object()
UNSET = "unset"
"""The word that takes a key out: bare, since in quotes it is a text like any other."""

_NONE = "none"

_NOT_ABSENCE: Mapping[str, str] = {
    "privacy.noise_multiplier": "privacy.model=none is without noise",
    "evaluation.federated_metrics": "evaluation.federated_metrics={} is without any",
    "data.features": "without any there is nothing to learn from",
    "data.header": "data.header=false is without names",
    "data.decimal": "data.thousands=none is without marks between thousands",
    "data.separator": "where it is absent it is guessed",
    "data.thousands": "none is a word of its own",
}
"""Keys that may be absent, and of which ``none`` would say something else than their absence.

Without privacy.noise_multiplier there is the default noise, which is not none.
"""


@cache
def keys_of_none() -> frozenset[str]:
    """Return the keys that ``none`` takes out, as ``unset`` does: those absent by default."""
    absent = {key for key, default in defaults().items() if default is None}
    return frozenset(absent - _NOT_ABSENCE.keys())


def defaults(model: type[BaseModel] = Experiment, prefix: str = "") -> dict[str, Any]:
    """Return the default of every key.

    Parameters
    ----------
    model : type of BaseModel
        Whose fields, sections included.
    prefix : str
        Of each key.

    Returns
    -------
    dict of str to object
        In the order of the fields; None where a key is absent by default.
    """
    fields = fields_of(model, prefix)
    return {key: field.get_default(call_default_factory=True) for key, field in fields.items()}


def fields_of(
    model: type[BaseModel] = Experiment, prefix: str = "", *, with_meaning: bool = False
) -> dict[str, FieldInfo]:
    """Return every key with its field.

    Parameters
    ----------
    model : type of BaseModel
        Whose fields, sections included.
    prefix : str
        Of each key.
    with_meaning : bool
        Whether descriptions are wanted, which are read from source.

    Returns
    -------
    dict of str to FieldInfo
        In the order of the fields.
    """
    found: dict[str, FieldInfo] = {}
    for name, field in (described(model) if with_meaning else model.model_fields).items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= fields_of(field.annotation, f"{prefix}{name}.", with_meaning=with_meaning)
        else:
            found[prefix + name] = field
    return found


def _drop_rival(section: dict[str, Any], key: str, given: set[str]) -> None:
    """Remove from a section what the key that was just set excludes, unless that is given too."""
    excluded = {other for rivals in _RIVALS if key in rivals for other in rivals - {key}}
    value = section[key]
    if isinstance(value, str):
        excluded |= set(_MEANINGLESS.get((key, value), ()))
    if key == "rule":
        excluded |= {name for name, takers in RULE_KEYS.items() if value not in takers}
    for other in excluded - given:
        section.pop(other, None)


def _split_override(text: str) -> tuple[str, Any]:
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key or "" in key.split(".") or key.count(".") > 3 or "\n" in key:
        raise ConfigError(f"--set {text!r} is not of the form key=value, as rounds=10")
    if "\n" in raw:  # the lines after it would be keys of their own
        cure = f"write {key}={json.dumps(raw.strip(), ensure_ascii=False)}"
        raise ConfigError(f"--set {key} has a line break in its value: {cure}")
    if raw.strip() == UNSET or (raw.strip() == _NONE and key in keys_of_none()):
        return key, _UNSET
    try:
        return key, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return key, raw.strip()
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"--set {key}: its value cannot be read: {error}") from None


def _explain(error: ValidationError, values: Mapping[str, Any]) -> str:
    found = complaints(error)
    first, message = found[0], found[0].reason
    if first.kind == "extra_forbidden":
        return _unknown_key(first.key, first.value)
    key = _known_prefix(first.path)
    shown = look_up(values, key) if key else None
    given = "" if shown is None or key not in _keys() else f" = {shown!r}"
    alternatives = [each.reason for each in found if _known_prefix(each.path) == key]
    if len(alternatives) > 1:
        message = ", or ".join(dict.fromkeys(alternatives))
    # What holds between keys names them itself, each with its section.
    where = f"{key or 'experiment'}{given}: "
    if first.kind == "value_error" and key not in _keys() and _named(message):
        where = ""
    return f"{where}{message}{_taken_out(key, shown)} (see docs/configuration.md)"


def _taken_out(key: str, shown: object) -> str:
    """Return how a key is taken out, where its value is a word that was meant to."""
    if shown not in (_NONE, UNSET) or key not in _keys():
        return ""
    default, other = defaults()[key], _NOT_ABSENCE.get(key)
    what = "takes it out" if default is None else f"gives back its default, {default!r}"
    said = f"; {other}" if other and shown == _NONE else ""
    return f"{said}; {key}={UNSET} {what}"


def _named(message: str) -> bool:
    return any(message.startswith(key) for key in _keys())


@cache
def _keys() -> frozenset[str]:
    return frozenset(all_keys())


def _unknown_key(key: str, value: object) -> str:
    # A key without its section, as "clip", is less like "privacy.clip" than a slip of a letter is.
    near = nearest(key, all_keys(), likeness=0.4)
    if near is None:
        last = key.rpartition(".")[2]
        near = next((k for k in all_keys() if k.rpartition(".")[2] == last), None)
    cure = f": did you mean {near}?" if near else " (docs/configuration.md lists them all)"
    return f"unknown key {key} = {value!r}{cure}"


def _known_prefix(path: Sequence[str]) -> str:
    known = _keys()
    sections = {k.rpartition(".")[0] for k in known}
    for length in range(len(path), 0, -1):
        key = ".".join(path[:length])
        if key in known or key in sections:
            return key
    return ""


def _deep_copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _deep_copy(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: _without_none(v) if isinstance(v, Mapping) else v
        for k, v in values.items()
        if v is not None
    }
