"""Say of PrivateStrategy and PrivateQueries what is wrong as text that can be pasted into the call.

Their sections are those of an experiment file, whose errors name keys as a file has them,
``encoding.range=1.0``. In the call that is ``encoding={"range": 1.0}``, or an argument of its own.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from zerosum.client.nearest_word import nearest
from zerosum.server.config import ConfigError
from zerosum.server.spec import Experiment

_OWN: Final[Mapping[str, str]] = {
    "privacy.clip": "clip",
    "privacy.noise_multiplier": "noise_multiplier",
    "privacy.epsilon": "epsilon",
    "privacy.budget": "budget",
    "privacy.delta": "delta",
    "training.weighting": "weighting",
    "training.max_examples": "max_examples",
    "evaluation.federated_noise_multiplier": "evaluation_noise",
}
"""Keys that are arguments of their own."""

_SECTIONS: Final[Mapping[str, str]] = {
    "privacy": '{"model": "none"}',
    "encoding": '{"range": 1.0}',
    "secagg": '{"server": "semi-honest"}',
    "deployment": '{"min_nodes": 100}',
    "sampling": '{"kind": "poisson", "cohort": 100}',
}
"""Sections that are arguments, each with an example of it."""

_PHRASES: Final[Mapping[str, str]] = {
    # What an experiment may have, and an app may not.
    ", or secagg.protocol=ideal": "",
    ", or write privacy.clipping=per-layer": "",
    ", or raise data.clients": ", or connect more nodes",
    "data.clients =": "nodes =",
    "training.lr": "the app's learning rate",
    # No federated evaluation is no metrics.
    "evaluation.federated_every = 0": "metrics=None",
    "evaluation.federated_every=0": "metrics=None",
    "evaluation.federated_every = 1": "metrics",
}
"""Words of an experiment file, and those of an app's call."""

_KEYS: Final = "|".join([*_SECTIONS, "training", "evaluation"])
_KEY = re.compile(
    rf"""(?<![\w./])(?P<section>{_KEYS})\.(?P<key>[a-z_]+)\b
    (?:(?:=|\ =\ )(?P<value>"[^"]*"|'[^']*'|-?[\w.]+(?:-\w+)*\b))?""",
    re.VERBOSE,
)
_WORDS: Final = {"true": "True", "false": "False", "True": "True", "False": "False"}


def as_arguments(message: str) -> str:
    """Return a message in which keys with a value are arguments.

    Parameters
    ----------
    message : str
        As an experiment file is spoken of: ``write encoding.range=1.0``.

    Returns
    -------
    str
        As a call is: ``write encoding={"range": 1.0}``. A key alone stays as documentation has it,
        unless it is an argument of its own.
    """
    for phrase, other in _PHRASES.items():
        message = message.replace(phrase, other)
    return _KEY.sub(_argument, message)


@contextmanager
def in_arguments() -> Iterator[None]:
    """Let errors of a configuration speak of arguments.

    Raises
    ------
    ConfigError
        The same, in other words.
    """
    try:
        yield
    except ConfigError as error:
        error.args = (as_arguments(str(error)),)
        raise


def sections(
    of: str, given: Mapping[str, object], keys: Mapping[str, Collection[str]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return sections as they were given, if each is a mapping of keys that there are.

    Parameters
    ----------
    of : str
        The class whose arguments they are.
    given : mapping of str to object
        By section; None for one that was left out.
    keys : mapping of str to collection of str, optional
        Those of a section that has others than an experiment's.

    Returns
    -------
    dict of str to dict
        Copies.

    Raises
    ------
    ConfigError
        By the argument, with what to write in its place.
    """
    known = {name: _keys_of(name) for name in given} | dict(keys or {})
    found = {}
    for section, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(
                f"{of}({section}={value!r}): it is a mapping of keys, as "
                f"{section}={_SECTIONS[section]}"
            )
        found[section] = dict(value or {})
        for key, one in found[section].items():
            if key not in known[section]:
                raise ConfigError(
                    f"{of}({section}={{{_quoted(key)}: {one!r}}}): there is no such key"
                    f"{_meant(section, str(key), one, known)} (docs/configuration.md lists them)"
                )
    return found


def _meant(section: str, key: str, value: object, known: Mapping[str, Collection[str]]) -> str:
    """Return the argument that was meant, as the end of a question; empty where none is near."""
    near = nearest(key, known[section], likeness=0.7)
    where = section
    if near is None:
        where = next((name for name, keys in known.items() if key in keys), "")
        near = key if where else nearest(key, known[section])
        where = where or section
    return "" if near is None else f"; did you mean {_written(where, near, repr(value))}?"


def _keys_of(section: str) -> Collection[str]:
    spec: Any = Experiment.model_fields[section].annotation
    keys: Collection[str] = spec.model_fields
    return keys


def _argument(match: re.Match[str]) -> str:
    section, key, value = match.group("section", "key", "value")
    whole = f"{section}.{key}"
    if value is None or value == "absent":
        return match[0].replace(whole, _OWN.get(whole, whole))
    if section not in _SECTIONS and whole not in _OWN:
        return match[0]
    if value == "unset":
        return f"{_OWN[whole]}=None" if whole in _OWN else f"{section} without {_quoted(key)}"
    return _written(section, key, _literal(value))


def _written(section: str, key: str, value: str) -> str:
    own = _OWN.get(f"{section}.{key}")
    return f"{own}={value}" if own else f"{section}={{{_quoted(key)}: {value}}}"


def _literal(text: str) -> str:
    """Return a value of a message as Python has it."""
    if text[0] in "\"'":
        return _quoted(text[1:-1])
    if text in _WORDS:
        return _WORDS[text]
    try:
        float(text)
    except ValueError:
        return _quoted(text)
    return text


def _quoted(word: object) -> str:
    return f'"{word}"' if isinstance(word, str) else repr(word)
