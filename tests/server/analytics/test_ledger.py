"""Lines of the ledger of queries come back as they were written, or not at all."""

import json

import dp_accounting
import pytest

from zerosum.client.privacy.events import IntegerNoiseDpEvent
from zerosum.server.analytics.ledger import Part, QueryLedger
from zerosum.server.analytics.ledger_lines import QueryHeader, read_query_header
from zerosum.server.analytics.query_spending import read_spending_of
from zerosum.server.analytics.receipts import read_receipt, receipt_values
from zerosum.server.privacy.ledger_file import LedgerMismatchError

GEOMETRIC = IntegerNoiseDpEvent("geometric", (10.0, 1.0), (1,))
SKELLAM = IntegerNoiseDpEvent("skellam", (1e16,), (64, 64))
RESPONSE = dp_accounting.RandomizedResponseDpEvent(0.5378828427399902, 2)
GEOMETRIC_VALUES = receipt_values(GEOMETRIC) or {}
RESPONSE_VALUES = receipt_values(RESPONSE) or {}
HEADER = QueryHeader(
    clients=5, groups=1, protocol="ideal", honest_fraction=0.8,
    budget={
        "observer": "sum", "unit": "record", "adjacency": "zero_out",
        "epsilon": 1.0, "delta": 1e-6, "rule": "sum",
    },
)  # fmt: skip
PART = Part(
    "ab" * 32, 0, 0, 1, "count", {"kind": "count", "where": None},
    {"sum": receipt_values(GEOMETRIC), "local": None},
)  # fmt: skip
GROUPS = [range(5)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "queries.jsonl"
    charge = QueryLedger(path, HEADER).charging(PART, 1, 0, GROUPS)
    charge("contributions", 0, (0, 1, 2, 4))
    charge("sum", 0, (0, 1, 4))
    charge("survived", 0, (0, 4))
    return path


@pytest.mark.parametrize(
    "event", [GEOMETRIC, SKELLAM, RESPONSE], ids=["geometric", "skellam", "rr"]
)
def test_receipt_comes_back_from_json_as_it_was(event):
    assert read_receipt(json.loads(json.dumps(receipt_values(event)))) == event


@pytest.mark.parametrize(
    "values",
    [
        None,
        {},
        {"event": "gaussian"},
        GEOMETRIC_VALUES | {"more": 1},
        GEOMETRIC_VALUES | {"law": "laplace"},
        GEOMETRIC_VALUES | {"parameters": [10.0, 0.5]},
        GEOMETRIC_VALUES | {"moves": []},
        RESPONSE_VALUES | {"buckets": "x"},
    ],
    ids=["none", "empty", "kind", "more", "law", "below one share", "no moves", "buckets"],
)
def test_receipt_that_bounds_nothing_is_refused(values):
    with pytest.raises(ValueError, match="receipt"):
        read_receipt(values)


def test_event_without_a_notation_is_refused_when_it_is_written():
    with pytest.raises(TypeError, match="GaussianDpEvent"):
        receipt_values(dp_accounting.GaussianDpEvent(1.0))


def test_lines_are_compact_json(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["queries", "contributions", "sum", "survived"]
    assert lines[1]["key"] == [1, 0, 0]
    assert lines[1]["clients"] == [0, 1, 2, 4]
    assert lines[1]["receipts"]["sum"] == receipt_values(GEOMETRIC)
    assert lines[3] == {"type": "survived", "key": [1, 0, 0], "cohort": 5, "survived": 2}


def test_what_was_charged_is_known_to_the_next_process(path):
    ledger = QueryLedger(path, HEADER)
    assert ledger.receipts("sum") == [GEOMETRIC]
    assert ledger.last_round == 1
    assert [each.number for each in ledger.sums] == [(1, 0)]
    with pytest.raises(ValueError, match="nothing bounds it"):
        ledger.receipts("local")


def test_same_sum_again_is_the_same_release(path):
    before = path.read_bytes()
    charge = QueryLedger(path, HEADER).charging(PART, 1, 0, GROUPS)
    charge("contributions", 0, (0, 1))
    charge("sum", 0, (0, 1))
    charge("survived", 0, (0, 1))
    assert path.read_bytes() == before


def test_number_is_never_used_for_two_sums(path):
    ledger = QueryLedger(path, HEADER)
    other = Part("cd" * 32, 0, 0, 1, "count", PART.query, PART.receipts)
    with pytest.raises(ValueError, match="never used twice"):
        ledger.charging(other, 1, 0, GROUPS)("contributions", 0, (0, 1))


def test_sum_that_was_not_opened_costs_the_sum_observer_nothing(tmp_path):
    ledger = QueryLedger(tmp_path / "queries.jsonl", HEADER)
    ledger.charging(PART, 1, 0, GROUPS)("contributions", 0, (0, 1))
    assert ledger.receipts("sum") == []
    ledger.abandon(1, 0, "too few")
    latest = QueryLedger(tmp_path / "queries.jsonl", HEADER).latest(PART.place)
    assert latest is not None
    assert latest.abandoned


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"type":"sum","key":[1,0,0],"spent":3}', "a newer version wrote it"),
        ('{"type":"sums","key":[1,0,0]}', "damaged"),
        ('{"type":"sum"}', r"damaged.*key: it is missing"),
        ('{"type":"sum","key":["1",0,0]}', "damaged"),
        ('{"type":"sum","key":[2,0,0]}', r"damaged.*nobody was asked under \[2, 0, 0\]"),
        ("[]", "damaged"),
        ("{", "what was spent is not known any more"),
    ],
)
def test_line_that_cannot_be_counted_is_refused(path, line, message):
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(LedgerMismatchError, match=message):
        QueryLedger(path, HEADER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": [1, 0, 0]}, "charged twice"),
        ({"key": [2, 0, 0], "clients": [5]}, "clients that are not there"),
        ({"key": [2, 0, 0], "receipts": {"sum": {"event": "free"}}}, "receipt"),
        ({"key": [2, 0, 0], "receipts": {"nobody": None}}, "damaged"),
        ({"key": [2, 0, 0], "part": -1}, "damaged"),
    ],
    ids=["again", "client", "receipt", "observer", "part"],
)
def test_charge_that_follows_from_nothing_is_refused(path, change, message):
    line = json.loads(path.read_text().splitlines()[1]) | change
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    with pytest.raises(LedgerMismatchError, match=message):
        QueryLedger(path, HEADER)


def test_torn_last_line_is_cut_off_and_left_by_a_reader(path):
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"su')
    QueryLedger(path, read_query_header(path), read_only=True)
    assert path.read_bytes() != whole
    QueryLedger(path, HEADER)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"epsilon": 0.5}, r"opened with epsilon = 1\.0, not 0\.5"),
        ({"epsilon": 2.0}, "opened with epsilon"),
        ({"rule": "renyi"}, "opened with rule = 'sum'"),
        ({"delta": 1e-5}, "opened with delta"),
    ],
    ids=["lowered", "raised", "rule", "delta"],
)
def test_budget_stays_what_it_was_opened_with(path, budget, message):
    other = HEADER.model_copy(update={"budget": HEADER.budget | budget})
    with pytest.raises(LedgerMismatchError, match=message):
        QueryLedger(path, other)


def test_other_clients_are_another_ledger(path):
    with pytest.raises(LedgerMismatchError, match="other clients"):
        QueryLedger(path, HEADER.model_copy(update={"clients": 6}))


def test_charge_is_on_the_disk_before_it_returns(tmp_path, monkeypatch):
    import os

    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    path = tmp_path / "queries.jsonl"
    charge = QueryLedger(path, HEADER).charging(PART, 1, 0, GROUPS)
    for what in ("contributions", "sum", "survived"):
        charge(what, 0, (0, 1))
        assert synced[-1] == path.stat().st_size


def test_spending_is_read_of_the_file_alone(path):
    document = read_spending_of(path.parent).document()
    assert document["used"] == pytest.approx(0.1)
    assert document["left"] == pytest.approx(0.9)
    assert document["queries"][0] | {"used": 0.1} == {
        "name": "count", "query": PART.query, "sums": 1, "abandoned": 0, "used": 0.1,
    }  # fmt: skip


def test_folder_without_a_ledger_has_asked_nothing(tmp_path):
    with pytest.raises(LedgerMismatchError, match="nothing was asked"):
        read_spending_of(tmp_path)
