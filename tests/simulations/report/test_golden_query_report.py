"""The report of a folder of queries keeps its words and its figures.

``tests/vectors/report/queries`` is a folder of every kind of query, one of them given up, one
refused and one not asked; ``queries.txt`` beside it is the text of its page. Where a change of
words is wanted, read the difference and write the text anew, with tests/common in PYTHONPATH:
``python tests/simulations/report/test_golden_query_report.py``; with ``--folder`` the folder, too.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_pages import text_of

from zerosum.analytics import (
    BudgetExceeded,
    Draft,
    Federation,
    QueryAbandoned,
    bayes,
    count,
    histogram,
    marginals,
    mean,
    quantile,
    variance,
    words,
)
from zerosum.analytics import sum as total
from zerosum.server.analytics.query_files import ANSWERS, QUERIES, QUERY_LEDGER, REFUSED
from zerosum.server.private_sum.coordinator import Coordinator, RoundAbandoned
from zerosum.server.private_sum.transport import Traffic
from zerosum.simulations.report.queries import write_query_report

GOLDEN = Path(__file__).parents[2] / "vectors" / "report" / "queries.txt"
FILES = (ANSWERS, QUERIES, QUERY_LEDGER, REFUSED)
ASKED = [
    count(epsilon=0.1, where="age >= 5"),
    histogram("age", epsilon=0.2),
    histogram("sex", by="town", epsilon=0.2),
    mean("pay", epsilon=0.5),
    total("pay", epsilon=0.5),
    variance("age", epsilon=0.5),
    quantile("age", [0.25, 0.5], epsilon=1.0),
    words("word", epsilon=4.0),
    bayes("sex", ["age"], epsilon=0.5),
    marginals([["sex"], ["town", "sex"]], epsilon=0.5),
    mean("pay", epsilon=0.1, where='age = 0 and sex = "F"', name="few"),
]


def report_text(folder: Path) -> str:
    """Return the text of the report of a copy of the golden folder."""
    copy = folder / "queries"
    copy.mkdir()
    for name in FILES:
        shutil.copy(GOLDEN.with_suffix("") / name, copy)
    return text_of(write_query_report(copy).read_text(encoding="utf-8"))


def test_report_of_queries_keeps_text_and_figures(tmp_path: Path) -> None:
    assert report_text(tmp_path) == GOLDEN.read_text(encoding="utf-8")


def make_folder(folder: Path) -> None:
    """Ask a simulated federation, and keep what the page is made of."""
    rng, rows = np.random.default_rng(5), 600
    data: dict[str, Any] = {
        "age": [*map(int, rng.integers(1, 10, rows))],
        "pay": [*map(float, rng.uniform(0, 10, rows))],
        "sex": [*rng.choice(["F", "M"], rows)],
        "town": [*rng.choice(["north", "south", "west"], rows)],
        "word": [*rng.choice(["ab", "abba", "c"], rows, p=[0.6, 0.3, 0.1])],
    }
    schema = {
        "word": {"text": 4, "alphabet": "abc"},
        "age": {"integer": [0, 9]},
        "pay": {"number": [0.0, 10.0], "bins": 5},
        "sex": ["F", "M"],
        "town": ["north", "south", "west"],
    }
    settings: dict[str, Any] = {"clients": 40, "budget": 9.0, "dropout": 0.1, "out": folder}
    with Federation.simulate(data, schema=schema, **settings) as f:
        for draft in ASKED:
            f.ask(draft)
        given_up(f, count(epsilon=0.3, where="age >= 8", name="late"))
        with pytest.raises(BudgetExceeded):
            f.ask(count(epsilon=5.0, name="dear"))
    plan = (folder / QUERIES).read_text(encoding="utf-8")
    plan += '\n[[queries]]\nkind = "count"\nepsilon = 0.05\nname = "next"\n'
    (folder / QUERIES).write_text(plan, encoding="utf-8")


def given_up(f: Federation, draft: Draft) -> None:
    """Ask what is given up after its sum was charged."""
    opened = Coordinator.private_sum

    def lost(*args: Any, **named: Any) -> Any:
        opened(*args, **named)
        raise RoundAbandoned("29 survivors, 33 needed", Traffic())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Coordinator, "private_sum", lost)
        with pytest.raises(QueryAbandoned):
            f.ask(draft)


def write_vectors(folder: Path) -> None:
    """Write the golden folder anew, in few lines."""
    make_folder(folder)
    kept = GOLDEN.with_suffix("")
    kept.mkdir(exist_ok=True)
    for name in FILES:
        shutil.copy(folder / name, kept)
    answers = json.loads((kept / ANSWERS).read_text(encoding="utf-8"))
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in answers["answers"])
    text = f'{{"format": {answers["format"]}, "answers": [\n{lines}\n]}}\n'
    (kept / ANSWERS).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        if "--folder" in sys.argv:
            write_vectors(Path(made) / "q")
        GOLDEN.write_text(report_text(Path(made)), encoding="utf-8")
