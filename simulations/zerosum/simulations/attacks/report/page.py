"""Write the report of a suite of attacks: one self-contained page with figures and tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from zerosum.client.files.durable_append import replace_file
from zerosum.server.runs.run_folder import REPORT
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.results import (
    POOLED,
    Directions,
    Row,
    directions,
    shown,
    strongest,
)
from zerosum.simulations.attacks.report import table as table_text
from zerosum.simulations.attacks.report.forest import forests
from zerosum.simulations.attacks.report.matrix import matrix
from zerosum.simulations.attacks.report.multiples import strips
from zerosum.simulations.attacks.report.pictures import curves, roc
from zerosum.simulations.attacks.report.protections import KINDS, Judged, judged
from zerosum.simulations.attacks.report.sentences import findings
from zerosum.simulations.report.html import fill

_STRIPS_SHOWN = 24


def write_attack_report(
    folder: Path,
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    cells: Sequence[Cell],
    notice: str = "",
    about: str = "",
) -> Path:
    """Write ``report.html``, which loads nothing from anywhere.

    Parameters
    ----------
    folder : Path
        It exists.
    rows : sequence of Row
        As :func:`~.results.rows_of` gives them.
    outcomes : sequence of Outcome
        With the units and pictures that rows do not hold.
    cells : sequence of Cell
        What the outcomes' numbers count.
    notice : str
        Of what the page lacks, to stand above everything.
    about : str
        What was attacked, where it is the user's own.

    Returns
    -------
    Path
        The page.
    """
    path = folder / REPORT
    page = render(rows, outcomes, cells, notice, about)
    replace_file(path, page.encode(errors="backslashreplace"))
    return path


def render(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    cells: Sequence[Cell],
    notice: str = "",
    about: str = "",
) -> str:
    """Fill the page.

    Parameters
    ----------
    rows, outcomes, cells, notice, about
        As for :func:`write_attack_report`.

    Returns
    -------
    str
        HTML.
    """
    best = shown(cells, rows)
    attacks = judged(best, cells)
    images = strips(attacks, outcomes, cells)
    kinds, lines = matrix(attacks)
    return fill(
        "zerosum.simulations.attacks.report",
        "attacks.html",
        title="Attacks",
        versions=", ".join(sorted({row.version for row in best})),
        seeds=", ".join(map(str, sorted({outcome.seed for outcome in outcomes}))),
        notice=notice,
        about=about,
        tiles=_tiles(attacks, outcomes),
        findings=findings(best, cells),
        kinds=kinds,
        titles=KINDS,
        lines=lines,
        forests=forests(attacks),
        strips=images[:_STRIPS_SHOWN],
        strips_hidden=len(images[_STRIPS_SHOWN:]),
        text=table_text,
        members=roc(best, outcomes, cells),
        curves=curves(at_each_place(rows, directions(cells)), cells),
        attacks={row.attack: [r for r in best if r.attack == row.attack] for row in best},
        every_row=[row for row in rows if row.seed == POOLED],
    )


def at_each_place(rows: Sequence[Row], higher: Directions) -> list[Row]:
    """Return the strongest at each place of a picture's axis; the table has one for all of them.

    Parameters
    ----------
    rows : sequence of Row
    higher : mapping of (str, str) to bool
        By attack and metric, whether more is a better attack.

    Returns
    -------
    list of Row
    """
    places = dict.fromkeys(row.at for row in rows)
    return [row for at in places for row in strongest([r for r in rows if r.at == at], higher)]


def _tiles(
    attacks: Mapping[str, Sequence[Judged]], outcomes: Sequence[Outcome]
) -> list[tuple[str, str, str]]:
    """Return name, figure and an empty note of each tile."""
    cells = [each for of in attacks.values() for each in of]
    above = sum(each.verdict == "above baseline" for each in cells)
    held = sum(each.stopped for each in cells)
    neither = "too few units or seeds, failed, not applicable"
    return [
        ("Attacks", str(len(attacks)), ""),
        ("Seeds", str(len({outcome.seed for outcome in outcomes})), ""),
        ("Cells", str(len(cells)), "an attack, setting and protection"),
        ("Above baseline", str(above), "something leaks"),
        ("At baseline", str(held), "no more than a guess"),
        ("Neither", str(len(cells) - above - held), neither),
    ]
