"""Write the rounds of a run as a flat table, beside the lines that hold all of them."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zerosum.server.runs.records import RoundRecord

_FLATTENED = ("dropouts", "refused", "stage_seconds", "epsilon_charged", "epsilon")
"""Fields that hold a number by name: a column for each name."""


def table_of(records: Sequence[RoundRecord]) -> bytes:
    """Write a CSV table with a row a round, and a column for each figure that some round has.

    An epsilon without a bound is ``inf``, and an absent value is empty: ``pandas.read_csv`` reads
    the ones as infinite and the others as NaN. Lists and objects are left to ``metrics.jsonl``.

    Parameters
    ----------
    records : sequence of RoundRecord

    Returns
    -------
    bytes
        UTF-8.
    """
    columns = _columns(records)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for record in records:
        row = _row(record)
        writer.writerow([_cell(row.get(name)) for name in columns])
    return text.getvalue().encode(errors="backslashreplace")


def _columns(records: Iterable[RoundRecord]) -> list[str]:
    """Return the names that any round has, in the order of a line of ``metrics.jsonl``."""
    order = {name: at for at, name in enumerate(RoundRecord.model_fields)}
    found: dict[str, int] = {}
    for record in records:
        for name, (field, _) in _figures(record).items():
            found.setdefault(name, order.get(field, len(order)))
    return sorted(found, key=found.__getitem__)  # stable: names of one field as they appeared


def _figures(record: RoundRecord) -> dict[str, tuple[str, Any]]:
    """Return each flat figure that a record has, with the field that it comes from."""
    figures: dict[str, tuple[str, Any]] = {}
    for name, value in record.document().items():  # its order is that of the file
        field = "metrics" if name in record.metrics else name
        if field in _FLATTENED:
            figures |= {f"{field}_{k}": (field, _infinite(v)) for k, v in value.items()}
        elif isinstance(value, str | bool | int | float):
            figures[name] = field, value
    return figures


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value


def _row(record: RoundRecord) -> Mapping[str, Any]:
    """Return a round's figures; a count that its line leaves out is the nought that this means."""
    usual = {name: field.default for name, field in RoundRecord.model_fields.items()}
    return usual | {name: value for name, (_, value) in _figures(record).items()}


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value if isinstance(value, str | int | float) else None
