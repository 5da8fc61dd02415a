"""From a plan to what its sums are made of: terms, protocol, and the ledger's first line."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from zerosum.client.protocol.survivors import CohortTooSmallError
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.client.spec import SecAggSpec
from zerosum.client.spec.query_privacy import QueryPrivacy
from zerosum.server.analytics.ask import check_fits
from zerosum.server.analytics.asks import QueryTerms
from zerosum.server.analytics.budget import check_plan
from zerosum.server.analytics.costs import Costed, cost
from zerosum.server.analytics.drafts import Draft
from zerosum.server.analytics.ledger_lines import PlannedSums, QueryHeader
from zerosum.server.analytics.query_plan import PlanFile, QueryPlan
from zerosum.server.private_sum.thresholds import Thresholds

ASSUMED_DROPOUT = 0.15
"""Clients that sums withstand losing, at least: the default of ``secagg.dropout``."""


def secagg_of(plan: QueryPlan, terms: QueryTerms) -> SecAggSpec:
    """Return the protocol of a plan's sums.

    Parameters
    ----------
    plan : QueryPlan
        Protocol, server and dropout.
    terms : QueryTerms
        Clients and the part of them that is honest.

    Returns
    -------
    SecAggSpec
        Under which a sum of these clients can be opened.

    Raises
    ------
    QueryError
        If none can.
    """
    dropout = max(ASSUMED_DROPOUT, plan.dropout)
    secagg = SecAggSpec(
        protocol=plan.protocol, server=plan.server, dropout=dropout, corruption=plan.corruption
    )
    like = QueryPrivacy(law="geometric", scale=1.0, honest_fraction=plan.honest_fraction)
    try:
        Thresholds.of(terms.clients, roster=terms.clients, secagg=secagg, privacy=like)
    except CohortTooSmallError as error:
        raise QueryError(f"clients = {terms.clients}: {error}") from None
    return secagg


def header_of(file: PlanFile, terms: QueryTerms) -> QueryHeader:
    """Return the first line of a ledger: the budget, and under rule "plan" all of its sums.

    Parameters
    ----------
    file : PlanFile
        Settings and queries.
    terms : QueryTerms
        Of the budget.

    Returns
    -------
    QueryHeader
        The same from the same plan.

    Raises
    ------
    QueryError
        If a query does not fit.
    """
    budget = terms.budget
    return QueryHeader(
        clients=terms.clients,
        groups=terms.groups,
        protocol=file.plan.protocol,
        honest_fraction=terms.honest_fraction,
        budget={
            "observer": budget.observer,
            "unit": budget.unit,
            "adjacency": budget.adjacency,
            "epsilon": float(budget.epsilon),
            "delta": float(budget.delta),
            "rule": budget.rule,
        },
        planned=_planned(file, terms) if budget.rule == "plan" else [],
    )


def check_costs(file: PlanFile, terms: QueryTerms) -> None:
    """Check every query of a plan, and that they fit the budget together.

    Parameters
    ----------
    file : PlanFile
        With its queries.
    terms : QueryTerms
        Of the budget.

    Raises
    ------
    QueryError
        If a query does not fit schema or budget, or two have one name.
    BudgetExceeded
        If all of them cost more than there is.
    """
    costed = [cost(draft.ask(terms.schema), terms) for draft in file.queries]
    names: dict[str, str] = {}
    for each in costed:
        if each.ask.name and names.setdefault(each.ask.name, each.key) != each.key:
            raise QueryError(f"name = {each.ask.name!r}: two queries have it; answers are files")
    budget, paid = terms.budget, [*paid_queries(file, terms)]
    if budget.rule == "plan" and not paid:
        raise QueryError('rule = "plan" and no [[queries]]: write one, or rule = "sum"')
    if len(paid) == 1 and budget.rule != "plan":
        check_fits(paid[0][1], [])
        return
    check_plan(
        budget,
        [
            each.event(budget.observer)
            for draft, each in paid
            for _ in range(each.sums * (draft.attempts if budget.rule == "plan" else 1))
        ],
    )


def paid_queries(file: PlanFile, terms: QueryTerms) -> Iterator[tuple[Draft, Costed]]:
    """Yield the queries of a plan that are paid for: not one that was asked before, unless fresh.

    Parameters
    ----------
    file : PlanFile
        With its queries.
    terms : QueryTerms
        Of the budget.

    Yields
    ------
    tuple of Draft and Costed
        In order.
    """
    seen: set[str] = set()
    for draft in file.queries:
        costed = cost(draft.ask(terms.schema), terms)
        if draft.fresh or costed.key not in seen:
            yield draft, costed
        seen.add(costed.key)


def schema_of(given: Schema | Mapping[str, object] | str | Path) -> Schema:
    """Return a schema as it is, of plain values, or of the TOML file that has it."""
    if isinstance(given, Schema):
        return given
    return Schema.of(given) if isinstance(given, Mapping) else Schema.read(given)


def _planned(file: PlanFile, terms: QueryTerms) -> list[PlannedSums]:
    """Return the sums that a plan fixes, a line for each question."""
    sums: Counter[str] = Counter()
    receipts: dict[str, Costed] = {}
    for draft, costed in paid_queries(file, terms):
        sums[costed.key] += costed.sums * draft.attempts
        receipts[costed.key] = costed
    return [
        PlannedSums(ask=key, sums=sums[key], receipts=dict(each.receipts))
        for key, each in receipts.items()
    ]
