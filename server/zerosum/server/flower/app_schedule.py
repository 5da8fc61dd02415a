"""Number the private sums of somebody else's strategy, and foresee the one after each.

Keys and shares of a sum ride on the messages of the sum before, so that its kind and cohort have
to be known one sum ahead, and a strategy tells neither. They are foreseen from what it did so far.
What was foreseen wrongly costs the preparation: that session is never asked for a vector, nothing
is charged for it, and the sum that the strategy does ask for has a number of its own.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flwr.app import Message

from zerosum.client.request import Kind
from zerosum.server.flower.app_records import cohort_of
from zerosum.server.flower.app_run import AppRun
from zerosum.server.private_sum.sum_in_progress import Shape, SumPlan
from zerosum.server.sampling import CohortSampler

log = logging.getLogger("flwr")

_FREE_MISSES, _HITS_PER_MISS = 3, 4
"""A preparation in vain begins a session at each node, and a policy bounds their number."""


@dataclass(frozen=True)
class Asked:
    """Who is asked in one sum.

    Attributes
    ----------
    cohort : tuple of int
        Roster indices, ascending.
    expected : float
        What a noised sum is divided by.
    left_out : int
        How many more were drawn, and are not asked.
    """

    cohort: tuple[int, ...]
    expected: float
    left_out: int


@dataclass(frozen=True)
class Numbered:
    """A sum, and what is foreseen of it: its kind and cohort.

    Attributes
    ----------
    kind : str
    cohort : tuple of int
        Roster indices, ascending.
    plan : SumPlan
    prepared : bool
        Whether its keys and shares may be there already.
    """

    kind: Kind
    cohort: tuple[int, ...]
    plan: SumPlan
    prepared: bool = False


class AppSchedule:
    """The private sums of a strategy's rounds, in order, each with a number of its own.

    Parameters
    ----------
    run : AppRun
    last : int
        The last planned round, after which nothing is prepared.
    """

    def __init__(self, run: AppRun, last: int) -> None:
        self._run, self._last = run, last
        self._sampler = CohortSampler(run.experiment.sampling, len(run.nodes), run.entropy)
        self._number = run.ledger.last_round
        # A cohort is drawn once, before its keys are asked for.
        self._drawn: dict[tuple[int, Kind], tuple[int, ...]] = {}
        self._habits: dict[Kind, tuple[tuple[int, ...], bool]] = {}
        self._after: dict[Kind, Kind] = {"train": "evaluate" if run.metrics else "train"}
        self._before: Kind | None = None
        self._ahead: Numbered | None = None
        self._hits = self._misses = 0

    def asked(self, messages: Sequence[Message], round: int, kind: Kind) -> Asked:
        """Return who is asked; those who are left out count in the divisor, as if drawn.

        Parameters
        ----------
        messages : sequence of flwr.app.Message
            The strategy's.
        round : int
            Of training.
        kind : str
            What is asked.

        Returns
        -------
        Asked
            By the strategy's own choice, or as ``experiment.sampling`` draws them.

        Raises
        ------
        ConfigError
            If the strategy asks a node twice, or one that is not of the roster.
        """
        if self._run.own_cohorts:
            drawn = cohort_of(messages, self._run.nodes.by_index, "strategy")
            before = self._habits.get(kind)
            everybody = len(drawn) == len(self._run.nodes)
            self._habits[kind] = drawn, everybody or (before is not None and before[0] == drawn)
            expected = float(len(drawn))
        else:
            drawn = self._draw(round, kind)
            del self._drawn[round, kind]
            expected = self._sampler.expected_cohort
        cohort = self._run.left_out.without(drawn, round)
        return Asked(cohort, expected, len(drawn) - len(cohort))

    def plan(self, kind: Kind, cohort: tuple[int, ...], shape: Shape) -> Numbered:
        """Return the sum that was prepared, if it is the one that is asked for, or a new one.

        Parameters
        ----------
        kind : str
            What is asked.
        cohort : tuple of int
            Roster indices, ascending.
        shape : Shape
            Of the request.

        Returns
        -------
        Numbered
            Under a number that no other sum of this run has.
        """
        if self._before is not None:
            self._after[self._before] = kind
        self._before = kind
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if (ahead.kind, ahead.cohort, ahead.plan.shape) == (kind, cohort, shape):
                self._hits += 1
                return ahead
            self._misses += 1
            log.debug(
                "private sum %d was prepared to %s with %d clients, and is not asked for: the "
                "strategy does otherwise, to %s with %d",
                ahead.plan.round,
                ahead.kind,
                len(ahead.cohort),
                kind,
                len(cohort),
            )
        return self.anew(kind, cohort, shape)

    def anew(self, kind: Kind, cohort: tuple[int, ...], shape: Shape) -> Numbered:
        """Return a sum of which nobody has been asked anything.

        Parameters
        ----------
        kind, cohort, shape
            As of :meth:`plan`.

        Returns
        -------
        Numbered
            Under the next number.
        """
        self._number += 1
        groups = self._sampler.split(cohort, self._run.experiment.secagg.groups, self._number, kind)
        return Numbered(kind, cohort, SumPlan(groups, self._number, 0, shape))

    def instead(self, vain: Numbered) -> Numbered:
        """Return a sum in the place of one whose preparation failed: a preparation in vain, too.

        Parameters
        ----------
        vain : Numbered
            As :meth:`plan` returned it, prepared.

        Returns
        -------
        Numbered
            Of the same kind and cohort, under the next number.
        """
        self._hits, self._misses = self._hits - 1, self._misses + 1
        return self.anew(vain.kind, vain.cohort, vain.plan.shape)

    def foreseen(
        self, now: Numbered, round: int, shape: Callable[[Kind], Shape]
    ) -> Numbered | None:
        """Return the sum that is likely to come after this one, to be prepared with it.

        Parameters
        ----------
        now : Numbered
            The sum that is asked for now.
        round : int
            Its round of training.
        shape : callable
            Of a request of a kind.

        Returns
        -------
        Numbered or None
            None after the last, where nothing can be foreseen, or where it depends on this one.
        """
        self._ahead = None
        kind = self._after.get(now.kind, "train")
        after = round if kind == "evaluate" else round + 1
        adapts = self._run.experiment.privacy.adaptive and now.kind == kind == "train"
        if not self._run.coordinator.pipelined or adapts or after > self._last or self._wasteful:
            return None
        drawn = self._likely(after, kind, now.kind)
        if drawn is None:
            return None
        cohort = self._run.left_out.without(drawn, after)
        ahead = self.anew(kind, cohort, shape(kind))
        self._ahead = Numbered(kind, cohort, ahead.plan, prepared=True)
        return self._ahead

    @property
    def _wasteful(self) -> bool:
        """Return whether too many sums were prepared in vain."""
        run = self._run
        needed = run.rounds * (2 if run.metrics else 1)
        spare = run.experiment.secagg.openings - needed
        return self._misses >= min(spare, _FREE_MISSES + self._hits // _HITS_PER_MISS)

    def _likely(self, round: int, kind: Kind, before: Kind) -> tuple[int, ...] | None:
        """Return the cohort of a later sum; None where a strategy chooses, and never the same."""
        if not self._run.own_cohorts:
            return self._draw(round, kind)
        # Whoever was never evaluated is taken to be who trains.
        drawn, steady = self._habits.get(kind) or self._habits[before]
        return drawn if steady else None

    def _draw(self, round: int, kind: Kind) -> tuple[int, ...]:
        if (round, kind) not in self._drawn:
            self._drawn[round, kind] = self._sampler.draw(round, kind)
        return self._drawn[round, kind]
