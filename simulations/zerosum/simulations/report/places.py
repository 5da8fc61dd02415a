"""Places in a picture and numbers beside them."""

import math
from collections.abc import Callable
from typing import NamedTuple


class Scale(NamedTuple):
    """From values to parts of a length; of equal ends, all values are at the start."""

    low: float
    high: float

    def part(self, value: float) -> float:
        """Return where a value is, from 0 to 1; ends hold what is beyond them, and NaN is at 0."""
        if not math.isfinite(value) or self.high <= self.low:
            return 0.0
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def percent(self, value: float) -> str:
        """Return where a value is, as SVG has it; empty where it is not finite."""
        return f"{100 * self.part(value):.3f}%" if math.isfinite(value) else ""

    def width(self, start: float, end: float) -> str:
        """Return the length from one value to another, as SVG has it.

        Parameters
        ----------
        start, end : float
            In order.

        Returns
        -------
        str
            Empty where one of them is not finite.
        """
        if not (math.isfinite(start) and math.isfinite(end)):
            return ""
        return f"{100 * (self.part(end) - self.part(start)):.3f}%"


def number_at(value: float, unit: float, rounded: Callable[[float], int] = round) -> str:
    """Write a number to a tenth of its unit; an integer as it is.

    Parameters
    ----------
    value : float
        Not finite: "–".
    unit : float
        About its standard error; 0 or not finite: six digits.
    rounded : callable
        From a float to an integer: ``math.floor`` and ``math.ceil`` round outward.

    Returns
    -------
    str
        With commas between thousands.
    """
    if not math.isfinite(value):
        return "–"
    if float(value).is_integer():
        return f"{value:,.0f}"
    if not 0 < unit < math.inf:
        return f"{value:,.6g}"
    digits = min(12, max(0, 1 - math.floor(math.log10(unit))))
    return f"{rounded(value * 10.0**digits) / 10.0**digits:,.{digits}f}"


def ticks(low: float, high: float) -> list[float]:
    """Return about four round numbers between two ends, both of which may be among them.

    Parameters
    ----------
    low, high : float
        Finite.

    Returns
    -------
    list of float
        Multiples of 1, 2 or 5 times a power of ten.
    """
    if high <= low:
        return [low]
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [each * step for each in range(first, last + 1)]
