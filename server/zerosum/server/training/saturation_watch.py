"""Judge counts of cut coordinates: log a warning, record a figure, or end the round.

A client cuts each coordinate of its update to ``encoding.range``. Without noise the sum says how
many were, which no sum of cut updates does. Clients can lie about it like about their updates: one
that claims cuts ends the round, as it could by a vector that is none, and one that hides its own
spoils the sum, as it could by any update.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from zerosum.client.protocol.saturation_counts import CutCounts
from zerosum.client.request import Kind
from zerosum.client.spec import MOST_BITS, MOST_SCALE
from zerosum.secagg.vectors.saturation import FOLDS
from zerosum.server.privacy.protections import planned_protections
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import RoundAbandoned
from zerosum.server.runs.records import RoundRecord
from zerosum.server.sampling import largest_session
from zerosum.server.spec import Experiment

log = logging.getLogger("zerosum.server")

MOST_CUT: Final = 1 / 1000
"""Largest share of cut coordinates with which a sum is used."""

_CUT_TO_IT = "and were cut to it"
"""What tells a reason of cuts from others."""


class CutWatch:
    """Judges the counts of a run's sums.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    population, dimension : int
        Clients; trainable parameters. Say what a larger range costs.
    """

    def __init__(self, experiment: Experiment, population: int, dimension: int) -> None:
        self._experiment = experiment
        self._sizes = population, dimension
        self._warned = False
        planned = planned_protections(experiment, population, dimension)["train"]
        self._counts = planned.counts_cuts

    def summed(self, records: Sequence[RoundRecord]) -> list[int] | None:
        """Return the coordinates of all rounds beyond 1, 10, 100 and 1,000 times the range.

        None where nothing is counted: there is noise, or the clip leaves nothing to cut.
        """
        if not self._counts:
            return None
        lines = [record.cut for record in records if record.cut]
        return [sum(line[i] for line in lines) for i in range(len(FOLDS))]

    def check(self, aggregate: Aggregate, kind: Kind = "train") -> None:
        """End the round where cuts are many or far; warn of the first that are neither.

        Parameters
        ----------
        aggregate : Aggregate
            What was opened.
        kind : str
            What was asked.

        Raises
        ------
        RoundAbandoned
            If surely more than one coordinate in a thousand was cut, or any beyond ten times the
            range. Under a robust rule what the median client counts is judged, as if all had
            counted it: a few liars end no round that the rule would have borne.
        """
        cuts = aggregate.cuts
        if not cuts:
            return
        judged = cuts
        if kind == "train" and self._experiment.server.rule != "mean":
            judged = _median(aggregate.client_cuts) if aggregate.client_cuts else cuts
        if judged.least[0] > MOST_CUT * judged.coordinates or judged.least[1]:
            # What to do comes first: a console may show the beginning alone.
            cure, more = self._cure(judged, kind)
            reason = f"{cure}: {_counted(cuts, kind)}; {more}"
            raise RoundAbandoned(reason, aggregate.traffic)
        if not self._warned:
            log.warning("%s; metrics.jsonl counts on", _counted(cuts, kind))
            self._warned = True

    def _cure(self, found: CutCounts, kind: Kind) -> tuple[str, str]:
        """Return what to do, without a colon, and why it helps."""
        if kind == "evaluate":
            return (
                "evaluate fewer records a client, look why the loss is so large, or set "
                "evaluation.federated_every = 0",
                "a client's sums of losses and records go no further",
            )
        if kind == "components":
            return "raise privacy.examples", "clients have more records than it says"
        holding = holding_range(found)
        if holding is None:
            return (
                "lower training.lr, scale the data, or set privacy.clip, which bounds an update "
                "whole",
                f"not even {FOLDS[-1]:,} times the range would have held",
            )
        spec = self._experiment.privacy
        if spec.adaptive:
            return "set encoding.rotate = false", "then no coordinate is beyond the clip"
        if spec.clip is not None and not spec.sums_gradients:
            holding = min(holding, spec.clip)  # no coordinate of a clipped update is larger
        range_ = _written(holding)
        return f"set encoding.range = {range_}", f"{range_} would have held: {self._cost(holding)}"

    def _cost(self, held: float) -> str:
        """Return what the range costs that would have held, and what keeps the resolution."""
        experiment, (population, dimension) = self._experiment, self._sizes
        before = experiment.encoding
        now = planned_protections(experiment, population, dimension)["train"]
        wider = now.encoding.step * held / now.encoding.limit
        said = (
            f"the ring stays of {now.ring_bits} bits, no sum of coordinates wraps, and a step is "
            f"{wider:.3g}, not {now.encoding.step:.3g}"
        )
        bits = min(MOST_BITS, before.bits + math.ceil(math.log2(held / now.encoding.limit)))
        if bits == before.bits:
            return said
        finer = before.model_copy(update={"range": held, "bits": bits, "ring_bits": None})
        changed = experiment.model_copy(update={"encoding": finer})
        # A ring of one's own has to hold the largest session, or the plan is refused.
        cohort = None if before.ring_bits is None else largest_session(experiment, population)
        found = planned_protections(changed, population, dimension, cohort)["train"]
        ring, needed = f"encoding.bits = {bits}", max(found.ring_bits, before.ring_bits or 0)
        if before.ring_bits is not None and needed > before.ring_bits:
            ring += f" with encoding.ring_bits = {needed}"
        return f"{said}; {ring} makes it {found.encoding.step:.3g} in {needed} bits"


def cut_record(aggregate: Aggregate) -> dict[str, Any]:
    """Return what a line of metrics says of cuts; nothing where there were none.

    ``cut`` are the coordinates beyond 1, 10, 100 and 1,000 times the range, at most so many;
    ``cut_of`` is how many there are.
    """
    cuts = aggregate.cuts
    return {"cut": list(cuts.most), "cut_of": cuts.coordinates} if cuts else {}


def cuts_in_words(record: RoundRecord) -> str:
    """Return what a round's line says of cuts, after a comma; nothing where there are none."""
    if not record.cut:
        return ""
    return f", cut to the range: {record.cut[0]:,} of {record.cut_of:,} coordinates"


def shortened(reason: str) -> tuple[str, str]:
    """Return the cure that a round's reason begins with, and the cure with the counts.

    A reason that is not of cuts is returned whole, as both.
    """
    first, _, _ = reason.partition("; ")
    return (first.partition(": ")[0], first) if _CUT_TO_IT in first else (reason, reason)


def holding_range(found: CutCounts) -> float | None:
    """Return the least multiple of the range beyond which no coordinate was; None without one."""
    for fold, count in zip(FOLDS, found.most, strict=True):
        if not count and fold * found.limit <= MOST_SCALE:
            return fold * found.limit
    return None


def _median(client_cuts: Mapping[int, CutCounts]) -> CutCounts:
    """Return the counts of the median client, as if all clients had counted them."""
    each = list(client_cuts.values())
    middle = (len(each) - 1) // 2

    def of_all(counts: list[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(len(each) * sorted(column)[middle] for column in zip(*counts, strict=True))

    return replace(
        each[0],
        most=of_all([counts.most for counts in each]),
        least=of_all([counts.least for counts in each]),
        coordinates=len(each) * each[0].coordinates,
        clients=len(each),
    )


def _counted(found: CutCounts, kind: Kind) -> str:
    """Return in words how many coordinates were cut, and how far the furthest were beyond."""
    exact = found.most == found.least
    count = f"{found.most[0]:,}" if exact else f"{found.least[0]:,} to {found.most[0]:,}"
    limit = _written(found.limit)
    beyond = f"encoding.range = {limit}" if kind == "train" else f"{limit}, the most to be summed,"
    line = (
        f"{count} of {found.coordinates:,} coordinates of {found.clients:,} clients were beyond "
        f"{beyond} {_CUT_TO_IT}"
    )
    furthest = max((i for i, count in enumerate(found.most) if count), default=0)
    if not furthest:
        return line
    least = f"{found.least[furthest]:,}" + ("" if exact else " or more")
    return f"{line}, {least} of them beyond {FOLDS[furthest]:,} times it"


def _written(value: float) -> str:
    """Write a number as TOML reads it back, without float noise (3 * 0.1)."""
    return repr(float(f"{value:.15g}")).replace("e+", "e")
