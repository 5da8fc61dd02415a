"""A question is paid for before it is asked, once, whatever happens."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from trusted_sums import Killed, TrustedSums

from zerosum.client.files.durable_append import append_durably
from zerosum.client.protocol.noise_source import SeededEntropy, SystemEntropy
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.server.analytics.ask import ask
from zerosum.server.analytics.asks import QueryAbandoned, QueryTerms
from zerosum.server.analytics.budget import Budget, BudgetError, BudgetExceeded, spend
from zerosum.server.analytics.costs import cost
from zerosum.server.analytics.drafts import Draft
from zerosum.server.analytics.ledger import QueryLedger
from zerosum.server.analytics.ledger_lines import PlannedSums, QueryHeader
from zerosum.server.analytics.query_spending import read_spending_of
from zerosum.server.analytics.stored_answers import StoredAnswers, read_answers, released_sums
from zerosum.server.config import ConfigError
from zerosum.server.privacy.ledger_file import LedgerMismatchError

SCHEMA = Schema.of(
    {"age": {"integer": [0, 9]}, "sex": ["F", "M"], "word": {"text": 4, "alphabet": "abc"}}
)
CLIENTS = 5
COUNT = Draft("count", 0.25, where="age >= 5")
WORDS = Draft("words", 8.0, {"column": "word"})


def tables():
    rng = np.random.default_rng(3)
    return [
        Table.of(
            {
                "age": list(map(int, rng.integers(0, 10, 40))),
                "sex": list(rng.choice(["F", "M"], 40)),
                "word": list(rng.choice(["ab", "abba", "c"], 40)),
            },
            SCHEMA,
        )
        for _ in range(CLIENTS)
    ]


TABLES = tables()
TRUTH = sum(int((table.columns["age"] >= 5).sum()) for table in TABLES)


class Folder:
    """A folder of queries that processes come and go in."""

    def __init__(self, path: Path | None, budget: Budget, *, planned=(), seeded: bool = True):
        self.path, self.seeded = path, seeded
        self.terms = QueryTerms(SCHEMA, budget, CLIENTS, allow_large_delta=True)
        self.entropy = SeededEntropy(7) if seeded else SystemEntropy()
        self.header = QueryHeader(
            clients=CLIENTS, groups=1, protocol="ideal", honest_fraction=0.8,
            budget={
                "observer": budget.observer, "unit": budget.unit, "adjacency": budget.adjacency,
                "epsilon": budget.epsilon, "delta": budget.delta, "rule": budget.rule,
            },
            planned=list(planned),
        )  # fmt: skip
        self.start()

    def start(self, **sums):
        """A new process."""
        self.sums = TrustedSums(TABLES, self.entropy, **sums)
        self.ledger = QueryLedger(self.path and self.path / "queries.jsonl", self.header)
        self.answers = StoredAnswers(self.path)

    def ask(self, draft: Draft):
        return ask(
            self.sums, draft.ask(SCHEMA), self.ledger, self.answers, self.terms,
            reproducible=self.seeded,
        )  # fmt: skip

    @property
    def spent(self) -> float:
        return spend(self.terms.budget, self.ledger.receipts("sum")).epsilon


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path, Budget(1.0, 1e-6))


def test_answer_is_the_truth_but_for_noise_and_says_what_it_cost(folder):
    answer = folder.ask(COUNT)
    assert abs(float(answer.values) - TRUTH) < 12 * float(answer.std)
    assert answer.epsilon["sum"].value <= 0.25 * (1 + 1e-9)
    assert answer.epsilon["release"].value < answer.epsilon["sum"].value
    assert answer.epsilon["local"].value > answer.epsilon["sum"].value
    assert answer.receipt["sum"]["moves"] == [1]
    assert folder.spent == pytest.approx(0.25)


def test_same_question_again_is_free_and_the_same(folder):
    first = folder.ask(COUNT)
    again = folder.ask(replace(COUNT, name="other", where="(age >= 5)"))
    assert folder.sums.opened == [(1, 0)]
    np.testing.assert_array_equal(first.noisy, again.noisy)
    folder.start()  # another process
    np.testing.assert_array_equal(folder.ask(COUNT).noisy, first.noisy)
    assert folder.sums.opened == []
    assert folder.spent == pytest.approx(0.25)


@pytest.mark.parametrize(
    "other",
    [
        replace(COUNT, fresh=True),
        replace(COUNT, where="age >= 6"),
        replace(COUNT, where=None),
        replace(COUNT, epsilon=0.26),
    ],
    ids=["fresh", "another filter", "no filter", "another scale"],
)
def test_another_question_and_a_fresh_answer_are_paid_for(folder, other):
    first = folder.ask(COUNT)
    second = folder.ask(other)
    assert folder.sums.opened == [(1, 0), (2, 0)]
    assert folder.spent == pytest.approx(0.25 + other.epsilon)
    assert not np.array_equal(first.noisy, second.noisy)


def test_what_does_not_fit_is_refused_before_anything_is_sent(folder):
    for number in range(3):
        folder.ask(replace(COUNT, where=f"age >= {number}"))
    folder.ask(replace(COUNT, epsilon=0.19, where="age >= 4"))
    with pytest.raises(BudgetExceeded) as refused:
        folder.ask(replace(COUNT, epsilon=0.1))
    assert str(refused.value) == (
        "this query costs 0.10; 0.06 of 1.00 is left; at epsilon = 0.06 it fits"
    )
    assert len(folder.sums.opened) == 4
    assert len((folder.path / "queries.jsonl").read_text().splitlines()) == 1 + 4 * 3
    folder.ask(replace(COUNT, epsilon=0.06))  # as it says
    assert folder.spent == pytest.approx(1.0)


def test_words_are_as_many_sums_as_rounds_and_their_epsilons_add_up(tmp_path):
    folder = Folder(tmp_path, Budget(8.0, 1e-6))
    answer = folder.ask(WORDS)
    assert folder.sums.opened == [(1, 0), (2, 0)]
    assert set(answer.tables[0][0].labels) == {"ab", "abba", "c"}
    assert folder.spent == pytest.approx(8.0)
    assert [each.charge.part for each in folder.ledger.sums] == [0, 1]


KILLS = ["asked", "contributions", "sum", "survived", "kept sum", "kept answer", "torn line"]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("seeded", [True, False], ids=["seeded", "system"])
@pytest.mark.parametrize("draft", [COUNT, WORDS], ids=["count", "words"])
@pytest.mark.parametrize("kill", KILLS)
def test_process_that_dies_is_gone_on_with(tmp_path, monkeypatch, kill, draft, seeded):
    whole = Folder(None, Budget(draft.epsilon * 2, 1e-6), seeded=seeded)
    wanted = whole.ask(draft)
    folder = Folder(tmp_path, Budget(draft.epsilon * 2, 1e-6), seeded=seeded)
    die(folder, monkeypatch, kill, draft)
    folder.start()
    answer = folder.ask(draft)
    assert folder.spent <= folder.terms.budget.epsilon
    again = not seeded and kill in ("sum", "survived")  # opened, and its sum is gone
    assert folder.spent == pytest.approx(
        whole.spent * (1.5 if draft is WORDS and again else 1 + again)
    )
    if seeded:
        np.testing.assert_array_equal(answer.noisy, wanted.noisy)
    assert len(read_answers(tmp_path)) == 1
    folder.start()
    np.testing.assert_array_equal(folder.ask(draft).noisy, answer.noisy)
    assert folder.sums.opened == []


def die(folder, monkeypatch, kill, draft):
    """Ask, and die at a stage."""
    if kill in ("kept sum", "kept answer"):
        name = "keep_sum" if kill == "kept sum" else "keep"
        keep = getattr(StoredAnswers, name)

        def kept_and_killed(self, *arguments):
            keep(self, *arguments)
            raise Killed(kill)

        with monkeypatch.context() as patch:
            patch.setattr(StoredAnswers, name, kept_and_killed)
            with pytest.raises(Killed):
                folder.ask(draft)
        return
    folder.start(kill_at="contributions" if kill == "torn line" else kill)
    with pytest.raises(Killed):
        folder.ask(draft)
    if kill == "torn line":
        path = folder.path / "queries.jsonl"
        path.write_bytes(path.read_bytes()[:-7])


def test_sum_that_is_done_again_is_the_same_release(folder):
    folder.start(kill_at="survived")
    with pytest.raises(Killed):
        folder.ask(COUNT)
    released = folder.sums.released
    folder.start()
    folder.ask(COUNT)
    assert folder.sums.released == released


def test_system_noise_done_again_is_another_attempt_that_needs_budget(tmp_path):
    folder = Folder(tmp_path, Budget(0.4, 1e-6), seeded=False)
    folder.start(kill_at="survived")
    with pytest.raises(Killed):
        folder.ask(COUNT)
    folder.start()
    with pytest.raises(BudgetExceeded, match=r"costs 0\.25; 0\.15 of 0\.40 is left"):
        folder.ask(COUNT)
    assert folder.sums.opened == []


@pytest.mark.parametrize(("stage", "cost"), [("contribute", 0.25), ("unmask", 0.5)])
def test_a_sum_that_was_given_up_costs_if_it_was_opened(folder, stage, cost):
    folder.start(abandon=lambda round, attempt: stage if round == 1 else "")
    with pytest.raises(QueryAbandoned, match="count"):
        folder.ask(COUNT)
    folder.ask(COUNT)
    assert folder.spent == pytest.approx(cost)
    assert [each.number for each in folder.ledger.sums] == [(1, 0), (2, 0)]


def planned(draft, budget, attempts=1):
    costed = cost(draft.ask(SCHEMA), QueryTerms(SCHEMA, budget, CLIENTS, allow_large_delta=True))
    return PlannedSums(ask=costed.key, sums=costed.sums * attempts, receipts=dict(costed.receipts))


def test_a_plan_admits_its_queries_and_no_others(tmp_path):
    budget = Budget(1.0, 1e-6, rule="plan")
    folder = Folder(tmp_path, budget, planned=[planned(COUNT, budget)])
    folder.ask(COUNT)
    with pytest.raises(QueryError, match="none of them"):
        folder.ask(replace(COUNT, where="age >= 1"))
    with pytest.raises(QueryError, match=r"1 sums of this query, 1 of them are spent.*attempts"):
        folder.ask(replace(COUNT, fresh=True))
    assert folder.sums.opened == [(1, 0)]


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_second_attempt_under_a_plan_is_paid_by_a_spare_receipt(tmp_path, attempts):
    budget = Budget(1.0, 1e-6, rule="plan")
    folder = Folder(tmp_path, budget, planned=[planned(COUNT, budget, attempts)])
    folder.start(abandon=lambda round, attempt: "unmask" if round == 1 else "")
    with pytest.raises(QueryAbandoned):
        folder.ask(COUNT)
    if attempts == 1:
        with pytest.raises(QueryError, match="attempts = 2"):
            folder.ask(COUNT)
    else:
        folder.ask(COUNT)
    assert len(folder.sums.opened) == attempts


def test_oracle_is_for_a_budget_of_its_own_kind(tmp_path):
    draft = Draft("oracle", 1.0, {"column": "sex"})
    with pytest.raises(QueryError, match=r'unit = "client", adjacency = "replace" and cap = 1'):
        Folder(tmp_path, Budget(1.0, 1e-6)).ask(draft)


@pytest.mark.parametrize("kind", ["auto", "k-rr", "olh"])
def test_oracle_of_an_epsilon_that_no_client_reports_by_is_not_asked(kind):
    budget = Budget(30.0, 1e-6, unit="client", adjacency="replace")
    terms = QueryTerms(SCHEMA, budget, CLIENTS, cap=1, allow_large_delta=True)
    draft = Draft("oracle", 21.0, {"column": "sex", "oracle": kind})
    with pytest.raises(QueryError, match=r"epsilon = 21: a report has one from"):
        cost(draft.ask(SCHEMA), terms)
    assert cost(replace(draft, epsilon=20.0).ask(SCHEMA), terms).privacy.scale == 20.0


def test_answers_are_files(folder):
    folder.ask(Draft("histogram", 0.5, {"columns": ["sex"], "by": ["age"]}, name="pairs"))
    document = json.loads((folder.path / "answers.json").read_text())["answers"][0]
    assert document["name"] == "pairs"
    assert np.shape(document["values"]) == (3, 10)
    assert document["epsilon"]["sum"]["value"] <= 0.5 * (1 + 1e-9)
    lines = (folder.path / "answers" / "pairs.csv").read_text().splitlines()
    assert lines[0] == "sex,age,value,std,low,high"
    assert len(lines) == 31


def test_another_question_of_the_same_name_has_a_file_of_its_own(folder):
    folder.ask(COUNT)
    folder.ask(replace(COUNT, where="age >= 6"))
    assert [each["name"] for each in read_answers(folder.path)] == ["count", "count-2"]


def test_damaged_answers_are_made_again_of_the_sums(folder):
    first = folder.ask(COUNT)
    (folder.path / "answers.json").write_text("{")
    with pytest.raises(ValueError, match="delete it"):
        folder.start()
    (folder.path / "answers.json").unlink()
    folder.start()
    np.testing.assert_array_equal(folder.ask(COUNT).noisy, first.noisy)
    assert folder.sums.opened == []


def test_skellam_is_no_law_of_the_rule_sum(folder):
    with pytest.raises(QueryError, match="geometric"):
        folder.ask(replace(COUNT, mechanism="skellam"))
    assert issubclass(BudgetError, QueryError)


# -- a folder that lost something ----------------------------------------------------------------


def without(path, sums):
    """Take the lines of opened sums out of a ledger, as a restored backup lacks them."""
    ledger = path / "queries.jsonl"
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    kept = [each for each in lines if tuple(each.get("key", ()))[:2] not in sums]
    ledger.write_text("".join(json.dumps(each) + "\n" for each in kept))


@pytest.mark.parametrize("lost", [{(1, 0)}, {(3, 0)}, {(1, 0), (2, 0), (3, 0)}])
def test_released_sum_that_no_line_paid_for_ends_the_budget(folder, lost):
    folder.terms = replace(folder.terms, budget=Budget(20.0, 1e-6))
    folder.header = folder.header.model_copy(
        update={"budget": folder.header.budget | {"epsilon": 20.0}}
    )
    (folder.path / "queries.jsonl").unlink()
    folder.start()
    folder.ask(COUNT)
    folder.ask(WORDS)
    released = released_sums(folder.path)
    assert released == {(1, 0), (2, 0), (3, 0)}
    folder.ledger.check_released(released)  # the control
    read_spending_of(folder.path)
    without(folder.path, lost)
    folder.start()
    with pytest.raises(LedgerMismatchError, match="no line says that it was paid for"):
        folder.ledger.check_released(released_sums(folder.path))
    with pytest.raises(LedgerMismatchError, match="no line says that it was paid for"):
        read_spending_of(folder.path)


def test_stored_answer_that_lost_a_sum_is_refused_in_one_line(folder):
    folder.ask(COUNT)
    (folder.path / "sums" / "1-0.json").unlink()
    folder.start()
    with pytest.raises(ConfigError, match="has lost sum 1 of 1"):
        folder.ask(COUNT)


@pytest.mark.parametrize(
    "damage",
    [
        lambda each: [each, each],
        lambda each: [{**each, "asked": True}],
        lambda each: [{**each, "name": "../../x"}],
        lambda each: [{name: value for name, value in each.items() if name != "name"}],
    ],
    ids=["twice", "no number", "a path", "no name"],
)
def test_answers_that_are_none_are_damaged(folder, damage):
    folder.ask(COUNT)
    path = folder.path / "answers.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"answers": damage(document["answers"][0])}))
    with pytest.raises(ConfigError, match=r"answers\.json is damaged"):
        folder.start()


@pytest.mark.parametrize("damage", [{"noisy": [1.9]}, {"noisy": ["7"]}, {"clients": -4}])
def test_sum_of_anything_but_counts_is_damaged(folder, damage):
    folder.ask(COUNT)
    path = folder.path / "sums" / "1-0.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    folder.start()
    with pytest.raises(ConfigError, match=r"1-0\.json is damaged"):
        folder.ask(COUNT)


def test_longest_name_is_numbered_within_its_length(folder):
    name = "a" * 64
    folder.ask(replace(COUNT, name=name))
    folder.ask(replace(COUNT, name=name, where="age >= 6"))
    folder.start()
    assert [each["name"] for each in folder.answers.entries] == [name, "a" * 62 + "-2"]


@pytest.mark.parametrize("line", ['"type":"contributions"', '"type":"sum"', '"type":"survived"'])
def test_line_that_was_not_written_is_never_taken_for_written(folder, monkeypatch, line):
    """A full disk takes half a line: nothing is opened without its charge, here or after it."""

    def full(path, data):
        if line.encode() in data:
            with path.open("ab") as file:
                file.write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        append_durably(path, data)

    monkeypatch.setattr("zerosum.server.analytics.ledger.append_durably", full)
    with pytest.raises(OSError, match="No space left"):
        folder.ask(COUNT)
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(QueryError, match="nothing more is asked until the folder is opened"):
            folder.ask(COUNT)
    folder.start()
    folder.ask(COUNT)
    folder.ledger.check_released(released_sums(folder.path))
    assert folder.spent == pytest.approx(0.25)


def test_words_that_ended_early_are_made_again_for_free_whatever_is_left(tmp_path):
    """No prefix was left after the first round: the second is never asked for, nor paid for."""
    folder = Folder(tmp_path, Budget(4.108, 1e-6))
    rare = replace(WORDS, epsilon=0.01)
    assert len(folder.ask(rare).rows()) == 0
    assert folder.spent == pytest.approx(0.005)
    folder.ask(replace(COUNT, epsilon=4.1))
    (tmp_path / "answers.json").unlink()
    folder.start()
    assert len(folder.ask(rare).rows()) == 0
    assert folder.spent == pytest.approx(4.105)
    with pytest.raises(BudgetExceeded):  # the control: another one is not free
        folder.ask(replace(rare, fresh=True))
