"""Which scales of noise can be had: what is refused when a mechanism is built."""

import math

LARGEST_STD = 2.0**40
"""Of one contribution's noise, in integer units: a million of them add up within 64 bits."""


class NoiseOutOfRangeError(ValueError):
    """Noise that protects nobody, or that no 64-bit integer holds."""


def check_positive(**values: float) -> None:
    """Raise ValueError, with the name, for a value that is not positive and finite."""
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, not {value}")


def check_noise(what: str, value: float, smallest: float = 0.0) -> None:
    """Raise NoiseOutOfRangeError for noise, in integer units, that is as good as none, or huge."""
    if not smallest <= value <= LARGEST_STD:
        raise NoiseOutOfRangeError(
            f"{what} would be {value:.3g} integer units, and has to lie between {smallest:g} and "
            f"{LARGEST_STD:.2g}: {'raise' if value < smallest else 'lower'} "
            "privacy.noise_multiplier or encoding.bits"
        )
