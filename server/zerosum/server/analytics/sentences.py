"""Say answers in plain words: one sentence each."""

import math
from collections.abc import Sequence

import numpy as np

from zerosum.client.queries.predicate_tree import And, Compare, In, Not, Or, Predicate
from zerosum.client.queries.query import (
    Bayes,
    Count,
    Histogram,
    Marginals,
    Moments,
    Oracle,
    Quantile,
    Words,
)
from zerosum.server.analytics.released_answer import Answer, Interval

NAMED = 5
"""Cells or words that a sentence names, the largest."""

_COMPARED = {
    "=": "",
    "!=": "other than ",
    "<": "below ",
    "<=": "at most ",
    ">": "above ",
    ">=": "at least ",
}


def sentence(answer: Answer, level: float) -> str:
    """Return an answer in one sentence.

    Parameters
    ----------
    answer : Answer
        Of any kind.
    level : float
        Of its intervals, in (0, 1).

    Returns
    -------
    str
    """
    match answer.query:
        case Count():
            return _count(answer, level)
        case Moments():
            return _moment(answer, answer.query, level)
        case Quantile():
            return _quantile(answer, answer.query, level)
        case Words():
            return _words(answer, level)
        case Bayes():
            return _bayes(answer, answer.query)
        case Histogram() | Oracle():
            return _histogram(answer, level)
        case Marginals():
            return _marginals(answer, level)


def predicate_words(predicate: Predicate) -> str:
    """Return a predicate as it is said of records that have it.

    Parameters
    ----------
    predicate : Predicate

    Returns
    -------
    str
        As in "age at least 65 and sex Female".
    """
    match predicate:
        case Compare():
            return f"{predicate.column} {_COMPARED[predicate.operator]}{predicate.value}"
        case In():
            return f"{predicate.column} {_listed(list(map(str, predicate.values)), 'or')}"
        case Not():
            return f"not ({predicate_words(predicate.of)})"
        case And():
            return " and ".join(map(_inside, predicate.of))
        case Or():
            return " or ".join(map(_inside, predicate.of))


def _inside(predicate: Predicate) -> str:
    text = predicate_words(predicate)
    return f"({text})" if isinstance(predicate, And | Or) else text


def _count(answer: Answer, level: float) -> str:
    ends = answer.interval(level)
    between = _between(float(ends.low), float(ends.high))
    where = answer.query.where
    if where is None:
        hold = "holds" if answer.clients == 1 else "hold"
        what = f"{between} records{_used(answer)}"
        return f"The {_clients(answer)} {hold} {what} ({_percent(level)})."
    held = f"{between} of {_records(answer)} have {predicate_words(where)}"
    return f"{_capital(held)} ({_percent(level)})."


def _moment(answer: Answer, query: Moments, level: float) -> str:
    what = f"{query.kind} of {query.column} over {_whose(answer)}"
    if answer.details["too_few_records"]:
        return f"Too few records for the {what}: about {_rounded(answer.records)}."
    ends = answer.interval(level)
    return f"The {what} is {_between(float(ends.low), float(ends.high))} ({_percent(level)})."


def _quantile(answer: Answer, query: Quantile, level: float) -> str:
    if answer.details["too_few_records"]:
        return (
            f"Too few records for quantiles of {query.column} over {_whose(answer)}: "
            f"about {_rounded(answer.records)}."
        )
    ends = answer.interval(level)
    parts = [
        f"the {'median' if q == 0.5 else f'{q:.15g} quantile'} of {query.column} is "
        f"{_between(float(low), float(high))}"
        for q, low, high in zip(query.q, ends.low, ends.high, strict=True)
    ]
    atoms = [
        f"{100 * atom['share']:.2g} % of records are {_exactly(atom['low'], atom['high'])}"
        for atom in answer.details["atoms"]
    ]
    each = "" if len(parts) == 1 else " each"
    said = f"Over {_whose(answer)} {_listed(parts, 'and')} ({_percent(level)}{each})"
    return "; ".join([said, *dict.fromkeys(atoms)]) + "."


def _words(answer: Answer, level: float) -> str:
    words = answer.tables[0][0].labels
    column, threshold = answer.tables[0][0].name, answer.details["threshold"]
    if not words:
        return (
            f"No value of {column} reaches the {threshold:,} records at which noise alone is "
            f"ruled out, over {_whose(answer)}."
        )
    return (
        f"The most frequent values of {column} over {_whose(answer)} are "
        f"{_largest(words, answer.values)}{_within(answer, level)}."
    )


def _histogram(answer: Answer, level: float) -> str:
    axes = answer.tables[0]
    names = " x ".join(axis.name for axis in axes)
    order = np.argsort(-answer.values.ravel(), kind="stable")
    places = np.array(np.unravel_index(order[:NAMED], answer.values.shape)).T
    labels = [
        " x ".join(axis.labels[i] for axis, i in zip(axes, place, strict=True)) for place in places
    ]
    rest = max(0, order.size - NAMED)
    named = _largest(labels, answer.values.ravel()[order[:NAMED]], rest)
    return f"By {names}, {_whose(answer)} are {named}{_within(answer, level)}."


def _marginals(answer: Answer, level: float) -> str:
    tables = [
        f"{' x '.join(axis.name for axis in axes)} "
        f"({_number(math.prod(len(axis.labels) for axis in axes))} cells)"
        for axes in answer.tables
    ]
    noun = "table" if len(tables) == 1 else "tables"
    return (
        f"{len(tables)} {noun} of {_whose(answer)}, about {_rounded(answer.records)} in number: "
        f"{_listed(tables, 'and')}{_within(answer, level)}."
    )


def _bayes(answer: Answer, query: Bayes) -> str:
    return (
        f"A naive Bayes classifier of {query.label} by {_listed(list(query.features), 'and')}, "
        f"from {_whose(answer)}, about {_rounded(answer.records)} in number."
    )


def _largest(labels: Sequence[str], values: np.ndarray, rest: int | None = None) -> str:
    """Return the first labels with their values, and how many more there are."""
    pairs = zip(labels[:NAMED], values[:NAMED], strict=True)
    named = [f"{label} ({_number(max(0.0, round(float(value))))})" for label, value in pairs]
    more = len(labels) - NAMED if rest is None else rest
    return ", ".join(named) + (f" and {_number(more)} more" if more > 0 else "")


def _within(answer: Answer, level: float) -> str:
    """Return how far off each count may be: the widest of the intervals, to the wider side."""
    if answer.noise is not None:
        half = float(answer.noise.half_width(level))
    else:
        ends: Interval = answer.interval(level)
        sides = np.maximum(answer.values - ends.low, ends.high - answer.values)
        half = float(np.max(sides, initial=0.0))
    return f", each within {_number(math.ceil(half))} ({_percent(level)} each)"


def _whose(answer: Answer) -> str:
    where = answer.query.where
    records = _records(answer)
    return records if where is None else f"those of {records} that have {predicate_words(where)}"


def _records(answer: Answer) -> str:
    return f"the {_clients_of(answer)} records{_used(answer)}"


def _used(answer: Answer) -> str:
    cap = answer.details.get("cap")
    return "" if cap is None else f" (at most {_number(cap)} of each)"


def _clients(answer: Answer) -> str:
    return f"{_number(answer.clients)} {'client' if answer.clients == 1 else 'clients'}"


def _clients_of(answer: Answer) -> str:
    return _clients(answer) + ("'s" if answer.clients == 1 else "'")


def _exactly(low: float, high: float) -> str:
    return f"exactly {_number(low)}" if low == high else _between(low, high)


def _between(low: float, high: float) -> str:
    """Return "between a and b", each end rounded outward to a tenth of the width or finer."""
    if low == high:
        return _number(low)
    if low == math.floor(low) and high == math.floor(high):
        return f"between {_number(low)} and {_number(high)}"
    digits = max(0, 1 - math.floor(math.log10(high - low)))
    scale = 10.0**digits
    ends = (math.floor(low * scale) / scale, math.ceil(high * scale) / scale)
    return f"between {ends[0]:,.{digits}f} and {ends[1]:,.{digits}f}"


def _number(value: float) -> str:
    whole = float(value).is_integer()
    return f"{int(value):,}" if whole else f"{value:,.6g}"


def _rounded(records: float | None) -> str:
    return _number(max(0, round(records or 0)))


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def _listed(parts: Sequence[str], last: str) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
