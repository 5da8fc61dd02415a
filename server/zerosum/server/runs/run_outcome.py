"""Decide whether a run learnt anything, by what its rounds say of clients' training.

A run whose clients all fail, or whose rounds are all abandoned, ends with a model, metrics and an
epsilon like any other. So its end is an error, after everything was written.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from zerosum.client.protocol.training_outcomes import OutcomeCounts
from zerosum.client.user_error import UserError
from zerosum.secagg.stages import Stage
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.records import Best, EndedBy, Failures, RoundRecord, Summary

UNTRAINED = "of the untrained model"
"""Remark beside a metric of a model without any client's training: the initial one, or its noise.

The metric is kept: it is the baseline of any training.
"""

OF_ALL_PLANNED = (
    "epsilons are those of all planned rounds: when a run ends tells of its models, and so of data"
)
"""Remark beside the figures of a run that ended before its last planned round."""

ENDED_BY: Mapping[EndedBy, str] = {
    "patience": "evaluation.patience: its metric had not improved for so many",
    "caller": "its caller: on_round returned True",
}
"""What ended a run before its last planned round, in words."""

FINAL_REFUSALS = 3
"""Rounds running that every client refused, of a run that never learnt anything: it ends."""

NODE_LOGS = "each node's own log"
"""Place of a deployed client's reasons to fail or refuse: they may tell of its records."""


class NothingLearntError(UserError, RuntimeError):
    """A run ended and no client's training is in its model; what it wrote stays.

    Raised by ``run``, ``resume``, a ServerApp and ``PrivateStrategy.start`` when all is written.

    Parameters
    ----------
    message : str
        What happened, how many clients passed which stage, and where the reason is.
    result : object
        What the run would have returned: its model is the initial one, or that with noise alone.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


def ended_in_words(summary: Summary) -> str:
    """Return what ended a run before its last planned round; empty where nothing did."""
    if not summary.ended_by:
        return ""
    by = ENDED_BY[summary.ended_by]
    return f"{summary.rounds} of {summary.planned_rounds} planned, ended by {by}"


def best_in_words(best: Best) -> str:
    """Return which round a best model is of, as "of round 7, the largest test_accuracy"."""
    which = "largest" if best.mode == "max" else "smallest"
    return f"of round {best.round}, the {which} test_{best.metric}"


def tally_record(tally: OutcomeCounts | None) -> dict[str, Any]:
    """Return what a line of metrics says of clients' training; nothing where nobody counts."""
    if tally is None:
        return {}
    record: dict[str, Any] = {"clients_trained": tally.trained}
    counts = {
        "clients_failed": tally.failed,
        "clients_idle": tally.idle,
        "examples_failed": tally.examples_failed,
    }
    record |= {name: count for name, count in counts.items() if count}
    if tally.first is not None:
        record["first_failure"] = "client {}: {}".format(*tally.first)
    return record


def evaluation_record(tally: OutcomeCounts | None) -> dict[str, Any]:
    """Return what a line of metrics says of clients that could not evaluate the model."""
    if tally is None or not tally.failed or tally.first is None:
        return {}
    first = "client {}: {}".format(*tally.first)
    return {"evaluations_failed": tally.failed, "first_failed_evaluation": first}


def failures_in_words(record: RoundRecord) -> str:
    """Return what a round's line says of failures of training; nothing where there are none."""
    parts = []
    if record.clients_failed:
        parts.append(f"{record.clients_failed} of {record.cohort} clients failed to train")
    if record.examples_failed:
        parts.append(f"{record.examples_failed} examples failed")
    if parts and record.first_failure is not None:
        parts[0] += f" ({record.first_failure})"
    elif record.clients_trained == 0 and record.completed:
        parts.append("no client trained: all answers were zero")
    elif _is_zero(record):
        parts.append("the average is zero")
    if failed := record.evaluations_failed:
        parts.append(f"{failed} clients failed to evaluate ({record.first_failed_evaluation})")
    return ", ".join(parts)


def is_untrained(records: Sequence[RoundRecord]) -> bool:
    """Return whether no round has brought any client's training into the model.

    A round that counts nobody, as in a deployment, brought some if it was completed.
    """
    return not any(
        record.completed and record.clients_trained != 0 and not _is_zero(record)
        for record in records
    )


def _is_zero(record: RoundRecord) -> bool:
    """Return whether a round's average is exactly zero, which one with noise never is."""
    return record.average_norm == 0


def failures_summary(records: Sequence[RoundRecord]) -> Failures | None:
    """Return the failures of a whole run; None where nobody counts them."""
    counted = [record for record in records if record.clients_trained is not None]
    if not counted:
        return None
    first = next((record for record in counted if record.first_failure is not None), None)
    return Failures(
        clients_trained=sum(record.clients_trained or 0 for record in counted),
        clients_failed=sum(record.clients_failed for record in counted),
        clients_idle=sum(record.clients_idle for record in counted),
        examples_failed=sum(record.examples_failed for record in counted),
        first_failure=None if first is None else f"round {first.round}, {first.first_failure}",
        **_evaluations_summary(counted),
    )


def _evaluations_summary(records: Sequence[RoundRecord]) -> dict[str, Any]:
    """Return how many clients could not evaluate a model; nothing where all could."""
    lines = [record for record in records if record.evaluations_failed]
    if not lines:
        return {}
    first = f"round {lines[0].round}, {lines[0].first_failed_evaluation}"
    failed = sum(record.evaluations_failed for record in lines)
    return {"evaluations_failed": failed, "first_failed_evaluation": first}


def declined_in_words(refused: Mapping[str, int]) -> str:
    """Return how many clients declined a sum, by stage as counted; empty where none did.

    Who they are is not said, and why is known to their nodes alone.
    """
    count = sum(refused.values())
    if not count:
        return ""
    return f"{count} client{'s' if count > 1 else ''} declined it"


def all_refuse(records: Sequence[RoundRecord]) -> bool:
    """Return whether every client refused the last rounds, and none before taught anything.

    A budget that is spent, or a policy that forbids the request, does so in every further round.
    """
    last = records[-FINAL_REFUSALS:]
    return (
        len(last) == FINAL_REFUSALS
        and all(0 < record.cohort == sum(record.refused.values()) for record in last)
        and is_untrained(records)
    )


def nothing_learnt(records: Sequence[RoundRecord]) -> str | None:
    """Return why no client's training is in the model of these rounds; None where some is."""
    if not records or not is_untrained(records):
        return None
    failures = failures_summary(records)
    if all(record.status == "abandoned" for record in records):
        message = (
            f"{_all(len(records))} abandoned, so nothing was learnt and the model is the "
            "initial one"
        )
        if any(record.cohort for record in records):  # a public report has no counts
            message += f": {passed_in_words(records)}"
        if records[0].reason:
            message += f"; round {records[0].round}: {records[0].reason}"
        failed = "" if failures is None else _failed(failures)
        ended = "every client refused, which ends a run" if all_refuse(records) else ""
        return "; ".join(part for part in (message, failed, ended) if part)
    if any(record.clients_trained != 0 and _is_zero(record) for record in records):
        return (
            f"the average of {_each(len(records))} was zero, so nothing was learnt: updates are "
            "zero or smaller than the encoding's step; lower encoding.range, or raise encoding.bits"
        )
    message = f"no client trained in {_rounds(len(records))}, so nothing was learnt"
    failed = _failed(failures) if failures is not None else ""
    idle = 0 if failures is None else failures.clients_idle
    if idle:
        nought = (
            f"{idle} answers were zero: their clients hold or drew no records, or no gradient "
            "reaches the model's parameters"
        )
        failed = f"{failed}; {nought}" if failed else nought
    return f"{message}: {failed}" if failed else message


def _failed(failures: Failures) -> str:
    failed, examples = failures.clients_failed, failures.examples_failed
    if not failed and not examples:
        return ""
    what = f"{failed} failures of training" if failed else f"{examples} failures of examples"
    return f"{what}, the first in {failures.first_failure}"


def _rounds(count: int) -> str:
    return "the one round" if count == 1 else f"any of {count} rounds"


def _each(count: int) -> str:
    return "the one round" if count == 1 else f"each of {count} rounds"


def _all(count: int) -> str:
    return "the one round was" if count == 1 else f"all {count} rounds were"


def passed_in_words(records: Sequence[RoundRecord]) -> str:
    """Return how many clients of all rounds passed each stage that some were asked at."""
    asked = sum(record.cohort for record in records)
    passed, refused = dict[str, int](), dict[str, int]()
    for record in records:
        left, lost = record.cohort, record.dropouts
        for stage in (name for name in Stage if name in lost):
            left -= lost[stage]
            passed[stage] = passed.get(stage, 0) + left
            refused[stage] = refused.get(stage, 0) + record.refused.get(stage, 0)
    parts = [
        f"{count} passed {stage}" + (f" ({refused[stage]} refused it)" if refused[stage] else "")
        for stage, count in passed.items()
    ]
    return f"of {asked} clients asked " + (", ".join(parts) or "none was sent a message")


def charged_in_words(record: RoundRecord) -> str:
    """Return what an abandoned round cost, beside the whole run's figures."""
    costs = record.epsilon_charged
    if not costs:  # no noise is promised, or nothing bounds it
        return ""
    parts = [
        f"{epsilon_text(costs[name])} ({name})" for name in OBSERVERS if costs.get(name, 0) > 0
    ]
    return f"charged epsilon {', '.join(parts)}" if parts else "charged no epsilon"


def epsilons_in_words(
    epsilons: Mapping[ObserverName, float], without: Collection[ObserverName] = ()
) -> str:
    """Write the finite epsilons of a round in a line, each with its observer; "" without any.

    Parameters
    ----------
    epsilons : mapping of str to float
        By observer.
    without : collection of str
        Observers who are left out.

    Returns
    -------
    str
        As "2.97 (release) 14 (sum)".
    """
    return " ".join(
        f"{epsilon_text(value)} ({name})"
        for name in OBSERVERS
        if name not in without and math.isfinite(value := epsilons.get(name, math.inf))
    )


def values(figures: Mapping[ObserverName, EpsilonBound]) -> dict[ObserverName, float]:
    """Return each observer's epsilon alone; infinite where nothing bounds it."""
    return {observer: bound.value for observer, bound in figures.items()}


def charged(
    before: Mapping[ObserverName, float], after: Mapping[ObserverName, float]
) -> dict[ObserverName, float]:
    """Return how much each observer's epsilon rose; nothing of those that nothing bounds.

    Parameters
    ----------
    before, after : mapping of str to float
        Epsilons by observer. One that is absent before was 0.

    Returns
    -------
    dict of str to float
        Finite, not negative.
    """
    return {
        name: max(0.0, value - before.get(name, 0.0))
        for name, value in after.items()
        if math.isfinite(value)
    }
