"""A node's own budget: one Renyi order, fixed when it is opened, whatever a server asks next."""

import json
import math
import signal
import subprocess
import sys

import numpy as np
import pytest
from policies import policy_of
from pydantic import ValidationError

from zerosum.client.files.private_files import write_private
from zerosum.client.privacy import events, renyi_curves
from zerosum.client.protocol import admission, own_budget
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.decision_store import DamagedStoreError, MemoryStore
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.renyi_filter import (
    ORDERS,
    conversion,
    divergence_limit,
    fixed_order,
    least_epsilon,
)

EPSILON, DELTA = 1.0, 1e-6


def test_the_order_of_epsilon_1_and_delta_1e_6_is_the_published_one():
    order = fixed_order(EPSILON, DELTA)
    assert order == 22
    assert divergence_limit(EPSILON, DELTA, order) == pytest.approx(0.536, abs=5e-4)
    assert events.ORDERS == ORDERS


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1, 1e-9), (8, 1e-5), (300, 1e-2)])
def test_a_sum_at_the_limit_converts_to_the_epsilon_and_no_more(epsilon, delta):
    """Against the conversion of dp_accounting, which knows no limit."""
    order = fixed_order(epsilon, delta)
    at = ORDERS.index(order)
    row = np.full(len(ORDERS), np.inf)
    row[at] = divergence_limit(epsilon, delta, order)
    assert own_budget.epsilon(row, delta) == pytest.approx(epsilon, rel=1e-9)
    row[at] *= 1.01
    assert own_budget.epsilon(row, delta) > epsilon
    others = [divergence_limit(epsilon, delta, other) / other for other in ORDERS]
    assert divergence_limit(epsilon, delta, order) / order == max(others)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-5])
def test_a_budget_that_admits_nothing_is_refused_when_the_policy_is_read(delta):
    least = least_epsilon(delta)
    policy_of(max_epsilon=least * 1.01, budget_delta=delta)
    with pytest.raises(ValidationError, match=r"admits no contribution.*must be above 0\.0"):
        policy_of(max_epsilon=least * 0.8, budget_delta=delta)


# -- requests that are chosen by the answers before them -----------------------------------------


def rows():
    """Return costs of different shapes: their best orders lie far apart."""
    gauss = [renyi_curves.gaussian(z) for z in (3.0, 8.0, 30.0)]
    sampled = [
        own_budget.local_training(z, q, 20) for z, q in ((2.0, 0.05), (4.0, 0.1), (1.5, 0.01))
    ]
    pure = [np.minimum(e, np.array(ORDERS) * e * e / 2) for e in (0.02, 0.1, 0.3)]
    return [list(map(float, row)) for row in (*gauss, *sampled, *pure)]


def admitted_by_least_epsilon(total):
    """Decide as the rule without a fixed order did."""
    return own_budget.epsilon(total, DELTA) <= EPSILON


def spend(store, choose, limit=400):
    """Ask until three requests were declined; return the sum of what was answered."""
    total, refused = np.zeros(len(ORDERS)), 0
    for _ in range(limit):
        price = choose(total)
        try:
            admission.check_epsilon(store, EPSILON, DELTA, price)
        except Declined:
            refused += 1
            if refused == 3:
                break
            continue
        store.count_contribution(price)
        total += price
    return total


@pytest.mark.slow
def test_a_thousand_adaptive_sequences_never_pass_the_limit_at_the_fixed_order():
    costs, rng = rows(), np.random.default_rng(0)
    at, limit = ORDERS.index(22), divergence_limit(EPSILON, DELTA, 22)
    fullest = 0.0
    for _ in range(1000):
        weights = rng.dirichlet(np.full(len(costs), 0.3))

        def choose(total, weights=weights):
            # Greedy half of the time: what leaves the least room at the order that is best so far.
            if rng.random() < 0.5:
                best = int(np.argmin(total + [conversion(DELTA, order) for order in ORDERS]))
                return min(costs, key=lambda row: row[best])
            return costs[rng.choice(len(costs), p=weights)]

        total = spend(MemoryStore(), choose, limit=60)
        assert total[at] <= limit * (1 + 1e-12)
        fullest = max(fullest, total[at] / limit)
    assert fullest > 0.95  # the limit is what ends them


def test_the_rule_of_the_least_epsilon_admits_sequences_beyond_it():
    """The control: sampled steps are best at other orders, and the old rule followed them there."""
    cost = np.array(rows()[5])
    total = np.zeros(len(ORDERS))
    while admitted_by_least_epsilon(total + cost):
        total += cost
    assert total[ORDERS.index(22)] > 100 * divergence_limit(EPSILON, DELTA, 22)
    fixed = spend(MemoryStore(), lambda total: list(cost), limit=10_000)
    assert fixed[ORDERS.index(22)] <= divergence_limit(EPSILON, DELTA, 22)
    assert (fixed <= total).all()


# -- the durable record --------------------------------------------------------------------------


def gaussian(z):
    return list(map(float, renyi_curves.gaussian(z)))


def check(folder, epsilon=EPSILON, delta=DELTA, z=8.0):
    admission.check_epsilon(FileStore(folder), epsilon, delta, gaussian(z))


def answered(folder, epsilon=EPSILON, delta=DELTA, z=8.0, most=1000):
    """Answer, each time in a process of its own, until the budget ends."""
    for count in range(most):
        try:
            check(folder, epsilon, delta, z)
        except Declined:
            return count
        FileStore(folder).count_contribution(gaussian(z))
    return most


def spent_at(folder, order):
    spent = FileStore(folder).spent
    assert spent is not None
    return spent[ORDERS.index(order)]


def test_the_order_stays_where_it_was_first_fixed(tmp_path):
    check(tmp_path)
    for epsilon, delta in ((8.0, 1e-5), (0.5, 1e-3)):
        assert fixed_order(epsilon, delta) != 22
        assert FileStore(tmp_path).open_budget(fixed_order(epsilon, delta), epsilon, delta) == 22


def test_a_raised_policy_admits_what_its_limit_at_the_old_order_does(tmp_path):
    first = answered(tmp_path)
    assert first == 3  # 22 / 128 each, of 0.536
    answered(tmp_path, epsilon=2.0)
    assert spent_at(tmp_path, 22) <= divergence_limit(2.0, DELTA, 22)
    assert spent_at(tmp_path, 22) > divergence_limit(2.0, DELTA, 22) - 22 / 128


def test_a_lowered_policy_admits_nothing_that_passes_it(tmp_path):
    answered(tmp_path, epsilon=2.0)
    before = spent_at(tmp_path, fixed_order(2.0, DELTA))
    assert answered(tmp_path, epsilon=1.0) == 0
    assert answered(tmp_path, epsilon=0.02, delta=1e-3) == 0
    assert spent_at(tmp_path, fixed_order(2.0, DELTA)) == before
    # Nothing at all fits at this order under such a policy, though another order would do.
    fresh = tmp_path / "fresh"
    check(fresh, epsilon=8.0, delta=1e-5)
    with pytest.raises(Declined, match="the budget's order 4, above the policy's max_epsilon"):
        check(fresh, epsilon=0.5, delta=1e-5, z=1e6)


KILLED = """
import os, signal, sys
from pathlib import Path
from zerosum.client.protocol.file_store import FileStore

folder, *row = sys.argv[1:]
FileStore(Path(folder)).count_contribution(list(map(float, row)))
os.kill(os.getpid(), signal.SIGKILL)  # its answer never leaves
"""


def test_a_node_killed_between_its_record_and_its_answer_has_spent_it(tmp_path):
    """Whatever a restart loses was counted before; a replay is one more contribution."""
    for number in range(3):
        check(tmp_path)
        if number == 1:
            told = [sys.executable, "-c", KILLED, str(tmp_path), *map(repr, gaussian(8.0))]
            assert subprocess.run(told, timeout=60).returncode == -signal.SIGKILL
        else:
            FileStore(tmp_path).count_contribution(gaussian(8.0))
        assert FileStore(tmp_path).contributions == number + 1
        assert spent_at(tmp_path, 22) <= divergence_limit(EPSILON, DELTA, 22)
    with pytest.raises(Declined, match="above the policy's max_epsilon = 1"):
        check(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("order", 1),
        ("order", None),
        ("order", "22"),
        ("order", 513),
        ("max_epsilon", -1.0),
        ("delta", None),
        ("charged", 3),
        ("divergences", [0.1]),
        ("divergences", [-1.0] * len(ORDERS)),
        ("divergences", [math.nan] * len(ORDERS)),
        ("by_run", {"a": 7}),
        ("by_run", []),
        ("added", 1),
    ],
)
def test_a_damaged_budget_answers_nothing(tmp_path, key, value):
    check(tmp_path)
    FileStore(tmp_path).count_contribution(gaussian(8.0))
    path = tmp_path / "counters.json"
    counters = json.loads(path.read_text())
    counters["spending"][key] = value
    path.write_text(json.dumps(counters))
    with pytest.raises(DamagedStoreError, match="damaged or lost"):
        check(tmp_path)


def test_a_record_of_an_earlier_version_is_no_ground_for_a_budget(tmp_path):
    """It was charged against the server alone, at orders chosen after the fact."""
    FileStore(tmp_path)
    old = {"contributions": 2, "accounted": 2, "spent": gaussian(8.0)}
    write_private(tmp_path / "counters.json", json.dumps(old).encode())
    assert FileStore(tmp_path).contributions == 2
    with pytest.raises(Declined, match=r"earlier version.*set max_epsilon = inf, or let this node"):
        check(tmp_path)


def test_contributions_are_kept_apart_by_run(tmp_path):
    for run in (b"one", b"two", b"one"):
        FileStore(tmp_path).count_contribution(gaussian(8.0), run)
    counters = json.loads((tmp_path / "counters.json").read_text())
    assert sorted(counters["spending"]["by_run"].values()) == [1, 2]
