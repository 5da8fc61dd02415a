"""Test the assumed dropout rate against a run's dropouts, and bound it from above if refuted."""

from dataclasses import dataclass

from scipy.stats import beta, binom

FEWEST_SEEN = 100
"""Client-rounds before which nothing is concluded: of fewer the upper bound is near 1."""

CONTRADICTED = 1e-3
"""Probability of as many dropouts at the assumed rate, below which that rate is refuted.

Refuting a true rate costs epsilon and no privacy, so that this level is a matter of comfort.
"""

MISSED_RATE = 1e-6
"""Probability, over all looks, that the true rate is above the charged one.

A charged rate that is too low breaks the figure, so that this level is far below any delta in use.
"""

_STEPS = 1000
"""Charged rates are multiples of 1/1000, rounded up.

A new rate takes a search over all rates below it and a new composition: it should be rare.
"""


@dataclass
class DropoutRate:
    """Counts dropouts by session, and keeps the rate up to which abandonment is charged.

    The assumed rate is charged until the dropouts refute it. A bound at confidence 1 - 1e-6 lies
    far above a true rate for a long while: charged from the start, it would replace a true
    assumption by a worse one in every run. Once as many dropouts have a probability below 1e-3, the
    one-sided upper bound of Clopper and Pearson takes its place. It is computed anew after each
    session, at probability 1e-6 / (k (k + 1)) of missing the rate at the k-th look: these add up to
    1e-6, whenever the run ends. The charged rate never falls, since no figure may.

    Attributes
    ----------
    assumed : float
        ``secagg.dropout``.
    rostered, dropped : int
        Clients in all sessions that ended, and those of them who vanished at some stage.
    looks : int
        Sessions after which there was enough to conclude from.
    charged : float
        The largest rate at which abandonment is charged.
    """

    assumed: float
    rostered: int = 0
    dropped: int = 0
    looks: int = 0
    charged: float = 0.0

    def __post_init__(self) -> None:
        self.charged = self.assumed

    @property
    def exceeded(self) -> bool:
        """Return whether more dropped out than was assumed, so that more is charged."""
        return self.charged > self.assumed

    def note(self, cohort: int, survived: int) -> bool:
        """Count a session that ended; return whether the charged rate rises.

        A session that was given up early shows only who had vanished by then: the rest counts as
        having stayed.

        Parameters
        ----------
        cohort, survived : int
            Clients of the session; those who vanished at no stage.

        Returns
        -------
        bool
            Whether more is charged from here on.
        """
        self.rostered += cohort
        self.dropped += cohort - survived
        if self.rostered < FEWEST_SEEN:
            return False
        self.looks += 1
        likely = binom.sf(self.dropped - 1, self.rostered, self.assumed)
        if not self.exceeded and likely >= CONTRADICTED:
            return False
        before, self.charged = self.charged, max(self.charged, self._upper())
        return self.charged > before

    def _upper(self) -> float:
        if self.dropped == self.rostered:
            return 1.0
        missed = MISSED_RATE / (self.looks * (self.looks + 1))
        upper = float(beta.isf(missed, self.dropped + 1, self.rostered - self.dropped))
        return min(1.0, -(-upper * _STEPS // 1) / _STEPS)
