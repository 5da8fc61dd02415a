"""Overrides of an app's run config, as typed: checked against the keys and types that it has."""

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from zerosum.simulations.rehearsal.processes import DeploymentError

_KINDS: Final = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


def overridden(config: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return the values that are to take the place of an app's own.

    Parameters
    ----------
    config : mapping
        The app's run config, by flat keys.
    settings : sequence of str
        ``KEY=VALUE``, or several of these with spaces between, as ``flwr run`` takes them.

    Returns
    -------
    dict
        Of the types that the app's own have.

    Raises
    ------
    DeploymentError
        If a key is none of the app's, or its value of another type.
    """
    given = {}
    for key, text in (pair for setting in settings for pair in _pairs(setting)):
        if key not in config:
            known = ", ".join(sorted(config)) or "no keys"
            raise DeploymentError(f"--set {key}={text}: the app's run config has {known}")
        given[key] = _value(key, text, config[key])
    return given


def _pairs(setting: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(setting)
    except ValueError:
        words = [setting]
    for word in words if all("=" in word for word in words) else [setting]:
        key, sign, text = word.partition("=")
        if not (key.strip() and sign):
            raise DeploymentError(f"--set {setting}: write KEY=VALUE, of the app's run config")
        yield key.strip(), text.strip()


def _value(key: str, text: str, own: Any) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if isinstance(own, str):
        return value if isinstance(value, str) else text
    if isinstance(own, float) and type(value) is int:
        return float(value)
    if type(value) is not type(own):
        raise DeploymentError(
            f"--set {key}={text}: it is {_KINDS.get(type(own), type(own).__name__)}; the app's "
            f"own is {str(own).lower() if isinstance(own, bool) else own}"
        )
    return value
