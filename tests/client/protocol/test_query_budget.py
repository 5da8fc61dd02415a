"""Queries by a client's own policy, price and count: fail closed, and never above the limit."""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from asked_queries import CLIENTS, COUNT, HISTOGRAM, LOCAL, query_request
from dp_accounting.rdp import rdp_privacy_accountant as rdp
from narrowed import present
from policies import LEAST
from pydantic import ValidationError

from zerosum.client.privacy import renyi_curves
from zerosum.client.privacy.spending import Price, Spending, UnitPrice
from zerosum.client.protocol import admission, own_budget
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.decision_store import DamagedStoreError, MemoryStore
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.protection import Protection
from zerosum.client.queries.query import Histogram, Moments, Oracle, Words
from zerosum.client.renyi_filter import ORDERS, divergence_limit, fixed_order
from zerosum.client.spec import ClientPolicy
from zerosum.client.spec.query_policy import QueryPolicy

OWN = {"columns": ["age", "sex"], "max_epsilon_per_query": 1.0, "units": ["record", "client"]}


def policy_of(queries=OWN, **changes):
    section = None if queries is None else QueryPolicy(**queries)
    return ClientPolicy(**{**LEAST, "queries": section, **changes})


def protection_of(request, cohort=CLIENTS):
    return Protection.build(
        request.question.privacy,
        request.encoding,
        cohort=cohort,
        dimension=request.dimension,
        rotation_seed=bytes(32),
    )


def price_of(request, colluders=0, cohort=CLIENTS):
    return own_budget.price(request, protection_of(request, cohort), colluders)


def judge(store, request, policy, colluders=0):
    admission.check_request(request, policy)
    return admission.priced(store, policy, request, protection_of(request), colluders)


# -- the policy ----------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, dict[str, Any], dict[str, Any], str]] = {
    "no queries": (None, {}, {}, r"this node's policy has no section \[queries\]"),
    "a kind": ({"kinds": ["mean"]}, {}, {}, "'count' is not in policy.queries.kinds"),
    "a column of the filter": (
        {"columns": ["sex"]}, {}, {}, 'column "age" is not in policy.queries.columns'
    ),
    "a column": (
        {}, {"query": Histogram(columns=("sex",), by=("age",))}, {"columns": ["age"]},
        'column "sex" is not in policy.queries.columns',
    ),
    "a unit": ({"units": ["client"]}, {}, {}, "'record' is not in policy.queries.units"),
    "an adjacency": (
        {"adjacency": ["replace"]}, {}, {}, "'zero_out' is not in policy.queries.adjacency"
    ),
    "cells": ({"max_cells": 2}, {"query": HISTOGRAM}, {}, "3 cells are above .*max_cells = 2"),
    "records": ({"max_records": 1000}, {}, {}, "above policy.queries.max_records = 1000"),
    "a cap": (
        {"max_records": 3}, {"unit": "client", "cap": 4}, {}, "above policy.queries.max_records = 3"
    ),
    "an epsilon": (
        {"max_epsilon_per_query": 0.05}, {}, {}, "epsilon 0.1 for one record.*per_query is 0.05"
    ),
    "an epsilon of Skellam noise": (
        {"max_epsilon_per_query": 0.05}, {"law": "skellam", "scale": 30.0}, {}, "per_query is 0.05"
    ),
    "a local epsilon": (
        {"max_epsilon_per_query": 0.5}, {"query": Oracle(column="sex", oracle="oue"), **LOCAL}, {},
        "epsilon 1 for one client",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_query_that_the_policy_does_not_allow_is_declined_by_its_key(name):
    section, asked, more, why = REFUSED[name]
    policy = policy_of(None if section is None else OWN | section | more)
    with pytest.raises(Declined, match=why):
        judge(MemoryStore(), query_request(**asked), policy)


def test_a_query_that_the_policy_allows_is_priced():
    assert judge(MemoryStore(), query_request(), policy_of()) is not None
    everything = {"columns": "any", "max_epsilon_per_query": math.inf}
    assert judge(MemoryStore(), query_request(), policy_of(everything)) is None  # nobody asks


def test_models_of_privacy_are_the_policys_for_queries_too():
    request = query_request(Oracle(column="sex", oracle="oue"), **LOCAL)
    with pytest.raises(Declined, match="privacy model 'local'"):
        judge(MemoryStore(), request, policy_of(models=["distributed"]))


@pytest.mark.parametrize(
    "missing", [{"columns": []}, {"max_epsilon_per_query": None}, {"kinds": ["minimum"]}]
)
def test_a_section_of_queries_says_what_it_allows(missing):
    with pytest.raises(ValidationError):
        QueryPolicy(**{name: v for name, v in (OWN | missing).items() if v is not None})


# -- the price -----------------------------------------------------------------------------------


def reference_row(scale, move):
    """Divergences of the discrete Laplace and its translate, summed term by term in logarithms."""
    k = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61 + move)
    log_p = np.log(np.tanh(0.5 / scale)) - np.abs(k) / scale
    log_q = np.log(np.tanh(0.5 / scale)) - np.abs(k - move) / scale
    return {
        order: np.logaddexp.reduce(order * log_p + (1 - order) * log_q) / (order - 1)
        for order in (2, 3, 22, 100)
    }


@pytest.mark.parametrize(
    ("query", "changes", "scale", "client", "record"),
    [
        (COUNT, {}, 10.0, None, [1]),
        (COUNT, {"adjacency": "replace"}, 10.0, None, [1]),
        (HISTOGRAM, {"adjacency": "replace"}, 20.0, None, [1, 1]),
        (HISTOGRAM, {"unit": "client", "cap": 3}, 30.0, [3], [3, 3]),
        (COUNT, {"unit": "client", "cap": 3}, 30.0, [3], [3]),
        (Moments(kind="mean", column="age", weight=64), {}, 640.0, None, [64]),
    ],
)
def test_geometric_noise_costs_its_moves_at_one_whole_law(query, changes, scale, client, record):
    price = price_of(query_request(query, scale=scale, **changes))
    for unit, moves in ((price.client, client), (price.record, record)):
        if moves is None:
            assert unit == UnitPrice(None, None), "a record's noise promises a client nothing"
            continue
        assert unit.pure == pytest.approx(sum(moves) / scale, rel=1e-12)
        row = dict(zip(ORDERS, unit.row, strict=True))
        for order, one in reference_row(scale, moves[0]).items():
            assert row[order] == pytest.approx(len(moves) * one, rel=1e-8)


@pytest.mark.parametrize("colluders", [0, 1])
@pytest.mark.parametrize("fraction", [0.3, 0.8, 1.0])
def test_no_fraction_makes_a_count_dearer_to_whoever_sees_the_sum(fraction, colluders):
    price = price_of(query_request(honest_fraction=fraction), colluders)
    assert price.record.pure == pytest.approx(0.1)


def test_a_fellow_client_faces_fewer_skellam_shares():
    request = query_request(law="skellam", scale=4.0, honest_fraction=1.0)
    alone, fellow = (price_of(request, colluders).record.row for colluders in (1, 0))
    assert fellow[20] == pytest.approx(alone[20] * CLIENTS / (CLIENTS - 1), rel=0.05)
    assert fellow[20] > alone[20]


def test_a_local_report_costs_its_epsilon_to_client_and_record_alike():
    price = price_of(query_request(Oracle(column="sex", oracle="oue"), **LOCAL))
    assert price.client == price.record
    assert price.client.pure == 1.0
    assert max(price.client.row) <= 1.0


# -- the count -----------------------------------------------------------------------------------


def prices():
    """Queries of many shapes, each with its price."""
    asked = [
        query_request(scale=scale, adjacency=adjacency)
        for scale in (3.0, 10.0, 40.0)
        for adjacency in ("zero_out", "replace")
    ]
    asked += [query_request(HISTOGRAM, scale=s, unit="client", cap=2) for s in (20.0, 90.0)]
    asked += [query_request(law="skellam", scale=s) for s in (5.0, 30.0)]
    asked += [query_request(Oracle(column="sex", oracle="oue"), **(LOCAL | {"scale": 0.2}))]
    asked += [query_request(Words(column="word"), b"ab\nb\0", scale=25.0)]
    return [price_of(each) for each in asked]


@pytest.mark.parametrize(
    ("rule", "sessions"),
    [
        ("sum", 100),
        pytest.param("sum", 1000, marks=pytest.mark.slow),
        pytest.param("renyi", 1000, marks=pytest.mark.slow),
    ],
)
def test_no_adaptive_analyst_exceeds_the_rule(rule, sessions):
    """Each next query is chosen by what is left, greedily or at random."""
    costs, rng = prices(), np.random.default_rng(1)
    policy = policy_of(OWN | {"units": ["record"]}, max_epsilon=1.0, budget_rule=rule)
    delta, order = policy.budget_delta, fixed_order(1.0, policy.budget_delta)
    at, limit = ORDERS.index(order), divergence_limit(1.0, delta, order)
    fullest = 0.0
    for session in range(sessions):
        store, spent = MemoryStore(), Fraction(0)
        divergence, declined = 0.0, 0
        while declined < 12:
            left = sorted(costs, key=lambda p: p.record.pure or math.inf)
            greedy = rng.random() < 0.5
            price = left[-1 - declined % len(left)] if greedy else costs[rng.integers(len(costs))]
            try:
                admission.check_within_budget(store, policy, price)
            except Declined:
                declined += 1
                continue
            store.count_contribution(price, bytes([session % 7]))
            if rule == "sum":
                spent += Fraction(price.record.pure)
            divergence += price.record.row[at]
        if rule == "sum":
            assert spent <= 1 + Fraction(1, 10**8)
            fullest = max(fullest, float(spent))
        else:
            assert divergence <= limit * (1 + 1e-12)
            fullest = max(fullest, divergence / limit)
    assert fullest > 0.99  # the limit is what ends them


def test_a_renyi_budget_is_an_epsilon_by_another_accountant():
    policy = policy_of(OWN | {"units": ["record"]}, max_epsilon=1.0)
    store, (cheap, *_) = MemoryStore(), [price_of(query_request(scale=25.0))]
    while True:
        try:
            admission.check_within_budget(store, policy, cheap)
        except Declined:
            break
        store.count_contribution(cheap)
    whole = np.array(store.spending.record.divergences)
    epsilon, _ = rdp.compute_epsilon(np.array(ORDERS, float), whole, policy.budget_delta)
    assert epsilon <= 1.0
    assert store.contributions > 25, "pure epsilons alone would have ended at 25"


def test_training_enters_a_records_budget_under_replacement(tmp_path):
    from proposed_sessions import asked

    policy = policy_of(max_epsilon=50.0)
    request = asked(60, noise_multiplier=3.0)
    protection = Protection.build(
        request.question.privacy, request.encoding, cohort=60, dimension=5, rotation_seed=bytes(32)
    )
    price = admission.priced(FileStore(tmp_path), policy, request, protection, 1)
    assert price is not None
    assert (price.client.pure, price.record.pure) == (None, None)
    client, record = (np.array(present(unit.row)) for unit in (price.client, price.record))
    assert record[:50] == pytest.approx(4 * client[:50], rel=0.01)
    FileStore(tmp_path).count_contribution(price)
    FileStore(tmp_path).count_contribution(price_of(query_request()))
    spent = FileStore(tmp_path).spending
    assert (spent.client.charged, spent.record.charged) == (1, 2)
    with pytest.raises(Declined, match="no pure epsilon bounds this contribution"):
        admission.check_within_budget(
            MemoryStore(), policy_of(max_epsilon=50.0, budget_rule="sum"), price
        )


def test_examples_are_records():
    from proposed_sessions import asked

    request = asked(60, unit="example", examples=1000, lot=100, noise_multiplier=2.0)
    protection = Protection.build(
        request.question.privacy, request.encoding, cohort=60, dimension=5, rotation_seed=bytes(32)
    )
    price = own_budget.price(request, protection, 1)
    assert price.client == price.record


def test_the_unit_of_max_epsilon_is_the_policys():
    client, record = policy_of(OWN | {"units": ["client"]}), policy_of()
    assert (client.budget_unit, record.budget_unit) == ("client", "record")
    assert policy_of(None).budget_unit == "client"
    limited = policy_of(OWN | {"units": ["client"]}, max_epsilon=5.0)
    with pytest.raises(Declined, match="nothing bounds the epsilon of this contribution"):
        admission.check_within_budget(MemoryStore(), limited, price_of(query_request()))


def test_an_epsilon_too_small_for_an_order_is_no_budget_of_divergences():
    assert policy_of(max_epsilon=0.001, budget_rule="sum").max_epsilon == 0.001
    with pytest.raises(ValidationError, match="admits no contribution"):
        policy_of(max_epsilon=0.001)


def test_ten_times_a_tenth_is_one():
    policy = policy_of(max_epsilon=1.0, budget_rule="sum")
    store, price = MemoryStore(), price_of(query_request(scale=10.0))
    for _ in range(10):
        admission.check_within_budget(store, policy, price)
        store.count_contribution(price)
    with pytest.raises(Declined, match=r"epsilon would be 1\.1 for one record"):
        admission.check_within_budget(store, policy, price)


# -- the durable record --------------------------------------------------------------------------

ROW = [0.1] * len(ORDERS)
EARLIER = {
    "charged": 2,
    "divergences": ROW,
    "by_run": {},
    "order": 22,
    "max_epsilon": 1.0,
    "delta": 1e-6,
}


def test_a_record_of_before_there_were_queries_is_read():
    spending = Spending.from_json(2, EARLIER)
    assert (spending.rule, spending.order) == ("renyi", 22)
    assert spending.bounded
    assert (spending.record.charged, spending.client.pure_charged) == (2, 0)
    assert Spending.from_json(2, spending.to_json()) == spending
    closed = EARLIER | {"order": None, "max_epsilon": None, "delta": None}
    assert Spending.from_json(2, closed).rule is None
    assert Spending.from_json(3, EARLIER | {"charged": 0, "divergences": []}).record.charged == 0


def test_vectors_of_before_there_were_queries_cost_a_record_at_least_their_replacement():
    row = renyi_curves.gaussian(3.0)
    spending = Spending.from_json(2, EARLIER | {"divergences": list(map(float, row))})
    bound, exact = np.array(spending.record.divergences), 4 * row
    known = np.array(ORDERS) <= 256
    assert (bound[known] >= exact[known]).all()
    assert bound[known][20:] == pytest.approx(exact[known][20:], rel=0.05)
    assert np.isinf(bound[~known]).all()
    store = MemoryStore()
    store._spending = spending
    query = price_of(query_request())
    admission.check_within_budget(store, policy_of(max_epsilon=9.0), query)
    with pytest.raises(Declined, match="above the policy's max_epsilon = 2"):
        admission.check_within_budget(store, policy_of(max_epsilon=2.0), query)
    store._spending = Spending.from_json(3, EARLIER)  # one of three had no bound
    with pytest.raises(Declined, match="nothing bounds the epsilon of what this node sent before"):
        admission.check_within_budget(store, policy_of(max_epsilon=99.0), query)


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "plan"},
        {"rule": None},
        {"rule": "renyi", "order": None},
        {"order": 22},
        {"pure": -0.1},
        {"pure": math.nan},
        {"pure": 1},
        {"pure_charged": 2},
        {"pure_charged": 0},
        {"record": {}},
        {"record": None},
        {"record": {"charged": 2, "divergences": ROW, "pure_charged": 0, "pure": 0.0}},
        {"record": {"charged": 1, "divergences": ROW[1:], "pure_charged": 0, "pure": 0.0}},
    ],
)
def test_a_damaged_record_answers_nothing(tmp_path, change):
    policy = policy_of(max_epsilon=5.0, budget_rule="sum")
    price = Price(UnitPrice(tuple(ROW), 0.5), UnitPrice(tuple(ROW), 0.5))
    admission.check_within_budget(FileStore(tmp_path), policy, price)
    FileStore(tmp_path).count_contribution(price)
    path = tmp_path / "counters.json"
    counters = json.loads(path.read_text())
    del counters["checksum"]  # as of an earlier version: what it says is checked all the same
    counters["spending"] |= change
    path.write_text(json.dumps(counters))
    with pytest.raises(DamagedStoreError, match="damaged or lost"):
        admission.check_within_budget(FileStore(tmp_path), policy, price)


def test_a_record_with_one_byte_changed_answers_nothing(tmp_path):
    """A digit that a disk lost would be a cost that was never charged."""
    price = Price(UnitPrice(tuple(ROW), 0.5), UnitPrice(tuple(ROW), 0.5))
    FileStore(tmp_path).count_contribution(price, b"run")
    path = tmp_path / "counters.json"
    whole = path.read_bytes()
    assert FileStore(tmp_path).spending.contributions == 1
    spending = whole.index(b'"contributions"')
    key = whole.index(b'"checksum"')
    for at in [*range(spending, spending + 60), *range(spending + 60, key, 97)]:
        for other in b"01x":
            if whole[at] != other:
                path.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
                with pytest.raises(DamagedStoreError, match="damaged or lost"):
                    FileStore(tmp_path).spending  # noqa: B018
    path.write_bytes(whole)
    FileStore(tmp_path).count_contribution(price, b"run")
    assert FileStore(tmp_path).spending.record.pure == 1.0
