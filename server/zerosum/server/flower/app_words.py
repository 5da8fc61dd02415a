"""What the rounds of somebody else's strategy say, in lines and in records."""

import logging
import math
from typing import Any

from zerosum.client.flower.app_request import AppRequest
from zerosum.client.protocol import flower_messages
from zerosum.secagg.stages import OPENING, Stage
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.privacy.run_ledger import Figures
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.transport import Traffic
from zerosum.server.runs.round_line import lies_record
from zerosum.server.runs.run_outcome import NODE_LOGS

log = logging.getLogger("flwr")

_DEVIATIONS = 3.0
"""Of the noise on a count: fewer may be its doing."""


def asked_of_replies(request: AppRequest) -> str:
    """Return in words what an app's reply must have, of which its node alone can say what it lacks.

    Parameters
    ----------
    request : AppRequest
        What was asked.

    Returns
    -------
    str
        Names and bounds, all of them the server's own.
    """
    question = request.question
    names = ", ".join(map(repr, [request.question.weight_key, *question.metrics]))
    if question.kind == "evaluate":
        return f"a reply to evaluate needs, in a MetricRecord, a finite number for each of {names}"
    needs = "a reply to train needs one ArrayRecord, of the names, shapes and dtypes that were sent"
    if question.training.weighting == "examples":
        most = question.training.max_examples
        needs += f", and in a MetricRecord {names}, above 0 and at most max_examples = {most}"
    return needs


def refused_in_words(traffic: Traffic, request: AppRequest) -> str:
    """Return what clients may have lacked who refused to answer; empty where none did.

    Parameters
    ----------
    traffic : Traffic
        Of a sum.
    request : AppRequest
        What was asked.

    Returns
    -------
    str
        Without who it was.
    """
    refused = traffic.refused.get(Stage.CONTRIBUTE)
    if not refused:
        return ""
    # Under noise a reply that lacks something is no refusal: it is in the sum, with noise alone.
    open_reply = not request.question.privacy.private
    lacks = f", or a reply that lacks something: {asked_of_replies(request)}" if open_reply else ""
    return (
        f"{refused} refused; most often the node's policy (noise, clip, model, epsilon), the run "
        f"config, an app that cannot be imported{lacks}; what is amiss is in {NODE_LOGS}"
    )


def warn_of_missing(aggregate: Aggregate, request: AppRequest, round: int) -> None:
    """Warn where a noised count of an evaluation is below the clients that answered.

    Parameters
    ----------
    aggregate : Aggregate
        Of an evaluation under privacy, whose last coordinate counts: one client adds 1/sqrt(k) of
        k coordinates. The count is released anyway, with its noise; this reads no more.
    request : AppRequest
        What was asked.
    round : int
        Of training.
    """
    unit = math.sqrt(len(request.question.metrics) + 1)
    counted, deviation = float(aggregate.total[-1]) * unit, aggregate.noise_std * unit
    answered = len(aggregate.survivors)
    if answered - counted <= max(_DEVIATIONS * deviation, 0.5):
        return
    log.warning(
        "the evaluation of round %d counts %.1f clients (noise: %.1f) of %d that answered: the "
        "others failed or have no examples; %s: what is amiss is in %s",
        round,
        counted,
        deviation,
        answered,
        asked_of_replies(request),
        NODE_LOGS,
    )


def cost_record(traffic: Traffic, request: AppRequest) -> dict[str, Any]:
    """Return what a line of metrics says of a sum's messages, the app's records included.

    Parameters
    ----------
    traffic : Traffic
        Of the sum.
    request : AppRequest
        Whose records were carried to those who were asked to contribute.

    Returns
    -------
    dict of str
        Fields of a round's record.
    """
    lost = {i for stage in OPENING for i in traffic.dropouts.get(stage, ())}
    asked = traffic.down.keys() - lost if Stage.CONTRIBUTE in traffic.dropouts else ()
    up, down = traffic.up.values(), traffic.down.values()
    carried = len(asked) * flower_messages.size(request.records)
    return {
        "dropouts": {stage: len(who) for stage, who in traffic.dropouts.items()},
        "bytes_up_per_client": sum(up) / len(up) if up else 0.0,
        "bytes_down_per_client": (sum(down) + carried) / len(down) if down else 0.0,
        "exchanges": traffic.exchanges,
        "stage_seconds": {stage: round(spent, 4) for stage, spent in traffic.seconds.items()},
        **({"refused": dict(traffic.refused)} if traffic.refused else {}),
        **lies_record(traffic),
    }


def in_words(figures: Figures) -> str:
    """Return the figures in a line."""
    reasons = sorted({bound.reason for bound in figures.values() if bound.reason})
    known = [figures[name] for name in OBSERVERS if name in figures and figures[name].finite]
    if not known:
        return "; ".join(reasons)
    said = ", ".join(
        f"{epsilon_text(bound.value)} ({bound.observer}, {bound.adjacency})" for bound in known
    )
    return "; ".join([f"epsilon {said} at delta {known[0].delta:g}", *reasons])
