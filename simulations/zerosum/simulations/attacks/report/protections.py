"""Sort protections: by kind, and within a kind from the weakest to the strongest."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from zerosum.simulations.attacks.harness.interface import OF_THE_RUN, Defense
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.results import Row, Verdict

Kind = Literal["none", "clip", "masks", "local", "sum", "rule", "other"]

KINDS: Mapping[Kind, str] = {
    "none": "No protection",
    "clip": "Clip alone",
    "masks": "Masks",
    "local": "Local noise",
    "sum": "Noise in the sum",
    "rule": "Server's rule",
    "other": "Other",
}
"""Columns of the matrix, in its order."""

UNPROTECTED = ("plain", "none", "no protection", "unprotected", f"{OF_THE_RUN}plain")
"""Names of protections that are none. By its fields alone, rounding would be none either."""

_SAID_BY_THE_COLUMN: Mapping[Kind, tuple[str, ...]] = {
    "none": UNPROTECTED,
    "clip": ("clip",),
    "masks": ("masked",),
    "local": ("local noise",),
    "sum": ("masked + distributed noise", "masked + geometric,", "distributed noise"),
    "rule": (),
    "other": (),
}
"""Beginnings of names that a column's heading says already."""

Key = tuple[str, str, str, str]
"""Attack, adaptive, setting, protection: which cell a row is of."""


def key_of(row: Row) -> Key:
    """Return which cell a row is of."""
    return row.attack, row.adaptive, row.setting, row.protection


def keys_of(cells: Sequence[Cell]) -> dict[Key, int]:
    """Return the number of each cell."""
    return {
        (c.attack.name, c.attack.adaptive, c.case.setting.name, c.case.protection.name): number
        for number, c in enumerate(cells)
    }


@dataclass(frozen=True)
class Judged:
    """What an attack shows in one setting against one protection.

    Attributes
    ----------
    row : Row
        Of the strongest attacker and the attack's first metric; where that is not above its
        baseline and another one is, of the other that is furthest above its own.
    first : Row
        The same of the attack's first metric.
    defense : Defense
    verdict : str
        The row's; "failed" where it is at baseline and an attacker beside it failed. A blurred
        update whose image is still seen is no protection.
    share : float
        Part of the way from the baseline to complete success, from 0 to 1; 0 unless above it.
    differs : str
        What of the setting's name tells it from the attack's other settings.
    control : bool
        Whether there is nothing to be learnt in its setting, whatever the protection.
    released : str
        What a sentence calls the model of a user's run that is attacked; empty for any other.
    """

    row: Row
    first: Row
    defense: Defense
    verdict: Verdict
    share: float
    differs: str
    control: bool = False
    released: str = ""

    @property
    def kind(self) -> Kind:
        """Return the column of the matrix."""
        return kind_of(self.defense)

    @property
    def beside(self) -> bool:
        """Return whether another metric than the attack's first is above its baseline alone."""
        return self.verdict == "above baseline" and self.row.metric != self.first.metric

    @property
    def stopped(self) -> bool:
        """Return whether the attack is at its baseline, in seeds enough to say so."""
        return self.verdict == "at baseline" and not self.row.few_seeds

    @property
    def undecided(self) -> bool:
        """Return whether more seeds might tell if the protection stops the attack."""
        return self.verdict == "too few units" or (
            self.verdict == "at baseline" and self.row.few_seeds
        )

    @property
    def label(self) -> str:
        """Return what tells the cell from others of its column and attack; may be empty."""
        name = self.row.protection.removeprefix(OF_THE_RUN)
        for said in _SAID_BY_THE_COLUMN[self.kind]:
            if name == said or name.startswith(f"{said} " if said[-1] != "," else said):
                name = name[len(said) :].strip(" ,+")
                break
        return ", ".join(part for part in (name, self.differs) if part)

    @property
    def place(self) -> tuple[int, float, float]:
        """Return the order: kinds, then less and less epsilon, then more and more noise."""
        row = self.row
        epsilon = math.inf if row.epsilon is None else row.epsilon
        return [*KINDS].index(self.kind), -epsilon, self.defense.sigma

    @property
    def series(self) -> tuple[object, ...]:
        """Return all that protections of one series share, which differ in their noise alone."""
        free = ("name", "sigma", "epsilon")
        known = ((each.name, getattr(self.defense, each.name)) for each in fields(self.defense))
        return type(self.defense), *(each for each in known if each[0] not in free)


def kind_of(defense: Defense) -> Kind:
    """Return the column of the matrix that a protection belongs to.

    Parameters
    ----------
    defense : Defense

    Returns
    -------
    str
        A key of :data:`KINDS`.
    """
    if defense.rule != "mean":
        return "rule"
    if defense.noise != "none":
        return "local" if defense.noise == "local" else "sum"
    if defense.masked:
        return "masks"
    if defense.name in UNPROTECTED:
        return "none"
    return "clip" if defense.clip is not None else "other"


def judged(shown: Sequence[Row], cells: Sequence[Cell]) -> dict[str, list[Judged]]:
    """Return, by attack, its cells in the order of the matrix.

    Parameters
    ----------
    shown : sequence of Row
        The strongest of each cell, pooled: all metrics.
    cells : sequence of Cell

    Returns
    -------
    dict of str to list of Judged
    """
    of_keys = {key: cells[number] for key, number in keys_of(cells).items()}
    found: dict[str, list[Judged]] = {}
    for attack in dict.fromkeys(row.attack for row in shown):
        rows = [row for row in shown if row.attack == attack]
        differing = differences({row.setting for row in rows})
        together: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            together.setdefault((row.setting, row.protection), []).append(row)
        judgements = [
            _judge(of, of_keys[key_of(of[0])], rows, differing[of[0].setting])
            for of in together.values()
        ]
        found[attack] = sorted(judgements, key=lambda each: (each.control, each.place))
    return found


def _judge(of: Sequence[Row], cell: Cell, rows: Sequence[Row], differs: str) -> Judged:
    """Judge one cell, of which the strongest attacker's rows come first, then failed attackers'."""
    defense, setting = cell.case.protection, cell.case.setting
    control = bool(getattr(setting, "control", False))
    released = str(getattr(setting, "released", ""))
    counting = {metric.name for metric in cell.attack.metrics if metric.counts}
    own = [row for row in of if row.adaptive == of[0].adaptive]
    own = [row for row in own if row is own[0] or row.metric in counting]
    above = {
        row.metric: _share(row, max(_gain(r) for r in rows if r.metric == row.metric))
        for row in own
        if row.verdict == "above baseline"
    }
    if above:
        metric = own[0].metric if own[0].metric in above else max(above, key=lambda m: above[m])
        row = next(row for row in own if row.metric == metric)
        return Judged(
            row, own[0], defense, "above baseline", above[metric], differs, control, released
        )
    failed = any(row.verdict == "failed" for row in of)
    verdict = "failed" if failed else own[0].verdict
    return Judged(own[0], own[0], defense, verdict, 0.0, differs, control, released)


def _gain(row: Row) -> float:
    if row.value is None or row.baseline is None or row.too_few:
        return 0.0
    if not math.isfinite(row.value - row.baseline):
        return 0.0
    return abs(row.value - row.baseline)


def _share(row: Row, largest: float) -> float:
    if row.advantage is not None:
        return row.advantage
    return _gain(row) / largest if largest else 1.0


def differences(settings: Iterable[str]) -> dict[str, str]:
    """Return what tells each of several names apart: its parts that not all of them have.

    Parameters
    ----------
    settings : iterable of str
        Parts are separated by commas.

    Returns
    -------
    dict of str to str
        Empty text where there is one name alone.
    """
    parts = {setting: re.split(r",\s+", setting) for setting in settings}
    common = set.intersection(*map(set, parts.values())) if parts else set()
    return {
        setting: ", ".join(part for part in of if part not in common)
        for setting, of in sorted(parts.items())
    }
