"""The round loop: sample, sum in private, step, test, record."""

import logging
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as save_tensors

from zerosum.client.components import principal_components
from zerosum.client.entropy import Entropy
from zerosum.client.lean import choose_trainer
from zerosum.client.request import Kind, Request
from zerosum.client.task import Task
from zerosum.client.training import LocalTrainer, initial_vector
from zerosum.server.accounting import RunLedger
from zerosum.server.adaptive import Clip
from zerosum.server.aggregate import Aggregate, Sample
from zerosum.server.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from zerosum.server.config import ConfigError
from zerosum.server.coordinator import Charge, ChargeKind, Coordinator, RoundAbandoned
from zerosum.server.exchange import Traffic
from zerosum.server.optimizers import ServerOptimizer
from zerosum.server.planning import (
    ACCEPTED_WRAP,
    configuration_digest,
    example_units,
    noise_draw,
    planned_protections,
    question_of,
)
from zerosum.server.runs import LEDGER, METRICS, MODEL, SUMMARY, RunFolder
from zerosum.server.sampling import CohortSampler
from zerosum.server.spec import Experiment

log = logging.getLogger("zerosum.server")

DEPLOYED: Mapping[str, Any] = {"name": "nodes"}
"""Engine of a run whose clients are on nodes of their own."""

Record = dict[str, Any]
"""One line of metrics.jsonl."""


@dataclass(frozen=True)
class Result:
    """What a run produced.

    Parameters
    ----------
    folder : Path
        The run folder.
    summary : dict
        What ``summary.json`` holds.
    rounds : list of dict
        What ``metrics.jsonl`` holds.
    model : dict of str to numpy.ndarray
        The final model's parameters, float32, by name.
    """

    folder: Path
    summary: Mapping[str, Any]
    rounds: list[Record]
    model: Mapping[str, np.ndarray]

    @property
    def metrics(self) -> Mapping[str, float]:
        """Final metrics, as ``test_accuracy``."""
        return dict(self.summary["metrics"])


@dataclass(frozen=True)
class Opened:
    """What the server saw of a round: one masked contribution as received, the opened average."""

    contribution: Sample | None
    average: np.ndarray


class FederatedTraining:
    """One run of an experiment, new or continued.

    Parameters
    ----------
    experiment : Experiment
        Checked, with its noise multiplier resolved.
    task : Task
        What is trained.
    population : int
        Number of clients in the roster.
    coordinator : Coordinator
        Runs the private sums.
    entropy : Entropy
        The server's noise and its sampling coins.
    folder : RunFolder
        Where everything is written.
    on_round : callable, optional
        Called with each round's record.
    engine : mapping
        What computes the clients, as the summary names it.
    """

    def __init__(
        self,
        experiment: Experiment,
        task: Task,
        population: int,
        coordinator: Coordinator,
        entropy: Entropy,
        folder: RunFolder,
        on_round: Callable[[Record], None] = lambda record: None,
        engine: Mapping[str, Any] = DEPLOYED,
    ) -> None:
        self._engine = dict(engine)
        self._experiment = experiment
        self._task = task
        self._population = population
        self._coordinator = coordinator
        self._entropy = entropy
        self._folder = folder
        self._on_round = on_round
        self._trainer = LocalTrainer(task, experiment.training, seed=experiment.seed)
        self._test_data = task.test_data()
        self._optimizer = ServerOptimizer(experiment.server, initial_vector(task, experiment.seed))
        checkpoint = load_checkpoint(folder)
        self._done = 0
        # Stand before the model in every request; zero until they are found.
        self._components = np.zeros(self._trainer.public, dtype=np.float32)
        self._clip = Clip(experiment.privacy, checkpoint.clip if checkpoint else None)
        repeatable = entropy.reproducible and not experiment.privacy.exact
        if checkpoint is not None:
            if not repeatable:
                raise _not_repeatable(folder)
            self._check_continues(checkpoint)
            self._done = checkpoint.round
            if checkpoint.components is not None:
                self._components = checkpoint.components.numpy()
            self._optimizer.restore(
                checkpoint.model, checkpoint.optimizer_tensors, checkpoint.optimizer_scalars
            )
        self._sampler = CohortSampler(
            experiment.sampling,
            population,
            entropy,
            checkpoint.order_seed if checkpoint is not None else None,
        )
        planned = planned_protections(experiment, population, self._trainer.layout.length)
        self._ledger = RunLedger(
            folder.path / LEDGER,
            privacy=experiment.privacy,
            secagg=experiment.secagg,
            sampling=experiment.sampling,
            population=population,
            protections=planned,
            seeded=repeatable,
            examples=example_units(experiment),
            records=experiment.privacy.examples,
        )
        if not repeatable and self._ledger.participations().any():
            raise _not_repeatable(folder)  # it ended before its first checkpoint
        self.last_opened: Opened | None = None
        self._wrap_probability = max(p.log2_wrap_probability for p in planned.values())
        if self._wrap_probability > ACCEPTED_WRAP:
            log.warning(
                "a sum wraps with probability up to 2^%.0f: raise encoding.ring_bits, or leave it",
                self._wrap_probability,
            )
        self._records = [r for r in folder.read_lines(METRICS) if r["round"] <= self._done]

    def _check_continues(self, checkpoint: Checkpoint) -> None:
        """Refuse a folder whose parts do not belong together: nothing spent may be forgotten."""
        where = f"--resume {self._folder.path}"
        if checkpoint.configuration != configuration_digest(self._experiment):
            raise ConfigError(
                f"{where}: the checkpoint is of another configuration than config.toml; restore "
                "the file, or start a new run"
            )
        if checkpoint.round > self._experiment.rounds:
            raise ConfigError(
                f"{where}: rounds = {self._experiment.rounds}, but {checkpoint.round} are over"
            )
        if len(checkpoint.model) != self._trainer.layout.length:
            raise ConfigError(
                f"{where}: the checkpoint has {len(checkpoint.model)} parameters, the task's model "
                f"{self._trainer.layout.length}"
            )
        found = 0 if checkpoint.components is None else len(checkpoint.components)
        if found != self._trainer.public:
            raise ConfigError(
                f"{where}: the checkpoint has {found} entries of components, the task's model "
                f"{self._trainer.public}"
            )
        for name, (size, digest) in checkpoint.files.items():
            self._folder.check_beginning(name, size, digest)

    def run(self) -> Result:
        """Run the rounds that are left and write the results."""
        self._folder.rewrite_lines(METRICS, self._records)
        found = self._find_components() if self._trainer.public and not self._done else {}
        for number in range(self._done + 1, self._experiment.rounds + 1):
            record = self._round(number) | found
            found = {}
            self._folder.append_line(METRICS, record)
            self._records.append(record)
            self._save(number)
            self._on_round(record)
        return self._finish()

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the current model's outputs, without gradients."""
        return self._trainer.predict(self._model, inputs)

    @property
    def _model(self) -> np.ndarray:
        """The vector of a request: components, if there are any, and the global model."""
        return np.concatenate([self._components, self._optimizer.model])

    def _find_components(self) -> Record:
        """Read principal components from one private sum, before the first round.

        Raises
        ------
        ConfigError
            If the sum cannot be opened: what was asked for is charged, and nothing was trained.
        """
        spec = self._experiment.model
        cohort = self._sampler.draw(0, "components")
        groups = self._sampler.split(cohort, self._experiment.secagg.groups, 0, "components")
        try:
            aggregate = self._coordinator.private_sum(
                self._request(0, "components"),
                groups,
                round=1,
                charge=self._charge(0, "components", groups),
            )
        except RoundAbandoned as abandoned:
            raise ConfigError(
                f"model.components = {spec.components}: the private sum that they are read from "
                f"was abandoned: {abandoned}; start again, or lower privacy.honest_fraction"
            ) from None
        found = principal_components(aggregate.total, spec.inputs or 0, spec.components or 0)
        self._components = found.ravel()
        return {
            "components": {"survivors": len(aggregate.survivors), "noise_std": aggregate.noise_std}
        }

    def _round(self, number: int) -> Record:
        started = time.perf_counter()
        cohort = self._sampler.draw(number)
        groups = self._sampler.split(cohort, self._experiment.secagg.groups, number)
        request = self._request(number)
        record: Record = {"round": number, "cohort": len(cohort)}
        try:
            aggregate = self._coordinator.private_sum(
                request, groups, round=2 * number, charge=self._charge(number, "train", groups)
            )
        except RoundAbandoned as abandoned:
            log.warning("round %d is abandoned: %s", number, abandoned)
            record |= {"status": "abandoned", "reason": str(abandoned), "survivors": 0}
            record |= _traffic(abandoned.traffic)
        else:
            average = self._average(aggregate)
            self._optimizer.step(average)
            record |= self._follow_norms(aggregate)
            self.last_opened = Opened(aggregate.sample, average)
            record |= {"status": "completed", "survivors": len(aggregate.survivors)}
            if aggregate.failures:
                record |= {"failed_groups": list(aggregate.failures)}
            record |= {"average_norm": float(np.linalg.norm(average))}
            record |= {"noise_norm": self._noise_norm(aggregate)}
            record |= _traffic(aggregate.traffic)
        record |= self._test(number)
        record |= self._federated(number)
        figures = self._ledger.figures()
        record["epsilon"] = {observer: figure["value"] for observer, figure in figures.items()}
        record["seconds"] = time.perf_counter() - started
        return record

    def _request(self, number: int, kind: Kind = "train") -> Request:
        experiment = self._experiment
        question = question_of(
            experiment, number, self._population, kind, noise_draw=noise_draw(experiment)
        )
        if kind == "train":
            question = question.model_copy(update={"privacy": self._clip.privacy})
        return Request(question, self._model)

    def _average(self, aggregate: Aggregate) -> np.ndarray:
        """Divide by the fixed expected cohort or lot under DP, by what is there without."""
        lot = self._experiment.privacy.lot
        if lot is not None and self._experiment.privacy.sums_gradients:
            return aggregate.total / lot
        if self._experiment.privacy.private:
            return aggregate.total / self._sampler.expected_cohort
        if self._experiment.training.weighting == "examples":
            weight = aggregate.total[-1]
            return aggregate.total[:-1] / weight if weight > 0 else 0 * aggregate.total[:-1]
        return aggregate.total / len(aggregate.survivors)

    def _follow_norms(self, aggregate: Aggregate) -> Record:
        """Fix the clip of the next round, now that this one's sum is open."""
        before, private = self._clip.value, self._experiment.privacy.private
        clients = self._sampler.expected_cohort if private else len(aggregate.survivors)
        fraction = self._clip.follow(aggregate.bit, clients)
        return {} if fraction is None else {"clip": before, "fraction_within_clip": fraction}

    def _noise_norm(self, aggregate: Aggregate) -> float:
        """Return the expected L2 norm of the noise in the average."""
        privacy, dimension = self._experiment.privacy, len(aggregate.total)
        divisor = privacy.lot if privacy.sums_gradients else None
        parts = self._sampler.expected_cohort if divisor is None else divisor
        return float(aggregate.noise_std * np.sqrt(dimension) / parts)

    def _test(self, number: int) -> Record:
        evaluation = self._experiment.evaluation
        last = number == self._experiment.rounds
        if self._test_data is None or (number % evaluation.every and not last):
            return {}
        sums = self._trainer.evaluate(self._model, self._test_data, evaluation.batch_size)
        count = sums.pop("count")
        return {f"test_{name}": value / count for name, value in sums.items()} if count else {}

    def _federated(self, number: int) -> Record:
        """Evaluate on the clients' own data: one more private sum, of an independent cohort."""
        every = self._experiment.evaluation.federated_every
        if not every or number % every:
            return {}
        cohort = self._sampler.draw(number, "evaluate")
        groups = self._sampler.split(cohort, self._experiment.secagg.groups, number, "evaluate")
        try:
            aggregate = self._coordinator.private_sum(
                self._request(number, "evaluate"),
                groups,
                round=2 * number + 1,
                charge=self._charge(number, "evaluate", groups),
            )
        except RoundAbandoned as abandoned:
            return {"federated_status": "abandoned", "federated_reason": str(abandoned)}
        return self._read_metrics(aggregate)

    def _read_metrics(self, aggregate: Aggregate) -> Record:
        loss, correct, count = aggregate.total.tolist()
        if self._experiment.privacy.private:
            # Divided by the noised number of those who answered: a ratio of two released figures.
            loss *= self._experiment.evaluation.federated_max_loss
        if count <= 0:
            return {"federated_status": "drowned in noise"}
        return {
            "federated_status": "completed",
            "federated_loss": loss / count,
            "federated_accuracy": correct / count,
        }

    def _charge(self, number: int, kind: str, groups: Sequence[tuple[int, ...]]) -> Charge:
        def charge(what: ChargeKind, group: int, clients: tuple[int, ...]) -> None:
            key = (number, 0, kind, group)
            if what == "contributions":
                self._ledger.charge_contributions(key, clients, cohort=len(groups[group]))
            else:
                self._ledger.charge_sum(key)

        return charge

    def _save(self, number: int) -> None:
        tensors, scalars = self._optimizer.state()
        save_checkpoint(
            self._folder,
            Checkpoint(
                round=number,
                model=torch.from_numpy(self._optimizer.model),
                optimizer_tensors=tensors,
                optimizer_scalars=scalars,
                order_seed=self._sampler.order_seed,
                configuration=configuration_digest(self._experiment),
                files={name: self._folder.fingerprint(name) for name in (LEDGER, METRICS)},
                clip=self._clip.value if self._experiment.privacy.adaptive else None,
                components=torch.from_numpy(self._components) if self._trainer.public else None,
            ),
        )

    def _finish(self) -> Result:
        model = self._trainer.to_state_dict(self._model)
        summary = self._summary()
        self._folder.write(MODEL, save_tensors(model))
        self._folder.write_json(SUMMARY, summary)
        return Result(self._folder.path, summary, self._records, model)

    def _summary(self) -> Record:
        experiment, records = self._experiment, self._records
        completed = [r for r in records if r["status"] == "completed"]
        stages = {name for r in records for name in r.get("dropouts", {})}
        return {
            "name": experiment.name,
            "metrics": _final_metrics(records),
            "rounds": len(records),
            "rounds_abandoned": len(records) - len(completed),
            "epsilon": self._ledger.figures(),
            "dropouts": {s: sum(r["dropouts"].get(s, 0) for r in records) for s in sorted(stages)},
            "bytes_up_per_client": _mean(r["bytes_up_per_client"] for r in completed),
            "bytes_down_per_client": _mean(r["bytes_down_per_client"] for r in completed),
            "seconds": sum(r["seconds"] for r in records),
            "peak_memory_mb": peak_memory_mb(),
            "population": self._population,
            "dimension": self._trainer.layout.length,
            "noise_multiplier": experiment.privacy.noise_multiplier,
            "noise_from_seed": self._entropy.reproducible and not experiment.privacy.exact,
            "noise_draw": noise_draw(experiment),
            "wrap_probability_log2": self._wrap_probability,
            "protocol": experiment.secagg.protocol,
            "server": experiment.secagg.server,
            "groups": experiment.secagg.groups,
            "groups_failed": sum(len(r.get("failed_groups", ())) for r in records),
            "engine": self._engine | {"trainer": trainer_name(experiment, self._task)},
            "shared_cache": self._coordinator.shares_cache,
            "seed": experiment.seed,
            "versions": versions(),
        }


def _not_repeatable(folder: RunFolder) -> ConfigError:
    return ConfigError(
        f"--resume {folder.path}: a run with fresh noise is not continued by this version: its "
        "open round would be a second release; start a new run"
    )


def trainer_name(experiment: Experiment, task: Task) -> str:
    """Return which local training an experiment's clients do."""
    if experiment.privacy.by_example:
        return "per example"
    return choose_trainer(task, experiment.training, seed=experiment.seed).name


def versions() -> dict[str, str]:
    """Return the versions that a run's numbers depend on."""
    packages = ("zerosum", "torch", "numpy", "flwr", "cryptography", "dp-accounting")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def peak_memory_mb() -> float:
    """Return the largest resident size of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _final_metrics(records: list[Record]) -> dict[str, float]:
    final: dict[str, float] = {}
    for record in records:
        for name, value in record.items():
            if name.startswith(("test_", "federated_")) and isinstance(value, float):
                final[name] = value
    return final


def _traffic(traffic: Traffic) -> Record:
    return {
        "dropouts": {stage: len(who) for stage, who in traffic.dropouts.items()},
        "bytes_up_per_client": _mean(traffic.up.values()),
        "bytes_down_per_client": _mean(traffic.down.values()),
        "stage_seconds": {stage: round(spent, 4) for stage, spent in traffic.seconds.items()},
    }


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
