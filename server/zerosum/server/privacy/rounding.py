"""Digits of printed figures: an epsilon never below its value, a metric in a fixed width."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

EPSILON_DIGITS: Final = 3
"""Significant digits of a printed epsilon: more would claim what delta and slack do not give."""

_LARGEST_PLAIN: Final = 1_000_000
_SMALLEST_PLAIN: Final = 1e-4
"""Between these an epsilon is written without an exponent."""


def epsilon_up(value: float) -> float:
    """Return an epsilon of three significant digits that is not below the given one.

    Parameters
    ----------
    value : float
        Not negative; zero and infinity stay what they are.
    """
    return float(_rounded_up(value)) if 0 < value < math.inf else value


def epsilon_text(value: float | None) -> str:
    """Write an epsilon for people: three significant digits, rounded up; "∞" where none holds.

    Parameters
    ----------
    value : float or None
        Not negative. None and infinity: no finite epsilon holds.
    """
    if value is None or value == math.inf:
        return "∞"
    if value == 0:
        return "0"
    return _text(_rounded_up(value))


def remainder_text(value: float) -> str:
    """Write what is left of an epsilon: three significant digits, rounded down.

    Parameters
    ----------
    value : float
        Finite, not negative.
    """
    if value == 0:
        return "0"
    shortest = Decimal(repr(float(value)))
    return _text(shortest.quantize(_unit(shortest), rounding=ROUND_FLOOR))


def _text(value: Decimal) -> str:
    if _SMALLEST_PLAIN <= value < _LARGEST_PLAIN:
        text = f"{value:,f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits = value.scaleb(-value.adjusted()).normalize()
    return f"{digits:f}e{value.adjusted()}"


def _rounded_up(value: float) -> Decimal:
    # In decimal: ceil(value / unit) in floats rounds the quotient first, so that a value just above
    # a multiple of the unit would be printed below what it is. From the shortest decimal that reads
    # back as this float, so that 4.2 is printed as 4.2 and not, for its 18th digit, as 4.21. The
    # text reads back as no less than the value, for reading is monotonic.
    shortest = Decimal(repr(float(value)))
    up = shortest.quantize(_unit(shortest), rounding=ROUND_CEILING)
    return up.quantize(_unit(up))  # 9.999 becomes 10.00, which is one digit too many


def _unit(value: Decimal) -> Decimal:
    return Decimal(1).scaleb(value.adjusted() - EPSILON_DIGITS + 1)


def plain(value: float, decimals: int = 4) -> str:
    """Write a metric with fixed decimals, or four digits where these would say nothing.

    Parameters
    ----------
    value : float
        Any number, NaN and infinity included.
    decimals : int
        Decimals of a metric of usual size.

    Returns
    -------
    str
        As "0.8473" or "6.441e+10".
    """
    usual = value == 0 or 10.0 ** (2 - decimals) <= abs(value) < 1e6
    return format(value, f".{decimals}f") if usual else format(value, ".4g")
