"""Rounds of a Flower app, plain, under SecAgg+ and under our masks, in one process each."""

import sys
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from rich.console import Console

from zerosum.client.flower.flower_internals import as_sent
from zerosum.simulations import bench
from zerosum.simulations.bench import rounds
from zerosum.simulations.bench.counted_app import CountedApp, Counts
from zerosum.simulations.bench.process import BenchError, main
from zerosum.simulations.commands import bench_versus
from zerosum.simulations.engine.grid import InProcessGrid

FLOAT_BYTES, MASKED_INT_BYTES = 4, 8
D = 3000
ENDED_BY_A_FAILURE = ("client-side DP", "server-side DP")


@pytest.fixture(scope="module")
def found():
    """Return a function that plays a scheme's rounds once."""
    rows = {}

    def found(scheme, **settings):
        asked = {"n": 5, "d": D, "degree": "complete", **settings}
        key = (scheme, *sorted(asked.items()))
        if key not in rows:
            rows[key] = rounds.run(scheme=scheme, **asked)
        return rows[key]

    return found


# --- What is counted ---


def test_bytes_are_those_of_written_messages():
    def answer(message, context):
        return Message(RecordDict({"c": ConfigRecord({"x": bytes(500)})}), reply_to=message)

    app = CountedApp(answer)
    grid = InProcessGrid(app, 3)
    content = RecordDict({"c": ConfigRecord({"x": bytes(1000)})})
    messages = [Message(content, dst_node_id=n, message_type="query") for n in grid.get_node_ids()]
    replies = list(grid.send_and_receive(messages))
    counts = app.counts()
    assert (counts.messages, counts.bytes_down) == (3, sum(len(as_sent(m)) for m in messages))
    assert 3 * 500 < counts.bytes_up < 3 * 800
    assert all(reply.content["c"]["x"] == bytes(500) for reply in replies)


def test_a_failed_answer_is_a_message_down_and_nothing_up():
    def fails(message, context):
        raise ZeroDivisionError

    app = CountedApp(fails)
    grid = InProcessGrid(app, 1)
    [node] = grid.get_node_ids()
    [reply] = grid.send_and_receive([Message(RecordDict(), node, "query")])
    assert reply.has_error()
    assert (app.counts().messages, app.counts().bytes_up) == (1, 0)


def test_what_is_spent_since_a_moment_is_a_difference():
    assert Counts(5, 7, 9, 1.5, 4.0, 8.0).since(Counts(2, 3, 4, 0.5, 1.0, 2.0)) == Counts(
        3, 4, 5, 1.0, 3.0, 6.0
    )


# --- Rounds ---


@pytest.mark.parametrize("scheme", ["plain", "LocalDpMod", "client-side DP", "server-side DP"])
def test_a_plain_round_is_one_message_with_the_model(scheme):
    row = rounds.run(scheme=scheme, n=4, d=D)
    assert (row["exchanges"], row["mean_correct"]) == (1, True)
    model = FLOAT_BYTES * D
    for name in ("bytes_up_per_client", "bytes_down_per_client"):
        assert model < row[name] < model + 600


@pytest.mark.slow
def test_secaggplus_sends_eight_bytes_a_coordinate_in_four_exchanges(found):
    row = found("SecAgg+")
    assert (row["exchanges"], row["mean_correct"]) == (4, True)
    masked = MASKED_INT_BYTES * D
    assert masked < row["bytes_up_per_client"] < masked + 6000


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["semi-honest", "malicious"])
def test_our_rounds_send_the_bits_of_the_ring(scheme, found):
    row = found(scheme)
    assert row["mean_correct"]
    assert 1 <= row["exchanges"] <= 5
    ring_bits = row["bits"] + 3  # 5 clients
    masked = ring_bits * D / 8
    assert masked < row["bytes_up_per_client"] < masked + 3000


@pytest.mark.slow
@pytest.mark.parametrize("scheme", sorted({*rounds.SCHEMES} - {*ENDED_BY_A_FAILURE}))
def test_the_mean_is_that_of_clients_that_stayed(scheme, found):
    row = found(scheme, dropout=0.2)
    assert (row["survivors"], row["mean_correct"]) == (4, True)


@pytest.mark.parametrize("scheme", ENDED_BY_A_FAILURE)
def test_a_failing_client_ends_the_rounds_of_flowers_wrappers(scheme):
    with pytest.raises(BenchError, match="a client that fails ends its round"):
        rounds.run(scheme=scheme, n=5, d=10, dropout=0.2)


def test_a_wrong_mean_is_seen(monkeypatch):
    plain = rounds._plain
    monkeypatch.setattr(rounds, "_plain", lambda *given: plain(*given) + 1e-3)
    assert not rounds.run(scheme="plain", n=3, d=10)["mean_correct"]


# --- What cannot be compared ---


def test_a_sum_beyond_the_modulus_of_secaggplus_is_refused():
    with pytest.raises(BenchError, match=r"modulo 2\^32, which is too small: fewer --bits"):
        rounds.run(scheme="SecAgg+", n=5, d=4, bits=30)


def test_a_flower_without_secaggplus_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "zerosum.simulations.bench.secaggplus", raising=False)
    monkeypatch.delattr(bench, "secaggplus", raising=False)
    monkeypatch.setitem(sys.modules, "flwr.server.workflow", None)
    with pytest.raises(BenchError, match="has no SecAgg"):
        rounds.run(scheme="SecAgg+", n=5, d=4)


def test_a_benchmark_whose_rival_is_not_installed_says_so(monkeypatch):
    monkeypatch.delitem(sys.modules, "zerosum.simulations.bench.flower", raising=False)
    name = "flwr.client.mod.secure_aggregation.secaggplus_mod"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BenchError, match="the flower benchmark needs what is not installed"):
        main("flower")


def measured(kind, settings, limit):
    if kind == "flower" or settings["scheme"] == "SecAgg+":
        raise BenchError("flwr 9.9 has no SecAgg+")
    times = dict.fromkeys(bench_versus._TIMES, 1.0)
    counted = dict.fromkeys(("bytes_up_per_client", "bytes_down_per_client"), 4e3)
    return {**settings, **counted, **times, "exchanges": 1, "mean_correct": True}


@pytest.fixture
def compared(monkeypatch):
    """Return a function that compares with a Flower that has no SecAgg+."""
    monkeypatch.setattr(bench_versus, "measure", measured)

    def compared(console, **changes):
        settings: dict[str, Any] = dict.fromkeys(bench_versus._ROUND_SETTINGS, 4)
        settings |= {"repeats": 3, "time_limit": 1.0, **changes}
        ours = dict.fromkeys(("degree", "d", "threshold", "bits"), 4)
        return bench_versus.versus_flower(console, ours, settings)

    return compared


def test_a_rival_that_is_not_there_has_a_row_that_says_so(compared):
    console = Console(record=True, width=100)
    found = compared(console)
    assert found["failure"] == "flwr 9.9 has no SecAgg+"
    assert [row["scheme"] for row in found["rounds"]] == list(rounds.SCHEMES)
    by_scheme = {row["scheme"]: row for row in found["rounds"]}
    assert by_scheme.pop("SecAgg+") == {"scheme": "SecAgg+", "failure": "flwr 9.9 has no SecAgg+"}
    assert {row["turns"] for row in by_scheme.values()} == {3}
    assert "SecAgg+ left out: flwr 9.9 has no SecAgg+" in console.export_text()


def test_rounds_of_large_cohorts_are_left_out(compared):
    console = Console(record=True, width=100)
    found = compared(console, n=65)
    assert all("at most 64 clients" in row["failure"] for row in found["rounds"])
    assert "All left out" in console.export_text()


def test_the_command_knows_the_schemes_without_importing_their_rounds():
    assert bench_versus.SCHEMES == rounds.SCHEMES
