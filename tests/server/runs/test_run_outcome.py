"""Clients' training in a run's lines, in counts and in words."""

import math

import pytest

from zerosum.client.protocol.training_outcomes import (
    LONGEST_ERROR_CHARACTERS,
    Notes,
    OutcomeCounts,
    quoted,
)
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.run_outcome import (
    charged,
    charged_in_words,
    failures_in_words,
    failures_summary,
    is_untrained,
    nothing_learnt,
    passed_in_words,
    tally_record,
)

DONE = RoundRecord(round=1, cohort=4, status="completed")
LOST = RoundRecord(round=1, cohort=4, status="abandoned", reason="too few")


def notes(error=None, *, learnt=False, examples=0):
    found = Notes()
    found.learnt, found.examples_failed = learnt, examples
    if error is not None:
        found.fail(error)
    return found


def test_the_first_failure_is_that_of_the_lowest_client_whatever_the_order():
    parts = [
        OutcomeCounts.of(5, notes(OSError("five"))),
        OutcomeCounts.of(2, notes(ValueError("two"))),
        OutcomeCounts.of(0, notes(learnt=True)),
        OutcomeCounts.of(1, notes()),
    ]
    forward, backward = sum(parts, OutcomeCounts()), sum(reversed(parts), OutcomeCounts())
    assert forward == backward
    assert (forward.trained, forward.failed, forward.idle) == (1, 2, 1)
    assert tally_record(forward)["first_failure"] == "client 2: ValueError: two"


def test_an_answer_that_is_spoilt_is_a_failure_though_it_had_learnt():
    spoilt = notes(learnt=True)
    spoilt.spoil(ValueError("NaN"))
    assert OutcomeCounts.of(3, spoilt) == OutcomeCounts(failed=1, first=(3, "ValueError: NaN"))


def test_a_client_that_lost_examples_has_trained():
    lost = OutcomeCounts.of(3, notes("NaN", learnt=True, examples=2))
    assert (lost.trained, lost.failed, lost.examples_failed) == (1, 0, 2)


def test_an_error_is_one_short_printable_line():
    assert quoted(OSError("first\nsecond")) == "OSError: first"
    assert "\x1b" not in quoted("\x1b[31mred")
    assert len(quoted("x" * 10_000)) == LONGEST_ERROR_CHARACTERS


def test_where_nobody_counts_a_completed_round_has_trained_the_model():
    assert tally_record(None) == {}
    assert not is_untrained([LOST, DONE])
    assert failures_summary([LOST, DONE]) is None
    assert failures_in_words(DONE) == ""


@pytest.mark.parametrize(
    ("records", "untrained"),
    [
        ([DONE | {"clients_trained": 0}], True),
        ([DONE | {"clients_trained": 1}], False),
        ([LOST | {"clients_trained": 4}], True),
        ([LOST, DONE | {"clients_trained": 0}, DONE | {"clients_trained": 3}], False),
    ],
)
def test_a_model_is_trained_once_a_completed_round_had_clients_that_trained(records, untrained):
    assert is_untrained(records) == untrained
    assert (nothing_learnt(records) is not None) == untrained


def test_no_round_is_no_run_that_learnt_nothing():
    assert nothing_learnt([]) is None


def test_who_passed_which_stage_is_counted_over_all_rounds():
    early = LOST | {"dropouts": {"advertise": 3}}
    late = LOST | {
        "dropouts": {"advertise": 1, "share": 0, "contribute": 2},
        "refused": {"contribute": 2},
    }
    assert passed_in_words([early, late]) == (
        "of 8 clients asked 4 passed advertise, 3 passed share, 1 passed contribute (2 refused it)"
    )
    said = nothing_learnt([early, late])
    assert said is not None
    assert said.startswith("all 2 rounds were abandoned")
    assert said.endswith("round 1: too few")


def test_of_lines_without_counts_no_counts_are_said():
    said = nothing_learnt([RoundRecord(round=1, status="abandoned")])
    assert said == (
        "the one round was abandoned, so nothing was learnt and the model is the initial one"
    )


def test_what_an_abandoned_round_cost_is_rounded_up_and_nothing_is_said_where_nothing_bounds_it():
    cost = charged({"sum": 1.0, "release": 0.5}, {"sum": 1.0, "local": 2.00001})
    assert charged_in_words(LOST | {"epsilon_charged": cost}) == "charged epsilon 2.01 (local)"
    nothing = charged({}, {"sum": 0.0})
    assert charged_in_words(LOST | {"epsilon_charged": nothing}) == "charged no epsilon"
    unbounded = charged({}, {"sum": math.inf})
    assert charged_in_words(LOST | {"epsilon_charged": unbounded}) == ""
    assert charged_in_words(DONE) == ""
