"""The report of a suite of attacks: one self-contained page, the pictures and the whole table."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zerosum.client.files.durable_append import replace_file
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.results import (
    POOLED,
    Directions,
    Row,
    directions,
    shown,
    strongest,
)
from zerosum.simulations.attacks.report.pictures import curves, key_of, keys_of, roc
from zerosum.simulations.attacks.report.table import (
    attacker_text,
    baseline_text,
    count_text,
    epsilon_text,
    figure_text,
    threats_text,
)
from zerosum.simulations.report.drawing import png_of
from zerosum.simulations.report.frame import details, framed, plots
from zerosum.simulations.report.html import Html, join, table, tag

REPORT = "report.html"

_GRIDS = 24
_IMAGES = 8
_GAP = 2
_SIDE = 640
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
) -> Html:
    """Return the page; see :func:`write_attack_report`."""
    best = shown(cells, rows)
    return framed(
        "Attacks",
        _opening(best, outcomes, cells, notice),
        _reconstructions(best, outcomes, cells),
        plots("Who is found", roc(best, outcomes, cells)),
        plots("What protects how much", curves(_at_each_place(rows, directions(cells)), cells)),
        _tables(best),
        _all_rows(rows),
    )


def _at_each_place(rows: Sequence[Row], higher: Directions) -> list[Row]:
    """Return the strongest at each place of a picture's axis; the table has one for all of them."""
    places = dict.fromkeys(row.at for row in rows)
    return [row for at in places for row in strongest([r for r in rows if r.at == at], higher)]


def _opening(
    best: Sequence[Row], outcomes: Sequence[Outcome], cells: Sequence[Cell], notice: str
) -> Html:
    seeds = sorted({outcome.seed for outcome in outcomes})
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    versions = ", ".join(sorted({row.version for row in best}))
    tiles = (
        ("Attacks", str(len({cell.attack.name for cell in cells}))),
        ("Cells", str(len(cells))),
        ("Seeds", str(len(seeds))),
        ("Figures at baseline", f"{sum(map(_held, best))} of {len(best)}"),
        ("Plays that failed", str(failed)),
    )
    return tag(
        "header",
        tag("p", f"zerosum {versions} · seeds {', '.join(map(str, seeds))}", class_="muted"),
        tag("h1", "What attacks learn, and what stops them"),
        tag("p", tag("strong", notice), class_="lead") if notice else "",
        tag(
            "p",
            "Each figure stands beside that of a guess made without what is attacked, its "
            "baseline, and the epsilon in force. Where it is not significantly better than that "
            "it is shown as at baseline. Of attackers that share a name the strongest is shown.",
            class_="lead",
        ),
        tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in tiles), class_="tiles"),
    )


def _held(row: Row) -> bool:
    return (row.at_baseline and not row.too_few) or row.status == "stopped"


def _reconstructions(
    best: Sequence[Row], outcomes: Sequence[Outcome], cells: Sequence[Cell]
) -> Html:
    numbers = keys_of(cells)
    rows = {numbers[key_of(row)]: row for row in reversed(best)}  # of each cell its first metric's
    shown: dict[int, np.ndarray] = {}
    for outcome in outcomes:
        if outcome.number in rows and len(outcome.pictures.get("reconstruction", ())):
            shown.setdefault(outcome.number, outcome.pictures["reconstruction"])
    if not shown:
        return Html()
    hidden = len(shown) - _GRIDS
    note = f" {hidden} more cells have images that are not shown." if hidden > 0 else ""
    grids = [_grid(rows[number], shown[number]) for number in sorted(shown)[:_GRIDS]]
    return tag(
        "section",
        tag("h2", "What is reconstructed"),
        tag("p", f"Above the true image, below the guess; of one seed.{note}", class_="muted"),
        tag("div", *grids, class_="plots"),
    )


def _grid(row: Row, pairs: np.ndarray) -> Html:
    said = f"{row.metric} {figure_text(row)}, baseline {baseline_text(row)}"
    holds = f"At epsilon {epsilon_text(row)}, as the ledger says, against: {row.threat}."
    return tag(
        "figure",
        tag("h3", f"{row.attack}: {row.protection}"),
        tag(
            "img",
            src=png_of(grid_of(pairs[:_IMAGES]), _SIDE),
            alt=f"True images above, guesses below: {row.setting}, {row.protection}",
            style="width:100%;image-rendering:pixelated",
        ),
        tag("figcaption", f"{row.setting}. {said}. {holds}"),
        class_="plot",
    )


def grid_of(pairs: np.ndarray) -> np.ndarray:
    """Return pairs of images, shape (k, 2, h, w) in [0, 1], as one image, uint8: truth above."""
    known = np.nan_to_num(np.asarray(pairs, dtype=np.float64), nan=0.5)
    images = np.round(np.clip(known, 0, 1) * 255).astype(np.uint8)
    around = ((0, 0), (0, 0), (_GAP, _GAP), (_GAP, _GAP))
    bordered = np.pad(
        images.repeat(_ENLARGED, axis=2).repeat(_ENLARGED, axis=3), around, constant_values=128
    )
    return np.concatenate(np.concatenate(bordered, axis=2), axis=0)


def _tables(best: Sequence[Row]) -> Html:
    attacks = dict.fromkeys(row.attack for row in best)
    parts = [_table([row for row in best if row.attack == attack]) for attack in attacks]
    return tag("section", tag("h2", "Every attack against every protection"), *parts)


def _table(rows: Sequence[Row]) -> Html:
    headers = ("Setting", "Protection", "Metric", "Figure [95 %]", "Units", "Baseline",
               "Epsilon", "Attacker")  # fmt: skip
    lines = [
        (row.setting, row.protection, row.metric, figure_text(row), count_text(row),
         baseline_text(row), epsilon_text(row), attacker_text(row, rows))
        for row in rows
    ]  # fmt: skip
    deltas = sorted({row.delta for row in rows if row.epsilon is not None})
    at = f" Epsilons at delta {', '.join(f'{delta:g}' for delta in deltas)}." if deltas else ""
    said = dict.fromkeys(row.note for row in rows if row.note and row.status == "value")
    return join(
        [
            tag("h3", rows[0].attack),
            tag("p", f"Threat: {threats_text(rows)}.{at}", class_="muted"),
            table(headers, lines, class_="stacked"),
            *(tag("p", note, class_="muted") for note in said),
        ]
    )


def _all_rows(rows: Sequence[Row]) -> Html:
    """Return every attacker of every cell, the weaker ones too."""
    headers = ("Attack", "Attacker", "Setting", "Protection", "Metric", "Figure [95 %]",
               "CPU seconds")  # fmt: skip
    lines = [
        (row.attack, row.adaptive, row.setting, row.protection, row.metric, figure_text(row),
         f"{row.cpu_seconds:.2f}")
        for row in rows
        if row.seed == POOLED
    ]  # fmt: skip
    content = tag("div", table(headers, lines), class_="scroll")
    return details("Every attacker, the weaker ones too", content)
