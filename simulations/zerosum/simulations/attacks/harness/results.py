"""Turn outcomes into rows: one for each seed and metric, and one of all seeds pooled."""

import csv
import io
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from typing import Literal, cast

from zerosum.client.task import error_line
from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.harness.interface import Metric
from zerosum.simulations.attacks.harness.metrics import Mean, Units
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.significance import is_above

log = logging.getLogger("zerosum.simulations")

ENOUGH = 3
"""Units below which a row says nothing: 2 of 2 against 0 of 2 is chance in 1 of 16.

One rule for table, pages, sentences and files, also where a test would call two units significant.
"""

ENOUGH_SEEDS = 3
"""Seeds below which nothing is said to stop an attack: the units of one scene share its luck."""

Verdict = Literal[
    "above baseline",
    "at baseline",
    "too few units",
    "not applicable",
    "failed",
    "not played",
    "partly not applicable",
    "partly failed",
    "partly not played",
]
"""What a row says. A partly played cell that is not above its baseline says neither."""

PARTLY = "partly "
"""Before the status of a cell whose seeds ended in different ways."""

POOLED = "pooled"
"""In the column of seeds: the figure of all of them."""


@dataclass(frozen=True)
class Row:
    """One line of ``results.csv``.

    Attributes
    ----------
    attack, adaptive, setting, protection : str
        The cell; ``adaptive`` is what the attacker uses of what it knows.
    threat : str
        Whom the view was of; where there was none, who attacks.
    metric, unit : str
    value, low, high : float or None
        With the interval that holds it with 95 %; None where there is no value.
    count : int
        Units that it is of.
    baseline : float or None
        The same figure of a guess without what is attacked.
    at_baseline : bool
        Whether there is a value, of enough units, that is not significantly better: see
        :mod:`~.significance`.
    epsilon, delta : float or None
        What the ledger says; infinite without noise, None where no epsilon could be meant.
    cpu_seconds : float
    seed : str
    version : str
        Of zerosum.
    status, note : str
    at : str
        JSON: where the cell lies on the axes of pictures.
    advantage : float or None
        The part of the way from the baseline to complete success, from 0 to 1; None where nothing
        says what that is: see :class:`~.interface.Metric`.
    seeds : int
        Seeds that the figure is of; 0 where that is not known.
    """

    attack: str
    adaptive: str
    setting: str
    protection: str
    threat: str
    metric: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    count: int
    baseline: float | None
    at_baseline: bool
    epsilon: float | None
    delta: float
    cpu_seconds: float
    seed: str
    version: str
    status: str
    note: str
    at: str
    advantage: float | None = None
    seeds: int = 0

    def __repr__(self) -> str:
        """Return the cell and its figure: with all else, a list of rows is pages."""
        cell = ", ".join(map(repr, (self.attack, self.setting, self.protection, self.metric)))
        return f"Row({cell}, value={self.value}, baseline={self.baseline}, seed={self.seed!r})"

    @property
    def too_few(self) -> bool:
        """Return whether there is a figure, of fewer units than say something."""
        return self.value is not None and self.status != "stopped" and self.count < ENOUGH

    @property
    def few_seeds(self) -> bool:
        """Return whether the row is at its baseline in too few seeds to call the attack stopped.

        What a protection refuses to answer, it refuses with every seed.
        """
        held = self.seed == POOLED and self.status != "stopped" and self.verdict == "at baseline"
        return held and 0 < self.seeds < ENOUGH_SEEDS

    @property
    def verdict(self) -> Verdict:
        """Return what the row says, of which table, pages, sentences and files all speak."""
        if self.too_few:
            return "too few units"
        if self.value is not None and not (self.at_baseline or self.status == "stopped"):
            return "above baseline"
        if self.status in ("value", "stopped", f"{PARTLY}stopped"):
            return "at baseline"
        return cast(Verdict, self.status)


def rows_of(cells: Sequence[Cell], outcomes: Sequence[Outcome]) -> list[Row]:
    """Return the rows of all cells: for each metric the seeds' and, after them, the pooled one.

    Parameters
    ----------
    cells : sequence of Cell
    outcomes : sequence of Outcome
        Of the cells, by number.

    Returns
    -------
    list of Row
    """
    by_cell: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        by_cell.setdefault(outcome.number, []).append(outcome)
    return [
        row
        for number, of_cell in sorted(by_cell.items())
        for metric in cells[number].attack.metrics
        for row in _rows(cells[number], metric, of_cell)
    ]


def _rows(cell: Cell, metric: Metric, outcomes: Sequence[Outcome]) -> Iterable[Row]:
    for outcome in outcomes:
        yield _row(cell, metric, [outcome], str(outcome.seed))
    yield _row(cell, metric, outcomes, POOLED)


def _row(cell: Cell, metric: Metric, outcomes: Sequence[Outcome], seed: str) -> Row:
    try:
        figures = _Figures.of(cell, metric, outcomes, seed)
        status, note = _status(outcomes), _note(outcomes)
    except Exception as error:  # of units whose class is an attack's own: other cells have rows
        log.exception("%s, seed %s: no figure", cell.label, seed)
        figures, status, note = _Figures(), "failed", f"no figure: {error_line(error)}"
    epsilons = [outcome.epsilon for outcome in outcomes if outcome.epsilon is not None]
    case = cell.case
    return Row(
        attack=cell.attack.name,
        adaptive=cell.attack.adaptive,
        setting=case.setting.name,
        protection=case.protection.name,
        threat=str(next((o.threat for o in outcomes if o.threat), cell.attack.threat)),
        metric=metric.name,
        unit=metric.unit,
        value=figures.value,
        low=figures.low,
        high=figures.high,
        count=figures.count,
        baseline=figures.baseline,
        at_baseline=figures.at_baseline,
        epsilon=max(epsilons) if epsilons else None,
        delta=max((outcome.delta for outcome in outcomes), default=0.0),
        cpu_seconds=sum(outcome.cpu_seconds for outcome in outcomes),
        seed=seed,
        version=version("zerosum"),
        status=status,
        note=note,
        at=json.dumps(dict(case.at), sort_keys=True),
        advantage=figures.advantage,
        seeds=figures.seeds,
    )


@dataclass(frozen=True)
class _Figures:
    """Figures of a row's units; empty where there are none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0
    baseline: float | None = None
    at_baseline: bool = False
    advantage: float | None = None
    seeds: int = 0

    @classmethod
    def of(cls, cell: Cell, metric: Metric, outcomes: Sequence[Outcome], seed: str) -> "_Figures":
        """Compute them of all outcomes that were scored."""
        scored = [outcome for outcome in outcomes if metric.name in outcome.units]
        if not scored:
            return cls()
        rng = numpy_generator(0, f"interval {cell.label} {metric.name} {seed}")
        guesses = [each.units[metric.name] for each in scored]
        blind = [each.baseline[metric.name] for each in scored]
        units = guesses[0].pooled(guesses[1:])
        figure = units.figure()
        base = blind[0].pooled(blind[1:]).figure().value
        known = cls(figure.value, figure.low, figure.high, units.count, base, seeds=len(scored))
        if units.count < ENOUGH:
            return known
        above = is_above(guesses, blind, metric.higher, rng)
        part = _advantage(figure.value, base, whole_of(metric, units))
        return replace(known, at_baseline=not above, advantage=part)


def whole_of(metric: Metric, units: Units) -> float | None:
    """Return the figure of complete success; None where it is not known.

    Parameters
    ----------
    metric : Metric
    units : Units
        A fraction, and an area or rate of a ranking, are 1 at most.

    Returns
    -------
    float or None
    """
    if metric.whole is not None or isinstance(units, Mean):
        return metric.whole
    return float(metric.higher)


def _advantage(value: float, baseline: float, whole: float | None) -> float | None:
    if whole is None or not math.isfinite(value) or whole == baseline:
        return None
    return min(1.0, max(0.0, (value - baseline) / (whole - baseline)))


def _note(outcomes: Sequence[Outcome]) -> str:
    """Return the first note of a seed that ended worst; every seed has a row of its own."""
    worst = _status(outcomes).removeprefix(PARTLY)
    return next(
        (outcome.note for outcome in outcomes if outcome.note and outcome.status == worst), ""
    )


def _status(outcomes: Sequence[Outcome]) -> str:
    """Return the worst status of any seed, "partly" if not of all: no figure hides a failure."""
    for status in ("failed", "not applicable", "stopped", "not played"):
        hit = [outcome.status == status for outcome in outcomes]
        if any(hit):
            return status if all(hit) else f"{PARTLY}{status}"
    return "value"


def shown(cells: Sequence[Cell], rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the table: pooled, of the strongest attackers.

    Parameters
    ----------
    cells : sequence of Cell
    rows : iterable of Row

    Returns
    -------
    list of Row
    """
    return strongest(rows, directions(cells))


Directions = Mapping[tuple[str, str], bool]
"""By attack and metric, whether more is a better attack."""


def directions(cells: Sequence[Cell]) -> Directions:
    """Return in which direction the metrics of these attacks are better."""
    return {
        (cell.attack.name, metric.name): metric.higher
        for cell in cells
        for metric in cell.attack.metrics
    }


def strongest(rows: Iterable[Row], higher: Directions) -> list[Row]:
    """Return, of attacks that share a name, the strongest in each cell: all of its metrics.

    Which is strongest is decided by the first metric that they are scored on. An attacker that
    failed stays beside it: what it would have shown is not known.

    Parameters
    ----------
    rows : iterable of Row
        Pooled ones are looked at alone.
    higher : mapping of (str, str) to bool
        By attack and metric, whether more is a better attack.

    Returns
    -------
    list of Row
    """
    cells: dict[tuple[str, str, str], dict[str, list[Row]]] = {}
    for row in rows:
        if row.seed == POOLED:
            variants = cells.setdefault((row.attack, row.setting, row.protection), {})
            variants.setdefault(row.adaptive, []).append(row)
    return [
        row
        for variants in cells.values()
        for row in _beside_failed(list(variants.values()), higher)
    ]


def _beside_failed(variants: Sequence[list[Row]], higher: Directions) -> list[Row]:
    best = _best(variants, higher)
    failed = [each[0] for each in variants if each[0].status == "failed" and each is not best]
    return [*best, *failed]


def _best(variants: Sequence[list[Row]], higher: Directions) -> list[Row]:
    best = variants[0]
    for variant in variants[1:]:
        first = best[0]
        if _is_stronger(variant[0], first, higher[first.attack, first.metric]):
            best = variant
    return best


def _is_stronger(row: Row, other: Row, higher: bool) -> bool:
    if row.value is None or other.value is None:
        return row.value is not None and other.value is None
    if row.too_few != other.too_few:  # what says nothing is not stronger than what says something
        return other.too_few
    if row.value == other.value:  # the cheaper of two that do the same
        return row.cpu_seconds < other.cpu_seconds
    return row.value > other.value if higher else row.value < other.value


def to_csv(rows: Sequence[Row]) -> str:
    """Return ``results.csv``: all fields, and what each row says."""
    text = io.StringIO()
    columns = [each.name for each in fields(Row)]
    writer = csv.DictWriter(text, [*columns, "verdict"], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        written = {name: _written(value) for name, value in asdict(row).items()}
        if row.verdict not in ("above baseline", "at baseline"):
            written["at_baseline"] = ""  # neither yes nor no
        writer.writerow({**written, "verdict": row.verdict})
    return text.getvalue()


def _written(value: object) -> object:
    if isinstance(value, float):
        return "inf" if math.isinf(value) and value > 0 else format(value, ".6g")
    return "" if value is None else value
