"""Write JSON that every reader takes: NaN and infinities, for which it has no numbers, as words."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

_WORDS: Final[Mapping[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
"""The words that pydantic and JavaScript use."""


def dumps(value: object, *, indent: int | None = None) -> str:
    """Return JSON in which a number that is not finite is its name, as ``"NaN"``.

    Not null, which stands for a figure that does not exist.

    Parameters
    ----------
    value : object
        Of mappings, lists, tuples, texts, numbers, booleans and None.
    indent : int, optional
        Spaces a level; None writes one line.

    Returns
    -------
    str
        Strict JSON.
    """
    return json.dumps(_named(value), indent=indent, allow_nan=False)


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with such names at its top level read back as numbers.

    No deeper: below, a text may be a user's own, as a column that is called NaN.
    """
    return {
        name: _WORDS.get(value, value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _named(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _named(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
