"""Decide by a node's ``[policy.queries]`` and ``[policy.app_queries]`` whether it answers a query.

What is refused depends on the request, the policy and the budget: never on a value of the table.
"""

import math
from typing import Final

import numpy as np

from zerosum.client.privacy.spending import Price, UnitPrice
from zerosum.client.protocol.refusal import Declined
from zerosum.client.protocol.sum_request import SumRequest
from zerosum.client.request import QueryRequest, Request
from zerosum.client.spec import ClientPolicy
from zerosum.client.spec.app_query_policy import AppQueryPolicy
from zerosum.client.spec.query_policy import QueryPolicy

ROUNDING: Final = 1e-9
"""Relative excess of a sum of epsilons over its limit that is float rounding: ten times 0.1 is 1.
"""


def check_query(request: QueryRequest, policy: ClientPolicy) -> None:
    """Decline a query that the policy does not allow.

    Parameters
    ----------
    request : QueryRequest
        As it was read, so that it fits its own domains.
    policy : ClientPolicy
        This client's.

    Raises
    ------
    Declined
        At the first thing that is not allowed, which the message names with its key.
    """
    own = _section(policy)
    _check_model(request.question.privacy.model, policy)
    _check_question(request, own)


def check_app_query(request: SumRequest, policy: ClientPolicy) -> None:
    """Decline a sum of an app's values that the policy does not allow.

    Parameters
    ----------
    request : SumRequest
    policy : ClientPolicy
        This client's.

    Raises
    ------
    Declined
        At the first thing that is not allowed, which the message names with its key.
    """
    own, privacy = _app_section(policy), request.question.privacy
    _check_model(privacy.model, policy)
    if request.dimension > own.max_cells:
        raise Declined(
            f"{request.dimension} numbers are above policy.app_queries.max_cells = {own.max_cells}"
        )
    if not privacy.private:
        return
    if privacy.unit not in own.units:
        raise Declined(f"unit {privacy.unit!r} is not in policy.app_queries.units = {own.units}")
    if privacy.adjacency not in own.adjacency:
        raise Declined(
            f"adjacency {privacy.adjacency!r} is not in policy.app_queries.adjacency = "
            f"{own.adjacency}"
        )


def _check_model(model: str, policy: ClientPolicy) -> None:
    if model not in policy.models:
        raise Declined(f"privacy model {model!r} is not among this client's {policy.models}")


def _check_question(request: QueryRequest, own: QueryPolicy) -> None:
    question, privacy = request.question, request.question.privacy
    kind = question.query.kind
    if kind not in own.kinds:
        raise Declined(f"query {kind!r} is not in policy.queries.kinds = {own.kinds}")
    for name in question.query.reads:
        if own.columns != "any" and name not in own.columns:
            raise Declined(f'column "{name}" is not in policy.queries.columns')
    if privacy.unit not in own.units:
        raise Declined(f"unit {privacy.unit!r} is not in policy.queries.units = {own.units}")
    if privacy.adjacency not in own.adjacency:
        raise Declined(
            f"adjacency {privacy.adjacency!r} is not in policy.queries.adjacency = {own.adjacency}"
        )
    if request.dimension > own.max_cells:
        raise Declined(
            f"{request.dimension} cells are above policy.queries.max_cells = {own.max_cells}"
        )
    records = question.max_records if privacy.cap is None else privacy.cap
    if records > own.max_records:
        raise Declined(
            f"{records} records are above policy.queries.max_records = {own.max_records}"
        )


def check_query_price(request: Request, policy: ClientPolicy, price: Price) -> None:
    """Decline a query that costs more than the policy allows a single one.

    Parameters
    ----------
    request : Request
        A query, allowed by :func:`check_query`, but for its price; or an app's, likewise.
    policy : ClientPolicy
        With the section that it is answered by.
    price : Price
        Of the answer.

    Raises
    ------
    Declined
        If nothing bounds the epsilon of the unit that the query names, or it is too much.
    """
    unit, most = request.question.privacy.unit, most_per_query(request, policy)
    if math.isinf(most) or unit == "example":  # a model's
        return
    epsilon = least_epsilon(price.of_unit(unit), policy.budget_delta, most)
    if not epsilon <= most * (1 + ROUNDING):
        raise Declined(
            f"this query has epsilon {epsilon:.4g} for one {unit}, and "
            f"policy.{_name(request)}.max_epsilon_per_query is {most:g}"
        )


def least_epsilon(price: UnitPrice, delta: float, enough: float) -> float:
    """Return the smaller of a contribution's pure epsilon and that of its divergences.

    Parameters
    ----------
    price : UnitPrice
        Of one contribution.
    delta : float
        Of the epsilon of its divergences.
    enough : float
        A pure epsilon up to which the other, which loads an accountant, is not asked for.

    Returns
    -------
    float
        inf where nothing bounds it.
    """
    pure = math.inf if price.pure is None else price.pure
    if pure <= enough or price.row is None:
        return pure
    from zerosum.client.protocol import own_budget

    return min(pure, own_budget.epsilon(np.array(price.row), delta))


def most_per_query(request: Request, policy: ClientPolicy) -> float:
    """Return the largest epsilon of one such query; raises Declined where none is answered."""
    if isinstance(request, SumRequest):
        return _app_section(policy).max_epsilon_per_query
    return _section(policy).max_epsilon_per_query


def _name(request: Request) -> str:
    return "app_queries" if isinstance(request, SumRequest) else "queries"


def _app_section(policy: ClientPolicy) -> AppQueryPolicy:
    if policy.app_queries is None:
        raise Declined(
            "no query of an app is answered: this node's policy has no section [app_queries]"
        )
    return policy.app_queries


def _section(policy: ClientPolicy) -> QueryPolicy:
    if policy.queries is None:
        raise Declined("no query is answered: this node's policy has no section [queries]")
    return policy.queries
