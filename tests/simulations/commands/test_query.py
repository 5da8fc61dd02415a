"""``zerosum query``: mistakes in one line, further questions, help within 80 columns."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from zerosum.simulations.commands import ask_queries
from zerosum.simulations.commands.main import app
from zerosum.simulations.terminal.progress import ProgressBar

PLAN = """
data = "data.csv"
clients = 4
[budget]
epsilon = 3.0
delta = 1e-3
[schema]
word = { text = 4, alphabet = "abc" }
age = { integer = [0, 9] }
sex = ["F", "M"]
[[queries]]
kind = "count"
where = "age >= 5"
epsilon = 1.0
[[queries]]
kind = "histogram"
columns = ["sex"]
epsilon = 1.0
"""
COMMON = ["--schema", "plan.toml", "--data", "data.csv", "--clients", "4", "--delta", "1e-3"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    columns = rng.choice(["ab", "abba"], 200), rng.integers(0, 10, 200), rng.choice(["F", "M"], 200)
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["word,age,sex", *rows]) + "\n")
    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def zerosum(*words: object):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cuont"], "there is no query 'cuont'; did you mean \"count\"?"),
        (["count", "--epsilon", 1], "--schema is missing"),
        (["count", "--epsilon", 1, "--schema", "plan.toml"], "--data is missing"),
        (["count", "--epsilon", -1, *COMMON], "epsilon = -1.0"),
        (["count", "--epsilon", "nan", *COMMON], "epsilon = nan"),
        (["count", "--epsilon", 1, *COMMON[:4]], "clients is missing"),
        (["count", "--epsilon", 1, *COMMON, "--clients-by", "sex"], "give one of them"),
        (["count", "--epsilon", 1, *COMMON, "--where", "agee > 1"], 'did you mean "age"?'),
        (["count", "--epsilon", 1, *COMMON, "--where", "sex < 'F'"], "has no order"),
        (["histogram", "sxe", "--epsilon", 1, *COMMON], 'did you mean "sex"?'),
        (["quantile", "sex", "--epsilon", 1, *COMMON], "not integer or number"),
        (["quantile", "age", "--q", "0", "--epsilon", 1, *COMMON], "q = 0"),
        (["quantile", "age", "--q", "half", "--epsilon", 1, *COMMON], "write numbers"),
        (["count", "--epsilon", 2, "--budget", 1, *COMMON], "at epsilon = 1.00 it fits"),
        (["count", "--epsilon", 1, "--mechanism", "skellam", *COMMON], "geometric"),
        (["count", "--epsilon", 1, *COMMON, "--name", "a/b"], "name = 'a/b'"),
        (["count", "--epsilon", 1, *COMMON, "--json", "no/file.json"], "there is no folder no"),
        (["count", "--epsilon", 1, *COMMON, "--csv", "no/file.csv"], "--csv no/file.csv: there is"),
        (["mean", "age", "--epsilon", 1e300, *COMMON], "lower epsilon"),
        (["oracle", "sex", "--epsilon", 1e-9, *COMMON], "oracle: epsilon = 1e-09"),
        (["no.toml"], "no.toml does not exist"),
        (["--resume", "nowhere"], "nowhere holds no queries"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else "",
)
def test_mistake_is_one_line_and_leaves_nothing(folder, arguments, message):
    done = zerosum("query", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "runs").exists()


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epsilon = 3.0", "epsilonn = 3.0"), "budget.epsilon"),
        (("clients = 4", "client = 4"), "did you mean"),
        (('kind = "count"', 'kind = "cuont"'), "plan.toml, query 1: kind = 'cuont'"),
        (("epsilon = 1.0\n[[", "eps = 1.0\n[["), "query 1: unknown key eps"),
        (('columns = ["sex"]', 'columns = "sex"'), "histogram: columns"),
        (("epsilon = 3.0", "epsilon = 1.5"), "2 receipts cost 2"),
        (("delta = 1e-3", 'delta = 1e-3\nrule = "all"'), "budget.rule"),
        (("[schema]", "[domains]"), "[schema]"),
        (('where = "age >= 5"', "where = 5"), "where = 5"),
        (("clients = 4", "clients = 4\nclients = 5"), "not valid TOML"),
        (("epsilon = 1.0\n", 'epsilon = 1.0\nname = "x"\n'), "two queries have it"),
        (('kind = "count"', 'kind = "count"\nname = "x"\nattempts = 0'), "attempts = 0"),
    ],
    ids=lambda value: value[1][:30] if isinstance(value, tuple) else "",
)
def test_mistake_in_a_plan_is_one_line_that_names_its_key(folder, change, message):
    (folder / "plan.toml").write_text(PLAN.replace(*change))
    done = zerosum("query", "plan.toml")
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_question_that_does_not_fit_is_told_what_would(folder):
    first = ["query", "count", "--epsilon", 0.94, "--budget", 1, *COMMON, "--out", "q"]
    assert zerosum(*first).exit_code == 0
    again = ["query", "count", "--where", "age >= 5", "--out", "q"]
    done = zerosum(*again, "--epsilon", 0.1)
    assert done.exit_code == 2
    assert done.stderr == (
        "error: this query costs 0.10; 0.06 of 1.00 is left; at epsilon = 0.06 it fits\n"
    )
    assert zerosum(*again, "--epsilon", 0.06).exit_code == 0
    assert zerosum(*again, "--epsilon", 0.06, "--clients", 5).exit_code == 2
    told = zerosum("budget", "q", "--json", "spent.json")
    assert told.exit_code == 0
    spent = json.loads((folder / "spent.json").read_text())
    assert [each["name"] for each in spent["queries"]] == ["count", "count-2"]
    assert spent["left"] == pytest.approx(0, abs=1e-9)


def test_same_question_again_is_free_and_a_fresh_answer_is_not(folder):
    count = ["query", "count", "--epsilon", 0.5]
    assert zerosum(*count, "--budget", 1, *COMMON, "--out", "q").exit_code == 0
    sizes = []
    for fresh in ([], ["--fresh"]):
        done = zerosum(*count, "--out", "q", *fresh)
        assert done.exit_code == 0
        sizes.append(len((folder / "q" / "queries.jsonl").read_text().splitlines()))
    assert sizes == [4, 7]
    assert zerosum(*count, "--out", "q", "--fresh").exit_code == 2


def test_plan_says_each_answer_and_writes_all_of_them(folder):
    done = zerosum("query", "plan.toml", "--out", "q", "--json", "q.json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0] == "plan.toml: 2 queries within epsilon = 3"
    written = json.loads((folder / "q.json").read_text())
    assert [each["name"] for each in written["answers"]] == ["count", "histogram-sex"]
    assert np.shape(written["answers"][1]["std"]) == (3,)
    assert written["budget"]["used"] == pytest.approx(2.0)
    assert zerosum("report", "q").exit_code == 0
    again = zerosum("query", "--resume", "q")
    assert again.exit_code == 0
    assert "epsilon 2 of 3 is spent" in again.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["histogram", "sex", "--by", "age"],
        ["mean", "age"],
        ["sum", "age"],
        ["variance", "age"],
        ["quantile", "age", "--q", ".1", ".5", ".9"],
        ["words", "word", "--top", "3"],
        ["bayes", "sex"],
        ["marginals", "sex,age", "sex"],
        ["oracle", "sex"],
    ],
    ids=lambda words: words[0],
)
def test_every_kind_of_question_is_answered_in_a_sentence(folder, words):
    (folder / "plan.toml").write_text(PLAN.replace("[0, 9]", "[0, 9], bins = 5"))
    done = zerosum("query", *words, "--epsilon", 4, *COMMON, "--out", "q", "--json", "q.json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads((folder / "q.json").read_text())
    assert answer["sentence"] == done.stdout.splitlines()[1]
    assert answer["query"]["kind"] == words[0]
    if words[0] == "quantile":
        assert answer["query"]["q"] == [0.1, 0.5, 0.9]


@pytest.mark.parametrize("words", [["query"], ["query", "count"], ["query", "words"], ["schema"]])
def test_help_fits_into_eighty_columns(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = zerosum(*words, "--help")
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_template_of_a_schema_is_made_of_the_header_alone(folder):
    assert zerosum("schema", "data.csv", "--out", "schema.toml").exit_code == 0
    text = (folder / "schema.toml").read_text()
    assert "word" in text
    assert "abba" not in text
    assert zerosum("schema", "data.csv", "--out", "schema.toml").exit_code == 2
    assert zerosum("schema", "no.csv").exit_code == 2


def test_stored_answers_give_no_time_left(monkeypatch):
    """Of six queries four are stored: the fifth alone says how long one takes."""
    steps = []

    class Bar(ProgressBar):
        def show(self, text, done=None, total=None, left=None, own=True):
            steps.append((done, own))

    entries: list[dict[str, Any]] = [{}] * 4

    def run(said):
        for number in range(1, 7):
            entries.extend([{}] * (number > 4))
            said(SimpleNamespace(sentence=lambda: "an answer"))
        return []

    monkeypatch.setattr(ask_queries, "ProgressBar", Bar)
    monkeypatch.setattr(ask_queries, "_show", lambda *given: None)
    answers = SimpleNamespace(entries=entries)
    federation = SimpleNamespace(folder=None, queries=[None] * 6, answers=answers, run=run)
    ask_queries.run_all(federation, None)  # type: ignore[arg-type]
    assert steps == [(number, number > 4) for number in range(1, 7)]
