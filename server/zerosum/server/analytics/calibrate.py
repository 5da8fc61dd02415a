"""Find the least noise of a query that meets its epsilon, and the weight of its moments."""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import get_args

from dp_accounting import get_sigma_gaussian
from scipy.optimize import brentq

from zerosum.client.privacy.events import IntegerNoiseDpEvent
from zerosum.client.privacy.integer_laws import LAWS, Geometric, IntegerLaw, Skellam
from zerosum.client.queries.query import LEAST_WEIGHT, MOST_WEIGHT
from zerosum.client.spec.query_privacy import LEAST_SCALE, MOST_SCALE
from zerosum.server.analytics.asks import MechanismChoice
from zerosum.server.privacy.accountant import Ledger

ROUNDING_PART = 1e-3
"""Largest part of the noise's variance that rounding of moments may add."""

PURE_PART = 1e-3
"""Part by which noise of a pure epsilon may be above the least and is taken instead."""

_PRECISION = 1e-4
"""Relative precision of a scale: a hundredth of what two figures of a standard deviation show."""


class UnreachableEpsilonError(ValueError):
    """No noise in reach meets the epsilon."""


@dataclass(frozen=True)
class Noise:
    """Guaranteed noise of a query's sum, in each coordinate, as a request carries it.

    Attributes
    ----------
    law : {"geometric", "skellam"}
        Never "auto": which of them, depends on the query's shape alone.
    scale : float
        The discrete Laplace's s, or the Skellam variable's standard deviation; integer units.
    """

    law: IntegerLaw
    scale: float

    @property
    def std(self) -> float:
        """Standard deviation of the guaranteed noise in a coordinate, in integer units."""
        return self._noise(1.0).std

    def receipt(self, moves: Sequence[int], surplus: float = 1.0) -> IntegerNoiseDpEvent:
        """Describe a sum under ``surplus`` times this noise.

        Parameters
        ----------
        moves : sequence of int
            Of the query, for its unit and adjacency.
        surplus : float
            r, 1 or more: 1 for the guaranteed shares, 1/f for what a released sum carries.

        Returns
        -------
        IntegerNoiseDpEvent
            What the ledger is charged.
        """
        return IntegerNoiseDpEvent(self.law, astuple(self._noise(surplus)), tuple(moves))

    def _noise(self, surplus: float) -> Geometric | Skellam:
        if LAWS[self.law] is Geometric:
            return Geometric(self.scale, surplus)
        return Skellam(surplus * self.scale**2)


def calibrate(
    moves: Sequence[int],
    *,
    epsilon: float,
    delta: float,
    mechanism: MechanismChoice = "auto",
    pure_only: bool = False,
) -> Noise:
    """Return the noise of least standard deviation with which a sum is (epsilon, delta)-DP.

    Each law is calibrated by exact accounting of its receipt. "auto" takes the smaller deviation,
    and geometric noise on a tie, at delta = 0 and where pure epsilons alone count.

    Parameters
    ----------
    moves : sequence of int
        Of the query, for its unit and adjacency.
    epsilon : float
        Above 0, finite.
    delta : float
        In [0, 1).
    mechanism : {"auto", "geometric", "skellam"}
        The law, or the better one.
    pure_only : bool
        The epsilon has to hold at delta = 0 too, as the budget rule "sum" needs it.

    Returns
    -------
    Noise
        Whose receipt costs at most epsilon at delta.

    Raises
    ------
    ValueError
        If an argument is out of range, or Skellam noise is asked for where epsilon has to be pure.
    UnreachableEpsilonError
        If no scale up to 2^40 is enough.
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon is above 0 and finite, not {epsilon}")
    if not moves or min(moves) < 1:
        raise ValueError(f"moves are integers above 0, one or more, not {tuple(moves)}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta lies in [0, 1), not at {delta}")
    if mechanism not in get_args(MechanismChoice):
        raise ValueError(f'mechanism is "auto", "geometric" or "skellam", not {mechanism!r}')
    pure = pure_only or delta == 0
    if pure and LAWS.get(mechanism) is Skellam:
        reason = "at delta = 0" if delta == 0 else 'under the budget rule "sum"'
        raise ValueError(
            f'mechanism = "skellam" has no pure epsilon, which a query needs {reason}; '
            'set mechanism = "geometric"'
        )
    if pure:
        return _pure_geometric(sum(moves), epsilon)
    shape = tuple(sorted(moves))
    if mechanism != "auto":
        return _calibrated(mechanism, shape, epsilon, delta)
    geometric = _calibrated("geometric", shape, epsilon, delta)
    try:
        skellam = _calibrated("skellam", shape, epsilon, delta)
    except UnreachableEpsilonError:  # so much of it that its Renyi divergences are all there is
        return geometric
    return geometric if geometric.std <= skellam.std else skellam


def moments_weight(records: int, epsilon: float) -> int:
    """Return the weight K of a block of moments.

    The least power of two of at least 64 for which rounding adds at most a thousandth of the
    noise's variance: records/4 of rounding over 2 (K/epsilon)^2 of noise.

    Parameters
    ----------
    records : int
        Largest number of records, public.
    epsilon : float
        Of the query, above 0.

    Returns
    -------
    int
        K with records epsilon^2 / (8 K^2) <= 1e-3.

    Raises
    ------
    ValueError
        If an argument is out of range, or K would be above 2^30.
    """
    if records < 1 or not 0 < epsilon < math.inf:
        raise ValueError(
            f"a weight is chosen for 1 record or more at an epsilon above 0, not for {records} "
            f"at {epsilon}"
        )
    weight = LEAST_WEIGHT
    # By the root: the square of a float may be none.
    least = epsilon * math.sqrt(records / (8 * ROUNDING_PART))
    while weight < least and weight <= MOST_WEIGHT:
        weight *= 2
    if weight > MOST_WEIGHT:
        raise ValueError(
            f"epsilon = {epsilon:g} leaves so little noise that moments of {records} records would "
            f"take a weight above {MOST_WEIGHT}; lower epsilon"
        )
    return weight


def _pure_geometric(whole: int, epsilon: float) -> Noise:
    """Return s = sum(moves)/epsilon, not rounded to where it costs more than epsilon."""
    scale = max(whole / epsilon, LEAST_SCALE)
    while whole / scale > epsilon:
        scale = math.nextafter(scale, math.inf)
    if scale > MOST_SCALE:
        raise _unreachable("geometric", epsilon, 0.0)
    return Noise("geometric", scale)


@lru_cache(maxsize=1024)
def _calibrated(law: IntegerLaw, moves: tuple[int, ...], epsilon: float, delta: float) -> Noise:
    def cost(scale: float) -> float:
        receipt = Noise(law, scale).receipt(moves)
        return Ledger("zero_out").compose(receipt).epsilon(delta)

    if LAWS[law] is Geometric:
        pure = _pure_geometric(sum(moves), epsilon)
        least = _least_scale(cost, law, pure.scale, epsilon, delta)
        # Few blocks gain nothing by a delta: then epsilon is pure, for the same noise.
        return pure if pure.scale <= (1 + PURE_PART) * least else Noise(law, least)
    # As much as a Gaussian of the moves' length, within a tenth.
    gaussian = get_sigma_gaussian(epsilon, delta) * math.hypot(*moves)
    return Noise(law, _least_scale(cost, law, gaussian, epsilon, delta))


def _least_scale(
    cost: Callable[[float], float], law: IntegerLaw, near: float, epsilon: float, delta: float
) -> float:
    """Return the least scale that costs at most epsilon, in steps of its precision.

    Cost falls as a scale grows: either law at a larger scale is itself at a smaller one plus
    independent noise.
    """
    upper, growth = max(near, LEAST_SCALE), 1.1
    while cost(upper) > epsilon:
        upper *= growth
        growth *= growth
        if upper > MOST_SCALE:
            raise _unreachable(law, epsilon, delta)
    lower = upper / 1.2
    while cost(lower) <= epsilon:
        if lower <= LEAST_SCALE:
            return LEAST_SCALE
        upper, lower = lower, max(lower / 1.5, LEAST_SCALE)
    step = lower * _PRECISION / 2
    scale = float(brentq(lambda one: cost(one) - epsilon, lower, upper, xtol=step))
    while scale < upper and cost(scale) > epsilon:
        scale += step
    return min(scale, upper)


def _unreachable(law: IntegerLaw, epsilon: float, delta: float) -> UnreachableEpsilonError:
    return UnreachableEpsilonError(
        f"no {law} noise of a scale up to 2^40 gives epsilon = {epsilon:g} at delta = {delta:g}; "
        "raise epsilon, or ask for fewer blocks or a smaller cap"
    )
