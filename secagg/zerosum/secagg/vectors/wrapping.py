"""The room that a sum needs: which ring holds it, and how likely noise makes it wrap.

Messages alone never wrap: a setting in which they could is refused. Noise is unbounded, so it can;
that costs utility and never privacy, since what is released is the sum's residue either way.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# A session wraps with probability at most 2^-40: rarer than anything else that goes wrong.
WRAP_EXPONENT = 40
MAX_RING_BITS = 64


LogTail = Callable[[float], float]
"""From a margin, ln of a bound on the probability that noise exceeds it."""


class MessageCanWrapError(ValueError):
    """The sum of encoded vectors, before any noise, does not fit into the ring."""


def log2_wrap_probability(
    ring_bits: int,
    *,
    cohort: int,
    bound: int,
    log_tail: LogTail,
    dimension: int,
    slack: int = 0,
) -> float:
    """Bound the probability that some coordinate of a noised sum wraps.

    The union bound over both signs and all coordinates.

    Parameters
    ----------
    ring_bits : int
        Bits b of the ring; sums are read in [-2^(b-1), 2^(b-1)).
    cohort : int
        Number of vectors added.
    bound : int
        Largest magnitude of a coordinate of one message.
    log_tail : callable
        From a margin above 0, ln of a bound on P(all noise in one coordinate of the sum > margin).
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
    return _log2_noise_reaches(margin, log_tail, dimension)


def _log2_noise_reaches(margin: int, log_tail: LogTail, dimension: int) -> float:
    if margin <= 0:
        return 0.0
    return min(0.0, log_tail(margin) / math.log(2) + 1 + math.log2(dimension))


def skellam_log_tail(margin: float, variance: float) -> float:
    """Bound the tail of Skellam noise, by Chernoff.

    sqrt(m^2 + v^2) - v - m asinh(m/v), of margin m and variance v. Skellam's cumulants dominate
    those of a Gaussian of the same variance, so it holds for sums of Gaussians too.

    Parameters
    ----------
    margin : float
        Above 0.
    variance : float
        Of all the noise in a coordinate of the sum.

    Returns
    -------
    float
        ln of a bound on P(noise > margin); -inf without noise.
    """
    if variance == 0:
        return -math.inf
    ratio = margin / variance
    # v (sqrt(1 + r^2) - 1 - r asinh r), without the cancellation at small r.
    return margin * (ratio / (1 + math.sqrt(1 + ratio * ratio)) - math.asinh(ratio))


def largest_of(total: NDArray[np.int64]) -> int:
    """Return the largest magnitude, as a Python integer: abs(-2^63) overflows in int64."""
    return max(int(total.max(initial=0)), -int(total.min(initial=0)))


def is_plausible(
    total: NDArray[np.int64],
    *,
    survivors: int,
    bound: int,
    log_tail: LogTail,
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
    log_tail : callable
        Of the survivors' noise in a coordinate.

    Returns
    -------
    bool
    """
    margin = largest_of(total) - survivors * bound - slack
    return margin <= 0 or _log2_noise_reaches(margin, log_tail, total.size) > -WRAP_EXPONENT


def ring_bits_needed(
    cohort: int, coordinate_bound: int, log_tail: LogTail, dimension: int, *, slack: int = 0
) -> int:
    """Find the smallest ring in which a session wraps with probability at most 2^-40.

    Parameters
    ----------
    cohort, coordinate_bound, log_tail, dimension, slack
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
            log_tail=log_tail,
            dimension=dimension,
            slack=slack,
        )
        if message_fits(bits, cohort, coordinate_bound) and exponent <= -WRAP_EXPONENT:
            return bits
    raise MessageCanWrapError(
        f"no ring of {MAX_RING_BITS} bits holds the sum of {cohort} vectors with entries up to "
        f"{coordinate_bound} and their noise: lower encoding.bits or the noise"
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
