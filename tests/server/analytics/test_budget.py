import functools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, RandomizedResponseDpEvent, SelfComposedDpEvent
from scipy.special import ive

from zerosum.client.privacy.events import IntegerNoiseDpEvent
from zerosum.client.privacy.integer_laws import IntegerLaw
from zerosum.server.analytics.budget import (
    Budget,
    BudgetError,
    BudgetExceeded,
    check,
    check_plan,
    spend,
)
from zerosum.server.analytics.calibrate import Noise, calibrate
from zerosum.server.privacy.accountant import Ledger

DELTA = 1e-6


def count(epsilon: float) -> IntegerNoiseDpEvent:
    return calibrate((1,), epsilon=epsilon, delta=0.0).receipt((1,))


def asked(budget: Budget, one: IntegerNoiseDpEvent) -> int:
    """Ask the same until it is refused."""
    receipts: list[IntegerNoiseDpEvent] = []
    for number in range(1000):
        try:
            check(budget, receipts, one)
        except BudgetExceeded:
            return number
        receipts.append(one)
    return 1000


def test_the_order_of_a_renyi_budget_depends_on_it_alone():
    budget = Budget(1.0, DELTA, "renyi")
    assert budget.order == 22
    assert budget.limit == pytest.approx(0.536, abs=5e-4)


@pytest.mark.parametrize(
    ("rule", "epsilon", "queries"),
    [("sum", 0.02, 50), ("sum", 0.05, 20), ("renyi", 0.02, 125), ("renyi", 0.05, 22)],
)
def test_a_budget_of_one_admits_so_many_counts(rule, epsilon, queries):
    assert asked(Budget(1.0, DELTA, rule), count(epsilon)) == queries


@pytest.mark.parametrize(
    ("limit", "epsilon", "queries"),
    [(0.3, 0.1, 3), (1.0, 0.1, 10), (0.7, 0.07, 10), (2.3, 0.01, 230)],
)
def test_decimals_add_up_as_people_add_them(limit, epsilon, queries):
    assert asked(Budget(limit, 0.0), count(epsilon)) == queries


def test_what_a_query_costs_is_said_with_what_is_left_and_what_fits():
    spent = [count(0.9), count(0.04)]
    with pytest.raises(BudgetExceeded) as refusal:
        check(Budget(1.0, DELTA), spent, count(0.1), receipt_at=count)
    assert str(refusal.value) == (
        "this query costs 0.10; 0.06 of 1.00 is left; at epsilon = 0.06 it fits"
    )
    assert refusal.value.fits == 0.06
    check(Budget(1.0, DELTA), spent, count(0.06))


@pytest.mark.slow
def test_a_renyi_budget_says_what_fits():
    budget = Budget(1.0, DELTA, "renyi")
    spent = [count(0.1)] * 4

    def receipt_at(epsilon: float) -> IntegerNoiseDpEvent:
        return calibrate((1,) * 20, epsilon=epsilon, delta=DELTA).receipt((1,) * 20)

    with pytest.raises(BudgetExceeded, match="of Renyi divergence at order 22") as refusal:
        check(budget, spent, receipt_at(1.0), receipt_at=receipt_at)
    fits = refusal.value.fits
    assert fits is not None
    check(budget, spent, receipt_at(fits))
    with pytest.raises(BudgetExceeded):
        check(budget, spent, receipt_at(1.1 * fits))


def test_a_budget_that_is_spent_offers_nothing():
    with pytest.raises(BudgetExceeded, match=r"0\.00 of 1\.00 is left$") as refusal:
        check(Budget(1.0, DELTA), [count(1.0)], count(0.1), receipt_at=count)
    assert refusal.value.fits is None


def test_a_budget_by_sum_refuses_noise_without_a_pure_epsilon():
    skellam = IntegerNoiseDpEvent("skellam", (1e6,), (1,))
    with pytest.raises(BudgetError, match='mechanism = "geometric"'):
        check(Budget(1.0, DELTA), [], skellam)
    check(Budget(1.0, DELTA, "renyi"), [], skellam)


def test_a_plan_is_composed_exactly():
    budget = Budget(1.8, DELTA, "plan")
    planned = [count(0.1)] * 20
    assert check_plan(budget, planned).epsilon == pytest.approx(1.79, abs=0.005)
    asked = planned[:0]
    for one in planned:
        check(budget, asked, one, planned=planned)
        asked = [*asked, one]
    assert spend(budget, asked).left == pytest.approx(0.011, abs=0.001)
    with pytest.raises(BudgetError, match="not one that is left of the plan"):
        check(budget, asked, planned[0], planned=planned)


def test_a_plan_admits_no_query_but_its_own():
    budget = Budget(1.8, DELTA, "plan")
    with pytest.raises(BudgetError, match="queries of a plan alone"):
        check(budget, [], count(0.1))
    with pytest.raises(BudgetError, match="not one that is left of the plan"):
        check(budget, [], count(0.01), planned=[count(0.1)])
    with pytest.raises(BudgetExceeded, match="the plan's 25 receipts cost"):
        check(budget, [], count(0.1), planned=[count(0.1)] * 25)


def test_rounds_of_a_query_are_charged_together():
    rounds = SelfComposedDpEvent(count(0.2), 5)
    assert spend(Budget(1.0, DELTA), [rounds]).used == pytest.approx(1.0)
    planned = [rounds, ComposedDpEvent([count(0.1), count(0.3)])]
    budget = Budget(2.0, DELTA, "plan")
    check(budget, [rounds], planned[1], planned=planned)
    with pytest.raises(BudgetError, match="left of the plan"):
        check(budget, [rounds], rounds, planned=planned)


@pytest.mark.parametrize("rule", ["sum", "renyi", "plan"])
def test_local_reports_are_charged_as_randomised_response(rule):
    report = RandomizedResponseDpEvent(2 / (1 + math.exp(0.2)), 2)
    budget = Budget(1.0, DELTA, rule, "sum", "client", "replace")
    used = check(budget, [report], report, planned=[report, report]).used
    if rule == "renyi":
        alpha = budget.order or 0
        # Answers of probability e^.2/(1 + e^.2) and the rest, exchanged.
        p = 1 / (1 + math.exp(-0.2))
        power = p**alpha * (1 - p) ** (1 - alpha) + (1 - p) ** alpha * p ** (1 - alpha)
        assert used == pytest.approx(2 * math.log(power) / (alpha - 1))
    else:
        assert used == pytest.approx(0.4, abs=1e-4)


@pytest.mark.parametrize("rule", ["sum", "renyi"])
def test_what_protects_nothing_fits_into_no_budget(rule):
    budget = Budget(1.0, DELTA, rule, "sum", "client", "replace")
    with pytest.raises(BudgetError):
        check(budget, [], RandomizedResponseDpEvent(0.0, 2))


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ((0.0, DELTA), "budget.epsilon"),
        ((math.nan, DELTA), "budget.epsilon"),
        ((math.inf, DELTA), "budget.epsilon"),
        ((1.0, 1.0), "budget.delta"),
        ((1.0, -0.1), "budget.delta"),
        ((1.0, DELTA, "adaptive"), "budget.rule"),
        ((1.0, DELTA, "sum", "nobody"), "budget.observer"),
        ((1.0, DELTA, "sum", "sum", "example"), "budget.unit"),
        ((1.0, DELTA, "sum", "sum", "record", "add_remove"), "budget.adjacency"),
        ((1.0, 0.0, "renyi"), "above 0"),
        ((0.01, DELTA, "renyi"), "admits no query"),
    ],
)
def test_a_budget_out_of_range_is_not_opened(values, match):
    with pytest.raises(BudgetError, match=match):
        Budget(*values)


def test_nothing_spent_is_nothing():
    for rule in ("sum", "renyi", "plan"):
        spent = spend(Budget(1.0, DELTA, rule), [])
        assert (spent.epsilon, spent.used) == (0.0, 0.0)


def test_a_renyi_budget_spent_to_its_end_is_its_epsilon():
    budget = Budget(1.0, DELTA, "renyi")
    spent = spend(budget, [count(0.02)] * 121)
    assert 0.98 < spent.epsilon <= 1.0
    # The exact composition of what turned out is below it.
    assert Ledger("zero_out").compose(count(0.02), 121).epsilon(DELTA) < spent.epsilon


SHAPES = ((1,), (1, 1, 1), (4, 4), (1,) * 12)


@functools.cache
def divergence(receipt: IntegerNoiseDpEvent, alpha: int) -> float:
    """Recompute R(alpha) from the definition, in floating point: an independent reference."""
    if receipt.law == "geometric":
        reach = int(60 * receipt.parameters[0]) + 2 * max(receipt.moves)
        k = np.arange(-reach, reach + 1)
        weights = np.exp(-np.abs(k) / receipt.parameters[0])
    else:
        reach = int(40 * math.sqrt(receipt.parameters[0])) + 30 * max(receipt.moves)
        k = np.arange(-reach, reach + 1)
        weights = ive(np.abs(k), receipt.parameters[0])
    logs = np.log(weights[weights > 1e-290] / weights.sum())
    total = 0.0
    for move in receipt.moves:
        total += np.logaddexp.reduce(alpha * logs[:-move] + (1 - alpha) * logs[move:])
    return total / (alpha - 1)


@functools.cache
def priced(shape: tuple[int, ...], epsilon: float, law: IntegerLaw) -> IntegerNoiseDpEvent:
    pure = calibrate(shape, epsilon=epsilon, delta=0.0)
    # About what a Gaussian needs: receipts of any scale are charged for what they are.
    gaussian = Noise("skellam", 4 * math.hypot(*shape) / epsilon)
    return (pure if law == "geometric" else gaussian).receipt(shape)


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("analysts", [100, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", ["sum", "renyi"])
def test_adaptive_analysts_never_exceed_the_rule(rule, analysts):
    """Each chooses its next query by coins and by what was refused."""
    nearly_all = 0
    for seed in range(analysts):
        analyst = random.Random(f"{rule} {seed}")
        budget = Budget(analyst.choice([0.5, 1.0, 3.0]), DELTA, rule)
        receipts: list[IntegerNoiseDpEvent] = []
        refusals = 0
        epsilons = [0.02, 0.05, 0.1, 0.4, 1.0]
        while refusals < 4 and len(receipts) < 60:
            last = len(epsilons) - refusals
            law: IntegerLaw = "geometric"
            if rule == "renyi" and analyst.random() < 0.5:
                law = "skellam"
            new = priced(analyst.choice(SHAPES), analyst.choice(epsilons[:last]), law)
            try:
                check(budget, receipts, new)
            except BudgetExceeded:
                refusals += 1
                continue
            receipts.append(new)
        costs: list[Fraction | float]
        if rule == "sum":
            costs = [sum(one.moves) / Fraction(one.parameters[0]) for one in receipts]
        else:
            costs = [divergence(one, budget.order or 0) for one in receipts]
        used = float(sum(costs))
        assert used <= budget.limit * (1 + 1e-9)
        nearly_all += used > 0.8 * budget.limit
    assert nearly_all > analysts / 2
