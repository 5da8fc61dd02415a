"""How figures are written: an epsilon never below what it is, no figure as less than it has."""

import math


def rounded_up(value: float | None, figures: int = 3) -> str:
    """Return an epsilon with so many figures, rounded up; "none" where there is none."""
    if value is None:
        return "none"
    if value <= 0 or not math.isfinite(value):
        return format(value, "g")
    unit = 10.0 ** (math.floor(math.log10(value)) - figures + 1)
    # A value that has no more figures than are shown stays as it is, whatever floats make of it.
    steps = math.ceil(value / unit - 1e-9)
    return format(steps * unit, f".{figures}g")


def plain(value: float, decimals: int = 4) -> str:
    """Return a metric with so many decimals, or with four figures where they would say nothing."""
    usual = value == 0 or 10.0 ** (2 - decimals) <= abs(value) < 1e6
    return format(value, f".{decimals}f") if usual else format(value, ".4g")
