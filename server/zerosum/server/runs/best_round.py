"""Find a run's best round by a metric on public test data, and for how long none was better."""

import math
from collections.abc import Iterable

from zerosum.server.runs.records import Best, RoundRecord
from zerosum.server.spec import EvaluationSpec


class BestSoFar:
    """Follows which round is the best, and for how long none was better.

    Parameters
    ----------
    evaluation : EvaluationSpec
        Its ``best`` may be absent: then there is none, and no end.
    records : iterable of RoundRecord
        Of the rounds so far.

    Attributes
    ----------
    best : Best or None
        The first round with the best value. Never one with NaN or infinity, nor one before any
        client's training is in the model.
    waited : int
        Completed rounds since the last that improved by more than ``min_delta``.
    """

    def __init__(self, evaluation: EvaluationSpec, records: Iterable[RoundRecord] = ()) -> None:
        self._spec = evaluation
        self._reference: float | None = None
        self.waited = 0
        self._looked = False
        self.best: Best | None = None
        for record in records:
            self.take(record)

    def take(self, record: RoundRecord) -> bool:
        """Follow the next round.

        Parameters
        ----------
        record : RoundRecord

        Returns
        -------
        bool
            Whether its model is the best so far.
        """
        spec = self._spec
        if spec.best is None:
            return False
        value = record.metrics.get(f"test_{spec.best}")
        self._looked = value is not None
        known = value is not None and math.isfinite(value) and not record.untrained
        if known and value is not None and self._improves(value):
            self._reference, self.waited = value, 0
        elif record.completed:
            # A round without enough clients says nothing of the training, however many there are.
            self.waited += 1
        if not known or value is None:
            return False
        if self.best is not None and self._gain(value, self.best.value) <= 0:
            return False
        self.best = Best(
            metric=spec.best,
            mode="max" if spec.largest_is_best else "min",
            round=record.round,
            value=value,
        )
        return True

    @property
    def out_of_patience(self) -> bool:
        """Return whether the run ends with the latest round: it was tested, and waited for."""
        patience = self._spec.patience
        return patience is not None and self._looked and self.waited >= patience

    def _improves(self, value: float) -> bool:
        """Return whether a value counts for patience: it is beyond the last such one by more."""
        if self._reference is None:
            return True
        return self._gain(value, self._reference) > self._spec.min_delta

    def _gain(self, value: float, over: float) -> float:
        return value - over if self._spec.largest_is_best else over - value
