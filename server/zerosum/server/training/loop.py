"""Run the rounds of training: sample, sum in private, step, test, record."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors

from zerosum.client.files.durable_append import Flush
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.training_outcomes import OutcomeCounts
from zerosum.client.request import Kind, ModelRequest, Request, model_payload
from zerosum.client.task import Task
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.model_file import as_arrays
from zerosum.client.training.pca import principal_components
from zerosum.client.training.seeded_task import public_records
from zerosum.server.config import ConfigError
from zerosum.server.privacy.calibration import planned_run
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.privacy.protections import (
    ACCEPTED_WRAP,
    configuration_digest,
    example_units,
    noise_draw,
    planned_protections,
    question_of,
)
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.privacy.unrun_rounds import unrun_rounds, whole_run_figures
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import Coordinator, RoundAbandoned
from zerosum.server.private_sum.sum_in_progress import Shape, SumPlan
from zerosum.server.private_sum.transport import Traffic
from zerosum.server.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from zerosum.server.runs.left_out import LeftOut
from zerosum.server.runs.metrics_table import table_of
from zerosum.server.runs.records import EndedBy, OnRound, RoundRecord
from zerosum.server.runs.results import Result
from zerosum.server.runs.resume import DataRecord, check_cohort, check_continues
from zerosum.server.runs.round_line import Opened, rates_record, traffic_record
from zerosum.server.runs.run_folder import LEDGER, METRICS, MODEL, TABLE, TEST_SET, RunFolder
from zerosum.server.runs.run_outcome import (
    NODE_LOGS,
    all_refuse,
    charged,
    declined_in_words,
    evaluation_record,
    is_untrained,
    tally_record,
    values,
)
from zerosum.server.runs.run_summary import (
    DEPLOYED,
    RunFacts,
    computed_by,
    data_summary,
    summarise,
)
from zerosum.server.sampling import CohortSampler, Planned
from zerosum.server.spec import Experiment
from zerosum.server.training.adaptive_clip import Clip
from zerosum.server.training.averaging import Averaging, held_out
from zerosum.server.training.best_model import BestModel
from zerosum.server.training.federated_metrics import released_metrics
from zerosum.server.training.global_model import GlobalModel
from zerosum.server.training.missing_figures import MissingFigures
from zerosum.server.training.public_test import PublicTest
from zerosum.server.training.saturation_watch import CutWatch, cut_record
from zerosum.server.training.schedule import Schedule

log = logging.getLogger("zerosum.server")


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
        Called with each round's record; True ends the run after it.
    engine : mapping
        What computes the clients, as the summary names it.
    take_tally : callable, optional
        Returns what came of clients' training since the last call, and forgets it: of a
        simulation, which plays the clients. In a deployment nobody counts, and nothing could:
        whether a client fails may tell of its records.
    """

    def __init__(
        self,
        experiment: Experiment,
        task: Task,
        population: int,
        coordinator: Coordinator,
        entropy: Entropy,
        folder: RunFolder,
        on_round: OnRound = lambda record: None,
        engine: Mapping[str, Any] = DEPLOYED,
        take_tally: Callable[[], OutcomeCounts | None] = lambda: None,
    ) -> None:
        self._engine = dict(engine)
        self._take_tally = take_tally
        self._experiment, self._configuration = experiment, configuration_digest(experiment)
        self._task = task
        self._data_read = data_summary(task)
        self._population = population
        self._coordinator = coordinator
        self._entropy = entropy
        self._folder = folder
        self._on_round = on_round
        self._trainer = LocalTrainer(
            task,
            experiment.training.at(1, experiment.rounds),
            seed=experiment.seed,
            device=experiment.device,
        )
        self._test_data, root = held_out(
            public_records(task, experiment.seed), experiment.server, experiment.seed
        )
        start = initial_vector(task, experiment.seed, experiment.training.batchnorm)
        self._optimizer = GlobalModel(experiment.server, start, self._trainer.layout)
        checkpoint = load_checkpoint(folder)
        self._done = 0 if checkpoint is None else checkpoint.round
        # Stand before the model in every request; zero until they are found.
        self._components = np.zeros(self._trainer.public, dtype=np.float32)
        self._clip = Clip(experiment.privacy, checkpoint.clip if checkpoint else None)
        self._repeatable = entropy.reproducible and not experiment.privacy.exact
        if checkpoint is not None:
            self._restore(checkpoint)
        self._sampler = CohortSampler(
            experiment.sampling, population, entropy, checkpoint.order_seed if checkpoint else None
        )
        self._public = PublicTest(
            task, self._trainer, self._test_data, experiment.evaluation.batch_size
        )
        self._averaging = Averaging(experiment, self._sampler.expected_cohort, self._trainer, root)
        planned = planned_protections(experiment, population, self._trainer.layout.dimension)
        self._cuts = CutWatch(experiment, population, self._trainer.layout.dimension)
        self._ledger = self._open_ledger(planned)
        self._left_out = LeftOut.of(folder, experiment.deployment, coordinator.roster)
        self._schedule = Schedule(experiment, self._sampler, self._ledger.attempts, self._left_out)
        self.last_opened: Opened | None = None
        self._missing = MissingFigures(self._lost_at_start)
        self._wrap_probability = max(p.log2_wrap_probability for p in planned.values())
        if self._wrap_probability > ACCEPTED_WRAP:
            log.warning(
                "a sum wraps with probability up to 2^%.0f: raise encoding.ring_bits, or leave it",
                self._wrap_probability,
            )
        if self._trainer.cast is not None:
            log.warning("%s", self._trainer.cast)
        self._records = [r for r in folder.read_rounds() if r.round <= self._done]
        self._spent: Mapping[ObserverName, float] = {}
        self._best = BestModel(
            experiment.evaluation,
            folder,
            self._records,
            lambda: self._trainer.to_state_dict(self._model),
        )
        self._ended_by: EndedBy = ""

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Go on where a checkpoint says, if it is of this run and can be gone on with."""
        if self._entropy.reproducible and not self._repeatable:
            # Cohorts would be the same again, and two releases of one sample are not two.
            raise _not_repeatable(self._folder, "")
        parameters = self._trainer.layout.dimension
        check_continues(
            checkpoint, self._experiment, self._folder, parameters, self._trainer.public
        )
        if checkpoint.components is not None:
            self._components = checkpoint.components.numpy()
        self._optimizer.restore(
            checkpoint.model, checkpoint.optimizer_tensors, checkpoint.optimizer_scalars
        )

    def _open_ledger(self, planned: Mapping[str, Protection]) -> RunLedger:
        """Read what was spent; refuse to do a round again that would not be the same release."""
        experiment, folder = self._experiment, self._folder
        ledger = RunLedger(
            folder.path / LEDGER,
            privacy=experiment.privacy,
            secagg=experiment.secagg,
            sampling=experiment.sampling,
            population=self._population,
            protections=planned,
            seeded=self._repeatable,
            examples=example_units(experiment),
            records=experiment.privacy.examples,
        )
        asked = bool(ledger.participations().any())
        if not self._repeatable and not self._done and asked:
            raise _not_repeatable(folder, " before its first checkpoint")
        if self._repeatable and experiment.privacy.private:
            begun = ledger.last_round > self._done if self._done else asked
            DataRecord(folder, experiment.data).check(open_round=begun)
        return ledger

    def run(self) -> Result:
        """Run the rounds that are left and write the results."""
        self._folder.rewrite_rounds(self._records)
        found = self._find_components() if self._trainer.public and not self._done else {}
        self._spent = self._records[-1].epsilon if self._records else {}
        if found:
            self._spent = values(self._ledger.figures())
        self._best.restore(self._done)
        number = self._done
        self._ended_by = self._ended(number)
        while number < self._experiment.rounds and not self._ended_by:
            number += 1
            record = self._round(number) | found
            found = {}
            # Each waits for what it builds on, and the disk for the line and the state at once.
            self._ledger.settle()
            line = self._folder.begin_round(record)
            self._records.append(record)
            self._save(number, line)
            self._best.follow(record)
            # A copy of the callback's own, who may take it apart.
            self._ended_by = self._ended(number, self._on_round(record | {}))
            # Of this process's rounds: before a resumed one, nodes may have been set right.
            if all_refuse(self._records[self._done :]) and is_untrained(self._records):
                break
        return self._finish()

    def _ended(self, number: int, answer: object = None) -> EndedBy:
        """Return what ends the run with a round, before its last planned one.

        Of what a callback returns only True counts: many a one returns what it was made of.
        """
        if number >= self._experiment.rounds or not number:
            return ""
        if self._best.ends_run:
            return "patience"
        if not isinstance(answer, bool | np.bool_) or not answer:
            return ""
        log.info("round %d: the caller's on_round ends the run", number)
        return "caller"

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the current model's outputs, without gradients."""
        return self._trainer.predict(self._model, inputs)

    @property
    def components(self) -> np.ndarray:
        """The public components that stand before the model, float32, shape (public,)."""
        return self._components

    @property
    def _loss_unit(self) -> float:
        """Return a loss of 1 in the labels' own unit, where the task scales them."""
        return float(getattr(self._task, "loss_unit", 1.0))

    @property
    def _model(self) -> np.ndarray:
        """The vector of a request: components, if there are any, and the global model."""
        model = self._optimizer.model
        return np.concatenate([self._components, model]) if self._components.size else model

    def _find_components(self) -> dict[str, Any]:
        """Read principal components from one private sum, before the first round.

        Raises
        ------
        ConfigError
            If the sum cannot be opened: what was asked for is charged, and nothing was trained.
        """
        spec = self._experiment.model
        try:
            aggregate = self._sum(self._schedule.draw(0, "components"))
            self._cuts.check(aggregate, "components")
        except RoundAbandoned as abandoned:
            raise ConfigError(
                f"model.components = {spec.components}: the private sum that they are read from "
                f"was abandoned: {abandoned}; start again, or lower privacy.honest_fraction"
            ) from None
        components = principal_components(aggregate.total, spec.inputs or 0, spec.components or 0)
        self._components = components.ravel()
        record = {"survivors": len(aggregate.survivors), "noise_std": aggregate.noise_std}
        return {"components": record | tally_record(self._take_tally())}

    def _round(self, number: int) -> RoundRecord:
        started, experiment = time.perf_counter(), self._experiment
        planned = self._schedule.draw(number, "train")
        # A record is checked whenever it is made: once, of all that the round was.
        record: dict[str, Any] = {"round": number, "cohort": planned.cohort}
        record |= rates_record(experiment, number)
        if planned.attempt:
            record |= {"attempt": planned.attempt}
        if planned.left_out:
            record |= {"left_out": planned.left_out}
        try:
            aggregate = self._sum(planned)
            record |= cut_record(aggregate)
            self._cuts.check(aggregate)
            average = self._averaging.average(aggregate, lambda: self._model, number)
        except RoundAbandoned as abandoned:
            declined = declined_in_words(abandoned.traffic.refused)
            why = f"; {declined}: the reasons are in {NODE_LOGS}" if declined else ""
            log.warning("round %d is abandoned: %s%s", number, abandoned, why)
            record |= {"status": "abandoned", "reason": str(abandoned), "survivors": 0}
            record |= traffic_record(abandoned.traffic)
        else:
            self._optimizer.step(average, experiment.server.lr_at(number, experiment.rounds))
            record |= self._follow_norms(aggregate)
            self.last_opened = Opened(aggregate.sample, average)
            record |= {"status": "completed", "survivors": len(aggregate.survivors)}
            if aggregate.failures:
                record |= {"failed_groups": list(aggregate.failures)}
            record |= {"average_norm": float(np.linalg.norm(self._optimizer.weights_of(average)))}
            noise = self._averaging.noise_norm(aggregate)
            record |= {} if noise is None else {"noise_norm": noise}
            record |= traffic_record(aggregate.traffic)
        record |= tally_record(self._take_tally())
        if is_untrained([*self._records, RoundRecord(**record)]):
            record |= {"untrained": True}
        record |= self._test(number)
        if record["status"] == "abandoned":
            spent = values(self._ledger.figures())
            record |= {"epsilon_charged": charged(self._spent, spent)}
        record |= self._federated(number)
        self._spent = values(self._ledger.figures())
        record |= {"epsilon": self._spent}
        if self._ledger.excess_dropout is not None:
            record |= {"dropout_charged": self._ledger.excess_dropout}
        return RoundRecord(**record, seconds=time.perf_counter() - started)

    def _sum(self, planned: Planned) -> Aggregate:
        """Ask what was planned; the keys of the sum after it travel with its messages."""
        if planned.attempt and self._experiment.sampling.kind == "once":
            reason = "the run ended when its clients had been asked: once is once"
            raise RoundAbandoned(reason, Traffic())
        check_cohort(self._ledger, planned, self._folder)
        following = self._following(planned)
        if following is not None:
            self._coordinator.prepare(following)
        try:
            aggregate = self._coordinator.private_sum(
                self._request(planned.number, planned.kind),
                planned.groups,
                round=planned.session_round,
                attempt=planned.attempt,
                charge=self._ledger.charging(
                    planned.number, planned.attempt, planned.kind, planned.groups, wait=False
                ),
            )
        except RoundAbandoned as abandoned:
            self._leave_out(abandoned.traffic, planned.number)
            raise
        self._leave_out(aggregate.traffic, planned.number)
        return aggregate

    def _leave_out(self, traffic: Traffic, number: int) -> None:
        """Do without those who were proved to lie, from the next cohort on that is not drawn yet.

        A round that is done again after a crash has the cohort that it had: its noise may be the
        same, and two sums would differ by those who were left out.
        """
        since = number + 1 + self._coordinator.pipelined
        self._left_out.add(traffic.liars, round=number, since=since)

    def _following(self, planned: Planned) -> SumPlan | None:
        """Draw the sum after this one; None where it cannot be prepared before this one is open."""
        if not self._coordinator.pipelined:
            return None
        after = self._schedule.draw_ahead(planned)
        if after is None or (after.attempt and self._experiment.sampling.kind == "once"):
            return None
        if self._experiment.privacy.adaptive and planned.kind == after.kind == "train":
            log.info("round %d: its clip follows from this round's sum, so it waits", after.number)
            return None
        shape = Shape.of(self._request(after.number, after.kind))
        return SumPlan(after.groups, after.session_round, after.attempt, shape)

    def _request(self, number: int, kind: Kind = "train") -> Request:
        experiment = self._experiment
        question = question_of(
            experiment, number, self._population, kind, noise_draw=noise_draw(experiment)
        )
        if kind == "train":
            question = question.model_copy(update={"privacy": self._clip.privacy})
        return ModelRequest(question, model_payload(self._model))

    def _follow_norms(self, aggregate: Aggregate) -> dict[str, Any]:
        """Fix the clip of the next round, now that this one's sum is open."""
        before, private = self._clip.value, self._experiment.privacy.private
        clients = self._sampler.expected_cohort if private else len(aggregate.survivors)
        fraction = self._clip.follow(aggregate.bit, clients)
        if fraction is None:
            return {}
        record = {"clip": before, "fraction_within_clip": fraction}
        if aggregate.bit_std:
            record["fraction_within_clip" + NOISE_STD] = aggregate.bit_std / clients
        return record

    def _test(self, number: int) -> dict[str, Any]:
        evaluation = self._experiment.evaluation
        last = number == self._experiment.rounds
        if self._test_data is None or (number % evaluation.every and not last):
            return {}
        figures = self._public.figures(self._model, keep=last)
        self._missing.note(self._public)
        return dict(figures)

    def _lost_at_start(self) -> int:
        """Count the test examples for which the initial model has no number."""
        experiment = self._experiment
        start = initial_vector(self._task, experiment.seed, experiment.training.batchnorm)
        vector, size = np.concatenate([self._components, start]), experiment.evaluation.batch_size
        if self._test_data is not None:
            self._trainer.evaluate(vector, self._test_data, size)
        return self._trainer.lost

    def _federated(self, number: int) -> dict[str, Any]:
        """Evaluate on the clients' own data: one more private sum, of an independent cohort."""
        if not self._schedule.evaluates(number):
            return {}
        try:
            aggregate = self._sum(self._schedule.draw(number, "evaluate"))
            self._cuts.check(aggregate, "evaluate")
        except RoundAbandoned as abandoned:
            read = {"federated_status": "abandoned", "federated_reason": str(abandoned)}
        else:
            cut = {f"federated_{name}": value for name, value in cut_record(aggregate).items()}
            read = released_metrics(aggregate, self._experiment, self._loss_unit) | cut
        return read | evaluation_record(self._take_tally())

    def _save(self, number: int, line: Flush) -> None:
        """Replace the checkpoint, once the round's line is on the disk, which it has a hash of."""
        tensors, scalars = self._optimizer.state()
        save_checkpoint(
            self._folder,
            Checkpoint(
                round=number,
                model=torch.from_numpy(self._optimizer.model),
                optimizer_tensors=tensors,
                optimizer_scalars=scalars,
                order_seed=self._sampler.order_seed,
                configuration=self._configuration,
                files={name: self._folder.fingerprint(name) for name in (LEDGER, METRICS)},
                clip=self._clip.value if self._experiment.privacy.adaptive else None,
                components=torch.from_numpy(self._components) if self._trainer.public else None,
            ),
            after=line,
        )

    def _finish(self) -> Result:
        model = self._trainer.to_state_dict(self._model)
        test_set, reference = self._public.closing(self._model)
        self._missing.note(self._public)
        if test_set:
            document = {"round": len(self._records), **test_set}
            self._folder.write_json(TEST_SET, document, indent=None)
        summary = summarise(self._experiment, self._records, self._facts(reference))
        self._folder.write(MODEL, save_tensors(model))
        self._folder.write(TABLE, table_of(self._records))
        self._folder.write_summary(summary)
        return Result(self._folder.path, summary, self._records, as_arrays(model))

    def _whole_run(self) -> Mapping[ObserverName, EpsilonBound]:
        """Return the figures of all planned rounds, of a run that ended before the last."""
        experiment = self._experiment
        run = planned_run(experiment, self._population, self._trainer.layout.dimension)
        every = experiment.evaluation.federated_every
        left = unrun_rounds(
            len(self._records), experiment.rounds, every, by_caller=self._ended_by == "caller"
        )
        return whole_run_figures(self._ledger, experiment.privacy, run, left)

    def _facts(self, reference: Mapping[str, Any]) -> RunFacts:
        """Return what the summary says beside the experiment and its rounds."""
        nodes = self._engine == DEPLOYED
        return RunFacts(
            epsilon=self._whole_run() if self._ended_by else self._ledger.figures(),
            ended_by=self._ended_by,
            best=self._best.so_far.best,
            population=self._population,
            dimension=self._trainer.layout.dimension,
            noise_from_seed=self._repeatable,
            wrap_probability_log2=self._wrap_probability,
            engine=self._engine | computed_by(self._experiment, self._task, nodes=nodes),
            shared_cache=self._coordinator.shares_cache,
            left_out=list(self._left_out.clients),
            cut=self._cuts.summed(self._records),
            data=self._data_read,
            lost_tests=self._missing.lost_tests,
            unscored=self._missing.no_accuracy,
            reference=reference,
        )


def _not_repeatable(folder: RunFolder, when: str) -> ConfigError:
    return ConfigError(
        f"--resume {folder.path}: a run with fresh noise is not continued{when} by this version: "
        "its open round would be a second release; start a new run"
    )
