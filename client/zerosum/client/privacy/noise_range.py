"""Refuse scales of noise that protect nobody or leave 64 bits, when a mechanism is built."""

import math

LARGEST_STD = 2.0**40
"""Of one contribution's noise, in integer units: a million of them have a standard deviation of
2^50, and twelve of those stay within 64 bits."""


SMALLEST_ROUNDED = 0.03
"""Below it, in integer units, a Gaussian rounds to 0 with probability 1 - 2^-200: half a unit is
seventeen standard deviations."""


class NoiseOutOfRangeError(ValueError):
    """Noise that protects nobody, or that no 64-bit integer holds."""


def check_positive(**values: float) -> None:
    """Check that every value is positive and finite.

    Parameters
    ----------
    **values : float
        By the names that a message calls them.

    Raises
    ------
    ValueError
        With the name of one that is not.
    """
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, not {value}")


def check_noise(what: str, value: float, smallest: float = 0.0) -> None:
    """Check that noise protects somebody and fits into 64 bits.

    Parameters
    ----------
    what : str
        What a message calls it.
    value : float
        Its scale, in integer units.
    smallest : float
        The least scale that is not as good as none.

    Raises
    ------
    NoiseOutOfRangeError
        With the cure, if it does not.
    """
    if not smallest <= value <= LARGEST_STD:
        raise NoiseOutOfRangeError(
            f"{what} would be {value:.3g} integer units, and has to lie between {smallest:g} and "
            f"{LARGEST_STD:.2g}: {'raise' if value < smallest else 'lower'} "
            "privacy.noise_multiplier or encoding.bits"
        )
