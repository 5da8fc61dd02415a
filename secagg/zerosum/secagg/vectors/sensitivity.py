"""Sensitivities of real vectors that are clipped and then rounded under a bound on their norm."""

import math

# beta: the share of roundings that conditioning may reject. A smaller one costs fewer draws and
# more sensitivity; exp(-1/2) is the choice of Kairouz, Liu and Steinke.
_ROUNDING_BETA = math.exp(-0.5)


def l2_sensitivity(scaled_clip: float, dimension: int) -> float:
    """Return Delta2, the largest L2 norm of a clipped vector after conditional rounding.

    min( r + sqrt(d), sqrt( r^2 + d/4 + sqrt(2 ln(1/beta)) (r + sqrt(d)/2) ) ) with r = C/gamma and
    beta = exp(-1/2): Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation" (2021), Theorem 1 and Proposition 22.

    Parameters
    ----------
    scaled_clip : float
        Clip norm in integer units, C/gamma.
    dimension : int
        Length of the encoded vector, padding included.

    Returns
    -------
    float
        In integer units.
    """
    root = math.sqrt(dimension)
    conditional = (
        scaled_clip**2
        + dimension / 4
        + math.sqrt(2 * math.log(1 / _ROUNDING_BETA)) * (scaled_clip + root / 2)
    )
    return min(scaled_clip + root, math.sqrt(conditional))


def l1_sensitivity(l2: float, dimension: int) -> float:
    """Return Delta1 = Delta2 min(sqrt(d), Delta2): Cauchy-Schwarz, or |k| <= k^2 on integers.

    Parameters
    ----------
    l2 : float
        Delta2, in integer units.
    dimension : int
        Length d of the encoded vector.

    Returns
    -------
    float
        In integer units.
    """
    return l2 * min(math.sqrt(dimension), l2)


def l1_rounded(scaled_clip: float, dimension: int) -> int:
    """Return the largest L1 norm of a vector of L1 norm r = C/gamma after conditional rounding.

    Magnitudes are rounded without bias and independently, so that their sum exceeds r by more than
    t with probability at most exp(-2 t^2/d) (Hoeffding) and exp(-t^2/(2 v + 2 t/3)) with
    v = min(d/4, r) (Bernstein). The bound is the t at which the smaller is exp(-1/2): at least
    two roundings in five are accepted, whatever the vector.

    Parameters
    ----------
    scaled_clip : float
        L1 clip norm in integer units, C/gamma.
    dimension : int
        Length of the encoded vector.

    Returns
    -------
    int
        In integer units.
    """
    spread = min(dimension / 4, scaled_clip)
    excess = min(math.sqrt(dimension) / 2, 1 / 6 + math.sqrt(1 / 36 + spread))
    return math.floor(scaled_clip + excess)
