"""Requests for sums of an app's values: protection and price beside those of a query's counts."""

from typing import Any

import numpy as np
import pytest
from asked_queries import HISTOGRAM, query_request
from policies import policy_of

from zerosum.client.protocol.admission import Declined, check_request
from zerosum.client.protocol.integer_encoding import IntegerEncoding
from zerosum.client.protocol.own_budget import price
from zerosum.client.protocol.protection import Protection, UnusableUpdateError
from zerosum.client.protocol.sum_request import SumRequest
from zerosum.client.queries.declared_sums import DeclaredSum, SumQuestion
from zerosum.client.request import QueryRequest
from zerosum.client.spec.app_query_policy import AppQueryPolicy
from zerosum.client.spec.sum_privacy import SumPrivacy
from zerosum.secagg.randomness import Keystream

COHORT = 8


def request_of(privacy: SumPrivacy, **changes: Any) -> SumRequest:
    values: dict[str, Any] = {
        "record": "results",
        "key": "ages",
        "kind": "counts",
        "form": "list",
        "shape": (3,),
        "most": 1000.0,
        "sensitivity": 1.0 if privacy.private else None,
        "resolution": 1,
    }
    one = DeclaredSum(**(values | changes))
    asked = SumQuestion(round=1, seed=0, population=COHORT, privacy=privacy, sums=(one,))
    return SumRequest(asked, b"")


def noisy(**changes: Any) -> SumPrivacy:
    values: dict[str, Any] = {"model": "distributed", "law": "geometric", "scale": 2.0}
    return SumPrivacy(**(values | changes))


def protection_of(request: SumRequest | QueryRequest) -> Protection:
    return Protection.build(
        request.question.privacy,
        request.encoding,
        cohort=COHORT,
        dimension=request.dimension,
        rotation_seed=bytes(32),
    )


@pytest.mark.parametrize("law", ["geometric", "skellam"])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_counts_cost_what_the_same_histogram_of_a_table_costs(law, adjacency, unit):
    settings: dict[str, Any] = {"law": law, "scale": 20.0, "adjacency": adjacency, "unit": unit}
    cap: dict[str, Any] = {"cap": 5} if unit == "client" else {}
    table = query_request(HISTOGRAM, **settings, **cap)
    times = 5 if unit == "client" else 1
    mine = request_of(
        noisy(**settings),
        shape=(table.dimension,),
        sensitivity=float(times),
        resolution=times,
        most=float(table.encoding.bound),
    )
    assert mine.encoding == table.encoding
    here, there = protection_of(mine), protection_of(table)
    assert here.bounds == there.bounds
    assert price(mine, here, 1) == price(table, there, 1)


def test_without_noise_a_price_has_no_bound():
    request = request_of(SumPrivacy(model="none"))
    assert price(request, protection_of(request), 0).record.row is None


def test_real_numbers_may_be_negative_and_counts_may_not():
    total = np.array([-5, 0, 0])
    counts = protection_of(request_of(SumPrivacy(model="none")))
    reals = protection_of(request_of(SumPrivacy(model="none"), kind="reals", resolution=1000))
    assert not counts.is_plausible(total, COHORT, noised=True)
    assert reals.is_plausible(total, COHORT, noised=True)
    assert not reals.is_plausible(np.array([-(1 << 40), 0, 0]), COHORT, noised=True)
    assert counts.bounds != reals.bounds
    coins = Keystream(bytes(32))
    np.testing.assert_array_equal(reals.protect(total, rounding=coins, noise=None), total)
    with pytest.raises(UnusableUpdateError, match="not within 0 to"):
        counts.protect(total, rounding=coins, noise=None)


def test_signed_integers_are_within_their_bound_on_both_sides():
    code = IntegerEncoding.up_to(7, 2, signed=True)
    coins = Keystream(bytes(32))
    assert code.encode(np.array([-7, 7]), coins).tolist() == [-7, 7]
    with pytest.raises(ValueError, match="not within -7 to 7"):
        code.encode(np.array([-8, 0]), coins)


def test_a_policy_without_the_section_answers_no_app_whatever_its_tables_allow():
    request = request_of(noisy())
    check_request(
        request,
        policy_of(app_queries=AppQueryPolicy(units=["record"], max_epsilon_per_query=1.0)),
    )
    with pytest.raises(Declined, match="no section \\[app_queries\\]"):
        check_request(request, policy_of())


def test_the_unit_of_a_node_that_answers_for_records_is_a_record():
    section = AppQueryPolicy(units=["client"], max_epsilon_per_query=1.0)
    assert policy_of(app_queries=section).budget_unit == "client"
    both = section.model_copy(update={"units": ["client", "record"]})
    assert policy_of(app_queries=both).budget_unit == "record"
