"""Write strict JSON: NaN and infinities, for which it has no numbers, are words."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

_WORDS: Final[Mapping[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
"""Words of pydantic and JavaScript. Python's own bare NaN is no JSON: most readers refuse it."""


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
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
