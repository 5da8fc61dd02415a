"""Plan the private sums of a run, in order, and the cohort of each."""

from collections.abc import Callable

from zerosum.client.request import Kind
from zerosum.server.runs.left_out import LeftOut
from zerosum.server.sampling import CohortSampler, Planned
from zerosum.server.spec import Experiment


class Schedule:
    """The private sums of a run; each cohort is drawn once, before its keys are asked for.

    Parameters
    ----------
    experiment : Experiment
    sampler : CohortSampler
        Draws cohorts, and splits them into groups. A draw depends on nothing but its round.
    attempts : callable
        Returns how many attempts at a kind of sum in a round were charged before.
    left_out : LeftOut
        Who is drawn in vain.
    """

    def __init__(
        self,
        experiment: Experiment,
        sampler: CohortSampler,
        attempts: Callable[[int, Kind], int],
        left_out: LeftOut,
    ) -> None:
        self._experiment = experiment
        self._sampler = sampler
        self._attempts = attempts
        self._left_out = left_out
        self._ahead: Planned | None = None

    def draw(self, number: int, kind: Kind) -> Planned:
        """Draw the cohort of a sum, or return the one that was drawn ahead.

        Parameters
        ----------
        number : int
            The round.
        kind : str
            What is asked.

        Returns
        -------
        Planned
            The sum and its cohort.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and (ahead.number, ahead.kind) == (number, kind):
            return ahead
        drawn = self._sampler.draw(number, kind)
        cohort = self._left_out.without(drawn, number)
        groups = self._sampler.split(cohort, self._experiment.secagg.groups, number, kind)
        attempt = self._attempts(number, kind)
        return Planned(kind, number, attempt, groups, len(drawn) - len(cohort))

    def draw_ahead(self, planned: Planned) -> Planned | None:
        """Return the sum after this one, with its cohort; None after the last."""
        after = self._after(planned.number, planned.kind)
        self._ahead = None if after is None else self.draw(*after)
        return self._ahead

    def evaluates(self, number: int) -> bool:
        """Return whether a round ends with an evaluation on the clients' own data."""
        every = self._experiment.evaluation.federated_every
        return bool(every) and number % every == 0

    def _after(self, number: int, kind: Kind) -> tuple[int, Kind] | None:
        if kind == "train" and self.evaluates(number):
            return number, "evaluate"
        return (number + 1, "train") if number < self._experiment.rounds else None
