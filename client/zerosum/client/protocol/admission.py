"""Decide by a client's own policy whether it takes part in a session and answers a request.

The server is never the authority: whatever it proposes is judged by the policy, the roster and the
durable record that the client holds itself. A refusal is a :class:`Declined`, whose reason stays
in the client's own log.
"""

import math
from collections.abc import Sequence

from zerosum.client import renyi_filter
from zerosum.client.privacy.spending import BudgetUnit, Price, UnitPrice
from zerosum.client.protocol.decision_store import DecisionStore
from zerosum.client.protocol.node_keys import Credentials
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.query_admission import (
    ROUNDING,
    check_app_query,
    check_query,
    check_query_price,
    most_per_query,
)
from zerosum.client.protocol.refusal import Declined as Declined
from zerosum.client.protocol.sum_request import SumRequest
from zerosum.client.protocol.survivors import guarantee_holds
from zerosum.client.request import ModelQuestion, QueryRequest, Request, about_model
from zerosum.client.spec import ClientPolicy
from zerosum.client.task import builtin_tasks
from zerosum.secagg import LocalProtocolError, Roster, Session
from zerosum.secagg.graph.failure_bounds import colluders_in


def roster_for(session: Session, credentials: Credentials | None) -> Roster | None:
    """Return the roster to judge a session by.

    Parameters
    ----------
    session : Session
        As proposed.
    credentials : Credentials or None
        What this client was given, if it was.

    Returns
    -------
    Roster or None
        None where the session is bound to no roster and nobody signs.
    """
    bound = session.signed or session.roster_digest
    return credentials.roster if credentials is not None and bound else None


def check_session(session: Session, policy: ClientPolicy, roster: Roster | None) -> None:
    """Decline a session that this client's policy does not take part in.

    Parameters
    ----------
    session : Session
        As proposed.
    policy : ClientPolicy
        This client's.
    roster : Roster or None
        As :func:`roster_for` gives it.

    Raises
    ------
    Declined
        For the protocol, a missing key, or too small a sum.
    PolicyRefusal
        For an unsafe graph, or another roster.
    """
    check_protocol(session, policy)
    if session.masked and session.signed and roster is None:
        raise Declined(
            "a session that withstands a malicious server needs this node's identity, roster and "
            "authority in its node config"
        )
    policy.for_sessions().admit(session, roster)
    if session.min_survivors < policy.min_cohort:
        raise Declined(
            f"a sum of {session.min_survivors} is below the policy's min_cohort = "
            f"{policy.min_cohort}"
        )


def check_protocol(session: Session, policy: ClientPolicy) -> None:
    """Decline a session under a protocol that this client's policy does not trust the server by.

    Parameters
    ----------
    session : Session
        Proposed, or kept.
    policy : ClientPolicy
        This client's.

    Raises
    ------
    Declined
        If the policy does not list the session's protocol.
    """
    if session.protocol not in policy.protocols:
        raise Declined(
            f"protocol {str(session.protocol)!r} is not among this client's {policy.protocols}"
        )


def check_budget(store: DecisionStore, policy: ClientPolicy) -> None:
    """Decline a contribution when the policy's max_contributions is reached.

    Parameters
    ----------
    store : DecisionStore
        Counts them.
    policy : ClientPolicy
        Bounds them.

    Raises
    ------
    Declined
        If there is no contribution left.
    """
    if store.contributions >= policy.max_contributions:
        raise Declined(f"the budget of max_contributions = {policy.max_contributions} is spent")


def priced(
    store: DecisionStore,
    policy: ClientPolicy,
    request: Request,
    protection: Protection,
    colluders: int,
) -> Price | None:
    """Reckon what a contribution costs, and decline it where the budget ends before it.

    Parameters
    ----------
    store : DecisionStore
        Knows what was spent.
    policy : ClientPolicy
        Bounds it.
    request : Request
        Allowed by the policy.
    protection : Protection
        Of its answer.
    colluders : int
        Clients of the cohort that may know their shares of the noise.

    Returns
    -------
    Price or None
        To the client as a whole, and to one record. None where nobody asks.
    """
    bounded = math.isfinite(policy.max_epsilon)
    counts = isinstance(request, QueryRequest | SumRequest)
    asked = counts and math.isfinite(most_per_query(request, policy))
    kept = store.accounts and request.question.privacy.private
    if not (bounded or asked or kept):
        return None
    from zerosum.client.protocol import own_budget

    price = own_budget.price(request, protection, colluders)
    if counts:
        check_query_price(request, policy, price)
    if bounded:
        check_within_budget(store, policy, price)
    return price


def check_within_budget(store: DecisionStore, policy: ClientPolicy, price: Price) -> None:
    """Decline a contribution that would take the unit of the policy above its limit.

    Parameters
    ----------
    store : DecisionStore
        Knows what was spent, and fixes the rule.
    policy : ClientPolicy
        With a finite max_epsilon.
    price : Price
        Of the contribution.

    Raises
    ------
    Declined
        If the limit is passed, or cannot be checked, or the rule is another than the first.
    """
    unit, rule = policy.budget_unit, store.spending.rule or policy.budget_rule
    if rule != policy.budget_rule:
        raise Declined(
            f"policy.budget_rule = {policy.budget_rule!r}, and this node's budget was opened by "
            f"{rule!r}: write that one, for a rule is not changed once something was spent by it"
        )
    if rule == "sum":
        _check_sum(store, policy.max_epsilon, policy.budget_delta, unit, price.of_unit(unit))
    else:
        row = price.of_unit(unit).row
        check_epsilon(store, policy.max_epsilon, policy.budget_delta, row, unit)


def _check_sum(
    store: DecisionStore, max_epsilon: float, delta: float, unit: BudgetUnit, price: UnitPrice
) -> None:
    """Decline a contribution that pure epsilons do not admit: they simply add up."""
    store.open_budget(None, max_epsilon, delta, "sum")
    spending = store.spending
    before = spending.of(unit)
    if price.pure is None or not before.bounds(spending.contributions, "sum"):
        whose = "this contribution" if price.pure is None else "what this node sent before"
        raise Declined(
            f"no pure epsilon bounds {whose} for one {unit}, and policy.budget_rule is 'sum': "
            "queries with geometric noise and local reports have one, training and Skellam noise "
            "have none"
        )
    total = before.pure + price.pure
    if not total <= max_epsilon * (1 + ROUNDING):
        raise Declined(
            f"with this contribution epsilon would be {total:.4g} for one {unit}, above the "
            f"policy's max_epsilon = {max_epsilon:g}"
        )


def check_epsilon(
    store: DecisionStore,
    max_epsilon: float,
    delta: float,
    price: Sequence[float] | None,
    unit: BudgetUnit = "client",
) -> None:
    """Decline a contribution that would take the client's epsilon above its limit.

    The order is fixed with the first policy that has a max_epsilon, and never again: a sum at
    another order would be chosen after the fact. A later policy moves the limit at that order.

    Parameters
    ----------
    store : DecisionStore
        Knows what was spent, and fixes the order.
    max_epsilon : float
        The policy's max_epsilon.
    delta : float
        At which it holds.
    price : sequence of float or None
        Renyi divergences, one for each order; None where nothing bounds them.
    unit : str
        Whose they are.

    Raises
    ------
    Declined
        If the limit is passed, or cannot be checked.
    """
    order = store.open_budget(renyi_filter.fixed_order(max_epsilon, delta), max_epsilon, delta)
    if order is None:
        raise Declined("this node's budget adds up pure epsilons, and has no Renyi order")
    spending = store.spending
    limit, before = renyi_filter.divergence_limit(max_epsilon, delta, order), spending.of(unit)
    spent = before.divergences if before.bounds(spending.contributions, "renyi") else None
    if price is None or spent is None:
        whose = "this contribution" if price is None else "what this node sent before"
        cure = "" if price is None else f"; {UNBOUNDED_BEFORE}"
        raise Declined(
            f"nothing bounds the epsilon of {whose}, and the policy has a max_epsilon{cure}"
        )
    at = renyi_filter.ORDERS.index(order)
    total = price[at] + (spent[at] if spent else 0.0)
    if not total <= limit:
        epsilon = total + renyi_filter.conversion(delta, order)
        raise Declined(
            f"with this contribution epsilon would be {epsilon:.4g} at budget_delta = {delta:g} "
            f"and the budget's order {order}, above the policy's max_epsilon = {max_epsilon:g}"
        )


UNBOUNDED_BEFORE = (
    "it was without noise, or an earlier version counted it against the server alone: set "
    "max_epsilon = inf, or let this node come back with an index, an identity and a state-dir that "
    "are new"
)


def check_request(request: Request, policy: ClientPolicy) -> None:
    """Decline a request whose model, mechanism, noise, clip or task the policy does not allow.

    Parameters
    ----------
    request : Request
    policy : ClientPolicy
        This client's.

    Raises
    ------
    Declined
        At the first thing that is not allowed, which the message names.
    """
    if isinstance(request, QueryRequest):
        check_query(request, policy)
        return
    if isinstance(request, SumRequest):
        check_app_query(request, policy)
        return
    question = about_model(request).question
    privacy = question.privacy
    if privacy.model not in policy.models:
        raise Declined(
            f"privacy model {privacy.model!r} is not among this client's {policy.models}"
        )
    if privacy.private and not policy.trusts(privacy.noise):
        raise Declined(
            f"mechanism {privacy.noise!r} is not among this client's {policy.mechanisms}"
        )
    if privacy.private and privacy.unit not in policy.units:
        raise Declined(f"privacy unit {privacy.unit!r} is not among this client's {policy.units}")
    if privacy.private and (privacy.noise_multiplier or 0.0) < policy.min_noise_multiplier:
        raise Declined(
            f"noise multiplier {privacy.noise_multiplier} is below the policy's "
            f"{policy.min_noise_multiplier}"
        )
    if privacy.noise_inside and policy.min_noise_multiplier > 0:
        _check_noise_inside(question, policy)
    if policy.max_clip is not None and (privacy.clip is None or privacy.clip > policy.max_clip):
        raise Declined(f"clip {privacy.clip} exceeds the policy's {policy.max_clip}")
    tasks = builtin_tasks() if policy.tasks == "built-in" else policy.tasks
    if tasks != "any" and question.task not in tasks:
        raise Declined(f"task {question.task!r} is not among this client's {tasks}")


def _check_noise_inside(question: ModelQuestion, policy: ClientPolicy) -> None:
    """Decline local training whose steps cost more than one vector at the policy's noise."""
    from zerosum.client.privacy import renyi_curves
    from zerosum.client.protocol import own_budget

    privacy, steps = question.privacy, question.training.steps or 1
    spent = own_budget.local_training(privacy.noise_multiplier or 0.0, privacy.example_rate, steps)
    least = policy.min_noise_multiplier
    allowed = own_budget.epsilon(renyi_curves.gaussian(least), policy.budget_delta)
    epsilon = own_budget.epsilon(spent, policy.budget_delta)
    if not epsilon <= allowed:
        raise Declined(
            f"{steps} steps at noise multiplier {privacy.noise_multiplier} come to epsilon "
            f"{epsilon:.4g} at budget_delta = {policy.budget_delta:g}, and one vector at the "
            f"policy's min_noise_multiplier = {least} to {allowed:.4g}"
        )


def check_guarantee(
    request: Request, session: Session, policy: ClientPolicy, roster: Roster | None
) -> int:
    """Decline a session that could open with less noise than its guarantee assumes.

    Parameters
    ----------
    request : Request
        Says which fraction of the cohort is honest, and how many clients there are.
    session : Session
        Says with how few survivors it opens.
    policy : ClientPolicy
        Says which fraction colludes.
    roster : Roster or None
        Says how many clients there are, where the client has one.

    Returns
    -------
    int
        Colluders of the cohort, at most, but for a chance below the policy's security.

    Raises
    ------
    Declined
        If the graph is unsafe at that many clients, or survivors are too few for the noise.
    """
    privacy, n = request.question.privacy, len(session.cohort)
    population = max(n, request.question.population if roster is None else len(roster))
    if roster is None:
        # Only now is it said how many clients there are, of whom some collude.
        try:
            policy.for_sessions().admit(session, population=population)
        except LocalProtocolError as error:  # the server's number, and not this client's mistake
            raise Declined(f"population = {population}: {error}") from None
    colluders = colluders_in(n, population, policy.corruption, session.mode, policy.security)
    if not privacy.private:
        return colluders
    if not guarantee_holds(privacy.honest_part(n), n, session.min_survivors, colluders):
        raise Declined(
            f"the session opens with {session.min_survivors} of {n} survivors, {colluders} of them "
            f"colluders: fewer than honest_fraction = {privacy.honest_fraction} promises"
        )
    return colluders
