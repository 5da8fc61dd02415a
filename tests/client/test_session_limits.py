"""Sessions that begin are counted, days end, runs expire, and nothing is begun twice by it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerosum.client.protocol.decision_store import DamagedStoreError
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.renyi_filter import ORDERS
from zerosum.client.session_limits import DAY, Openings, TooManyOpeningsError
from zerosum.secagg import StaleSession

COST = [0.5 + 1e-3 * at for at in range(len(ORDERS))]
MANY = Openings(per_run=10**6, per_day=10**6, run_timeout=1e9)


class Node:
    """A state folder and a clock."""

    def __init__(self, folder, most=MANY, now=1_000_000.0):
        self.folder, self.most, self.now = folder, most, now

    @property
    def store(self):
        """The store as a new process opens it."""
        return FileStore(self.folder, clock=lambda: self.now)

    def begin(self, run, round, attempt=0):
        session = (run + b"%d.%d" % (round, attempt)).ljust(32, b"\0")[:32]
        self.store.raise_high_water(run, round, attempt, session, self.most)
        self.store.append(session, (b"line",))
        return session

    def names(self):
        return {path.stem for path in (self.folder / "sessions").iterdir()}


def test_as_many_sessions_begin_in_a_run_as_the_policy_says(tmp_path):
    node = Node(tmp_path / "state", Openings(3, 10, 1e9))
    for round in range(3):
        node.begin(b"a", round)
    with pytest.raises(TooManyOpeningsError, match="max_openings_per_run = 3"):
        node.begin(b"a", 3)
    node.begin(b"b", 0)
    node.now += 10 * DAY
    with pytest.raises(TooManyOpeningsError, match="max_openings_per_run"):
        node.begin(b"a", 3)


def test_attempts_count_as_sessions(tmp_path):
    node = Node(tmp_path / "state", Openings(3, 10, 1e9))
    for attempt in range(3):
        node.begin(b"a", 1, attempt)
    with pytest.raises(TooManyOpeningsError):
        node.begin(b"a", 1, 3)


def test_as_many_sessions_begin_in_a_day_as_the_policy_says_whatever_their_runs(tmp_path):
    node = Node(tmp_path / "state", Openings(10, 3, 1e9))
    for run in (b"a", b"b", b"c"):
        node.begin(run, 0)
    node.now += DAY - 1
    with pytest.raises(TooManyOpeningsError, match=r"max_openings_per_day = 3.* after 1970-01-13"):
        node.begin(b"d", 0)
    node.now += 1
    for run in (b"d", b"e", b"f"):
        node.begin(run, 0)
    with pytest.raises(TooManyOpeningsError):
        node.begin(b"g", 0)


def test_a_session_that_is_refused_leaves_no_trace(tmp_path):
    node = Node(tmp_path / "state", Openings(10, 1, 1e9))
    node.begin(b"a", 5)
    for _ in range(3):
        with pytest.raises(TooManyOpeningsError):
            node.begin(b"a", 6)
    node.now += DAY
    node.begin(b"a", 6)


def test_a_clock_that_goes_back_neither_frees_a_day_nor_ends_it_never(tmp_path):
    node = Node(tmp_path / "state", Openings(10, 2, 1e9))
    node.begin(b"a", 1)
    node.begin(b"a", 2)
    node.now -= 50 * DAY
    with pytest.raises(TooManyOpeningsError):
        node.begin(b"a", 3)
    node.now += DAY
    node.begin(b"a", 3)


def test_a_clock_that_goes_back_does_not_make_runs_immortal(tmp_path):
    node = Node(tmp_path / "state", Openings(10, 100, 5 * DAY))
    node.begin(b"old", 1)
    node.now -= 50 * DAY
    node.begin(b"new", 1)
    node.now += 6 * DAY
    node.begin(b"new", 2)
    with pytest.raises(StaleSession, match="the run is over"):
        node.begin(b"old", 2)


def test_what_is_kept_of_an_old_run_is_that_it_is_over(tmp_path):
    node = Node(tmp_path / "state", Openings(10, 100, 5 * DAY))
    old = node.begin(b"old", 4)
    node.now += 5 * DAY
    fresh = node.begin(b"new", 1)
    assert node.names() == {old.hex(), fresh.hex()}
    node.now += 1
    latest = node.begin(b"new", 2)
    assert node.names() == {fresh.hex(), latest.hex()}
    counters = json.loads((node.folder / "counters.json").read_bytes())
    assert [len(counters[key]) for key in ("high_water", "runs", "sessions")] == [1, 1, 1]
    assert counters["closed"] == 1
    assert (node.folder / "closed").stat().st_size == 32
    for round in (1, 4, 5, 10**6):
        assert node.store.is_over(b"old", round)
        with pytest.raises(StaleSession):
            node.begin(b"old", round)


def test_a_run_in_which_a_session_begins_goes_on(tmp_path):
    node = Node(tmp_path / "state", Openings(100, 100, 5 * DAY))
    for round in range(10):
        assert not node.store.is_over(b"slow", round)
        node.begin(b"slow", round)
        node.now += 20 * DAY


def test_budgets_and_the_roster_outlive_every_run(tmp_path):
    node = Node(tmp_path / "state", Openings(10, 100, DAY))
    node.begin(b"old", 1)
    node.store.count_contribution(COST)
    node.store.admit_roster(7, bytes(32))
    for days in range(1, 6):
        node.now += 2 * DAY
        node.begin(b"run %d" % days, 1)
    assert (node.store.contributions, node.store.spent) == (1, tuple(COST))
    with pytest.raises(Exception, match="version 6 comes before 7"):
        node.store.admit_roster(6, bytes(32))


def test_a_crash_between_closing_a_run_and_forgetting_it_begins_nothing_twice(
    tmp_path, monkeypatch
):
    node = Node(tmp_path / "state", Openings(10, 100, DAY))
    node.begin(b"old", 3)
    node.now += 2 * DAY

    def crash(self, counters):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "_write", crash)
        with pytest.raises(KeyboardInterrupt):
            node.begin(b"new", 1)
    assert (node.folder / "closed").stat().st_size == 32
    with pytest.raises(StaleSession):
        node.begin(b"old", 3)
    node.begin(b"new", 1)
    with pytest.raises(StaleSession, match="the run is over"):
        node.begin(b"old", 4)


def test_a_torn_name_is_written_over(tmp_path):
    node = Node(tmp_path / "state", Openings(10, 100, DAY))
    node.begin(b"first", 1)
    node.now += 2 * DAY
    node.begin(b"second", 1)
    with (node.folder / "closed").open("ab") as file:
        file.write(b"torn")
    node.now += 2 * DAY
    node.begin(b"third", 1)
    assert (node.folder / "closed").stat().st_size == 64
    for run in (b"first", b"second"):
        with pytest.raises(StaleSession):
            node.begin(run, 2)


@pytest.mark.parametrize("damage", ["lost", "shorter"])
def test_names_of_runs_that_are_lost_are_no_fresh_start(tmp_path, damage):
    node = Node(tmp_path / "state", Openings(10, 100, DAY))
    node.begin(b"old", 1)
    node.now += 2 * DAY
    node.begin(b"new", 1)
    file = node.folder / "closed"
    file.unlink() if damage == "lost" else file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedStoreError, match="runs that are over"):
        node.begin(b"old", 1)


def test_counters_lost_beside_runs_that_are_over_are_no_fresh_start(tmp_path):
    node = Node(tmp_path / "state", Openings(10, 100, DAY))
    node.begin(b"old", 1)
    node.now += 2 * DAY
    node.begin(b"new", 1)
    (node.folder / "counters.json").unlink()
    for path in (node.folder / "sessions").iterdir():
        path.unlink()
    with pytest.raises(DamagedStoreError, match="lost"):
        node.begin(b"other", 1)


def test_a_record_of_an_older_version_is_gone_on_from(tmp_path):
    """It has marks and sessions of runs, and no time of them: theirs begins to run now."""
    node = Node(tmp_path / "state", Openings(10, 100, 5 * DAY))
    node.begin(b"old", 3)
    counters = json.loads((node.folder / "counters.json").read_bytes())
    for key in ("runs", "day", "closed", "checksum"):
        del counters[key]
    (node.folder / "counters.json").write_text(json.dumps(counters))
    node.begin(b"new", 1)
    with pytest.raises(StaleSession):
        node.begin(b"old", 3)
    node.now += 6 * DAY
    node.begin(b"new", 2)
    with pytest.raises(StaleSession, match="over"):
        node.begin(b"old", 4)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c"]),
            st.integers(0, 3),
            st.integers(0, 1),
            st.floats(-3.0, 6.0),
        ),
        max_size=30,
    )
)
@settings(max_examples=25)
def test_whatever_expires_and_whichever_way_the_clock_goes_no_session_begins_twice(
    tmp_path_factory, asked
):
    node = Node(tmp_path_factory.mktemp("node") / "state", Openings(8, 6, 2 * DAY))
    begun: set[Any] = set()
    in_run: dict[Any, Any] = {}
    for run, round, attempt, days in asked:
        node.now = max(0.0, node.now + days * DAY)
        try:
            node.begin(run, round, attempt)
        except (StaleSession, TooManyOpeningsError):
            continue
        assert (run, round, attempt) not in begun
        begun.add((run, round, attempt))
        in_run[run] = in_run.get(run, 0) + 1
    assert all(count <= 8 for count in in_run.values())
