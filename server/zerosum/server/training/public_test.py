"""Test models on public data: the figures of a round, and those of the final model alone."""

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from zerosum.client.task import Task, error_line
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.torch_seed import seeded
from zerosum.client.training.whole_set import (
    HOOK,
    OutputsKept,
    has_whole_set_metrics,
    not_finite,
    whole_set_metrics,
)
from zerosum.server.training.class_figures import (
    Classified,
    class_figures,
    class_names,
    classified,
)
from zerosum.server.training.references import reference

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

log = logging.getLogger("zerosum.server")


class PublicTest:
    """Tests of a task's models on public test data.

    Parameters
    ----------
    task : Task
        Supplies loss, metrics and figures of the whole set.
    trainer : LocalTrainer
        Evaluates.
    dataset : torch Dataset or pair of tensors, optional
        None where there is no public test data.
    batch_size : int
        Records at a time.
    """

    def __init__(
        self, task: Task, trainer: LocalTrainer, dataset: "Dataset | None", batch_size: int
    ) -> None:
        self._task, self._trainer = task, trainer
        self._dataset, self._batch_size = dataset, batch_size
        self._whole = has_whole_set_metrics(task)
        self._told = False
        self.unscored, self.lost, self.examples = "", 0, 0
        self.failed = ""
        """Why the latest test lacks figures of the whole set; empty where it has all."""
        self._final: tuple[bytes, OutputsKept, dict[str, float]] | None = None

    def figures(self, vector: np.ndarray, *, keep: bool = False) -> dict[str, float]:
        """Return a model's figures, as ``test_loss``; none where there are no test data.

        Parameters
        ----------
        vector : numpy.ndarray
            Components and model, float32, shape (public + d,).
        keep : bool
            Keep the outputs, for :meth:`closing` of the same model.

        Returns
        -------
        dict of str to float
        """
        if self._dataset is None:
            return {}
        kept = OutputsKept() if keep or self._whole else None
        sums = self._trainer.evaluate(vector, self._dataset, self._batch_size, kept=kept)
        self.unscored, self.lost = self._trainer.unscored, self._trainer.lost
        count = sums.pop("count")
        self.examples = int(count)
        if not count:
            return {}
        sums["loss"] *= float(getattr(self._task, "loss_unit", 1.0))
        means = {name: value / count for name, value in sums.items()}
        figures = means if kept is None else means | self._whole_set(kept, means)
        named = {f"test_{name}": value for name, value in figures.items()}
        if keep and kept is not None:
            self._final = vector.tobytes(), kept, named
        return named

    def closing(self, vector: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the final model confuses, and the reference beside its figures.

        Parameters
        ----------
        vector : numpy.ndarray
            As for :meth:`figures`, whose outputs are used where they were kept.

        Returns
        -------
        document : dict of str to any
            ``test-set.json``; empty without test data.
        reference : dict of str to any
            Of :func:`zerosum.server.training.references.reference`; likewise.
        """
        if self._final is None or self._final[0] != vector.tobytes():
            # A run that ends early, or goes on after its last round, has not kept them.
            self.figures(vector, keep=True)
        if self._final is None:
            return {}, {}
        _, kept, measured = self._final
        self._final = None
        with torch.no_grad(), seeded(0):
            try:
                outputs, targets = kept.joined()
                found = classified(self._task, outputs, targets)
            except FAILURES as error:
                why = f"outputs cannot be read: {error_line(error)}"
                return {"left_out": why}, {"reason": why}
            compared = reference(self._task, outputs, targets, found, measured)
        if isinstance(found, Classified):
            return self._named(found, compared)
        return {"examples": len(targets), "left_out": found}, compared

    def _named(
        self, found: Classified, compared: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return figures and reference of classes, with the classes' names where it has any."""
        figures, names = class_figures(found), class_names(self._task, found.classes)
        if isinstance(names, str):
            return figures | {"unnamed": names}, compared
        if not names:
            return figures, compared
        if "label" in compared:
            compared = compared | {"label_name": names[compared["label"]]}
        return figures | {"class_names": names}, compared

    def _whole_set(self, kept: OutputsKept, means: dict[str, float]) -> dict[str, float]:
        """Return the task's figures of the whole set; what fails is said, and ends no run."""
        try:
            figures = whole_set_metrics(self._task, *kept.joined(), measured=means)
        except FAILURES as error:
            figures, self.failed = {}, f"{HOOK} failed: {error_line(error)}"
        else:
            lost = not_finite(figures)
            self.failed = f"{HOOK} gave NaN or infinity for {', '.join(lost)}" if lost else ""
        if self.failed and not self._told:
            self._told = True
            log.warning("%s", self.failed)
        return figures
