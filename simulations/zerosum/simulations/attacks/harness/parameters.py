"""Parameters of an attack: its dataclass's fields, read and checked by pydantic.

A field's type says what it takes, with bounds where it is ``Annotated[int, Ge(0)]``. A number
without bounds of its own is a size or a rate: more than 0, but for a class whose default is less.
From 0 on where the default is 0, and any number where it is negative. No number is infinite or NaN.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from zerosum.client.spec.complaints import complaints, first_complaint
from zerosum.simulations.attacks.harness.interface import Attack, parameters_of

NOTHING = ("none", "null")

STRICT = ConfigDict(strict=True, allow_inf_nan=False)
"""No text is taken for a number, no integer for a truth value, and no NaN for a size."""


def value_of(attack: Attack, name: str, text: str) -> Any:
    """Return the value that ``--set ATTACK.NAME=TEXT`` gives a field.

    Parameters
    ----------
    attack : Attack
    name : str
        Of the field.
    text : str
        JSON, or the text itself where the field takes one; "none" where it takes None.

    Returns
    -------
    object
        As the field's type says.

    Raises
    ------
    ValueError
        If the field takes no such value; the message says why, and the value that it has unset.
    """
    kind = _kind(attack, name)
    try:
        value = _read(text, kind)
        if not _has_bounds(kind):
            _check_numbers(value, _least_default(attack, name))
    except PydanticUserError:
        raise ValueError(f"a {kind} cannot be set from here: change the attack") from None
    except ValueError as error:  # pydantic's too
        reason = refusal(error) if isinstance(error, ValidationError) else str(error)
        now = _written(parameters_of(attack)[name])
        raise ValueError(f"{reason}; unset it is {now}") from None
    return value


def _kind(attack: Attack, name: str) -> Any:
    """Return a field's type, with its bounds; of one without a readable type, its value's."""
    try:
        kind = get_type_hints(type(attack), include_extras=True)[name]
    except (NameError, TypeError, AttributeError, KeyError):
        kind = Any
    return type(parameters_of(attack)[name]) if kind in (Any, object) else kind


def _read(text: str, kind: Any) -> Any:
    """Read JSON, or a text that is one of the values themselves."""
    if text.lower() in NOTHING and type(None) in get_args(kind):
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=STRICT)
    try:
        return adapter.validate_python(text)
    except ValidationError as refused:
        try:
            return adapter.validate_json(text)
        except ValidationError as error:
            no_json = first_complaint(error).kind == "json_invalid"
            raise (refused if no_json else error) from None


def _has_bounds(kind: Any) -> bool:
    return get_origin(kind) is Annotated or any(map(_has_bounds, get_args(kind)))


def _least_default(attack: Attack, name: str) -> float:
    """Return the least number of the class's default; infinity where it has none."""
    (default,) = (each.default for each in fields(attack) if each.name == name)  # type: ignore[arg-type]
    value = parameters_of(attack)[name] if default is MISSING else default
    return min(_numbers(value), default=math.inf)


def _check_numbers(value: Any, default: float) -> None:
    least = min(_numbers(value), default=math.inf)
    if least < 0 <= default or least == 0 < default:
        raise ValueError(f"{least:g} should be {'more than' if default > 0 else 'at least'} 0")


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers in a value."""
    if isinstance(value, Mapping):
        yield from _numbers([*value, *value.values()])
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def refusal(error: ValidationError) -> str:
    """Return why pydantic refuses a value, in one line."""
    reasons = {": ".join([*each.path, each.reason]): None for each in complaints(error)}
    return " or ".join(reasons).replace("input should be", "it should be")


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else repr(value)
