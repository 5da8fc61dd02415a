"""What can be set of an attack: its dataclass's fields, and which values they take.

A field's type says what it takes, with bounds where it is ``Annotated[int, Ge(0)]``. A number
without bounds of its own is a size or a rate: an integer is at least 1 and a real number more than
0. Where the class's default is less than that, so may the value be: from 0 on if it is 0, anything
if it is negative. No number is infinite or none.
"""

import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from zerosum.simulations.attacks.harness.interface import Attack, parameters_of

NOTHING = ("none", "null")

_SIGNS = (
    (annotated_types.Gt, "gt", "more than"),
    (annotated_types.Ge, "ge", "at least"),
    (annotated_types.Lt, "lt", "less than"),
    (annotated_types.Le, "le", "at most"),
)

_WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "none",
}


def value_of(attack: Attack, name: str, text: str) -> Any:
    """Return the value that ``--set ATTACK.NAME=TEXT`` gives a field.

    Raises
    ------
    ValueError
        If the field takes no such value; the message says what it takes.
    """
    kind = _kind(attack, name)
    bounds = _default_bounds(attack, name) if not any(_bounds_in(kind)) else ()
    try:
        value = _read(text, kind)
        fits = all(_is_within(each, bounds) for each in _numbers(value))
    except (ValidationError, OverflowError):
        fits = False
    except PydanticUserError:
        raise ValueError(f"a {kind} cannot be set from here: change the attack") from None
    if not fits:
        now = _written(parameters_of(attack)[name])
        raise ValueError(f"it takes {_in_words(kind, bounds)}; unset it is {now}")
    return value


def _kind(attack: Attack, name: str) -> Any:
    """Return a field's type, with its bounds; of one without a readable type, its value's."""
    try:
        kind = get_type_hints(type(attack), include_extras=True)[name]
    except (NameError, TypeError, AttributeError, KeyError):
        kind = Any
    return type(parameters_of(attack)[name]) if kind in (Any, object) else kind


def _default_bounds(attack: Attack, name: str) -> tuple[Any, ...]:
    """Return the bounds of a number that has none of its own, and of its default's kind."""
    (default,) = (each.default for each in fields(attack) if each.name == name)  # type: ignore[arg-type]
    value = parameters_of(attack)[name] if default is MISSING else default
    least = min(_numbers(value), default=math.inf)
    if least > 0:
        return (annotated_types.Gt(0),)
    return (annotated_types.Ge(0),) if least == 0 else ()


def _read(text: str, kind: Any) -> Any:
    """Read JSON, or a text that is one of the values themselves."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    if text.lower() in NOTHING and type(None) in get_args(kind):
        return None
    try:
        return adapter.validate_python(text, strict=True)
    except ValidationError:
        return adapter.validate_json(text, strict=True)


def _numbers(value: Any) -> Iterator[int | float]:
    """Yield the numbers in a value."""
    if isinstance(value, Mapping):
        yield from _numbers([*value, *value.values()])
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _is_within(number: float, bounds: tuple[Any, ...]) -> bool:
    above = all(
        number > bound.gt if hasattr(bound, "gt") else number >= bound.ge for bound in bounds
    )
    return math.isfinite(number) and above


def _bounds_in(kind: Any) -> Iterator[Any]:
    """Yield the bounds that a type has of its own."""
    if get_origin(kind) is Annotated:
        yield from kind.__metadata__
    for argument in get_args(kind):
        yield from _bounds_in(argument)


def _in_words(kind: Any, bounds: tuple[Any, ...] = ()) -> str:
    """Return what a field takes, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _in_words(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(each, bounds) for each in arguments)
    if origin is Literal:
        return " or ".join(str(each) for each in arguments)
    if kind not in _WORDS:
        return f"a {kind.__name__ if isinstance(kind, type) else kind}, as JSON"
    said = [
        f"{sign} {getattr(bound, name):g}"
        for each in (bounds if kind in (int, float) else ())
        for bound in getattr(each, "metadata", [each])
        for of, name, sign in _SIGNS
        if isinstance(bound, of)
    ]
    return " ".join([_WORDS[kind], " and ".join(said)]).strip()


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else repr(value)
