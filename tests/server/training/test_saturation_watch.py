"""Counts of cut coordinates end a round, and the cure that is named holds."""

import logging
import re

import numpy as np
import pytest
from narrowed import present

from zerosum.client.protocol.saturation_counts import decoded_counts
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment
from zerosum.server.planning.preflight import prepare
from zerosum.server.privacy.protections import planned_protections
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import RoundAbandoned
from zerosum.server.private_sum.transport import Traffic
from zerosum.server.runs.records import RoundRecord
from zerosum.server.training.saturation_watch import (
    CutWatch,
    cut_record,
    cuts_in_words,
    holding_range,
)

CLIENTS, DIMENSION = 4, 1000
BASE = {
    "task": "digits",
    "data": {"clients": CLIENTS},
    "privacy": {"model": "none", "clip": "none"},
    "encoding": {"range": 8.0},
    "sampling": {"kind": "everyone"},
    "secagg": {"dropout": 0.3},
}


def experiment(*settings):
    return parse_experiment(apply_overrides(BASE, settings))


def counts(*sums, limit=8.0, clients=CLIENTS, bits=16, dimension=DIMENSION):
    code = Encoding.from_bits(bits, dimension=dimension, clip=None, limit=limit)
    return decoded_counts(code, np.array(sums, np.int64), clients)


def opened(found, client_cuts=None):
    return Aggregate(
        np.zeros(DIMENSION), tuple(range(CLIENTS)), 0.0, Traffic(), cuts=found,
        client_cuts=client_cuts,
    )  # fmt: skip


def watch(*settings):
    return CutWatch(experiment(*settings), CLIENTS, DIMENSION)


def reason(found, *settings, kind="train", client_cuts=None):
    with pytest.raises(RoundAbandoned) as caught:
        watch(*settings).check(opened(found, client_cuts), kind)
    return str(caught.value)


def test_one_in_a_thousand_is_borne_and_more_end_the_round():
    watch().check(opened(counts(4, 0, 0, 0)))
    said = reason(counts(5, 0, 0, 0))
    assert "5 of 4,000 coordinates of 4 clients were beyond encoding.range = 8.0" in said
    assert "set encoding.range = 80.0" in said


def test_any_beyond_ten_times_the_range_ends_the_round_and_names_the_range_that_holds():
    said = reason(counts(1, 1, 0, 0))
    assert "1 of 4,000 coordinates" in said
    assert "1 of them beyond 10 times it" in said
    assert "set encoding.range = 800.0" in said
    assert "set encoding.range = 8000.0" in reason(counts(1, 1, 1, 0))


def test_beyond_a_thousand_times_no_range_is_named():
    said = reason(counts(3, 3, 2, 1))
    assert "set encoding.range" not in said
    for cure in ("lower training.lr", "scale the data", "set privacy.clip"):
        assert cure in said


@pytest.mark.parametrize("sums", [(5, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0)])
@pytest.mark.parametrize(
    "settings",
    [[], ["encoding.bits=28"], ["encoding.ring_bits=20"], ["encoding.ring_bits=60"],
     ["encoding.ring_bits=18", "sampling.kind=poisson", "sampling.cohort=2"],
     ["encoding.range=0.3"], ["encoding.rotate=true"],
     ["encoding.bits=32", "secagg.protocol=ideal"]],
)  # fmt: skip
def test_the_cures_that_are_named_are_accepted_by_the_planner(sums, settings):
    """Lines are pasted as they stand; figures beside them are those of the plan that follows."""
    asked = experiment(*settings)
    before = planned_protections(asked, CLIENTS, DIMENSION)["train"]
    said = reason(counts(*sums, limit=before.encoding.limit), *settings)
    cure = present(re.search(r"^set (encoding\.range = \S+): ", said)).group(1).replace(" ", "")
    wider = prepare(experiment(*settings, cure), population=CLIENTS, dimension=DIMENSION)
    planned = planned_protections(wider, CLIENTS, DIMENSION)["train"]
    fold = present(holding_range(counts(*sums))) / 8.0
    assert planned.encoding.limit == pytest.approx(fold * before.encoding.limit)
    assert planned.ring_bits == before.ring_bits
    assert f"a step is {planned.encoding.step:.3g}, not {before.encoding.step:.3g}" in said
    assert planned.log2_wrap_probability == -np.inf
    finer = re.search(r"(encoding\.bits = \d+)(?: with (encoding\.ring_bits = \d+))?", said)
    if asked.encoding.bits == 32:
        assert finer is None
        return
    lines = [line.replace(" ", "") for line in present(finer).groups() if line]
    kept = prepare(experiment(*settings, cure, *lines), population=CLIENTS, dimension=DIMENSION)
    planned = planned_protections(kept, CLIENTS, DIMENSION)["train"]
    assert f"makes it {planned.encoding.step:.3g} in {planned.ring_bits} bits" in said
    if kept.encoding.bits < 32:
        assert planned.encoding.step <= before.encoding.step * 1.001


def test_under_a_clip_no_more_than_the_clip_is_named():
    said = reason(counts(9, 0, 0, 0, limit=0.5), "privacy.clip=1.0", "encoding.range=0.5")
    assert "set encoding.range = 1.0: " in said


def test_it_is_warned_once_a_run(caplog):
    watching = watch()
    with caplog.at_level(logging.WARNING, "zerosum.server"):
        watching.check(opened(counts(0, 0, 0, 0)))
        watching.check(opened(None))
        assert not caplog.records
        watching.check(opened(counts(2, 0, 0, 0)))
        watching.check(opened(counts(3, 0, 0, 0)))
    assert len(caplog.records) == 1


def test_rounded_counts_end_a_round_only_where_it_is_sure():
    """At eight bits a unit is 8 of 1,000 coordinates: four of them may be 4 cut coordinates."""
    few = counts(4, 0, 0, 0, bits=8)
    assert (few.least[0], few.most[0]) == (4, 32)
    watch("encoding.bits=8").check(opened(few))
    many = counts(5, 0, 0, 0, bits=8)
    assert (many.least[0], many.most[0]) == (12, 40)
    assert "12 to 40 of 4,000" in reason(many, "encoding.bits=8")
    assert "or more of them beyond 10 times" in reason(
        counts(1, 1, 0, 0, bits=8), "encoding.bits=8"
    )


def test_a_liar_ends_no_round_that_a_robust_rule_would_bear():
    settings = ["server.rule=median", "secagg.protocol=none"]
    honest = {i: counts(0, 0, 0, 0, clients=1) for i in range(3)}
    lying = honest | {3: counts(1000, 1000, 1000, 1000, clients=1)}
    watch(*settings).check(opened(counts(1000, 1000, 1000, 1000), lying))
    reason(counts(1000, 1000, 1000, 1000), "secagg.protocol=none", client_cuts=lying)  # of a mean
    all_cut = {i: counts(20, 1, 0, 0, clients=1) for i in range(4)}
    assert "set encoding.range = 800.0" in reason(
        counts(80, 4, 0, 0), *settings, client_cuts=all_cut
    )


def test_other_sums_name_cures_of_their_own():
    said = reason(counts(1, 0, 0, 0, limit=2.0**20, dimension=3), kind="evaluate")
    assert "encoding.range" not in said
    assert "evaluation.federated_every = 0" in said
    assert "privacy.examples" in reason(counts(9, 0, 0, 0), kind="components")


def test_what_is_recorded_says_at_most_how_many():
    assert cut_record(opened(counts(0, 0, 0, 0))) == {}
    assert cut_record(opened(None)) == {}
    record = cut_record(opened(counts(7, 2, 0, 0)))
    assert record == {"cut": [7, 2, 0, 0], "cut_of": 4000}
    cut, uncut = RoundRecord(round=1, **record), RoundRecord(round=2)
    assert cuts_in_words(cut) == ", cut to the range: 7 of 4,000 coordinates"
    assert cuts_in_words(uncut) == ""
    assert watch().summed([cut, uncut, cut]) == [14, 4, 0, 0]
    assert watch("privacy.clip=1.0", "encoding.range=2.0").summed([{}]) is None


def test_a_range_that_cannot_be_configured_is_not_named():
    assert holding_range(counts(9, 0, 0, 0, limit=1e30)) is None
    assert holding_range(counts(9, 9, 0, 0, limit=1e29)) is None
    assert holding_range(counts(9, 0, 0, 0, limit=1e28)) == 1e29


def test_a_range_that_would_cut_weights_is_refused():
    weighted = "training.weighting=examples"
    with pytest.raises(ConfigError, match=r"encoding\.range = 0\.5 would cut weights"):
        experiment(weighted, "encoding.range=0.5")
    for fine in (["encoding.range=1.0"], ["encoding.range=0.5", "encoding.rotate=true"],
                 ["encoding.range=0.5", "privacy.clip=0.25"]):  # fmt: skip
        experiment(weighted, *fine)
