"""Write the report of a suite of attacks: one self-contained page with figures and tables."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

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
from zerosum.simulations.attacks.report.pictures import curves, key_of, keys_of, roc
from zerosum.simulations.report.html import fill
from zerosum.simulations.report.images import png_of

_GRIDS_SHOWN = 24
_PAIRS_SHOWN = 8
_GAP_PIXELS = 2
_SIDE_PIXELS = 640
_ENLARGED = 3


def write_attack_report(
    folder: Path,
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    cells: Sequence[Cell],
    notice: str = "",
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

    Returns
    -------
    Path
        The page.
    """
    path = folder / REPORT
    page = render(rows, outcomes, cells, notice)
    replace_file(path, page.encode(errors="backslashreplace"))
    return path


def render(
    rows: Sequence[Row], outcomes: Sequence[Outcome], cells: Sequence[Cell], notice: str = ""
) -> str:
    """Fill the page.

    Parameters
    ----------
    rows, outcomes, cells, notice
        As for :func:`write_attack_report`.

    Returns
    -------
    str
        HTML.
    """
    best = shown(cells, rows)
    grids = _grids(best, outcomes, cells)
    return fill(
        "zerosum.simulations.attacks.report",
        "attacks.html",
        title="Attacks",
        versions=", ".join(sorted({row.version for row in best})),
        seeds=", ".join(map(str, sorted({outcome.seed for outcome in outcomes}))),
        notice=notice,
        tiles=_tiles(best, outcomes, cells),
        grids=grids[:_GRIDS_SHOWN],
        grids_hidden=len(grids[_GRIDS_SHOWN:]),
        text=table_text,
        members=roc(best, outcomes, cells),
        curves=curves(_at_each_place(rows, directions(cells)), cells),
        attacks={row.attack: [r for r in best if r.attack == row.attack] for row in best},
        every_row=[row for row in rows if row.seed == POOLED],
    )


def _at_each_place(rows: Sequence[Row], higher: Directions) -> list[Row]:
    """Return the strongest at each place of a picture's axis; the table has one for all of them."""
    places = dict.fromkeys(row.at for row in rows)
    return [row for at in places for row in strongest([r for r in rows if r.at == at], higher)]


def _tiles(
    best: Sequence[Row], outcomes: Sequence[Outcome], cells: Sequence[Cell]
) -> list[tuple[str, str, str]]:
    """Return name, figure and an empty note of each tile."""
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    return [
        ("Attacks", str(len({cell.attack.name for cell in cells})), ""),
        ("Cells", str(len(cells)), ""),
        ("Seeds", str(len({outcome.seed for outcome in outcomes})), ""),
        ("Figures at baseline", f"{sum(map(_held, best))} of {len(best)}", ""),
        ("Plays that failed", str(failed), ""),
    ]


def _held(row: Row) -> bool:
    return (row.at_baseline and not row.too_few) or row.status == "stopped"


def _grids(
    best: Sequence[Row], outcomes: Sequence[Outcome], cells: Sequence[Cell]
) -> list[tuple[Row, str]]:
    """Draw each cell that has reconstructions, of its first seed: PNGs as addresses."""
    numbers = keys_of(cells)
    rows = {numbers[key_of(row)]: row for row in reversed(best)}  # of each cell its first metric's
    pairs: dict[int, np.ndarray] = {}
    for outcome in outcomes:
        if outcome.number in rows and len(outcome.pictures.get("reconstruction", ())):
            pairs.setdefault(outcome.number, outcome.pictures["reconstruction"])
    return [
        (rows[number], png_of(grid_of(pairs[number][:_PAIRS_SHOWN]), _SIDE_PIXELS))
        for number in sorted(pairs)
    ]


def grid_of(pairs: np.ndarray) -> np.ndarray:
    """Return pairs of images, shape (k, 2, h, w) in [0, 1], as one image, uint8: truth above."""
    known = np.nan_to_num(np.asarray(pairs, dtype=np.float64), nan=0.5)
    images = np.round(np.clip(known, 0, 1) * 255).astype(np.uint8)
    around = ((0, 0), (0, 0), (_GAP_PIXELS, _GAP_PIXELS), (_GAP_PIXELS, _GAP_PIXELS))
    bordered = np.pad(
        images.repeat(_ENLARGED, axis=2).repeat(_ENLARGED, axis=3), around, constant_values=128
    )
    return np.concatenate(np.concatenate(bordered, axis=2), axis=0)
