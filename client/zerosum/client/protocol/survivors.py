"""Count the survivors that a guarantee needs: f n shares of noise, and the colluders."""

import math
from fractions import Fraction

from zerosum.client.privacy.registry import guaranteed_shares


class CohortTooSmallError(ValueError):
    """The cohort cannot hold the survivors that the guarantee needs."""


def min_survivors(honest_fraction: float | Fraction, cohort: int, colluders: int = 0) -> int:
    """Return ceil(f n) + c, the survivors below which a session is abandoned.

    Parameters
    ----------
    honest_fraction : float or Fraction
        f.
    cohort : int
        n.
    colluders : int
        c.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    CohortTooSmallError
        If that is more than the cohort.
    """
    needed = math.ceil(guaranteed_shares(honest_fraction, cohort)) + colluders
    if needed > cohort:
        raise CohortTooSmallError(
            f"{needed} of {cohort} clients would have to survive: honest_fraction = "
            f"{honest_fraction} and {colluders} colluders; lower one of these or enlarge the cohort"
        )
    return max(1, needed)


def guarantee_holds(
    honest_fraction: float | Fraction, cohort: int, needed: int, colluders: int = 0
) -> bool:
    """Check that ``needed`` survivors, less colluders, carry the guaranteed f n shares.

    Parameters
    ----------
    honest_fraction : float or Fraction
        f.
    cohort : int
        n.
    needed : int
        The survivors that a session announces as its least.
    colluders : int
        c.

    Returns
    -------
    bool
        Whether a client may take part.
    """
    return needed <= cohort and needed - colluders >= guaranteed_shares(honest_fraction, cohort)
