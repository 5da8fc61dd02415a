"""Spoil a count: one client adds what it likes to its own part of it.

Masks hide the lie with everything else, and noise hides no more than one record. What honest
clients can have bounds it: no count is above clients times ``max_records``, but for noise. A sum
beyond that is refused, which is an answer less, or has wrapped around the ring and is within the
bound again. Within the bound a lie is not prevented: that would take proofs of what clients send
(Corrigan-Gibbs and Boneh, "Prio: Private, robust, and scalable computation of aggregate
statistics", 2017), which this library has not.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from zerosum.simulations.attacks.harness.interface import Case, Guess, Metric, ThreatModel
from zerosum.simulations.attacks.harness.metrics import Mean
from zerosum.simulations.attacks.published.asked_tables import MASKED, PLAIN, noised
from zerosum.simulations.attacks.published.lied_counts import LiedCountsSetting, LiedCountsView

MOST = 1_000
"""Records of a client that count at most, where that is said to be few."""


@dataclass(frozen=True)
class LyingAboutCounts(ABC):
    """Have one client add to a count, and see what is released."""

    name: ClassVar[str] = "lying about counts"
    threat: ClassVar[ThreatModel] = ThreatModel("malicious client", colluders=1)
    requires: ClassVar[tuple[str, ...]] = ("counts",)
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("shift of the count", "records"),)

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield counts that bound a lie loosely, and closely."""
        loose = LiedCountsSetting()
        close = replace(loose, max_records=MOST)
        yield from (Case(loose, one) for one in (PLAIN, MASKED, noised(1.0)))
        yield from (Case(close, one) for one in (PLAIN, noised(1.0)))

    @abstractmethod
    def craft(self, view: LiedCountsView, rng: np.random.Generator) -> int:
        """Return what the client adds to each count.

        Parameters
        ----------
        view : LiedCountsView
            Before the counts.
        rng : numpy.random.Generator
            All randomness of the move.

        Returns
        -------
        int
            Records.
        """

    def baseline(self, view: LiedCountsView, rng: np.random.Generator) -> Guess:
        """Add nothing: the same counts, had nobody lied, are scored."""
        return Guess({})

    def run(self, view: LiedCountsView, rng: np.random.Generator) -> Guess:
        """Return the counts as they were released."""
        return Guess({} if view.counts is None else {"counts": view.counts})

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Mean]:
        """Return how far each count is from the people there are."""
        counts = guess.values.get("counts", truth["without"])
        return {"shift of the count": Mean(np.asarray(counts - truth["sizes"]))}


@dataclass(frozen=True)
class AddingRecords(LyingAboutCounts):
    """Add a number of records that nobody has.

    Attributes
    ----------
    added : int
        To each count.
    """

    added: Annotated[int, Ge(1), Le(2**62)] = 1_000_000

    @property
    def adaptive(self) -> str:
        """Return how much is added."""
        return f"adds {self.added:,}"

    def craft(self, view: LiedCountsView, rng: np.random.Generator) -> int:
        """Return the number, whatever bounds it."""
        return self.added


@dataclass(frozen=True)
class AsMuchAsPasses(LyingAboutCounts):
    """Add what the server's check of a sum lets pass.

    Attributes
    ----------
    left : float
        Part of the bound that is left to honest clients: with what these have, the sum has to stay
        below it.
    """

    left: Annotated[float, Ge(0), Le(1)] = 0.1

    adaptive: ClassVar[str] = "adds as much as passes the server's check"

    def craft(self, view: LiedCountsView, rng: np.random.Generator) -> int:
        """Return the rest of clients times max_records."""
        return int((1 - self.left) * view.clients * view.max_records)


ATTACKS = (AddingRecords(), AsMuchAsPasses())
"""As the table lists them."""
