"""What a newcomer types: one question of a table, answered in a sentence, and a plan of them."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from zerosum.server.analytics.query_spending import read_spending_of

ADULT = Path("../shared/data/adult.csv")
PLAN = Path("examples/queries/adult.toml")
needs_adult = pytest.mark.skipif(not ADULT.exists(), reason="../shared/data/adult.csv is not there")

RUN = """
import sys
sys.argv = ["zerosum", *{arguments!r}]
{before}
from zerosum.simulations.commands.entry import main
try:
    main()
finally:
    print("loaded:", *[name for name in {names!r} if name in sys.modules])
"""

DYING = """
import os, signal
from zerosum.client.files import durable_append as files
from zerosum.server.analytics import ledger, stored_answers
made = 0

def dying(write):
    def wrapped(*arguments, **named):
        global made
        made += 1
        if made == {last}:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*arguments, **named)
    return wrapped

ledger.append_durably = dying(files.append_durably)
stored_answers.replace_file = dying(files.replace_file)
"""


def zerosum(*arguments: object, before: str = "", folder: Path | None = None):
    names = ("torch", "matplotlib", "sklearn")
    code = RUN.format(arguments=[str(each) for each in arguments], before=before, names=names)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=folder
    )


@pytest.mark.slow
@needs_adult
def test_first_question_is_answered_with_an_interval_and_a_report(tmp_path):
    done = zerosum(
        "query", "count", "--where", "age >= 65", "--epsilon", 0.1, "--schema", PLAN,
        "--data", ADULT, "--clients", 300, "--out", tmp_path / "q", "--json", tmp_path / "q.json",
        "--csv", tmp_path / "q.csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "count where age >= 65: epsilon = 0.1 of 0.1"
    said = re.fullmatch(
        r"Between ([\d,]+) and ([\d,]+) of the 300 clients' records have age at least 65 "
        r"\(95 %\)\.",
        lines[1],
    )
    assert said
    low, high = (int(part.replace(",", "")) for part in said.groups())
    truth = int((pd.read_csv(ADULT)["age"] >= 65).sum())
    assert low - 100 < truth < high + 100  # ten standard errors
    answer = json.loads((tmp_path / "q.json").read_text())
    assert answer["interval"]["low"] == low
    assert answer["std"] == pytest.approx(15.8, abs=0.1)
    assert answer["epsilon"]["sum"]["value"] <= 0.1
    assert answer["budget"]["left"] == pytest.approx(0, abs=1e-9)
    assert (tmp_path / "q.csv").read_text().startswith("value,std,low,high\n")
    assert "have age at least 65" in (tmp_path / "q" / "report.html").read_text()
    assert lines[-1] == "loaded:"  # a client that counts loads no torch


@needs_adult
@pytest.mark.slow
def test_plan_is_answered_within_the_noise_of_the_truth(tmp_path):
    done = zerosum("query", PLAN, "--data", ADULT, "--out", tmp_path / "q")
    assert done.returncode == 0, done.stderr
    entries = json.loads((tmp_path / "q" / "answers.json").read_text())["answers"]
    answers = {entry["name"]: entry for entry in entries}
    data = pd.read_csv(ADULT)
    jobs = answers["jobs"]
    axes = [axis["labels"] for axis in jobs["tables"][0]]
    table = pd.crosstab(data["occupation"], data["sex"])
    table = table.reindex(index=axes[0], columns=axes[1], fill_value=0)
    off = np.abs(np.array(jobs["values"]) - table.to_numpy())
    assert off.max() < 14 * np.max(jobs["std"])
    rich = data[(data["sex"] == "Female") & (data["income"] == ">50K")]
    hours = answers["hours"]
    assert abs(hours["values"] - rich["hr_per_week"].mean()) < 8 * hours["std"]
    ranks = [(data["fnlwgt"] <= value).mean() for value in answers["weights"]["values"]]
    np.testing.assert_allclose(ranks, [0.1, 0.5, 0.9], atol=0.02)


SMALL = """
clients = 4
[budget]
epsilon = 3.0
delta = 1e-3
rule = "plan"
[schema]
word = { text = 4, alphabet = "abc" }
age = { integer = [0, 9] }
[[queries]]
kind = "count"
where = "age >= 5"
epsilon = 1.0
[[queries]]
kind = "words"
column = "word"
epsilon = 2.0
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with a table, a plan, and the answers and budget of a run that nobody killed."""
    folder = tmp_path_factory.mktemp("small")
    rng = np.random.default_rng(0)
    rows = zip(rng.choice(["ab", "abba"], 200), rng.integers(0, 10, 200), strict=True)
    lines = ["word,age", *(f"{word},{age}" for word, age in rows)]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "plan.toml").write_text('data = "data.csv"\n' + SMALL)
    whole = zerosum("query", "plan.toml", "--out", "whole", folder=folder)
    assert whole.returncode == 0, whole.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("last", range(1, 18))
def test_plan_that_is_killed_anywhere_is_resumed_without_paying_twice(small, last):
    out = f"killed-{last}"
    before = DYING.format(last=last)
    killed = zerosum("query", "plan.toml", "--out", out, before=before, folder=small)
    assert killed.returncode == -signal.SIGKILL
    done = zerosum("query", "--resume", out, folder=small)
    assert done.returncode == 0, done.stderr
    for name in ("whole", out):
        assert (small / name / "report.html").exists()
    spent = [read_spending_of(small / name) for name in ("whole", out)]
    assert spent[0] == spent[1]
    answers = [(small / name / "answers.json").read_text() for name in ("whole", out)]
    assert answers[0] == answers[1]
