"""Queries as private sums: integers in, integers out, with exactly the noise that was asked for."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from asked_queries import (
    CLIENTS,
    COUNT,
    HISTOGRAM,
    LOCAL,
    TableClients,
    coordinator,
    query_request,
    rows_of,
)

from zerosum.client.protocol.client_vector import OnCollection
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.queries.query import Bayes, Moments, Oracle, Quantile, Words
from zerosum.secagg.randomness import derive_seed
from zerosum.server.private_sum.coordinator import RoundAbandoned

EVERYBODY = tuple(range(CLIENTS))
SKELLAM: dict[str, Any] = {"law": "skellam", "scale": 4.0}
CLIENT = {"unit": "client", "cap": 3}
QUERIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a count": (COUNT, {}),
    "a histogram, replaced": (HISTOGRAM, {"adjacency": "replace"}),
    "a histogram of clients": (HISTOGRAM, CLIENT),
    "a mean": (Moments(kind="mean", column="income", weight=64), {"scale": 640.0}),
    "a variance under Skellam noise": (Moments(kind="variance", column="age", weight=64), SKELLAM),
    "a quantile": (Quantile(column="age", q=(0.5,)), {}),
    "a classifier": (Bayes(label="sex", features=("age",)), SKELLAM),
    "words": (Words(column="word"), CLIENT),
    "an oracle": (Oracle(column="sex", oracle="oue"), LOCAL),
}


def true_sum(request, indices=EVERYBODY):
    """Sum of the answers before noise, each encoded by itself."""
    alone = TableClients()
    return sum(vector_of(alone, request, index, noised=False) for index in indices)


def vector_of(environment, request, index, *, noised):
    from zerosum.client.protocol.query_answer import QUERY_COINS, query_answer

    vector = query_answer(
        request,
        lambda: environment.table(request.question, Info(index)),
        derive_seed(0, "rows", index),
        lambda: SeededEntropy(0).keystream(QUERY_COINS, 1, 0, index),
        index=index,
    )
    protection = protection_of(request)
    if noised and protection.mechanism is not None:
        noise = SeededEntropy(0).keystream("noise", 1, 0, index)
        vector = vector + protection.mechanism.noise(1, len(vector), noise)
    return vector


class Info:
    def __init__(self, index):
        self.index = index


def protection_of(request, cohort=CLIENTS):
    return Protection.build(
        request.question.privacy,
        request.encoding,
        cohort=cohort,
        dimension=request.dimension,
        rotation_seed=bytes(32),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_masks_change_no_bit_of_an_answer(name):
    query, privacy = QUERIES[name]
    payload = b"ab\nb\0" if name == "words" else b""
    request = query_request(query, payload, **privacy)
    opened = {
        protocol: coordinator(TableClients(), protocol).private_sum(request, [EVERYBODY], round=1)
        for protocol in ("pairwise", "ideal")
    }
    totals = [aggregate.total for aggregate in opened.values()]
    assert totals[0].dtype == np.int64
    assert np.array_equal(*totals)
    # Everything that is in it was asked for: true answers, and each client's own noise.
    expected = sum(vector_of(TableClients(), request, index, noised=True) for index in EVERYBODY)
    assert np.array_equal(totals[0], expected)
    if name != "an oracle":
        assert not np.array_equal(totals[0], true_sum(request)), "the noise is there"


def test_a_count_is_what_the_tables_hold_but_for_the_noise():
    request = query_request(COUNT, scale=1 / 128)  # noise of no bit that is ever set
    total = coordinator(TableClients(), "ideal").private_sum(request, [EVERYBODY], round=1).total
    assert total.tolist() == [sum(sum(a >= 65 for a in rows_of(i)["age"]) for i in EVERYBODY)]


def test_a_client_of_a_capped_query_counts_its_first_rows_alone():
    request = query_request(HISTOGRAM, unit="client", cap=3, scale=1 / 128)
    total = coordinator(TableClients(), "ideal").private_sum(request, [EVERYBODY], round=1).total
    assert int(total.sum()) == 3 * CLIENTS


def test_dropouts_are_topped_up_to_one_law():
    request = query_request(COUNT)
    protection = protection_of(request)
    there = EVERYBODY[:8]
    total = coordinator(TableClients(), dropout=0.2)
    noise = protection.top_up(len(there), SeededEntropy(0).keystream("top-up", 1, 0, 0))
    assert noise is not None
    share = Fraction(5, 4) / CLIENTS  # f = 0.8 of nine
    assert protection.mechanism is not None
    assert protection.mechanism.share == share  # type: ignore[attr-defined]
    ratio = float((len(there) + (CLIENTS - len(there))) * share)
    one = 2 * np.exp(-1 / 10) / (1 - np.exp(-1 / 10)) ** 2
    assert protection.std_sum == pytest.approx(np.sqrt(ratio * one))
    assert total.private_sum(request, [EVERYBODY], round=1).noise_std == protection.std_sum


def test_a_report_of_the_local_model_is_not_topped_up():
    protection = protection_of(query_request(Oracle(column="sex", oracle="k-rr"), **LOCAL))
    assert protection.mechanism is None
    assert protection.noise_inside
    assert not protection.topped_up
    assert protection.top_up(5, SeededEntropy(0).keystream("top-up")) is None
    assert protection.std_sum == 0


@pytest.mark.parametrize("lie", [1_000_000_000, -1_000_000])
def test_a_cell_that_honest_clients_cannot_have_is_not_used(lie):
    """Bounded by clients x max_records from above, and by nothing from below."""

    class Liar(TableClients):
        def compute(self, work, client):
            honest = super().compute(work, client)
            if client.index:
                return honest
            return OnCollection(lambda: honest.result() + np.int64(lie))

    request = query_request(COUNT)
    with pytest.raises(RoundAbandoned, match="exceeds what they can send"):
        coordinator(Liar()).private_sum(request, [EVERYBODY], round=1)
    coordinator(TableClients()).private_sum(request, [EVERYBODY], round=1)


def test_the_ring_holds_clients_x_records_x_weight_and_the_noise():
    count, mean = query_request(COUNT), query_request(QUERIES["a mean"][0], scale=640.0)
    narrow = query_request(COUNT, max_records=100)
    bits = [protection_of(asked).ring_bits for asked in (narrow, count, mean)]
    assert bits == sorted(set(bits))
    assert 2 ** (bits[1] - 1) > CLIENTS * 2**20 > 2 ** (bits[1] - 3)
    heavy = query_request(Moments(kind="mean", column="age", weight=2**30), max_records=2**35)
    with pytest.raises(ValueError, match=r"9 clients with cells of up to 36893488147419103232"):
        protection_of(heavy)


@pytest.mark.parametrize("fraction", [0.8, 1.0])
def test_fellow_clients_face_one_whole_geometric_law(fraction):
    """Where nobody is taken to collude, f = 1 becomes 1 - 1/n in shares and survivors alike."""
    from zerosum.client.protocol.own_budget import price

    request = query_request(COUNT, honest_fraction=fraction)
    whole = protection_of(request, cohort=4)
    assert whole.honest_fraction == min(Fraction(str(fraction)), Fraction(3, 4))
    assert price(request, whole, 0).record.pure == pytest.approx(0.1)
    opened = coordinator(TableClients(), dropout=0.1).private_sum(request, [(0, 1, 2, 3)], round=1)
    assert opened.survivors == (0, 1, 2, 3)


def test_a_table_that_cannot_be_read_counts_as_one_without_rows(caplog):
    class Broken(TableClients):
        def table(self, question, client):
            if client.index == 2:
                raise OSError("disk")
            return super().table(question, client)

    request = query_request(COUNT)
    total = coordinator(Broken()).private_sum(request, [EVERYBODY], round=1)
    assert total.survivors == EVERYBODY
    rest = [index for index in EVERYBODY if index != 2]
    noise = [vector_of(TableClients(), request, i, noised=True) for i in EVERYBODY]
    plain = [vector_of(TableClients(), request, i, noised=False) for i in EVERYBODY]
    wanted = sum(noise[i] for i in rest) + noise[2] - plain[2]
    assert np.array_equal(total.total, wanted)
    assert "client 2: its answer to round 1 failed: no row of its table counts" in caplog.text
    local = query_request(Oracle(column="sex", oracle="k-rr"), **LOCAL)
    assert coordinator(Broken()).private_sum(local, [EVERYBODY], round=1).survivors == EVERYBODY
