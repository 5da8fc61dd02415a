"""Compute what a client answers to a request: an update, or metrics on its own data."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from zerosum.client.privacy.clipping import clip_layers, layer_clips
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.protocol.training_outcomes import Notes
from zerosum.client.request import ModelQuestion, ModelRequest
from zerosum.client.task import ClientInfo, Task, TaskError
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.batches import normalised
from zerosum.client.training.dpsgd import BATCH, ExampleTrainer
from zerosum.client.training.examples import Examples, as_examples
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.pca import second_moments, triangle
from zerosum.client.training.seeded_task import client_records
from zerosum.client.training.torch_seed import all_seeded, seeded
from zerosum.secagg.randomness import derive_seed

if TYPE_CHECKING:
    from zerosum.client.task import Dataset
    from zerosum.client.training.batched import BatchedTrainer
    from zerosum.client.training.fast_stacks import StackingTrainer
    from zerosum.client.training.stacked_records import TrainedClient

log = logging.getLogger("zerosum.client")


Answer = Callable[[], np.ndarray]
"""Returns a client's answer before protection, or raises what went wrong at that client."""


class LocalComputation:
    """Answers requests about one task, with a model made once and loaded for each request.

    Parameters
    ----------
    task : Task
        Model, data and loss.
    device : str
        Where to compute.
    trainer : str
        Which local training, as :func:`choose_trainer` names it.
    notes : Notes, optional
        Where a simulation notes failures that DP-SGD passes over.
    """

    def __init__(
        self,
        task: Task,
        *,
        device: str = "cpu",
        trainer: str = "auto",
        notes: Notes | None = None,
    ) -> None:
        self._task = task
        self._notes = Notes() if notes is None else notes
        self._device = device
        self._kind = trainer
        self._made: tuple[int, LocalTrainer] | None = None
        self._by_examples: tuple[object, ExampleTrainer] | None = None
        self.records: int | None = None
        """Records that the latest client holds; None before, and where its data set cannot say."""

    def update(self, request: ModelRequest, client: ClientInfo, entropy: Entropy) -> np.ndarray:
        """Compute a client's answer to a request, before protection.

        Parameters
        ----------
        request : ModelRequest
            What is asked.
        client : ClientInfo
            Who answers.
        entropy : Entropy
            Draws examples, what is dropped of the model for each, and the noise of DP-SGD inside
            local training.

        Returns
        -------
        numpy.ndarray
            float, shape (request.dimension,): not yet clipped, noised or masked.

        Raises
        ------
        ValueError
            If a client has more examples than its weight can carry.
        """
        if request.question.kind == "evaluate":
            return self._metrics(self._trainer(request.question), request, client, entropy)
        if request.question.kind == "components":
            return self._moments(request, client, entropy)
        if request.question.privacy.by_example:
            return self._by_example(request, client, entropy)
        return self._delta(self._trainer(request.question), request, client, entropy)

    def answers(
        self, request: ModelRequest, clients: Sequence[ClientInfo], entropy: Entropy
    ) -> Iterator[Answer]:
        """Yield what computes each client's answer, in order.

        Parameters
        ----------
        request : ModelRequest
            What is asked.
        clients : sequence of ClientInfo
            Who answer.
        entropy : Entropy
            As for :meth:`update`.

        Yields
        ------
        Answer
            Of each client, in order; to call it computes what :meth:`update` returns, or hands out
            what was computed with others before.
        """
        together = self._together(request.question)
        if together is None:
            for client in clients:
                yield partial(self.update, request, client, entropy)
            return
        from zerosum.client.training.stacked_records import Member

        question = request.question
        members = (
            Member(
                partial(self._records, question, client, entropy), _training_seed(question, client)
            )
            for client in clients
        )
        for outcome in together.train_cohort(request.model, members):
            yield partial(_finished, together, request, outcome)

    def _together(self, question: ModelQuestion) -> "BatchedTrainer | StackingTrainer | None":
        """Return the trainer of many clients, where there is one and something to train.

        None also where it cannot be made: each client will then say so for itself.
        """
        if question.kind != "train" or question.privacy.by_example or self._kind == "general":
            return None
        if question.training.precision != "float32":  # where no group has it, clients refuse it
            return None
        try:
            trainer = self._trainer(question)
        except Exception:
            return None
        if self._kind == "fast" or (self._kind == "auto" and self._device == "cpu"):
            from zerosum.client.training.fast_stacks import StackingTrainer

            return trainer if isinstance(trainer, StackingTrainer) and trainer.stacks else None
        from zerosum.client.training.batched import BatchedTrainer

        return trainer if isinstance(trainer, BatchedTrainer) else None

    def _by_example(
        self, request: ModelRequest, client: ClientInfo, entropy: Entropy
    ) -> np.ndarray:
        """Return a sum of clipped gradients, or the change that DP-SGD made."""
        question = request.question
        trainer = self._example_trainer(question)
        coins = entropy.keystream("examples", question.round, client.index)
        load = partial(self._records, question, client, entropy)
        if question.privacy.sums_gradients:
            return trainer.descent(request.model, load, coins)
        return trainer.train_privately(request.model, load, coins, client.count)

    def _records(self, question: ModelQuestion, client: ClientInfo, entropy: Entropy) -> "Dataset":
        """Return a client's records, from coins of the experiment's or of nobody's knowledge."""
        if not _secret(question):
            records = client_records(self._task, client)
        else:
            with _coins(question, entropy, "client data", client.index):
                records = self._task.data(client)
        self.records = _length(records)
        return records

    def _moments(self, request: ModelRequest, client: ClientInfo, entropy: Entropy) -> np.ndarray:
        """Return the triangle of the sum of second moments of the client's records."""
        question = request.question
        dataset = self._records(question, client, entropy)
        examples = as_examples(dataset, torch.float64, torch.device("cpu"), alike=True)
        inputs = question.model.inputs or 0
        total = np.zeros((inputs, inputs))
        with _coins(question, entropy, "records of components", question.round, client.index):
            for rows in torch.split(torch.arange(len(examples)), BATCH):
                total += _moments_of(examples, rows, inputs)
        return triangle(total)

    def _delta(
        self, trainer: LocalTrainer, request: ModelRequest, client: ClientInfo, entropy: Entropy
    ) -> np.ndarray:
        dataset = self._records(request.question, client, entropy)
        delta = trainer.train(request.model, dataset, _training_seed(request.question, client))
        return _scaled(trainer, request.question, delta, lambda: _count(dataset))

    def _metrics(
        self, trainer: LocalTrainer, request: ModelRequest, client: ClientInfo, entropy: Entropy
    ) -> np.ndarray:
        """Return the loss, the metrics asked for and the count.

        Sums without DP; with it means in parts of their largest magnitudes and a one, together of
        norm 1 at most.
        """
        question = request.question
        dataset = self._records(question, replace(client, split="test"), entropy)
        sums = trainer.evaluate(request.model, dataset)
        count = sums["count"]
        if not count:
            return np.zeros(request.dimension)
        _check_metrics(question, sums, trainer.unscored)
        if not question.privacy.private:
            return np.array([sums["loss"], *(sums[name] for name in question.metrics), count])
        means = {name: value / count for name, value in sums.items()}
        loss = _part(means, "loss", 0.0, question.max_loss, question, client)
        parts = [
            _part(means, name, -m, m, question, client) for name, m in question.metrics.items()
        ]
        metrics: np.ndarray = np.array([loss, *parts, 1.0]) / np.sqrt(request.dimension)
        return metrics

    def _trainer(self, question: ModelQuestion) -> LocalTrainer:
        made, training = self._made, question.training
        if made is not None and made[0] == question.seed:
            trainer = made[1]
            if trainer.spec == training:
                return trainer
            if trainer.spec.model_copy(update={"lr": training.lr}) == training:
                trainer.set_rate(training)  # of another round of a schedule
                return trainer
        trainer = choose_trainer(
            self._task, training, seed=question.seed, device=self._device, kind=self._kind
        )
        self._made = (question.seed, trainer)
        return trainer

    def _example_trainer(self, question: ModelQuestion) -> ExampleTrainer:
        training = question.training
        key = (training.model_copy(update={"lr": 1.0}), question.privacy, question.seed)
        if self._by_examples is None or self._by_examples[0] != key:
            trainer = ExampleTrainer(
                self._task,
                training,
                question.privacy,
                seed=question.seed,
                device=self._device,
                notes=self._notes,
            )
            self._by_examples = (key, trainer)
        trainer = self._by_examples[1]
        trainer.set_rate(training)
        return trainer


def _part(
    means: Mapping[str, float],
    name: str,
    least: float,
    most: float,
    question: ModelQuestion,
    client: ClientInfo,
) -> float:
    """Return a mean in parts of its largest magnitude; NaN stays NaN.

    Cut to what is accounted for, which the client's own log says.
    """
    value = means[name]
    cut = min(max(value, least), most)
    if value < cut or value > cut:
        key = "federated_max_loss" if name == "loss" else f"federated_metrics.{name}"
        log.warning(
            "client %d, round %d: a mean %s of %.6g was cut to %.6g (evaluation.%s = %g)",
            client.index,
            question.round,
            name,
            value,
            cut,
            key,
            most,
        )
    return cut / most


def _check_metrics(question: ModelQuestion, sums: Mapping[str, float], unscored: str) -> None:
    """Raise TaskError where this client has not what an evaluation sums.

    A zero in place of a metric would be averaged like any other.
    """
    for name in question.metrics:
        if name not in sums:
            why = f" ({unscored})" if unscored else ""
            raise TaskError(
                f"evaluation.federated_metrics names {name}, which the task does not measure here"
                f"{why}: take it out, or give the task metrics(outputs, targets)"
            )


def _coins(
    question: ModelQuestion, entropy: Entropy, purpose: str, *indices: int
) -> AbstractContextManager[None]:
    """Seed the global generators for code of the task's.

    Where each record is protected, with coins that nobody else knows: a record more moves those
    that are drawn for the others.
    """
    if _secret(question):
        return all_seeded(entropy.keystream(purpose, *indices).take(8))
    return seeded(derive_seed(question.seed, purpose, *indices))


def _secret(question: ModelQuestion) -> bool:
    return question.privacy.private and question.privacy.by_example


def _training_seed(question: ModelQuestion, client: ClientInfo) -> bytes:
    return derive_seed(question.seed, "local training", question.round, client.index)


def _finished(
    trainer: LocalTrainer, request: ModelRequest, outcome: "TrainedClient | BaseException"
) -> np.ndarray:
    """Return the answer of a client that was trained ahead, or raise what its training raised."""
    if isinstance(outcome, BaseException):
        raise outcome
    return _scaled(trainer, request.question, outcome.delta, lambda: outcome.count)


def _scaled(
    trainer: LocalTrainer, question: ModelQuestion, delta: np.ndarray, count: Callable[[], int]
) -> np.ndarray:
    """Scale a change to the reference steps, cut it by layer and weigh it, where that is asked."""
    if question.training.normalise == "steps":
        delta = normalised(delta, count(), question.training)
    if question.privacy.clipping == "per-layer" and question.privacy.clip is not None:
        layers, fractions = trainer.layout.layers, question.privacy.clip_fractions
        clips = layer_clips(question.privacy.clip, len(layers), fractions)
        delta = clip_layers(delta, layers, clips)
    if question.training.weighting == "uniform":
        return delta
    examples = count()
    weight = examples / question.training.max_examples
    if weight > 1:
        raise ValueError(
            f"{examples} examples exceed training.max_examples = {question.training.max_examples}"
        )
    return np.append(delta * weight, weight)


def _moments_of(examples: Examples, rows: torch.Tensor, inputs: int) -> np.ndarray:
    """Return the second moments of some records; one that cannot be had or used adds nothing."""
    try:
        records, _ = examples.take(rows)
        return second_moments(records.numpy().reshape(len(rows), inputs))
    except FAILURES:
        nothing = np.zeros((inputs, inputs))
        if len(rows) > 1:  # what is wrong with one must not show in the others
            moments = (_moments_of(examples, row, inputs) for row in torch.split(rows, 1))
            total: np.ndarray = sum(moments, nothing)
            return total
        log.exception("a record has no moments: zero is added instead")
        return nothing


def _count(dataset: "Dataset") -> int:
    return len(as_examples(dataset, torch.float32, torch.device("cpu")))


def _length(dataset: "Dataset") -> int | None:
    """Return how many records a data set holds, without reading them; None where it cannot say."""
    rows: Any = dataset[0] if isinstance(dataset, tuple | list) else dataset
    try:
        return len(rows)
    except TypeError:
        return None
