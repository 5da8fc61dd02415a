"""Write a node's own log: whose run it answers, and what each contribution spent.

Every message has a process of its own, so what is said once is known from the durable record.
"""

import logging
import math
from typing import Final

from zerosum.client import renyi_filter
from zerosum.client.privacy.spending import BudgetRule, BudgetUnit, Spending, run_name
from zerosum.client.protocol.sum_request import SumRequest
from zerosum.client.request import QueryRequest, Request, about_model
from zerosum.client.spec import ClientPolicy

log = logging.getLogger("zerosum.client")

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show_log() -> None:
    """Let the node's operator see our lines, with time and name: a SuperNode's app shows none."""
    ours = logging.getLogger("zerosum")
    if not ours.hasHandlers():
        shown = logging.StreamHandler()
        shown.setFormatter(logging.Formatter(_LINE))
        ours.addHandler(shown)
        ours.setLevel(logging.INFO)


def log_contribution(
    spent: Spending, policy: ClientPolicy, request: Request, run_id: bytes, flower_run: int
) -> None:
    """Log a contribution that was charged, and before a run's first the terms of the run.

    Parameters
    ----------
    spent : Spending
        The contribution included.
    policy : ClientPolicy
        That admitted it.
    request : Request
        That was answered.
    run_id : bytes
        Of its session.
    flower_run : int
        Flower's id of the run.
    """
    sent = spent.by_run.get(run_name(run_id), 0)
    if sent == 1:
        log.info("run %d: terms accepted: %s", flower_run, _terms(request, policy))
    log.info(
        "run %d, round %d: contribution %d of this run is charged; %s",
        flower_run,
        request.question.round,
        sent,
        _spent(spent, policy),
    )


def _terms(request: Request, policy: ClientPolicy) -> str:
    if isinstance(request, QueryRequest | SumRequest):
        what, privacy = "sums of values, not a model", request.question.privacy
        parts = [what, f"privacy.model {privacy.model}"]
    else:
        question = about_model(request).question
        parts = [
            f"task {question.task!r}",
            f"privacy.model {question.privacy.model}",
            f"unit {question.privacy.unit}",
        ]
        if question.privacy.noise_multiplier:
            parts.append(f"noise multiplier {question.privacy.noise_multiplier:.4g}")
    most = "no max_epsilon"
    if math.isfinite(policy.max_epsilon):
        most = f"max_epsilon = {policy.max_epsilon:g} at budget_delta = {policy.budget_delta:g}"
    return ", ".join([*parts, f"the policy has {most}"])


def _spent(spent: Spending, policy: ClientPolicy) -> str:
    most = policy.max_contributions
    count = f"{spent.contributions} of max_contributions = {most} are sent"
    if not math.isfinite(policy.max_epsilon):
        return count
    rule = spent.rule or policy.budget_rule
    value = spent_epsilon(spent, policy.budget_unit, rule, spent.order, policy.budget_delta)
    # Rounded up, as every epsilon that is printed.
    shown = "without a bound" if value is None else f"{math.ceil(value * 1000) / 1000:g}"
    return f"{count}, and epsilon {shown} of max_epsilon = {policy.max_epsilon:g} is spent"


def spent_epsilon(
    spent: Spending, unit: BudgetUnit, rule: BudgetRule, order: int | None, delta: float
) -> float | None:
    """Return the epsilon of all contributions; None where one of them has no bound.

    Parameters
    ----------
    spent : Spending
        A node's record.
    unit, rule : str
        Of the budget.
    order : int or None
        At which the budget is kept; None: the least epsilon over all, which holds for requests that
        were fixed beforehand.
    delta : float
        Of the budget.

    Returns
    -------
    float or None
        Of an open budget that of its one order; pure under the rule "sum".
    """
    of_unit = spent.of(unit)
    if not of_unit.bounds(spent.contributions, rule):
        return None
    if rule == "sum":
        return of_unit.pure
    if not spent.contributions:
        return 0.0
    orders = renyi_filter.ORDERS if order is None else (order,)
    rows = dict(zip(renyi_filter.ORDERS, of_unit.divergences, strict=True))
    least = min(rows[one] + renyi_filter.conversion(delta, one) for one in orders)
    return max(0.0, least) if math.isfinite(least) else None
