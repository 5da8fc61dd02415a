"""Answers: what a query's noisy integers say, with standard errors and intervals.

Everything here is a pure function of released integers: it costs no privacy. Intervals speak of the
noise about the answer of the clients that answered, not of a wider population; nothing is scaled up
for those that did not.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import dimension
from zerosum.client.queries.oracles import probabilities
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
from zerosum.client.queries.schema import OTHER, IntegerColumn, NumberColumn, Schema
from zerosum.client.request import QueryQuestion
from zerosum.server.analytics import moments, oracle_estimates, prefixes
from zerosum.server.analytics.bayes import classifier
from zerosum.server.analytics.intervals import (
    cell_interval,
    combination_half_width,
    too_few,
)
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.quantiles import leaf_counts
from zerosum.server.analytics.released_answer import LEVEL, Answer, Axis, Interval, Reals

__all__ = ["LEVEL", "Answer", "Axis", "Interval", "answer"]


ONE_STD = math.erf(math.sqrt(0.5))
"""Probability of a normal variable within one standard deviation: .6827."""


def answer(
    question: QueryQuestion,
    noisy: NDArray[np.int64],
    noise: ReleasedNoise | None,
    clients: int,
    payload: bytes = b"",
) -> Answer:
    """Return what the released integers of a question say.

    Parameters
    ----------
    question : QueryQuestion
        As it was sent.
    noisy : ndarray of int64, shape (dimension,)
        The released sum; of ``words``, that of the last round.
    noise : ReleasedNoise or None
        Of each coordinate; None for a local oracle, whose reports are random themselves.
    clients : int
        Contributions in the sum.
    payload : bytes
        Of ``words``: the prefixes that the round continued.

    Returns
    -------
    Answer
        Without epsilon and receipt, which whoever charged it fills in.

    Raises
    ------
    QueryError
        If the sum does not have the length of the question, a query other than an oracle comes
        without noise, or words are not complete.
    """
    query, schema = question.query, question.domains
    length = dimension(query.blocks(schema, payload))
    if noisy.shape != (length,):
        raise QueryError(
            f"{query.kind}: a sum of shape {noisy.shape}; the query has {length} cells"
        )
    made = _made(question, noisy, noise, clients, payload)
    # A sentence about records says so where some of them were not looked at.
    cap = question.privacy.cap if question.privacy.unit == "client" else None
    return made if cap is None else replace(made, details={**made.details, "cap": cap})


def _made(
    question: QueryQuestion,
    noisy: NDArray[np.int64],
    noise: ReleasedNoise | None,
    clients: int,
    payload: bytes,
) -> Answer:
    query, schema = question.query, question.domains
    if isinstance(query, Oracle):
        return _oracle(query, schema, noisy, clients, question.privacy.scale)
    if noise is None:
        raise QueryError(f"{query.kind}: the law of the noise is not given")
    match query:
        case Count() | Histogram() | Marginals() | Bayes():
            return _cells(query, schema, noisy, noise, clients)
        case Moments():
            return _moment(query, schema, noisy, noise, clients)
        case Quantile():
            return _quantile(query, schema, noisy, noise, clients)
        case Words():
            return _words(question, query, noisy, noise, clients, payload)


def _cells(
    query: Count | Histogram | Marginals | Bayes,
    schema: Schema,
    noisy: NDArray[np.int64],
    noise: ReleasedNoise,
    clients: int,
) -> Answer:
    """Answer by the cells themselves, each with the exact quantiles of its own noise."""
    tables = _tables(query, schema)
    shape = [len(axis.labels) for axis in tables[0]] if len(tables) == 1 else [noisy.size]
    values = noisy.astype(np.float64).reshape(shape)
    made = Answer(
        query,
        values,
        np.full(shape, noise.std),
        tables,
        None,
        clients,
        noisy,
        noise,
        lambda level: cell_interval(values, noise.half_width(level), low=0),
    )
    # Of several tables, the one with the fewest cells has the least noise in its sum.
    fewest = min(range(len(tables)), key=lambda i: made.table(i).size)
    details = {"classifier": _classifier(query, made)} if isinstance(query, Bayes) else {}
    return replace(made, records=float(made.table(fewest).sum()), details=details)


def _tables(
    query: Count | Histogram | Marginals | Bayes, schema: Schema
) -> tuple[tuple[Axis, ...], ...]:
    match query:
        case Count():
            groups: Sequence[Sequence[str]] = [()]
        case Histogram():
            groups = [query.asked]
        case Marginals():
            groups = query.cliques
        case Bayes():
            groups = [(query.label, feature) for feature in query.features]
    axes = {name: Axis(name, schema.column(name).labels) for group in groups for name in group}
    return tuple(tuple(axes[name] for name in group) for group in groups)


def _classifier(query: Bayes, made: Answer) -> dict[str, Any]:
    tables = [made.table(i) for i in range(len(made.tables))]
    cells = [axes[1].labels for axes in made.tables]
    classes = made.tables[0][0].labels
    return classifier(query.label, classes, query.features, cells, tables).to_json()


def _moment(
    query: Moments,
    schema: Schema,
    noisy: NDArray[np.int64],
    noise: ReleasedNoise,
    clients: int,
) -> Answer:
    column = _ranged(schema, query.column)
    cells, weight = noisy.astype(np.float64), query.weight or 1
    number = moments.records(cells, weight)
    if query.kind == "sum":
        estimate = moments.total(cells, weight, column.low, column.high)
    else:
        formula = moments.mean if query.kind == "mean" else moments.variance
        estimate = formula(cells, column.low, column.high)
    few = query.kind != "sum" and too_few(
        number.value, noise.std * float(np.linalg.norm(number.gradient))
    )
    value = np.array(math.nan if few else estimate.value)
    gradient = np.full(cells.size, math.nan) if few else estimate.gradient
    low, high = estimate.bounds

    def intervals(level: float) -> tuple[Reals, Reals]:
        half = math.nan if few else combination_half_width(noise, gradient, level)
        return cell_interval(value, half, low=low, high=high)

    return Answer(
        query,
        value,
        np.array(noise.std * float(np.linalg.norm(gradient))),
        ((),),
        number.value,
        clients,
        noisy,
        noise,
        intervals,
        {"too_few_records": few},
    )


def _quantile(
    query: Quantile,
    schema: Schema,
    noisy: NDArray[np.int64],
    noise: ReleasedNoise,
    clients: int,
) -> Answer:
    leaves = leaf_counts(noisy, noise, _ranged(schema, query.column))

    def intervals(level: float) -> tuple[Reals, Reals]:
        ends = np.array([leaves.interval(q, level) for q in query.q])
        return ends[:, 0], ends[:, 1]

    low, high = intervals(ONE_STD)
    atoms = {q: leaves.atom(q, LEVEL) for q in query.q}
    named = [
        {"q": q, "share": atom[0], "low": atom[1], "high": atom[2]}
        for q, atom in atoms.items()
        if atom is not None
    ]
    return Answer(
        query,
        np.array([leaves.quantile(q) for q in query.q]),
        # A quantile has no standard error of its own: half of the interval that one would give.
        (high - low) / 2,
        ((Axis("q", tuple(f"{q:.15g}" for q in query.q)),),),
        leaves.records,
        clients,
        noisy,
        noise,
        intervals,
        {"too_few_records": leaves.too_few, "atoms": named},
    )


def _words(
    question: QueryQuestion,
    query: Words,
    noisy: NDArray[np.int64],
    noise: ReleasedNoise,
    clients: int,
    payload: bytes,
) -> Answer:
    kept, least = prefixes.kept_candidates(question, noisy, noise, payload)
    if kept and not prefixes.is_last(question, payload):
        raise QueryError("words: prefixes are left that no round has continued: ask the next one")
    top = dict(list(kept.items())[: query.top])
    values = np.array(list(top.values()), dtype=np.float64)
    axis = Axis(query.column, tuple(map(prefixes.without_padding, top)))
    return Answer(
        query,
        values,
        np.full(values.size, noise.std),
        ((axis,),),
        None,
        clients,
        noisy,
        noise,
        lambda level: cell_interval(values, noise.half_width(level), low=0),
        {"threshold": least, "invented": prefixes.INVENTED},
    )


def _oracle(
    query: Oracle, schema: Schema, noisy: NDArray[np.int64], clients: int, epsilon: float
) -> Answer:
    if query.oracle == "auto":
        raise QueryError("oracle: its kind is not resolved")
    size = query.size(schema)
    p, q = probabilities(query.oracle, size, epsilon)
    values = oracle_estimates.oracle_counts(noisy, clients, p, q)
    labels = schema.column(query.column).labels
    axis = Axis(query.column, labels if len(labels) == size else (*labels, OTHER))
    return Answer(
        query,
        values,
        np.sqrt(oracle_estimates.oracle_variances(values, clients, p, q)),
        ((axis,),),
        float(clients),
        clients,
        noisy,
        None,
        lambda level: oracle_estimates.oracle_interval(noisy, clients, p, q, level),
        {"p": p, "q": q},
    )


def _ranged(schema: Schema, name: str) -> IntegerColumn | NumberColumn:
    column = schema.column(name)
    if not isinstance(column, IntegerColumn | NumberColumn):
        raise QueryError(f'column "{name}" is of kind {column.kind}, not integer or number')
    return column
