"""The float answer of one client to one request: an update, or metrics on its own data."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from zerosum.client.clipping import clip_layers, layer_clips
from zerosum.client.examples import as_examples
from zerosum.client.request import Question, Request
from zerosum.client.spec import TrainSpec
from zerosum.client.task import ClientInfo, Task
from zerosum.client.training import LocalTrainer
from zerosum.secagg.randomness import derive_seed

if TYPE_CHECKING:
    from zerosum.client.task import Dataset


class Answerer:
    """Answers requests about one task, with a model made once and loaded for each request."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._made: tuple[TrainSpec, int, LocalTrainer] | None = None

    def update(self, request: Request, client: ClientInfo) -> np.ndarray:
        """Return the answer before protection, float, shape (request.dimension,).

        Raises
        ------
        ValueError
            If a client has more examples than its weight can carry.
        """
        trainer = self._trainer(request.question)
        if request.question.kind == "evaluate":
            return self._metrics(trainer, request, client)
        return self._delta(trainer, request, client)

    def _delta(self, trainer: LocalTrainer, request: Request, client: ClientInfo) -> np.ndarray:
        question = request.question
        dataset = self._task.data(client)
        seed = derive_seed(question.seed, "local training", question.round, client.index)
        delta = trainer.train(request.model, dataset, seed)
        if question.privacy.clipping == "per-layer" and question.privacy.clip is not None:
            layers, fractions = trainer.layout.layers, question.privacy.clip_fractions
            clips = layer_clips(question.privacy.clip, len(layers), fractions)
            delta = clip_layers(delta, layers, clips)
        if question.training.weighting == "uniform":
            return delta
        count = _count(dataset)
        weight = count / question.training.max_examples
        if weight > 1:
            raise ValueError(
                f"{count} examples exceed training.max_examples = {question.training.max_examples}"
            )
        return np.append(delta * weight, weight)

    def _metrics(self, trainer: LocalTrainer, request: Request, client: ClientInfo) -> np.ndarray:
        """Return [loss, correct, count]: sums without DP; means and a one, at norm 1, with it."""
        question = request.question
        dataset = self._task.data(replace(client, split="test"))
        sums = trainer.evaluate(request.model, dataset)
        count, correct = sums["count"], sums.get("accuracy", 0.0)
        if not question.privacy.private:
            return np.array([sums["loss"], correct, count])
        if not count:
            return np.zeros(3)
        loss = min(max(sums["loss"] / count, 0.0), question.max_loss) / question.max_loss
        metrics: np.ndarray = np.array([loss, correct / count, 1.0]) / np.sqrt(3.0)
        return metrics

    def _trainer(self, question: Question) -> LocalTrainer:
        spec, seed = question.training, question.seed
        if self._made is None or self._made[:2] != (spec, seed):
            self._made = (spec, seed, LocalTrainer(self._task, spec, seed=seed))
        return self._made[2]


def _count(dataset: "Dataset") -> int:
    return len(as_examples(dataset, torch.float32, torch.device("cpu")))
