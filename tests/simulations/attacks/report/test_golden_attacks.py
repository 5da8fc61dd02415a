"""The report of attacks keeps its words and its figures.

``tests/vectors/report/attacks.txt`` is the text of the page of a small suite, a line an element,
with what each figure shows. Where a change of words is wanted, read the difference and write the
text anew: ``python tests/simulations/attacks/report/test_golden_attacks.py``, with tests/common in
PYTHONPATH.
"""

import re
from pathlib import Path

import numpy as np
from attack_rows import CLIP, MASKED, PLAIN, Played, distributed, local, suite
from report_pages import text_of

from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.report.page import render

GOLDEN = Path(__file__).parents[3] / "vectors" / "report" / "attacks.txt"

PICTURES = {"reconstruction": np.linspace(0, 1, 2 * 2 * 36).reshape(2, 2, 6, 6)}

PLAYED = (
    Played(PLAIN),
    Played(CLIP, figure=130.0),
    Played(MASKED, clients=10, figure=72.0),
    Played(MASKED, clients=50, figure=12.0),
    Played(local(0.01), figure=26.0, epsilon=20_900),
    Played(local(0.1), figure=12.0, epsilon=285),
    Played(distributed(0.01), clients=10, figure=None, status="failed"),
    Played(distributed(0.1), clients=10, figure=None, status="not applicable"),
    Played(distributed(1.0), clients=10, units=2, epsilon=5),
)


def report_text() -> str:
    """Return the text of the page, without the version."""
    cells, outcomes = suite(*PLAYED, pictures=PICTURES)
    page = render(rows_of(cells, outcomes), outcomes, cells, "Incomplete: some are missing.")
    return re.sub(r"zerosum \d\S*", "zerosum VERSION", text_of(page))


def test_report_of_attacks_keeps_text_and_figures() -> None:
    assert report_text() == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(report_text(), encoding="utf-8")
