"""Decide by a node's ``[policy.queries]`` whether it answers a query.

What is refused depends on the request, the policy and the budget: never on a value of the table.
"""

from zerosum.client.protocol.refusal import Declined
from zerosum.client.request import QueryRequest
from zerosum.client.spec import ClientPolicy
from zerosum.client.spec.query_policy import QueryPolicy


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
    own = policy.queries
    if own is None:
        raise Declined("no query is answered: this node's policy has no section [queries]")
    privacy = request.question.privacy
    if privacy.model not in policy.models:
        raise Declined(
            f"privacy model {privacy.model!r} is not among this client's {policy.models}"
        )
    _check_question(request, own)


def _check_question(request: QueryRequest, own: QueryPolicy) -> None:
    question, privacy = request.question, request.question.privacy
    kind = question.query.kind
    if kind not in own.kinds:
        raise Declined(f"query {kind!r} is not in policy.queries.kinds = {own.kinds}")
    for name in question.query.reads:
        if name not in own.columns:
            raise Declined(f"column {name!r} is not in policy.queries.columns")
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
