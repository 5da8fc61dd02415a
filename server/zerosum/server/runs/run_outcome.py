"""Tell whether a run learnt anything, by what its rounds say of clients' training.

A run whose clients all fail, or whose rounds are all abandoned, ends with a model, metrics and an
epsilon like any other. So its end is an error, after everything was written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from zerosum.client.protocol.training_outcomes import OutcomeCounts
from zerosum.secagg.stages import Stage
from zerosum.server.privacy.rounding import rounded_up

Record = dict[str, Any]

UNTRAINED = "of the untrained model"
"""Said beside a metric where no client's training is in the model: it is the initial one, or that
with noise. The figure is kept: it is what any training is to be compared with."""

NODE_LOGS = "each node's own log"
"""Where clients of a deployment say why they failed or refused: nobody else learns it."""


class NothingLearntError(RuntimeError):
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


def tally_record(tally: OutcomeCounts | None) -> Record:
    """Return what a line of metrics says of clients' training; nothing where nobody counts."""
    if tally is None:
        return {}
    record: Record = {"clients_trained": tally.trained}
    counts = {
        "clients_failed": tally.failed,
        "clients_idle": tally.idle,
        "examples_failed": tally.examples_failed,
    }
    record |= {name: count for name, count in counts.items() if count}
    if tally.first is not None:
        record["first_failure"] = "client {}: {}".format(*tally.first)
    return record


def evaluation_record(tally: OutcomeCounts | None) -> Record:
    """Return what a line of metrics says of clients that could not evaluate the model."""
    if tally is None or not tally.failed or tally.first is None:
        return {}
    first = "client {}: {}".format(*tally.first)
    return {"evaluations_failed": tally.failed, "first_failed_evaluation": first}


def failures_in_words(record: Mapping[str, Any]) -> str:
    """Return what a round's line says of failures of training; nothing where there are none."""
    parts = []
    if failed := record.get("clients_failed"):
        parts.append(f"{failed} of {record['cohort']} clients failed to train")
    if lost := record.get("examples_failed"):
        parts.append(f"{lost} examples failed")
    if parts and "first_failure" in record:
        parts[0] += f" ({record['first_failure']})"
    elif not record.get("clients_trained", 1) and record.get("status") == "completed":
        parts.append("no client trained: all answers were zero")
    elif _is_zero(record):
        parts.append("the average is zero")
    if failed := record.get("evaluations_failed"):
        parts.append(f"{failed} clients failed to evaluate ({record['first_failed_evaluation']})")
    return ", ".join(parts)


def is_untrained(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether no round has brought any client's training into the model.

    A round that counts nobody, as in a deployment, brought some if it was completed.
    """
    return not any(
        record.get("status") == "completed"
        and record.get("clients_trained", 1)
        and not _is_zero(record)
        for record in records
    )


def _is_zero(record: Mapping[str, Any]) -> bool:
    """Return whether a round's average is exactly zero, which one with noise never is."""
    return record.get("average_norm") == 0


def failures_summary(records: Sequence[Mapping[str, Any]]) -> Record | None:
    """Return the failures of a whole run; None where nobody counts them."""
    counted = [record for record in records if "clients_trained" in record]
    if not counted:
        return None
    first = next((record for record in counted if "first_failure" in record), None)
    said = None if first is None else f"round {first['round']}, {first['first_failure']}"
    return _evaluations_summary(counted) | {
        "clients_trained": sum(record["clients_trained"] for record in counted),
        "clients_failed": sum(record.get("clients_failed", 0) for record in counted),
        "clients_idle": sum(record.get("clients_idle", 0) for record in counted),
        "examples_failed": sum(record.get("examples_failed", 0) for record in counted),
        "first_failure": said,
    }


def _evaluations_summary(records: Sequence[Mapping[str, Any]]) -> Record:
    """Return how many clients could not evaluate a model; nothing where all could."""
    lines = [record for record in records if record.get("evaluations_failed")]
    if not lines:
        return {}
    first = f"round {lines[0]['round']}, {lines[0]['first_failed_evaluation']}"
    failed = sum(record["evaluations_failed"] for record in lines)
    return {"evaluations_failed": failed, "first_failed_evaluation": first}


def nothing_learnt(records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why no client's training is in the model of these rounds; None where some is."""
    if not records or not is_untrained(records):
        return None
    failures = failures_summary(records)
    if all(record.get("status") == "abandoned" for record in records):
        said = (
            f"{_all(len(records))} abandoned, so nothing was learnt and the model is the "
            "initial one"
        )
        if any("cohort" in record for record in records):  # a public report has no counts
            said += f": {passed_in_words(records)}"
        if reason := records[0].get("reason"):
            said += f"; round {records[0]['round']}: {reason}"
        failed = "" if failures is None else _failed(failures)
        return f"{said}; {failed}" if failed else said
    if any(record.get("clients_trained", 1) and _is_zero(record) for record in records):
        return (
            f"the average of {_each(len(records))} was zero, so nothing was learnt: updates are "
            "zero or smaller than the encoding's step; lower encoding.range, or raise encoding.bits"
        )
    said = f"no client trained in {_rounds(len(records))}, so nothing was learnt"
    failed = _failed(failures) if failures is not None else ""
    idle = 0 if failures is None else failures["clients_idle"]
    if idle:
        nought = (
            f"{idle} answers were zero: their clients hold or drew no records, or no gradient "
            "reaches the model's parameters"
        )
        failed = f"{failed}; {nought}" if failed else nought
    return f"{said}: {failed}" if failed else said


def _failed(failures: Mapping[str, Any]) -> str:
    failed, examples = failures["clients_failed"], failures["examples_failed"]
    if not failed and not examples:
        return ""
    what = f"{failed} failures of training" if failed else f"{examples} failures of examples"
    return f"{what}, the first in {failures['first_failure']}"


def _rounds(count: int) -> str:
    return "the one round" if count == 1 else f"any of {count} rounds"


def _each(count: int) -> str:
    return "the one round" if count == 1 else f"each of {count} rounds"


def _all(count: int) -> str:
    return "the one round was" if count == 1 else f"all {count} rounds were"


def passed_in_words(records: Sequence[Mapping[str, Any]]) -> str:
    """Return how many clients of all rounds passed each stage that some were asked at."""
    asked = sum(record.get("cohort", 0) for record in records)
    passed, refused = dict[str, int](), dict[str, int]()
    for record in records:
        left, lost = record.get("cohort", 0), record.get("dropouts", {})
        for stage in (name for name in Stage if name in lost):
            left -= lost[stage]
            passed[stage] = passed.get(stage, 0) + left
            refused[stage] = refused.get(stage, 0) + record.get("refused", {}).get(stage, 0)
    parts = [
        f"{count} passed {stage}" + (f" ({refused[stage]} refused it)" if refused[stage] else "")
        for stage, count in passed.items()
    ]
    return f"of {asked} clients asked " + (", ".join(parts) or "none was sent a message")


def charged_in_words(record: Mapping[str, Any]) -> str:
    """Return what an abandoned round cost, beside the whole run's figures."""
    found = record.get("epsilon_charged")
    if not found:  # no noise is promised, or nothing bounds it
        return ""
    some = [f"{rounded_up(value)} ({name})" for name, value in found.items() if value]
    return f"charged epsilon {', '.join(some)}" if some else "charged no epsilon"


def values(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Return each observer's epsilon alone; None where nothing bounds it."""
    return {observer: figure["value"] for observer, figure in figures.items()}


def charged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Return how much each observer's epsilon rose; nothing of those that nothing bounds."""
    return {
        name: max(0.0, value - (before.get(name) or 0.0))
        for name, value in after.items()
        if value is not None
    }
