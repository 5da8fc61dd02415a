"""Write how long something took."""

import math


def duration(seconds: float) -> str:
    """Write seconds as a person says them."""
    if not math.isfinite(seconds):
        return "not known"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
