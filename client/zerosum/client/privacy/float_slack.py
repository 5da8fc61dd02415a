"""Charge a little less noise than floats say is there, so that rounding never adds any."""

from typing import Final

FLOAT_SLACK: Final = 1 - 2.0**-48
"""Factor on a number of noise shares before it becomes a variance.

A share is V / (f n), and a sum of f n shares is V. Three float operations (the product f n, the
quotient, the product with a number of shares) err by at most 2^-53 each, relatively, so that the
variance charged could exceed the one drawn by 2^-51. 2^-48 covers that eightfold and costs epsilon
nothing that three digits show.
"""
