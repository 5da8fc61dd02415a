"""How an epsilon is written: never below what it is."""

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
