"""Answers that are stored are those of the same question to the same nodes, and of no others."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from zerosum.client.flower.app_query import AppSumRequest
from zerosum.client.queries.declared_sums import SumQuestion
from zerosum.server.flower.app_answers import AppAnswer, AppAnswers
from zerosum.server.flower.app_sums import Counts, cost_of, terms_of

COHORT = (0, 1, 2, 3, 4, 5)
SUMS = {"results": {"ages": Counts(4)}}


class Sums:
    """A coordinator of which each sum is another, and which counts them."""

    def __init__(self):
        self.asked = 0

    def private_sum(self, request, groups, *, round, charge):
        (clients,) = groups
        for kind in ("contributions", "sum", "survived"):
            charge(kind, 0, clients)
        self.asked += 1
        total = np.full(request.dimension, self.asked, np.int64)
        return SimpleNamespace(total=total, survivors=clients)


def ask(folder, coordinator, roster=b"", cohort=COHORT, **changed):
    """Ask in a folder as one run of a ServerApp does; return the answer."""
    settings = {"epsilon": 0.5, "unit": "record"} | changed
    asks: dict[str, Any] = {"config": {}, "records": {}, "type": "query"}
    given: dict[str, Any] = {key: settings.pop(key, value) for key, value in asks.items()}
    terms = terms_of({"budget": 20.0, "honest_fraction": 0.6, **settings})

    def request_of(costed, round):
        question = SumQuestion(
            round=round, seed=0, population=6, privacy=costed.privacy, sums=costed.sums
        )
        records = RecordDict({"config": ConfigRecord(given["records"])})
        return AppSumRequest.of(
            question, records, message_type=given["type"], run_config=given["config"]
        )

    answers = AppAnswers(folder, terms, 6, coordinator, roster)
    try:
        return answers.ask(cohort, cost_of(SUMS, terms, len(cohort)), request_of, fresh=False)
    finally:
        answers.close()


def test_the_same_question_has_the_stored_answer(tmp_path):
    coordinator: Any = Sums()
    first = ask(tmp_path, coordinator, b"roster")
    again = ask(tmp_path, coordinator, b"roster")
    assert (first.stored, again.stored, coordinator.asked) == (False, True, 1)
    np.testing.assert_array_equal(first.values, again.values)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    "changed",
    [
        {"roster": b"another"},
        {"roster": b"simulation"},
        {"cohort": (0, 1, 2, 3, 4)},
        {"config": {"bins": 3}},
        {"records": {"round": 2}},
        {"type": "query.other"},
        {"epsilon": 0.25},
        {"mechanism": "skellam", "rule": "renyi"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_another_question_or_other_nodes_have_another(changed, tmp_path):
    coordinator: Any = Sums()
    rule = {key: changed[key] for key in ("rule",) if key in changed}
    ask(tmp_path, coordinator, b"roster", **rule)
    answer = ask(tmp_path, coordinator, **{"roster": b"roster", **changed})
    assert not answer.stored
    assert coordinator.asked == 2


def answer_of(values, std=1.0):
    sums = cost_of({"r": {"v": Counts(len(values))}}, terms_of({"model": "none"}), 2).sums
    return AppAnswer("query", sums, (np.array(values),), {sums[0].name: std}, 6)


@pytest.mark.parametrize("cells", [1, 9, 2000])
def test_an_answer_of_noise_alone_is_told_from_one_that_holds_something(cells):
    noise = np.random.default_rng(cells).laplace(scale=10 / 2**0.5, size=cells)
    assert answer_of(noise, 10.0).drowned
    assert not answer_of(noise + 60.0, 10.0).drowned
    assert not answer_of(np.zeros(cells), 0.0).drowned  # an exact sum has no noise to drown in
