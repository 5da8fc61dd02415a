"""How many of a cohort must survive: one rule for sessions, the ledger and the checks."""

from dataclasses import dataclass

from zerosum.client.contribution import CohortTooSmallError, min_survivors
from zerosum.client.spec import PrivacySpec, SecAggSpec
from zerosum.secagg import LocalProtocolError, graph

SMALLEST_COHORT = 2
"""A sum of fewer has nothing to hide in."""


@dataclass(frozen=True)
class Thresholds:
    """What a session of one cohort size needs.

    Attributes
    ----------
    colluders : int
        c: clients assumed to collude with the server.
    threshold : int
        t: shares that recover a secret.
    min_survivors : int
        Survivors at which the session is opened: ceil(f n) + c under DP, and never fewer than
        t + 1, with which each survivor still finds t neighbours.
    """

    colluders: int
    threshold: int
    min_survivors: int

    @classmethod
    def of(
        cls, cohort: int, *, roster: int, secagg: SecAggSpec, privacy: PrivacySpec
    ) -> "Thresholds":
        """Return the thresholds of a cohort.

        Raises
        ------
        CohortTooSmallError
            If no number of survivors would do.
        """
        if cohort < SMALLEST_COHORT:
            raise CohortTooSmallError(f"a cohort of {cohort} has no sum to hide in")
        try:
            colluders = graph.colluders(cohort, roster, secagg.corruption)
            threshold = secagg.threshold
            if threshold == "auto":
                threshold = graph.complete_threshold(cohort, secagg.dropout, colluders)
        except LocalProtocolError as error:
            raise CohortTooSmallError(str(error)) from None
        if threshold <= colluders:
            raise CohortTooSmallError(
                f"secagg.threshold = {threshold} would let {colluders} colluders open any secret"
            )
        needed = threshold + 1
        if privacy.private:
            needed = max(needed, min_survivors(privacy.honest_fraction, cohort, colluders))
        if needed > cohort:
            raise CohortTooSmallError(
                f"{needed} survivors are needed of a cohort of {cohort} (threshold {threshold})"
            )
        return cls(colluders, threshold, needed)
