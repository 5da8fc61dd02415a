"""Define what the sections of an experiment have in common: strict keys, canonical bytes, types."""

import ast
import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from zerosum.client.spec.complaints import first_complaint

PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
LEAST_SCALE, MOST_SCALE = 1e-30, 1e30
Scale = Annotated[float, Field(gt=0, allow_inf_nan=False), Field(ge=LEAST_SCALE, le=MOST_SCALE)]
"""A norm or a range: bounded so that no square of it leaves float64."""
PositiveNoise = Annotated[float, Field(gt=0, le=1e6)]
PositiveInt = Annotated[int, Field(gt=0, lt=2**63)]


def _as_name(value: object) -> object:
    """Take a finite number for a name: TOML reads `data.label=1` as one, and columns are so called.

    What is not finite is no number of JSON, and whoever means the text writes quotes.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    return value


ColumnName = Annotated[str, BeforeValidator(_as_name)]


@dataclass(frozen=True)
class Choices:
    """Metadata of a text that is one of some names, which may become more while a program runs."""

    names: Callable[[], tuple[str, ...]]


def one_of(choices: Callable[[], tuple[str, ...]]) -> AfterValidator:
    """Return a validator that says of another name what pydantic says of a wrong literal."""

    def check(name: str) -> str:
        *most, last = map(repr, choices())
        if name not in choices():
            expected = f"{', '.join(most)} or {last}"
            raise PydanticCustomError("literal_error", "Input should be {it}", {"it": expected})
        return name

    return AfterValidator(check)


DEVICE = re.compile(r"cpu|cuda(:[0-9]{1,3})?")
"""What a device is called, whether it is there or not."""


class Spec(BaseModel):
    """A frozen section that refuses keys it does not know.

    What stands below a field is its description, which :func:`described` reads: pydantic would read
    the source of every section whenever one is imported, and a node has a process for each message.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        # Not null, which is another value: what is not finite and got by the checks has to show.
        ser_json_inf_nan="constants",
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show the keys that are not at their defaults: all keys of an experiment are a page."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            known = fields.get(name or "")
            if known is None or value != known.get_default(call_default_factory=True):
                yield name, value

    def canonical(self) -> bytes:
        """Return the spec as canonical JSON: what enters a request's hash.

        Raises
        ------
        ValueError
            If a number in it is not finite: JSON has none such, so that no reader would take it.
        """
        data = self.model_dump_json(by_alias=True).encode()
        json.loads(data, parse_constant=_not_finite)
        return data

    @classmethod
    def from_canonical(cls, data: bytes) -> Self:
        """Read what :meth:`canonical` wrote, and nothing else.

        What is hashed are the bytes of a spec that was read. If a reader took others than it
        writes (spaces, other orders, keys twice, 1 for 1.0), two texts would have one digest, and
        a server could send them to two clients whose masks still cancel.

        Parameters
        ----------
        data : bytes
            JSON.

        Returns
        -------
        Spec
            Of this class.

        Raises
        ------
        ValueError
            If the bytes are no such spec, or not the ones that it is written as.
        """
        try:
            read = cls.model_validate_json(data)
        except ValidationError as error:
            raise ValueError(first_complaint(error).of_one_key) from None
        written = read.canonical()
        if written != data:
            at = next(
                (i for i, (a, b) in enumerate(zip(written, data, strict=False)) if a != b),
                min(len(written), len(data)),
            )
            raise ValueError(
                f"not canonical: from byte {at} on {data[at : at + 20]!r}, where this reader "
                f"writes {written[at : at + 20]!r}"
            )
        return read


def without_usual(values: Mapping[str, Any], usual: Mapping[str, object]) -> dict[str, Any]:
    """Leave out what has its usual value, of keys that earlier versions did not know.

    A request without such a key has the bytes and the digest that it had before there was one, so
    that nodes of both kinds answer it; one that asks for more is refused by those that know no such
    key, which would do otherwise.

    Parameters
    ----------
    values : mapping of str to any
        As a section is written.
    usual : mapping of str to object
        By key.

    Returns
    -------
    dict of str to any
        The rest, in its order.
    """
    return {k: v for k, v in values.items() if k not in usual or v != usual[k]}


def _not_finite(name: str) -> None:
    raise ValueError(f"{name} is no number that JSON has: a spec holds finite numbers")


def described(spec: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section, with the text that stands below each as its description.

    Parameters
    ----------
    spec : type
        A section.

    Returns
    -------
    dict of str to FieldInfo
        Copies, by name, in their order.
    """
    texts: dict[str, str] = {}
    for base in reversed(spec.__mro__):
        if issubclass(base, Spec):
            texts |= _texts_below(base)
    fields = {name: copy(field) for name, field in spec.model_fields.items()}
    for name, field in fields.items():
        field.description = field.description or texts.get(name)
    return fields


@cache
def _texts_below(spec: type) -> dict[str, str]:
    """Read what stands below the fields that a class itself declares.

    Once: the source of a class is found by parsing its whole file.
    """
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(spec))).body
    body = made.body if isinstance(made, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
