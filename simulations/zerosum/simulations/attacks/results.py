"""From outcomes to rows: one a seed and metric, and one of all seeds together."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version

import numpy as np

from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.harness import Cell, Outcome
from zerosum.simulations.attacks.interface import Metric
from zerosum.simulations.attacks.measures import Figure, Units

PARTLY = "partly "
"""Before the status of a cell whose seeds ended in different ways."""

POOLED = "pooled"
"""In the column of seeds: the figure of all of them."""


@dataclass(frozen=True)
class Row:
    """One line of ``results.csv``.

    Attributes
    ----------
    attack, adaptive, setting, protection, threat : str
        The cell; ``adaptive`` is what the attacker uses of what it knows.
    metric, unit : str
    value, low, high : float or None
        With the interval that holds it with 95 %; None where there is no value.
    baseline : float or None
        The same figure of a guess without what is attacked.
    at_baseline : bool
        Whether the interval does not exclude the baseline, or the value is worse.
    epsilon, delta : float or None
        What the ledger says; infinite without noise, None where no epsilon could be meant.
    cpu_seconds : float
    seed : str
    version : str
        Of zerosum.
    status, note : str
    at : str
        JSON: where the cell lies on the axes of pictures.
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


def rows_of(cells: Sequence[Cell], outcomes: Sequence[Outcome]) -> list[Row]:
    """Return the rows of all cells: the seeds' and, after them, the pooled one of each metric."""
    by_cell: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        by_cell.setdefault(outcome.number, []).append(outcome)
    return [
        row
        for number, found in sorted(by_cell.items())
        for metric in cells[number].attack.metrics
        for row in _rows(cells[number], metric, found)
    ]


def _rows(cell: Cell, metric: Metric, found: Sequence[Outcome]) -> Iterable[Row]:
    for outcome in found:
        yield _row(cell, metric, [outcome], str(outcome.seed))
    yield _row(cell, metric, found, POOLED)


def _row(cell: Cell, metric: Metric, found: Sequence[Outcome], seed: str) -> Row:
    scored = [each for each in found if metric.name in each.units]
    rng = numpy_generator(0, f"interval {cell.label} {metric.name} {seed}")
    figure = _pooled([each.units[metric.name] for each in scored], rng)
    blind = _pooled([each.baseline[metric.name] for each in scored], rng)
    epsilons = [each.epsilon for each in found if each.epsilon is not None]
    case = cell.case
    return Row(
        attack=cell.attack.name,
        adaptive=cell.attack.adaptive,
        setting=case.setting.name,
        protection=case.protection.name,
        threat=str(cell.attack.threat),
        metric=metric.name,
        unit=metric.unit,
        value=None if figure is None else figure.value,
        low=None if figure is None else figure.low,
        high=None if figure is None else figure.high,
        baseline=None if blind is None else blind.value,
        at_baseline=_is_at(figure, blind, metric),
        epsilon=max(epsilons) if epsilons else None,
        delta=max((each.delta for each in found), default=0.0),
        cpu_seconds=sum(each.cpu_seconds for each in found),
        seed=seed,
        version=version("zerosum"),
        status=_status(found),
        note=_note(found),
        at=json.dumps(dict(case.at), sort_keys=True),
    )


def _pooled(units: Sequence[Units], rng: np.random.Generator) -> Figure | None:
    return units[0].pooled(units[1:]).figure(rng) if units else None


def _is_at(figure: Figure | None, blind: Figure | None, metric: Metric) -> bool:
    if figure is None or blind is None:
        return False
    if metric.higher:
        return figure.low <= blind.value or figure.value <= blind.value
    return figure.high >= blind.value or figure.value >= blind.value


def _note(found: Sequence[Outcome]) -> str:
    """Return what the first seed had to say that said anything; every seed has a row of its own."""
    worst = _status(found).removeprefix(PARTLY)
    return next((each.note for each in found if each.note and each.status == worst), "")


def _status(found: Sequence[Outcome]) -> str:
    """Return the worst that came of any seed, "partly" if not of all: no figure hides a failure."""
    for status in ("failed", "not applicable", "stopped"):
        hit = [each.status == status for each in found]
        if any(hit):
            return status if all(hit) else f"{PARTLY}{status}"
    return "value"


def shown(cells: Sequence[Cell], rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the table: pooled, of the strongest attackers."""
    return strongest(rows, directions(cells))


def directions(cells: Sequence[Cell]) -> dict[str, bool]:
    """Return, by metric, whether more is a better attack."""
    return {metric.name: metric.higher for cell in cells for metric in cell.attack.metrics}


def strongest(rows: Iterable[Row], metrics: Mapping[str, bool]) -> list[Row]:
    """Return, of attacks that share a name, the strongest in each cell: all of its metrics.

    Which is strongest is decided by the first metric that they are scored on. An attacker that
    failed stays beside it: what it would have shown is not known.

    Parameters
    ----------
    rows : iterable of Row
        Pooled ones are looked at alone.
    metrics : mapping of str to bool
        By metric, whether more is a better attack.
    """
    cells: dict[tuple[str, str, str], dict[str, list[Row]]] = {}
    for row in rows:
        if row.seed == POOLED:
            variants = cells.setdefault((row.attack, row.setting, row.protection), {})
            variants.setdefault(row.adaptive, []).append(row)
    return [
        row
        for variants in cells.values()
        for row in _beside_failed(list(variants.values()), metrics)
    ]


def _beside_failed(variants: Sequence[list[Row]], metrics: Mapping[str, bool]) -> list[Row]:
    best = _best(variants, metrics)
    failed = [each[0] for each in variants if each[0].status == "failed" and each is not best]
    return [*best, *failed]


def _best(variants: Sequence[list[Row]], metrics: Mapping[str, bool]) -> list[Row]:
    best = variants[0]
    for variant in variants[1:]:
        if _is_stronger(variant[0], best[0], metrics[best[0].metric]):
            best = variant
    return best


def _is_stronger(row: Row, other: Row, higher: bool) -> bool:
    if row.value is None or other.value is None:
        return row.value is not None and other.value is None
    if row.value == other.value:  # the cheaper of two that do the same
        return row.cpu_seconds < other.cpu_seconds
    return row.value > other.value if higher else row.value < other.value


def to_csv(rows: Sequence[Row]) -> str:
    """Return ``results.csv``."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Row)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _written(value) for name, value in asdict(row).items()})
    return text.getvalue()


def _written(value: object) -> object:
    if isinstance(value, float):
        return "inf" if math.isinf(value) and value > 0 else format(value, ".6g")
    return "" if value is None else value
