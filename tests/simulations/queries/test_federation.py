"""A simulated federation answers through the handlers of a deployment, within one budget."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from zerosum.analytics import (
    BudgetExceeded,
    Federation,
    QueryAbandoned,
    QueryError,
    bayes,
    count,
    histogram,
    marginals,
    mean,
    oracle,
    quantile,
    variance,
    words,
)
from zerosum.analytics import sum as total
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.server.analytics.query_plan import plan_of
from zerosum.server.config import ConfigError
from zerosum.server.private_sum.coordinator import Coordinator
from zerosum.simulations.queries.tables import deal_file

SCHEMA = {
    "word": {"text": 4, "alphabet": "abc"},
    "age": {"integer": [0, 9]},
    "pay": {"number": [0.0, 10.0], "bins": 5},
    "sex": ["F", "M"],
}
ROWS = 400
RNG = np.random.default_rng(5)
DATA: dict[str, list[Any]] = {
    "age": list(map(int, RNG.integers(0, 10, ROWS))),
    "pay": list(map(float, RNG.uniform(0, 10, ROWS))),
    "sex": list(RNG.choice(["F", "M"], ROWS)),
    "word": list(RNG.choice(["ab", "abba", "c"], ROWS)),
    "site": list(RNG.choice(["north", "south", "west"], ROWS)),
}
OLD = sum(age >= 5 for age in DATA["age"])
ALL = [
    count(epsilon=0.5, where="age >= 5"),
    histogram("sex", by="age", epsilon=0.5),
    mean("pay", epsilon=0.5),
    total("pay", epsilon=0.5, where='sex = "F"'),
    variance("age", epsilon=0.5),
    quantile("pay", [0.25, 0.5], epsilon=0.5),
    words("word", epsilon=4.0),
    bayes("sex", ["age"], epsilon=0.5),
    marginals([["sex"], ["age", "sex"]], epsilon=0.5),
]


def federation(out, data=DATA, **changed):
    settings = {"schema": SCHEMA, "clients": 6, "budget": 20.0, "out": out} | changed
    return Federation.simulate(data, **settings)


def csv(folder: Path) -> Path:
    path = folder / "data.csv"
    rows = zip(*DATA.values(), strict=True)
    lines = [",".join(DATA), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("server", "drafts"),
    [("malicious", (ALL[1], ALL[6])), pytest.param("semi-honest", ALL, marks=pytest.mark.slow)],
    ids=["malicious", "semi-honest"],
)
def test_masked_sums_give_the_answers_of_trusted_ones_bit_for_bit(tmp_path, server, drafts):
    answers = {}
    for protocol in ("ideal", "pairwise"):
        kind = {"protocol": protocol, "server": server, "dropout": 0.1, "clients": 20}
        with federation(tmp_path / protocol, **kind) as f:
            answers[protocol] = [f.ask(draft) for draft in drafts]
    for trusted, masked in zip(*answers.values(), strict=True):
        np.testing.assert_array_equal(trusted.noisy, masked.noisy)
        np.testing.assert_array_equal(trusted.values, masked.values)
        assert trusted.clients == masked.clients
    assert any(answer.clients < 20 for answer in answers["ideal"])
    with federation(tmp_path / "other seed", seed=1) as f:  # the control
        assert not np.array_equal(f.ask(ALL[1]).noisy, answers["ideal"][0].noisy)


@pytest.mark.slow
def test_trusted_sum_of_many_clients_is_that_of_their_messages(tmp_path, monkeypatch):
    answers = []
    for most in (1000, 1):
        monkeypatch.setattr("zerosum.simulations.queries.clients.MOST_MESSAGES", most)
        with federation(tmp_path / str(most), clients=20, dropout=0.1) as f:
            answers.append([f.ask(draft) for draft in (ALL[1], ALL[6])])
    for sent, added in zip(*answers, strict=True):
        np.testing.assert_array_equal(sent.noisy, added.noisy)
        assert sent.clients == added.clients < 20


def test_oracle_has_a_budget_of_clients(tmp_path):
    terms = {"unit": "client", "adjacency": "replace", "cap": 1, "clients": 100}
    with federation(tmp_path / "q", **terms) as f:
        answer = f.ask(oracle("sex", epsilon=4.0))
        assert answer.clients == 100
        assert answer.epsilon["local"].value == pytest.approx(4.0)
        with pytest.raises(QueryError, match="unit"):
            federation(tmp_path / "r").ask(oracle("sex", epsilon=4.0))


def test_answer_is_the_truth_but_for_its_noise(tmp_path):
    with federation(tmp_path / "q", budget=40.0) as f:
        counted = f.ask(count(epsilon=20.0, where="age >= 5"))
        table = f.ask(histogram("age", epsilon=20.0))
    assert abs(float(counted.values) - OLD) <= 2
    np.testing.assert_allclose(table.values, np.bincount(DATA["age"], minlength=10), atol=3)


def test_rows_are_dealt_by_a_column(tmp_path):
    with federation(tmp_path / "q", clients=None, by="site") as f:
        assert f.ask(ALL[0]).clients == 3
    path = csv(tmp_path)
    with federation(tmp_path / "file", data=path, clients=None, by="site") as f:
        assert f.ask(ALL[0]).clients == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clients": None}, "clients is missing"),
        ({"by": "site"}, "give one of them"),
        ({"clients": None, "by": "town"}, "town"),
        ({"unit": "client"}, "cap is missing"),
        ({"cap": 2}, 'cap = 2 is for unit = "client"'),
        ({"delta": 0.5}, "delta = 0.5 is not below 1/clients"),
        ({"budget": 0.0}, "budget.epsilon"),
        ({"rule": "renyi", "budget": 0.01}, "admits no query"),
        ({"rule": "plan"}, r"no \[\[queries\]\]"),
        ({"clients": 1}, "clients"),
        ({"dropout": 0.9}, "clients = 6"),
        ({"schema": {}}, "schema"),
        ({"schema": {"age": {"integer": [9, 0]}}}, "schema.age"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_mistake_is_told_in_one_line_before_a_folder_is_made(tmp_path, changed, message):
    with pytest.raises(QueryError, match=message) as told:
        federation(tmp_path / "q", **changed)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "q").exists()


def test_budget_is_kept_across_questions_and_processes(tmp_path):
    with federation(tmp_path / "q", budget=1.0) as f:
        f.ask(count(epsilon=0.94))
    with Federation.resume(tmp_path / "q", DATA) as f:
        assert f.budget.left == pytest.approx(0.06)
        with pytest.raises(BudgetExceeded) as refused:
            f.ask(count(epsilon=0.1, where="age >= 1"))
    assert str(refused.value) == (
        "this query costs 0.10; 0.06 of 1.00 is left; at epsilon = 0.06 it fits"
    )
    with Federation.resume(tmp_path / "q", DATA) as f:  # what was refused is forgotten
        assert len(f.run()) == 1


def test_lowered_budget_is_refused(tmp_path):
    with federation(tmp_path / "q") as f:
        f.ask(count(epsilon=0.5))
    plan = tmp_path / "q" / "queries.toml"
    plan.write_text(plan.read_text().replace("epsilon = 20.0", "epsilon = 10.0"))
    with pytest.raises(ConfigError, match=r"opened with epsilon = 20\.0, not 10\.0"):
        Federation.resume(tmp_path / "q", DATA)


def test_other_data_are_refused(tmp_path):
    path = csv(tmp_path)
    with federation(tmp_path / "q", data=path) as f:
        f.ask(count(epsilon=0.5))
    moved = path.rename(tmp_path / "moved.csv")
    with Federation.resume(tmp_path / "q", moved) as f:
        assert f.ask(count(epsilon=0.5)).clients == 6
    moved.write_text(moved.read_text() + "1,1.0,F,c,north\n")
    with pytest.raises(QueryError, match="not what this folder began with"):
        Federation.resume(tmp_path / "q", moved)
    with federation(tmp_path / "memory") as f:
        f.ask(count(epsilon=0.5))
    other = DATA | {"age": [9 - age for age in DATA["age"]]}
    with pytest.raises(QueryError, match="not what this folder began with"):
        Federation.resume(tmp_path / "memory", other)


def test_folder_is_one_process_alone(tmp_path):
    with (
        federation(tmp_path / "q"),
        pytest.raises(QueryError, match="another process asks here"),
    ):
        Federation.resume(tmp_path / "q", DATA)
    with pytest.raises(QueryError, match="already holds queries"):
        federation(tmp_path / "q")


@pytest.mark.slow
def test_plan_is_answered_in_order_and_resumed_for_free(tmp_path):
    path = csv(tmp_path)
    plan = {"rule": "plan", "queries": [ALL[1], ALL[6], ALL[3]], "budget": 6.0}
    with federation(tmp_path / "q", data=path, **plan) as f:
        answers = f.run()
        spent = f.budget.used
    sums = (tmp_path / "q" / "queries.jsonl").read_bytes()
    with Federation.resume(tmp_path / "q") as f:
        again = f.run()
        with pytest.raises(QueryError, match="none of them"):
            f.ask(count(epsilon=0.1))
        assert f.budget.used == spent
    for one, other in zip(answers, again, strict=True):
        np.testing.assert_array_equal(one.noisy, other.noisy)
    assert (tmp_path / "q" / "queries.jsonl").read_bytes() == sums


def test_plan_above_its_budget_is_refused_before_anything_is_asked(tmp_path):
    with pytest.raises(BudgetExceeded, match="receipts cost"):
        federation(tmp_path / "q", rule="plan", queries=ALL, budget=1.0)
    assert not (tmp_path / "q").exists()


class Killed(BaseException):
    pass


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("stage", [2, 5, 8, 11, 15])
def test_plan_that_dies_at_a_charge_is_resumed_to_the_same_answers(tmp_path, monkeypatch, stage):
    queries = [ALL[0], ALL[6]]
    plan = {"rule": "plan", "queries": queries, "budget": 4.5}
    with federation(tmp_path / "whole", **plan) as f:
        wanted = [answer.noisy for answer in f.run()]
        used = f.budget.used
    written, replaced = count_writes(stage)
    with monkeypatch.context() as patch:
        patch.setattr("zerosum.server.analytics.ledger.append_durably", written)
        patch.setattr("zerosum.server.analytics.stored_answers.replace_file", replaced)
        with pytest.raises(Killed), federation(tmp_path / "q", **plan) as f:
            f.run()
    with Federation.resume(tmp_path / "q", DATA) as f:
        for noisy, answer in zip(wanted, f.run(), strict=True):
            np.testing.assert_array_equal(noisy, answer.noisy)
        assert f.budget.used == used


def count_writes(last):
    """Return the durable writes, of which one half way and the process dies at the last."""
    from zerosum.client.files import durable_append as files

    made = [0]

    def dying(write):
        def wrapped(*arguments):
            made[0] += 1
            if made[0] == last:
                raise Killed
            write(*arguments)
            if made[0] == last - 1 and last % 2:
                made[0] = last
                raise Killed

        return wrapped

    return dying(files.append_durably), dying(files.replace_file)


def test_second_attempt_is_another_sum_with_other_dropouts(tmp_path, monkeypatch):
    from zerosum.server.private_sum.coordinator import RoundAbandoned
    from zerosum.server.private_sum.transport import Traffic

    opened = Coordinator.private_sum

    def first_is_lost(self, request, groups, *, round, attempt=0, charge=None):
        result = opened(self, request, groups, round=round, attempt=attempt, charge=charge)
        if round == 1:
            raise RoundAbandoned("a secret cannot be recovered", Traffic())
        return result

    monkeypatch.setattr(Coordinator, "private_sum", first_is_lost)
    with federation(tmp_path / "q", budget=1.0) as f:
        with pytest.raises(QueryAbandoned):
            f.ask(count(epsilon=0.3))
        f.ask(count(epsilon=0.3))
        assert f.budget.used == pytest.approx(0.6)
    plan = {"rule": "plan", "queries": [replace(ALL[0], attempts=2)], "budget": 1.0}
    with federation(tmp_path / "plan", **plan) as f:
        f.run()
        assert f.spending.queries[0].sums == 2


def test_report_and_files_are_those_of_the_folder(tmp_path):
    with federation(tmp_path / "q") as f:
        answer = f.ask(replace(ALL[1], name="pairs"))
        page = answer.report().read_text()
    assert answer.sentence() in page.replace("&#39;", "'")
    document = json.loads((tmp_path / "q" / "answers.json").read_text())
    assert document["answers"][0]["name"] == "pairs"
    assert (tmp_path / "q" / "answers" / "pairs.csv").read_text().startswith("sex,age,value,")


def asked_until_refused(folder, rule):
    """Return how many questions of .05 a budget of 1 admits."""
    asked = 0
    with federation(folder, rule=rule, budget=1.0) as f:
        while True:
            try:
                f.ask(count(epsilon=0.05, where=f"age >= {asked % 9}", fresh=True))
            except BudgetExceeded:
                return asked
            asked += 1


@pytest.mark.slow
def test_rule_renyi_admits_divergences_at_its_one_order(tmp_path):
    # By hand: alpha = 22, B as in the design, and the closed form of a geometric move of 1.
    alpha, a = 22, math.exp(-0.05)
    limit = 1 + (math.log(1e-6) + math.log(alpha)) / (alpha - 1) - math.log((alpha - 1) / alpha)
    mass = (1 - a) / (1 + a) * (a ** (1 - alpha) + a**alpha) / (1 - a)
    row = math.log(mass) / (alpha - 1)
    assert asked_until_refused(tmp_path / "q", "renyi") == int(limit / row)


def test_folder_whose_ledger_is_gone_is_not_opened_anew(tmp_path):
    with federation(tmp_path / "q") as f:
        f.ask(ALL[0])
    (tmp_path / "q" / "queries.jsonl").unlink()
    (tmp_path / "q" / "answers.json").unlink()
    with pytest.raises(ConfigError, match="no line says that it was paid for"):
        Federation.resume(tmp_path / "q", DATA)


def test_full_disk_ends_in_one_line_and_nothing_is_paid_for_twice(tmp_path, monkeypatch):
    def full(path, data, *after):
        raise OSError(28, "No space left on device")

    with federation(tmp_path / "q") as f:
        monkeypatch.setattr("zerosum.server.analytics.stored_answers.replace_file", full)
        for _ in range(2):
            with pytest.raises(QueryError, match="No space left on device; make room"):
                f.ask(ALL[0])
            monkeypatch.undo()
        assert f.budget.used == pytest.approx(0.5)
    with Federation.resume(tmp_path / "q", DATA) as f:
        f.ask(ALL[0])
        assert f.budget.used == pytest.approx(0.5)


def test_frame_is_dealt_as_its_columns_are(tmp_path):
    frame = pd.DataFrame(DATA)
    for more in ({}, {"by": "site", "clients": None}):
        answers = []
        for data in (DATA, frame):
            with federation(tmp_path / f"{len(more)}{type(data).__name__}", data, **more) as f:
                answers.append(f.ask(ALL[1]))
        np.testing.assert_array_equal(answers[0].noisy, answers[1].noisy)


@pytest.mark.parametrize(
    ("data", "more", "message"),
    [
        (DATA | {"site": DATA["site"][:-1]}, {"by": "site", "clients": None}, "has 399 rows"),
        (DATA | {"site": [*DATA["site"], "x"]}, {"by": "site", "clients": None}, "has 401 rows"),
        (Table.of(DATA, Schema.of(SCHEMA | {"sex": ["M", "F"]})), {}, "another schema"),
        ([1, 2], {}, "of type list"),
    ],
    ids=["fewer names of clients", "more names", "other schema", "list"],
)
def test_rows_that_would_be_lost_are_refused(tmp_path, data, more, message):
    with pytest.raises(QueryError, match=message):
        federation(tmp_path / "q", data, **more)
    assert not (tmp_path / "q").exists()


def test_clients_of_a_file_are_read_row_for_row_as_its_table_is(tmp_path):
    # Ragged rows, blanks about names and a column of no name: each once misled a second reader.
    lines = ["age, site ,sex", "1,a,F", "2,b", " 3, a,M", "4,b,F,9,9", "5,b,F", "", "6,a ,F"]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    schema = {"age": {"integer": [0, 9]}, "sex": ["F", "M"]}
    plan = plan_of({"data": str(tmp_path / "data.csv"), "by": "site", "budget": {"epsilon": 1.0}})
    dealt = deal_file(plan, Schema.of(schema))
    held = [dealt.of(client).columns["age"].tolist() for client in range(dealt.clients)]
    assert held == [[-1, -1], [1, 3, 6], [5]]  # of no name, of a, of b


def test_closed_federation_answers_nothing(tmp_path):
    with federation(tmp_path / "q") as f:
        f.ask(ALL[0])
    with Federation.resume(tmp_path / "q", DATA) as other:  # it spends what f thinks is left
        other.ask(ALL[1])
        with pytest.raises(QueryError, match="closed"):
            f.ask(ALL[2])


def test_what_is_no_question_is_refused(tmp_path):
    with federation(tmp_path / "q") as f, pytest.raises(QueryError, match="is no question"):
        f.ask("count")


def test_words_that_nobody_reaches_have_a_report(tmp_path):
    with federation(tmp_path / "q") as f:
        answer = f.ask(words("word", epsilon=0.01))
        assert answer.values.size == 0
        assert "No value of word" in answer.report().read_text()
