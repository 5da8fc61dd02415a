"""Budget of an analyst: a rule, fixed when it is opened, by which receipts add up.

Exact composition is proved for parameters that are fixed beforehand, and not for an analyst who
chooses the next epsilon by the last answer (Rogers, Roth, Ullman, Vadhan, "Privacy odometers and
filters", 2016). So the three rules: receipts that are all known before the first answer, pure
epsilons that add up whatever is chosen, and Renyi divergences at one order that is fixed by the
budget alone (Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", 2021).
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from dp_accounting import DpEvent
from scipy.optimize import brentq

from zerosum.client import renyi_filter
from zerosum.client.privacy import events, renyi_curves
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import Adjacency, Unit
from zerosum.server.analytics.asks import Rule
from zerosum.server.privacy import event_costs
from zerosum.server.privacy.accountant import Ledger
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.rounding import epsilon_text, remainder_text

_ROUNDING = 1e-12
"""Part of a limit that sums may be above it: three times 0.1 is above 0.3 in float64."""

_fixed_order = lru_cache(maxsize=64)(renyi_filter.fixed_order)

_FITTING_PRECISION = 1e-3
"""Relative precision of an epsilon that fits, before it is rounded down to two digits."""

_LOWER_STEPS = 10
"""Times that it is halved before a query is said to fit at no epsilon."""


class BudgetError(QueryError):
    """A budget admits no query of this kind, or cannot be opened: one line for the analyst."""


class BudgetExceeded(BudgetError):
    """A query costs more than is left.

    Attributes
    ----------
    cost, left : float
        In the measure of the budget's rule: see :class:`Spent`.
    fits : float or None
        An epsilon at which the query fits, two digits; None where there is none or nobody asked.
    """

    def __init__(self, text: str, cost: float, left: float, fits: float | None) -> None:
        super().__init__(text)
        self.cost, self.left, self.fits = cost, left, fits


@dataclass(frozen=True)
class Budget:
    """What an analyst may spend, of whom and against whom, and the rule that adds it up.

    Attributes
    ----------
    epsilon : float
        Above 0, finite.
    delta : float
        In [0, 1); above 0 under the rule "renyi".
    rule : {"plan", "sum", "renyi"}
        How receipts add up. "sum" admits pure epsilons alone.
    observer : {"local", "sum", "release"}
        Whose view the epsilon speaks of.
    unit : {"record", "client"}
        What is protected.
    adjacency : {"zero_out", "replace"}
        What two neighbours differ in.

    Raises
    ------
    BudgetError
        If a value is out of range, or under "renyi" if every query would be refused.
    """

    epsilon: float
    delta: float
    rule: Rule = "sum"
    observer: ObserverName = "sum"
    unit: Unit = "record"
    adjacency: Adjacency = "zero_out"

    def __post_init__(self) -> None:
        allowed = {
            "rule": get_args(Rule),
            "observer": OBSERVERS,
            "unit": get_args(Unit),
            "adjacency": get_args(Adjacency),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise BudgetError(
                    f"budget.{name} is one of {', '.join(values)}, not {getattr(self, name)!r}"
                )
        if not 0 < self.epsilon < math.inf:
            raise BudgetError(f"budget.epsilon is above 0 and finite, not {self.epsilon}")
        if not 0 <= self.delta < 1:
            raise BudgetError(f"budget.delta lies in [0, 1), not at {self.delta}")
        if self.rule == "renyi":
            self._check_renyi()

    def _check_renyi(self) -> None:
        if self.delta == 0:
            raise BudgetError(
                'budget.rule = "renyi" needs budget.delta above 0; use the rule "sum"'
            )
        try:
            _fixed_order(self.epsilon, self.delta)
        except ValueError:
            least = renyi_filter.least_epsilon(self.delta)
            raise BudgetError(
                f'budget.rule = "renyi" admits no query at epsilon = {self.epsilon:g} and delta = '
                f"{self.delta:g}, however noisy: epsilon must be above {least:.2g}; raise it, or "
                'use the rule "sum"'
            ) from None

    @property
    def order(self) -> int | None:
        """Renyi order alpha* that maximises B(alpha)/alpha; None under the other rules."""
        if self.rule != "renyi":
            return None
        return _fixed_order(self.epsilon, self.delta)

    @property
    def limit(self) -> float:
        """Most that receipts may add up to: B at the order, or epsilon."""
        order = self.order
        if order is None:
            return self.epsilon
        return renyi_filter.divergence_limit(self.epsilon, self.delta, order)


@dataclass(frozen=True)
class Spent:
    """What receipts have cost so far.

    Attributes
    ----------
    epsilon : float
        That holds at the budget's delta for all receipts together; 0 of none.
    used, limit : float
        In the rule's measure: pure epsilons, exact epsilons, or Renyi divergences at its order.
    """

    epsilon: float
    used: float
    limit: float

    @property
    def left(self) -> float:
        """What is left of the limit, in the same measure; not below 0."""
        return max(0.0, self.limit - self.used)


def spend(budget: Budget, receipts: Sequence[DpEvent]) -> Spent:
    """Add receipts up by a budget's rule.

    Parameters
    ----------
    budget : Budget
        Whose unit, adjacency and observer they speak of.
    receipts : sequence of DpEvent
        Of all sums that were opened, abandoned ones included.

    Returns
    -------
    Spent
        Infinite under "sum" if one of them has no pure epsilon.

    Raises
    ------
    UnsupportedEventError
        If nothing bounds a receipt under this adjacency.
    """
    used = _used(budget, receipts)
    order = budget.order
    epsilon = used
    if order is not None and receipts:
        epsilon = max(0.0, used + renyi_filter.conversion(budget.delta, order))
    return Spent(epsilon, used, budget.limit)


def check(
    budget: Budget,
    receipts: Sequence[DpEvent],
    new: DpEvent,
    *,
    planned: Sequence[DpEvent] | None = None,
    receipt_at: Callable[[float], DpEvent] | None = None,
) -> Spent:
    """Refuse a query that does not fit into what is left of a budget.

    Parameters
    ----------
    budget : Budget
        Of the analyst.
    receipts : sequence of DpEvent
        Of all sums that were opened before.
    new : DpEvent
        Receipt of the query, compositions included.
    planned : sequence of DpEvent or None
        Under "plan", all receipts that were fixed before the first answer; required there.
    receipt_at : callable or None
        The receipt of the same query at another epsilon: for an epsilon that still fits.

    Returns
    -------
    Spent
        With the query.

    Raises
    ------
    BudgetExceeded
        If it does not fit. The message says what it costs, what is left, and what would fit.
    BudgetError
        If the rule cannot charge it: no pure epsilon under "sum", or not in the plan.
    UnsupportedEventError
        If nothing bounds a receipt under this adjacency.
    """
    if budget.rule == "sum" and not math.isfinite(_used(budget, [new])):
        raise BudgetError(
            'the budget\'s rule "sum" adds pure epsilons up, and this query has none; ask with '
            'mechanism = "geometric", or open a budget of the rule "renyi"'
        )
    if budget.rule == "plan":
        _check_planned(budget, receipts, new, planned)
    after = spend(budget, [*receipts, new])
    if _fits(after):
        return after
    before = spend(budget, receipts)
    fits = None if receipt_at is None else _fitting(budget, receipts, receipt_at)
    cost = after.used - before.used
    raise BudgetExceeded(_sentence(budget, cost, before.left, fits), cost, before.left, fits)


def check_plan(budget: Budget, planned: Sequence[DpEvent]) -> Spent:
    """Refuse a plan whose receipts, all together, cost more than the budget.

    Parameters
    ----------
    budget : Budget
        Of any rule.
    planned : sequence of DpEvent
        Receipts of all queries, of their rounds and of second attempts.

    Returns
    -------
    Spent
        By the whole plan.

    Raises
    ------
    BudgetExceeded
        If the plan does not fit.
    UnsupportedEventError
        If nothing bounds a receipt under this adjacency.
    """
    whole = spend(budget, planned)
    if _fits(whole):
        return whole
    over = epsilon_text(whole.used)
    raise BudgetExceeded(
        f"the plan's {len(planned)} receipts cost {over} of {epsilon_text(budget.limit)}; lower "
        "their epsilons, ask fewer queries, or raise the budget",
        whole.used,
        budget.limit,
        None,
    )


def _check_planned(
    budget: Budget,
    receipts: Sequence[DpEvent],
    new: DpEvent,
    planned: Sequence[DpEvent] | None,
) -> None:
    """Refuse what was not fixed beforehand: for it alone exact composition is proved."""
    if planned is None:
        raise BudgetError(
            'the budget\'s rule "plan" admits the queries of a plan alone; open a budget of the '
            'rule "sum" or "renyi" to ask one by one'
        )
    check_plan(budget, planned)
    if not _counted([*receipts, new]) <= _counted(planned):
        raise BudgetError(
            'this query is not one that is left of the plan, whose receipts the rule "plan" fixes '
            'before the first answer; open a budget of the rule "sum" or "renyi" for it'
        )


def _counted(receipts: Sequence[DpEvent]) -> Counter[DpEvent]:
    total: Counter[DpEvent] = Counter()
    for receipt in receipts:
        for leaf, count in event_costs.leaves(events.hashable(receipt)):
            total[leaf] += int(count)
    return total


def _used(budget: Budget, receipts: Sequence[DpEvent]) -> float:
    """Return what receipts cost in the rule's measure."""
    if budget.rule == "plan":
        ledger = Ledger(budget.adjacency)
        for receipt in receipts:
            ledger.compose(receipt)
        return ledger.epsilon(budget.delta)
    order = budget.order
    costs = []
    for receipt, number in Counter(map(events.hashable, receipts)).items():
        for leaf, count in event_costs.leaves(receipt, number):
            one = event_costs.simplified(leaf)
            pure = event_costs.pure_epsilon(one, budget.adjacency)
            cost = pure if order is None else _divergence(one, budget.adjacency, order)
            costs.append(count * cost)
    return math.fsum(costs)


@lru_cache(maxsize=1024)
def _divergence(event: DpEvent, adjacency: Adjacency, order: int) -> float:
    """Return the smallest bound that is known of an event's Renyi divergence at an order."""
    place = renyi_filter.ORDERS.index(order)
    if event_costs.exposes(event):
        return math.inf
    pure = event_costs.pure_epsilon(event, adjacency)
    bounds = []
    if math.isfinite(pure):
        bounds.append(float(renyi_curves.pure(pure)[place]))
    if event_costs.has_divergences(event, adjacency):
        orders, row = event_costs.divergences(event, adjacency, (float(order),))
        bounds.append(float(row[orders.index(order)]))
    if not bounds:
        raise events.UnsupportedEventError(
            f"no Renyi divergence is known of {event} under {adjacency} adjacency"
        )
    return min(bounds)


def _fits(spent: Spent) -> bool:
    return spent.used <= spent.limit * (1 + _ROUNDING)


def _fitting(
    budget: Budget, receipts: Sequence[DpEvent], receipt_at: Callable[[float], DpEvent]
) -> float | None:
    """Return about the largest epsilon of two digits at which a query fits; None if none does."""
    left = spend(budget, receipts).left
    if left <= 0:
        return None

    def over(log_epsilon: float) -> float:
        after = spend(budget, [*receipts, receipt_at(math.exp(log_epsilon))])
        return math.log(after.used / after.limit)

    try:
        return _two_digits_that_fit(over, math.log(budget.epsilon), left / budget.limit)
    except ValueError:  # no noise in reach gives an epsilon as small
        return None


def _two_digits_that_fit(over: Callable[[float], float], high: float, part: float) -> float | None:
    """Search the epsilon at which ``over`` is 0, downward from the logarithm of one above."""
    # What is charged grows with epsilon or with its square.
    low = high + math.log(part)
    for _ in range(_LOWER_STEPS):
        if over(low) <= 0:
            break
        high, low = low, low - math.log(2)
    else:
        return None
    if over(high) > 0:
        low = float(brentq(over, low, high, xtol=_FITTING_PRECISION))
    for text in _two_digits(math.exp(low) * (1 + _FITTING_PRECISION)):
        if over(math.log(text)) <= _ROUNDING:
            return text
    return None


def _two_digits(value: float) -> tuple[float, float]:
    """Return a value rounded down to two significant digits, and the number below that."""
    exponent = math.floor(math.log10(value)) - 1
    digits = math.floor(value / 10.0**exponent)
    return float(f"{digits}e{exponent}"), float(f"{digits - 1}e{exponent}")


def _sentence(budget: Budget, cost: float, left: float, fits: float | None) -> str:
    order = budget.order
    kind = "" if order is None else f" of Renyi divergence at order {order}"
    remaining = remainder_text(left * (1 + _ROUNDING))
    text = (
        f"this query costs {_decimals(epsilon_text(cost * (1 - _ROUNDING)))}{kind}; "
        f"{_decimals(remaining)} of {_decimals(remainder_text(budget.limit))} is left"
    )
    return text if fits is None else f"{text}; at epsilon = {_decimals(f'{fits:g}')} it fits"


def _decimals(text: str) -> str:
    """Return a figure with two decimals or more, as an amount is written."""
    whole, _, rest = text.partition(".")
    return text if "e" in text or text == "∞" else f"{whole}.{rest:0<2}"
