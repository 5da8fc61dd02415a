"""Make the files for a paper: each figure, a LaTeX table, and what to cite."""

import re
from collections.abc import Sequence
from typing import Protocol

from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.results import Row, directions, shown
from zerosum.simulations.attacks.report.forest import forests
from zerosum.simulations.attacks.report.latex import to_latex
from zerosum.simulations.attacks.report.multiples import strips
from zerosum.simulations.attacks.report.page import at_each_place
from zerosum.simulations.attacks.report.pictures import curves, roc
from zerosum.simulations.attacks.report.protections import judged
from zerosum.simulations.report.compare_page import reference

LATEX, REFERENCE = "table.tex", "attacks.bib"


class Drawable(Protocol):
    """A figure that can be a file."""

    def file(self, kind: str) -> bytes:
        """Return it as "pdf", "svg" or "png"."""
        ...


def paper_files(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    cells: Sequence[Cell],
    kind: str,
    notice: str = "",
) -> dict[str, bytes]:
    """Return the files, by name.

    Parameters
    ----------
    rows : sequence of Row
        As :func:`~.results.rows_of` gives them.
    outcomes : sequence of Outcome
    cells : sequence of Cell
    kind : str
        Of the figures: "pdf", "svg" or "png".
    notice : str
        Of what the table lacks.

    Returns
    -------
    dict of str to bytes
        The same for the same rows and outcomes.
    """
    best = shown(cells, rows)
    attacks = judged(best, cells)
    figures: list[tuple[str, Drawable]] = [
        (f"forest-{each.attack}", each) for each in forests(attacks)
    ]
    figures += [(f"images-{each.attack}", each) for each in strips(attacks, outcomes, cells)]
    drawings = [
        *roc(best, outcomes, cells),
        *curves(at_each_place(rows, directions(cells)), cells),
    ]
    figures += [(each.name, each) for each in drawings]
    files: dict[str, bytes] = {}
    for name, figure in figures:
        files[_free(name, kind, files)] = figure.file(kind)
    files[LATEX] = to_latex(best, notice).encode(errors="backslashreplace")
    files[REFERENCE] = reference()
    return files


def _free(name: str, kind: str, taken: dict[str, bytes]) -> str:
    """Return a file name that no other figure has, whatever an attack is called."""
    stem = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")[:80]
    number, free = 1, f"{stem}.{kind}"
    while free in taken:
        number, free = number + 1, f"{stem}-{number + 1}.{kind}"
    return free
