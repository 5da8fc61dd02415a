"""Lay out the matrix of attack by protection, coloured by advantage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zerosum.simulations.attacks.harness.results import Verdict
from zerosum.simulations.attacks.report.protections import KINDS, Judged, Kind
from zerosum.simulations.attacks.report.table import (
    baseline_text,
    epsilon_text,
    figure_text,
    seeds_text,
    threats_text,
    value_text,
)

STEPS = (0.1, 1 / 3, 2 / 3)
"""Shares of the way to complete success at which the colours change."""

_CLASSES: Mapping[Verdict, str] = {
    "at baseline": "held",
    "not applicable": "na",
    "failed": "failed",
    "not played": "unplayed",
}


@dataclass(frozen=True)
class Chip:
    """One cell's figure.

    Attributes
    ----------
    label, text : str
        What it is of, and the figure or why there is none.
    style : str
        Class of its colours.
    says : str
        All that is known of it, in a line.
    """

    label: str
    text: str
    style: str
    says: str


@dataclass(frozen=True)
class Line:
    """One attack: chips by kind of protection, weak ones first; figures are of its first metric."""

    attack: str
    threat: str
    metric: str
    chips: Mapping[Kind, Sequence[Chip]]


def matrix(attacks: Mapping[str, Sequence[Judged]]) -> tuple[list[Kind], list[Line]]:
    """Return the kinds of protection that were played, and a line for each attack.

    Parameters
    ----------
    attacks : mapping of str to sequence of Judged
        As :func:`~.protections.judged` returns them.

    Returns
    -------
    kinds : list of str
        Keys of :data:`~.protections.KINDS`, in its order.
    lines : list of Line
    """
    played = {each.kind for of in attacks.values() for each in of}
    kinds = [kind for kind in KINDS if kind in played]
    lines = [
        Line(
            attack,
            threats_text([each.row for each in of]),
            of[0].first.metric,
            {kind: [chip_of(each) for each in of if each.kind == kind] for kind in kinds},
        )
        for attack, of in attacks.items()
    ]
    return kinds, lines


def chip_of(each: Judged) -> Chip:
    """Return the chip of one cell.

    Parameters
    ----------
    each : Judged

    Returns
    -------
    Chip
        Without a figure unless it is above its baseline.
    """
    row = each.row
    says = (
        f"{row.setting}, {row.protection}: {row.metric} {figure_text(row)}; baseline "
        f"{baseline_text(row)}; epsilon {epsilon_text(row)}"
    )
    return Chip(each.label, said_of(each), style_of(each), says)


def said_of(each: Judged) -> str:
    """Return the figure that is above its baseline, named unless it is the attack's first."""
    if each.verdict != "above baseline":
        of = f" in {seeds_text(each.row)}" if each.row.few_seeds else ""
        return f"{each.verdict}{of}"
    other = "" if each.row.metric == each.first.metric else f"{each.row.metric} "
    return other + value_text(each.row)


def style_of(each: Judged) -> str:
    """Return the class of a cell's colours: of four steps where it is above its baseline."""
    if each.verdict == "above baseline":
        return f"adv-{1 + sum(each.share >= step for step in STEPS)}"
    if each.undecided:
        return "few"
    return _CLASSES.get(each.verdict, "failed")  # partly played: no figure hides what is missing
