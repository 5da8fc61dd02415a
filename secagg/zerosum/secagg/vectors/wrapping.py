"""The room that a sum needs: which ring holds it, and how likely noise makes it wrap.

Messages alone never wrap: a setting in which they could is refused. Noise is unbounded, so it can;
that costs utility and never privacy, since what is released is the sum's residue either way.
"""

import math

import numpy as np
from numpy.typing import NDArray

# A session wraps with probability at most 2^-40: rarer than anything else that goes wrong.
WRAP_EXPONENT = 40
MAX_RING_BITS = 64


class MessageCanWrapError(ValueError):
    """The sum of encoded vectors, before any noise, does not fit into the ring."""


def log2_wrap_probability(
    ring_bits: int,
    *,
    cohort: int,
    bound: int,
    noise_variance: float,
    dimension: int,
    slack: int = 0,
) -> float:
    """Bound the probability that some coordinate of a noised sum wraps.

    Chernoff's bound for Skellam noise of total variance v, margin m, both signs and d coordinates:
    2 d exp( sqrt(m^2 + v^2) - v - m asinh(m/v) ). Skellam's cumulants dominate those of a Gaussian
    of the same variance, so it holds for sums of Gaussians too.

    Parameters
    ----------
    ring_bits : int
        Bits b of the ring; sums are read in [-2^(b-1), 2^(b-1)).
    cohort : int
        Number of vectors added.
    bound : int
        Largest magnitude of a coordinate of one message.
    noise_variance : float
        Variance of all the noise in a coordinate of the sum.
    dimension : int
        Coordinates.
    slack : int
        Further integer units that noise rounded at each client may add to the sum.

    Returns
    -------
    float
        At most 0; -inf where it cannot happen.
    """
    margin = (1 << (ring_bits - 1)) - cohort * bound - slack
    return _log2_noise_reaches(margin, noise_variance, dimension)


def _log2_noise_reaches(margin: int, variance: float, dimension: int) -> float:
    if margin <= 0:
        return 0.0
    if variance == 0:
        return -math.inf
    ratio = margin / variance
    # v (sqrt(1 + r^2) - 1 - r asinh r), without the cancellation at small r.
    exponent = margin * (ratio / (1 + math.sqrt(1 + ratio * ratio)) - math.asinh(ratio))
    return min(0.0, exponent / math.log(2) + 1 + math.log2(dimension))


def largest_of(total: NDArray[np.int64]) -> int:
    """Return the largest magnitude, as a Python integer: abs(-2^63) overflows in int64."""
    return max(int(total.max(initial=0)), -int(total.min(initial=0)))


def is_plausible(
    total: NDArray[np.int64],
    *,
    survivors: int,
    bound: int,
    noise_variance: float,
    slack: int = 0,
) -> bool:
    """Return whether a centred sum can be one of honest clients.

    No coordinate exceeds ``survivors`` times ``bound`` by more than noise does with probability
    2^-40 (the bound of :func:`log2_wrap_probability`). A client that sent other than it should,
    or a sum that wrapped, mostly shows here.

    Parameters
    ----------
    total : ndarray of int64, shape (d,)
        Before the server adds noise.
    survivors : int
        Vectors in the sum.
    bound, slack
        As in :func:`log2_wrap_probability`.
    noise_variance : float
        Variance of the survivors' noise in a coordinate.

    Returns
    -------
    bool
    """
    margin = largest_of(total) - survivors * bound - slack
    return margin <= 0 or _log2_noise_reaches(margin, noise_variance, total.size) > -WRAP_EXPONENT


def ring_bits_needed(
    cohort: int, coordinate_bound: int, noise_variance: float, dimension: int, *, slack: int = 0
) -> int:
    """Find the smallest ring in which a session wraps with probability at most 2^-40.

    Parameters
    ----------
    cohort, coordinate_bound, noise_variance, dimension, slack
        As in :func:`log2_wrap_probability`.

    Returns
    -------
    int
        2 to 64.

    Raises
    ------
    MessageCanWrapError
        If no ring of at most 64 bits is large enough.
    """
    for bits in range(2, MAX_RING_BITS + 1):
        exponent = log2_wrap_probability(
            bits,
            cohort=cohort,
            bound=coordinate_bound,
            noise_variance=noise_variance,
            dimension=dimension,
            slack=slack,
        )
        if message_fits(bits, cohort, coordinate_bound) and exponent <= -WRAP_EXPONENT:
            return bits
    raise MessageCanWrapError(
        f"no ring of {MAX_RING_BITS} bits holds the sum of {cohort} vectors with entries up to "
        f"{coordinate_bound} and noise of standard deviation {math.sqrt(noise_variance):.4g}"
    )


def message_fits(ring_bits: int, cohort: int, bound: int) -> bool:
    """Return whether the sum of ``cohort`` messages, without noise, cannot wrap.

    Parameters
    ----------
    ring_bits : int
    cohort : int
        Number of vectors added.
    bound : int
        Largest magnitude of a coordinate of one message.

    Returns
    -------
    bool
    """
    return cohort * bound <= (1 << (ring_bits - 1)) - 1


def check_message_fits(ring_bits: int, cohort: int, bound: int) -> None:
    """Refuse a ring in which a sum of messages alone can wrap.

    Parameters
    ----------
    ring_bits : int
    cohort : int
        Number of vectors added.
    bound : int
        Largest magnitude of a coordinate of one message.

    Raises
    ------
    MessageCanWrapError
        With the numbers, and how many bits would do.
    """
    if not message_fits(ring_bits, cohort, bound):
        needed = (cohort * bound).bit_length() + 1
        raise MessageCanWrapError(
            f"ring_bits = {ring_bits}: {cohort} clients of at most {bound} a coordinate sum to "
            f"{cohort * bound}, but the ring holds up to {(1 << (ring_bits - 1)) - 1}; use at "
            f"least {needed} bits, fewer encoding bits or a smaller cohort"
        )
