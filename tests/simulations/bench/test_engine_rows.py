"""Rows of engines that took turns: which clock, which ratio, and what a late engine keeps."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from zerosum.simulations.bench import engine_rows
from zerosum.simulations.bench.engine import Contest, _Field
from zerosum.simulations.bench.engine_rows import Timings, clock_of
from zerosum.simulations.bench.process import BenchError
from zerosum.simulations.bench.turns import Entrant, LateError, MissingError, Spent
from zerosum.simulations.bench.workload import Workload
from zerosum.simulations.commands.bench_engine import _busy_cores, _comparisons, _left_out, _title

WORKLOAD = Workload("mlp", "nowhere", rounds=5)


class Fake:
    """An engine whose seconds are told."""

    def __init__(self, engine, cpu, *, workers=1, clients=1000, wall=100.0, error=None, **facts):
        self.engine, self.workers, self.clients = engine, workers, clients
        self.cpu, self.wall, self.facts, self.error = cpu, wall, facts, error
        self.killed = False

    def round(self):
        if self.error is not None:
            raise self.error
        return Spent(self.wall, self.cpu)

    def kill(self):
        self.killed = True


def rows(entrants, clock="cpu", rounds=3, failed=()):
    """Return the rows of engines that take as long in each round."""
    timings = Timings(WORKLOAD, clock)
    for number in range(rounds):
        timings.rounds.append(
            {each: each.round() for each in entrants if number < each.facts.get("rounds", rounds)}
        )
    return timings.rows(set(failed), dict.fromkeys(entrants, 7.0))


def field(**more: Any) -> list[Any]:
    floor = Fake("floor", None, floor_seconds=0.5)
    return [floor, Fake("bare", 2.0), Fake("zerosum", 1.0, trainer="fast"), *more.values()]


def test_ratios_are_to_the_plain_loop_the_whole_round_and_the_floor():
    found = {row["engine"]: row for row in rows(field(peer=Fake("pfl", 3.0, version="0.6.0")))}
    assert found["zerosum"]["ratio_to_bare"] == 0.5
    assert found["pfl"]["ratio_to_zerosum"] == 3
    assert found["pfl"]["ratio_to_floor"] == 6
    assert found["floor"]["seconds_per_round"] == 0.5
    assert (found["zerosum"]["trainer"], found["pfl"]["version"]) == ("fast", "0.6.0")
    assert {row["peak_memory_mb"] for row in found.values()} == {7.0}


def test_ratios_are_medians_of_those_of_the_same_turn():
    floor, bare, ours = field()
    timings = Timings(WORKLOAD, "cpu")
    for slow in (1, 10, 100):  # a machine that gets busier slows both
        timings.rounds.append({floor: Spent(1, 1), bare: Spent(9, 2 * slow), ours: Spent(9, slow)})
    row = timings.rows(set(), {})[2]
    assert (row["ratio_to_bare"], row["seconds_per_round"], row["turns"]) == (0.5, 10, 3)
    assert row["peak_memory_mb"] is None


@pytest.mark.parametrize(("clock", "ratio"), [("cpu", 0.5), ("wall", 0.25)])
def test_the_clock_decides_the_ratio_and_both_are_told(clock, ratio):
    floor, bare, ours = field()
    bare.wall, ours.wall = 40.0, 10.0
    row = rows([floor, bare, ours], clock)[2]
    assert (row["clock"], row["ratio_to_bare"]) == (clock, ratio)
    assert (row["cpu_seconds"], row["wall_seconds"]) == (1.0, 10.0)


@pytest.mark.parametrize(
    ("device", "workers", "clock"),
    [("cpu", [1], "cpu"), ("cpu", [2], "wall"), ("cpu", [1, 2], "wall"), ("cuda", [1], "wall")],
)
def test_one_worker_on_a_cpu_is_compared_by_cpu_seconds(device, workers, clock, monkeypatch):
    monkeypatch.setattr(engine_rows, "cpu_seconds", lambda pid: 1.0)
    assert clock_of(device, workers) == clock
    monkeypatch.setattr(engine_rows, "cpu_seconds", lambda pid: None)
    assert clock_of(device, workers) == "wall"


def test_several_workers_are_compared_with_one_and_with_a_bare_loop_as_wide():
    narrow = field()
    wide = [
        Fake("floor", None, workers=2, floor_seconds=0.25),
        Fake("bare", 1.5, workers=2),
        Fake("zerosum", 0.5, workers=2),
    ]
    row = rows([*narrow, *wide])[-1]
    assert row["times_one_worker"] == 2
    assert row["ratio_to_bare"] == pytest.approx(1 / 3)
    assert row["ratio_to_floor"] == 2
    assert list(_comparisons([row])) == ["zerosum, mlp, 2 workers: 2.00 times as fast as one"]
    assert "times_one_worker" not in rows([*narrow, *wide])[2]


def test_a_larger_population_is_set_beside_the_smallest():
    many = Fake("zerosum", 1.25, clients=1_000_000)
    few, more = rows(field(many=many))[2:]
    assert "ratio_to_fewest_clients" not in few
    assert more["ratio_to_fewest_clients"] == 1.25
    assert more["ratio_to_bare"] == 0.625
    (line,) = _comparisons([few, more])
    assert line == "zerosum, mlp, 1,000,000 clients: 1.25 times the round of 1,000"


def test_a_late_peer_keeps_its_rounds_and_a_failed_one_has_no_row():
    late, failed = Fake("flower", 8.0, rounds=1), Fake("pfl", 0.1)
    found = rows(field(late=late, failed=failed), failed=[failed])
    assert [row["engine"] for row in found] == ["floor", "bare", "zerosum", "flower"]
    assert (found[-1]["turns"], found[-1]["ratio_to_zerosum"]) == (1, 8)
    assert rows([], rounds=0) == []


@pytest.mark.parametrize(
    ("error", "said", "failed"),
    [
        (LateError("flower was not done within 9 s"), "it is late (flower was not done", False),
        (MissingError("No module named 'ray'"), "not installed: pip install 'flwr", True),
        (BenchError("flower ended: killed"), "it fails (flower ended: killed)", True),
    ],
)
def test_a_peer_that_is_late_absent_or_fails_is_a_line_that_says_so(error, said, failed):
    peer, rest = Fake("flower", 1.0, error=error), field()
    missing: dict[str, str] = {}
    turns = _Field(cast(list[Entrant], [*rest, peer]), lambda what: None, missing)
    found = turns.take_turns("round", lambda entrant: entrant.round())
    assert list(found) == rest
    assert missing["flower"].startswith(said)
    assert (peer in turns.failed, peer.killed) == (failed, True)
    assert list(turns.take_turns("round", lambda entrant: entrant.round())) == rest


def test_an_engine_of_ours_that_fails_ends_the_comparison():
    broken = Fake("zerosum", 1.0, error=BenchError("gone"))
    with pytest.raises(BenchError, match="gone"):
        _Field(cast(list[Entrant], [broken]), lambda what: None, {}).take_turns(
            "round", lambda entrant: entrant.round()
        )


def test_each_engine_s_turn_is_told():
    told: list[str] = []
    turns = _Field(cast(list[Entrant], [Fake("flower", 1.0, workers=2)]), told.append, {})
    turns.take_turns("mlp, round 3:", lambda entrant: entrant.round())
    assert told == ["mlp, round 3: flower on 2"]


def test_peers_and_bare_loops_are_measured_on_the_first_population_alone(monkeypatch):
    def started(name, workload, workers, **others):
        return SimpleNamespace(engine=name, clients=workload.clients, **others)

    monkeypatch.setattr("zerosum.simulations.bench.engine.Entrant", started)
    contest = Contest(clients=(10, 99), versus=("zerosum-masked", "pfl"), peer_limit=7.0)
    found = contest.entrants(WORKLOAD)
    assert [each.engine for each in found if each.clients == 99] == [
        "zerosum",
        "zerosum-protected",
        "zerosum-masked",
    ]
    assert [each.engine for each in found if each.clients == 10][-2:] == ["zerosum-masked", "pfl"]
    limits = {each.engine: getattr(each, "time_limit", None) for each in found}
    assert (limits["pfl"], limits["zerosum"]) == (7.0, None)


def test_the_table_says_which_clock_it_is_of():
    assert _title(rows(field())) == "CPU seconds, a round, in turns"
    assert _title(rows(field(), "wall")).startswith("Wall seconds, which ask for quiet cores")


@pytest.mark.parametrize(("cpu", "lines"), [(1.9, 0), (1.2, 1), (None, 0)])
def test_wall_seconds_on_busy_cores_are_said_to_mean_little(cpu, lines):
    floor = Fake("floor", cpu, workers=2, wall=1.0, floor_seconds=0.5)
    rest = [Fake(name, 1.0, workers=2, wall=1.0) for name in ("bare", "zerosum")]
    said = list(_busy_cores(rows([floor, *rest], "wall")))
    assert len(said) == lines
    assert all("they gave 60% of their time" in line for line in said)
    if cpu is not None:  # by CPU seconds it does not matter
        assert not list(_busy_cores(rows([floor, *rest])))


def test_what_is_left_out_and_what_is_short_are_told_apart():
    found = {"rows": rows(field(late=Fake("flower", 8.0))), "missing": {"flower": "a", "pfl": "b"}}
    assert list(_left_out(found)) == ["flower has fewer turns: a", "pfl is left out: b"]
