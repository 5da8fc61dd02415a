"""The rounds of somebody else's strategy, each a private sum.

A strategy's messages become one request to a cohort; what the strategy gets back is one reply,
that of a client whose model is the mean of the survivors'.
"""

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from zerosum.client.flower.app_request import AppRequest
from zerosum.client.flower.arrays import ArrayLayout
from zerosum.client.request import Kind, ModelQuestion
from zerosum.client.spec import PrivacySpec
from zerosum.server.config import ConfigError
from zerosum.server.flower.app_records import common_records, integers_of
from zerosum.server.flower.app_run import AppRun
from zerosum.server.flower.app_schedule import AppSchedule, Numbered
from zerosum.server.flower.app_words import (
    cost_record,
    in_words,
    refused_in_words,
    warn_of_missing,
)
from zerosum.server.flower.argument_words import as_arguments
from zerosum.server.flower.mean_reply import MeanReply, Replies
from zerosum.server.flower.serving import SIMULATED
from zerosum.server.flower.strategy_words import TellingMetrics
from zerosum.server.privacy.noised_ratio import NoisedRatio, noised_ratio
from zerosum.server.privacy.protections import evaluation_protection, question_of
from zerosum.server.privacy.run_ledger import Figures
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import Charge, ChargeKind, RoundAbandoned
from zerosum.server.private_sum.sum_in_progress import Shape
from zerosum.server.private_sum.transport import Traffic
from zerosum.server.runs.records import RoundRecord, Summary
from zerosum.server.runs.round_line import lies_in_words
from zerosum.server.runs.run_outcome import (
    NothingLearntError,
    all_refuse,
    charged,
    charged_in_words,
    nothing_learnt,
    values,
)
from zerosum.server.spec import Experiment
from zerosum.server.training.adaptive_clip import Clip
from zerosum.server.training.saturation_watch import CutWatch, cut_record, cuts_in_words

log = logging.getLogger("flwr")
"""Flower's own: what a ServerApp's owner reads."""

SKIPPED = (
    "federated evaluation is skipped: metrics would leave the clients in plain. Set "
    "fraction_evaluate=0.0 and test on the server with evaluate_fn, or name the metrics to sum "
    "under the mask: PrivateStrategy(..., metrics={'eval_loss': 10.0})"
)


class AppRounds:
    """Answers a strategy's messages.

    Parameters
    ----------
    run : AppRun
    initial : ArrayRecord
        The first model: its arrays of integers stay integers, whatever a strategy makes of them.
    """

    def __init__(self, run: AppRun, initial: ArrayRecord) -> None:
        self._run = run
        self._integers = integers_of(initial)
        self._length = ArrayLayout.of(initial).length
        self._clip = Clip(run.experiment.privacy)
        self._round = max((record.round for record in run.folder.read_rounds()), default=0)
        self._schedule = AppSchedule(run, self._round + run.rounds)
        self._record: RoundRecord | None = None
        self._cuts = CutWatch(run.experiment, len(run.nodes), self._length)
        self._skipped = False
        self._refused: set[Kind] = set()
        self._trained: list[RoundRecord] = []
        self.summed = 0
        """Nodes of the latest sum."""

    @property
    def nothing_learnt(self) -> str | None:
        """Return the reason why no client's training is in the model; None where some is."""
        why = nothing_learnt(self._trained)
        return None if why is None else as_arguments(why)

    def answer(self, messages: list[Message]) -> Iterable[Message]:
        """Run the private sum that these messages ask for, and reply to the first of them.

        Parameters
        ----------
        messages : list of flwr.app.Message
            All of one round, of one type.

        Returns
        -------
        iterable of flwr.app.Message
            One reply; none where the round is abandoned.

        Raises
        ------
        ConfigError
            If they ask for something that no private sum can answer.
        NothingLearntError
            If every client refused, for the third round running, and nothing was ever learnt.
        """
        if not messages:
            return []
        types = {message.metadata.message_type for message in messages}
        kind = messages[0].metadata.message_type.partition(".")[0]
        if len(types) != 1 or kind not in ("train", "evaluate"):
            raise ConfigError(
                f"the strategy sends messages of type {', '.join(sorted(types))}: a private sum "
                'answers those of one type, "train" or "evaluate"'
            )
        replies = self._train(messages) if kind == "train" else self._evaluate(messages)
        return Replies(replies, self._run.guarded)

    def finish(self) -> Figures:
        """Write what is left to write and return the figures of the whole run."""
        self._flush()
        figures = self._run.ledger.figures()
        privacy = self._run.experiment.privacy
        records = self._run.folder.read_rounds()
        summary = Summary(
            name=self._run.experiment.name,
            rounds=self._round,
            rounds_abandoned=sum(record.status == "abandoned" for record in records),
            epsilon=dict(figures),
            noise_multiplier=privacy.noise_multiplier,
            population=len(self._run.nodes),
            protocol=self._run.experiment.secagg.protocol,
            server=self._run.experiment.secagg.server,
            noise_from_seed=False,
            engine=dict(SIMULATED) if self._run.simulated else {},
            left_out=list(self._run.left_out.clients),
            cut=self._cuts.summed(records),
        )
        self._run.folder.write_summary(summary)
        return figures

    def _train(self, messages: list[Message]) -> list[Message]:
        self._flush()
        self._round += 1
        started = time.perf_counter()
        asked = self._schedule.asked(messages, self._round, "train")
        expected = asked.expected
        request = self._request(messages, "train")
        self._check_length(request.layout.length)
        before = values(self._run.ledger.figures())
        self._record = RoundRecord(round=self._round, cohort=len(asked.cohort))
        if asked.left_out:
            self._note(left_out=asked.left_out)
        aggregate = self._sum(request, asked.cohort, messages[0].metadata.message_type)
        replies = []
        if aggregate is not None:
            replies = [self._replied(messages[0], self._reply(request, aggregate, expected))]
            private = self._run.experiment.privacy.private
            self._clip.follow(aggregate.bit, expected if private else len(aggregate.survivors))
        else:
            after = values(self._run.ledger.figures())
            self._note(epsilon_charged=charged(before, after))
        self._note(seconds=time.perf_counter() - started)
        self._tell()
        if not replies and all_refuse([*self._trained, self._record]):
            self._flush()
            raise NothingLearntError(self.nothing_learnt or "")
        return replies

    def _check_length(self, length: int) -> None:
        """Refuse a model of another length under noise: rounding costs more the longer it is."""
        if self._run.experiment.privacy.private and length != self._length:
            raise ConfigError(
                f"round {self._round}: the strategy sends a model of {length} floating-point "
                f"entries, and the ledger of this run is of {self._length}: under noise a model "
                "keeps its size; start another run with the new one, in another out"
            )

    def _reply(self, request: AppRequest, aggregate: Aggregate, expected: float) -> RecordDict:
        """Return what a client would have replied that trained to the mean model."""
        step, weight = self._average(aggregate, expected)
        self._note(
            average_norm=float(np.linalg.norm(step)),
            noise_norm=aggregate.noise_std * math.sqrt(len(step)) / expected,
        )
        told = {"survivors": len(aggregate.survivors)} | self._epsilons()
        return RecordDict(
            {
                next(iter(request.records.array_records)): request.layout.moved(
                    request.arrays, step
                ),
                "metrics": TellingMetrics({**told, self._run.weight_key: weight}),
            }
        )

    def _evaluate(self, messages: list[Message]) -> list[Message]:
        bounds, private = self._run.metrics, self._run.experiment.privacy.private
        if not bounds:
            if not self._skipped:
                log.warning(SKIPPED)
            self._skipped = True
            return []
        asked = self._schedule.asked(messages, self._round, "evaluate")
        request = self._request(messages, "evaluate")
        aggregate = self._sum(request, asked.cohort, messages[0].metadata.message_type)
        if aggregate is None:
            return []
        if private:
            warn_of_missing(aggregate, request, self._round)
        *sums, count = aggregate.total.tolist()
        std = aggregate.noise_std if private else 0.0
        found: dict[str, float] = {}
        for (name, scale), total in zip(request.question.metrics.items(), sums, strict=True):
            if private:
                ratio = noised_ratio(total, count, std, scale=scale, least=-1.0)
            else:
                ratio = NoisedRatio(total / count, 0.0) if count > 0 else None
            if ratio is None:
                why = "drowned in noise" if private else "counted no examples"
                log.warning("the evaluation of round %d %s: no metric", self._round, why)
                return []
            found |= ratio.record(name)
        self._note(**{f"federated_{name}": value for name, value in found.items()})
        content = RecordDict({"metrics": TellingMetrics({**found, self._run.weight_key: count})})
        return [self._replied(messages[0], content)]

    def _replied(self, message: Message, content: RecordDict) -> Message:
        return MeanReply(content, reply_to=message, strategy=self._run.guarded)

    def _request(self, messages: Sequence[Message], kind: Kind) -> AppRequest:
        """Return what all clients are asked."""
        return AppRequest.of(
            self._question(kind),
            common_records(messages, self._integers),
            message_type=messages[0].metadata.message_type,
            run_config=self._run.run_config,
            weight_key=self._run.weight_key,
            metrics=self._run.metrics if kind == "evaluate" else {},
        )

    def _question(self, kind: Kind) -> ModelQuestion:
        run = self._run
        privacy = self._clip.privacy
        if kind == "evaluate":
            privacy = evaluation_privacy(run.experiment, run.metrics)
        return question_of(
            run.experiment, self._round, len(run.nodes), kind, noise_draw="per_client"
        ).model_copy(update={"privacy": privacy})

    def _shape(self, kind: Kind) -> Shape:
        """Return the shape of a request of a kind, before the strategy makes it."""
        question = self._question(kind)
        dimension = self._length + (question.training.weighting == "examples")
        if kind == "evaluate":
            dimension = len(self._run.metrics) + 1
        return Shape(
            question.privacy,
            question.encoding,
            dimension,
            question.seed,
            question.noise_draw,
        )

    def _sum(
        self, request: AppRequest, cohort: tuple[int, ...], message_type: str
    ) -> Aggregate | None:
        """Run one private sum; None if it is abandoned."""
        kind = request.question.kind
        self._run.grid.carry(request.records, message_type)
        numbered = self._schedule.plan(kind, cohort, Shape.of(request))
        try:
            try:
                aggregate = self._opened(request, numbered)
            except RoundAbandoned as abandoned:
                # Whoever was away while it was prepared may be back, and was asked for nothing.
                if not numbered.prepared or abandoned.traffic.exchanges:
                    raise
                log.debug("round %d, %s: prepared in vain: %s", self._round, kind, abandoned)
                aggregate = self._opened(request, self._schedule.instead(numbered))
            if kind == "train":
                self._note(**cut_record(aggregate))
            self._cuts.check(aggregate, kind)
        except RoundAbandoned as abandoned:
            self._leave_out(abandoned.traffic)
            lacked = refused_in_words(abandoned.traffic, request)
            reason = f"{abandoned}; {lacked}" if lacked else str(abandoned)
            log.warning("round %d, %s: abandoned: %s", self._round, kind, as_arguments(reason))
            if kind == "train":
                self._note(status="abandoned", reason=reason, survivors=0)
                self._note(**cost_record(abandoned.traffic, request))
            return None
        self.summed = len(aggregate.survivors)
        self._leave_out(aggregate.traffic)
        if kind not in self._refused and (lacked := refused_in_words(aggregate.traffic, request)):
            self._refused.add(kind)
            log.warning("round %d, %s: of the clients %s", self._round, kind, lacked)
        if kind == "train":
            self._note(status="completed", survivors=len(aggregate.survivors))
            if aggregate.failures:
                self._note(failed_groups=list(aggregate.failures))
            self._note(**cost_record(aggregate.traffic, request))
        return aggregate

    def _opened(self, request: AppRequest, numbered: Numbered) -> Aggregate:
        """Open a sum, and prepare the one after it with its messages."""
        plan = numbered.plan
        following = self._schedule.foreseen(numbered, self._round, self._shape)
        if following is not None:
            self._run.coordinator.prepare(following.plan)
        return self._run.coordinator.private_sum(
            request,
            plan.groups,
            round=plan.round,
            charge=self._charging(numbered),
        )

    def _charging(self, numbered: Numbered) -> Charge:
        """Charge a sum; one that failed while it was prepared was asked for nothing: none."""
        plan = numbered.plan
        charge = self._run.ledger.charging(plan.round, 0, numbered.kind, plan.groups)
        asked: set[int] = set()

        def charged(kind: ChargeKind, group: int, clients: tuple[int, ...]) -> None:
            if kind == "contributions":
                asked.add(group)
            if group in asked or not numbered.prepared:
                charge(kind, group, clients)

        return charged

    def _leave_out(self, traffic: Traffic) -> None:
        """Do without those who were proved to lie, from the next round on."""
        self._run.left_out.add(traffic.liars, round=self._round, since=self._round + 1)

    def _average(self, aggregate: Aggregate, expected: float) -> tuple[np.ndarray, int]:
        """Return the mean update, and the number that the strategy takes for its examples."""
        survivors, training = len(aggregate.survivors), self._run.experiment.training
        if self._run.experiment.privacy.private:
            # By the number that were asked: how many answered is not for the model to tell, nor
            # for what a strategy makes of the weight.
            return aggregate.total / expected, max(1, round(expected))
        if training.weighting == "examples":
            weight = float(aggregate.total[-1])
            if weight <= 0:
                return 0 * aggregate.total[:-1], survivors
            return aggregate.total[:-1] / weight, max(1, round(weight * training.max_examples))
        return aggregate.total / survivors, survivors

    def _epsilons(self) -> dict[str, float]:
        """Return every observer's epsilon so far; nothing where no noise is promised."""
        if not self._run.experiment.privacy.private:
            return {}
        figures = self._run.ledger.figures()
        return {f"epsilon-{name}": bound.value for name, bound in figures.items()}

    def _tell(self) -> None:
        record = self._record
        if record is None:
            return
        cost = charged_in_words(record)
        log.info(
            "private round %d %s: %d of %d clients are in the sum%s%s; %s",
            record.round,
            record.status,
            record.survivors,
            record.cohort,
            lies_in_words(record) + cuts_in_words(record),
            f", {cost} for it" if cost else "",
            in_words(self._run.ledger.figures()),
        )

    def _flush(self) -> None:
        """Write the record of the round that is over, its evaluation included."""
        if self._record is None:
            return
        record = self._record | {"epsilon": values(self._run.ledger.figures())}
        self._run.folder.append_round(record)
        if record.cohort:
            self._trained.append(record)
        self._record = None

    def _note(self, **fields: Any) -> None:
        """Add to the record of the round; an evaluation before any training begins one."""
        self._record = (self._record or RoundRecord(round=self._round)) | fields


def evaluation_privacy(experiment: Experiment, metrics: Mapping[str, float]) -> PrivacySpec:
    """Return how so many metrics and a count are protected: coordinates of 1/sqrt(k) each.

    Parameters
    ----------
    experiment : Experiment
        With the noise of an evaluation.
    metrics : mapping of str to float
        Those that are summed.

    Returns
    -------
    PrivacySpec
        Of one evaluation.
    """
    privacy, _ = evaluation_protection(experiment)
    if privacy.norm == "l1":
        return privacy.model_copy(update={"clip": math.sqrt(len(metrics) + 1)})
    return privacy
