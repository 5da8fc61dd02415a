"""The durable record: decisions outlive a process, torn lines do not count."""

import errno
import json
import logging
import os
import random
import signal
import threading
import time

import pytest

from zerosum.client.protocol.decision_store import (
    BusyStoreError,
    DamagedStoreError,
    MemoryStore,
    UnusableStoreError,
)
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.renyi_filter import ORDERS
from zerosum.client.session_limits import Openings
from zerosum.secagg import OldRoster, StaleSession

SESSION, OTHER = bytes(32), bytes([1]) * 32


@pytest.fixture(params=["memory", "file"])
def reopen(request, tmp_path):
    """Return a function that opens the store as a new process would."""
    if request.param == "file":
        return lambda: FileStore(tmp_path / "state")
    store = MemoryStore()
    return lambda: store


def test_lines_come_back_in_order(reopen):
    reopen().append(SESSION, (b"one", b"two\n\x00"))
    reopen().append(SESSION, (b"three",))
    assert reopen().lines(SESSION) == (b"one", b"two\n\x00", b"three")
    assert reopen().lines(OTHER) == ()


def test_sessions_must_be_newer_than_all_before(reopen):
    reopen().raise_high_water(b"run", 3, 0)
    for stale in [(3, 0), (2, 9)]:
        with pytest.raises(StaleSession):
            reopen().raise_high_water(b"run", *stale)
    reopen().raise_high_water(b"run", 3, 1)
    reopen().raise_high_water(b"run", 4, 0)
    reopen().raise_high_water(b"another run", 1, 0)


def test_contributions_are_counted_across_processes(reopen):
    for expected in (1, 2, 3):
        reopen().count_contribution()
        assert reopen().contributions == expected


def test_a_torn_line_is_forgotten_and_overwritten(tmp_path):
    FileStore(tmp_path).append(SESSION, (b"whole",))
    path = tmp_path / "sessions" / f"{SESSION.hex()}.log"
    with path.open("ab") as file:
        file.write(b"6162636")
    assert FileStore(tmp_path).lines(SESSION) == (b"whole",)
    FileStore(tmp_path).append(SESSION, (b"next",))
    assert FileStore(tmp_path).lines(SESSION) == (b"whole", b"next")


def test_the_roster_never_goes_back(reopen):
    reopen().admit_roster(2, b"a" * 32)
    reopen().admit_roster(2, b"a" * 32)
    with pytest.raises(OldRoster, match="version 1 comes before 2"):
        reopen().admit_roster(1, b"b" * 32)
    with pytest.raises(OldRoster, match="another roster of version 2"):
        reopen().admit_roster(2, b"b" * 32)
    reopen().admit_roster(3, b"b" * 32)


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "[]",
        "{",
        "null",
        '{"contributions": "3"}',
        '{"contributions": true}',
        '{"high_water": []}',
        '{"high_water": {"x": [1]}}',
        '{"roster": [1, 2]}',
        '{"sessions": {"x": [[1, "../../etc"]]}}',
        '{"sessions": {"x": 1}}',
        '{"spending": []}',
        '{"contributions": 1, "spending": {"order": 22}}',
        "\udcff",
        "[" * 10**5,
        '{"sessions": {"ab": []}}',
        '{"runs": {"ab": [1, 1]}}',
        '{"high_water": {"run": [1, 0]}}',
    ],
)
def test_counters_that_cannot_be_read_forget_nothing(tmp_path, damage):
    store = FileStore(tmp_path / "state")
    store.count_contribution()
    (tmp_path / "state" / "counters.json").write_text(damage, errors="surrogateescape")
    for use in (
        lambda: store.contributions,
        store.count_contribution,
        lambda: store.raise_high_water(b"run", 1, 0),
        lambda: store.admit_roster(1, bytes(32)),
    ):
        with pytest.raises(DamagedStoreError, match="its index and identity taken"):
            use()


def test_decisions_that_cannot_be_read_are_no_decisions_to_go_on_from(tmp_path):
    store = FileStore(tmp_path / "state")
    store.append(SESSION, (b"one",))
    (tmp_path / "state" / "sessions" / f"{SESSION.hex()}.log").write_bytes(b"not hex\n")
    with pytest.raises(DamagedStoreError, match="damaged"):
        store.lines(SESSION)


def test_a_long_run_id_takes_no_more_room(tmp_path):
    FileStore(tmp_path / "state").raise_high_water(b"x" * 10**6, 1, 0)
    assert (tmp_path / "state" / "counters.json").stat().st_size < 1000


def test_one_process_at_a_time_holds_the_store(tmp_path):
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        store = FileStore(tmp_path / "state")
        with store.exclusive():
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            store.count_contribution()
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == 1
    assert FileStore(tmp_path / "state").contributions == 8


def test_a_node_that_shares_a_state_dir_is_told_so(tmp_path):
    FileStore(tmp_path / "state").raise_high_water(b"run", 1, 0, SESSION)
    with pytest.raises(StaleSession, match="another node has the same state-dir"):
        FileStore(tmp_path / "state").raise_high_water(b"run", 1, 0, SESSION)


def walk(folder, told, round):
    """Live a client's sessions from a round on; tell of each decision once it may be acted upon."""
    store = FileStore(folder)
    while True:
        session = round.to_bytes(32, "big")
        with store.exclusive():
            store.raise_high_water(b"run", round, 0, session, Openings(10**6, 10**6, 1e6))
            os.write(told, b"a")
        with store.exclusive():
            store.count_contribution([0.5] * len(ORDERS), b"run")
            store.append(session, (b"contributed",))
            os.write(told, b"c")
        with store.exclusive():
            store.append(session, (b"unmasked",))
            os.write(told, b"u")
        round += 1


# Python 3.12 warns of forks beside threads: the child uses files and a pipe, and no lock of theirs.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_node_that_is_killed_at_any_moment_forgets_nothing_that_it_acted_upon(tmp_path):
    """Real processes, killed at random: some within a write, some within the lock."""
    sent, round, draw, folder = 0, 1, random.Random(5), tmp_path / "state"
    for _ in range(25):
        read, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                walk(folder, told, round)
            finally:
                os._exit(1)
        os.close(told)
        with os.fdopen(read, "rb", 0) as pipe:
            steps = b"".join(pipe.read(1) for _ in range(draw.randrange(5)))
            time.sleep(draw.uniform(0.0, 0.02))
            os.kill(child, signal.SIGKILL)
            assert os.waitpid(child, 0)[1] == signal.SIGKILL
            steps += pipe.read()
        sent += steps.count(b"c")
        store = FileStore(folder)
        with store.exclusive(0.0):  # the dead hold nothing
            assert sent <= store.contributions <= sent + 1
        sent = store.contributions
        assert store.spent == (0.5 * sent,) * (len(ORDERS) if sent else 0)
        last = round + steps.count(b"a") - 1
        if last >= round:
            lines = store.lines(last.to_bytes(32, "big"))
            done = steps[steps.rindex(b"a") :]
            assert len(lines) >= len(done) - 1
            with pytest.raises(StaleSession):
                store.raise_high_water(b"run", last, 0)
        round = last + 2  # the one between may have begun, and nobody was told
    assert sent >= 10, "the children lived too short to say anything"


def test_who_waits_too_long_for_the_store_says_so_and_gives_up(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    first, second = FileStore(tmp_path / "state"), FileStore(tmp_path / "state")
    with (
        first.exclusive(),
        pytest.raises(BusyStoreError, match="longest_wait"),
        second.exclusive(0.1),
    ):
        pass
    assert "waiting for the answer to another message" in caplog.text
    with second.exclusive(0.1):
        pass


def test_counters_lost_beside_sessions_are_no_fresh_start(tmp_path):
    store = FileStore(tmp_path / "state")
    store.raise_high_water(b"run", 1, 0)
    store.append(SESSION, (b"one",))
    (tmp_path / "state" / "counters.json").unlink()
    with pytest.raises(DamagedStoreError, match="lost"):
        FileStore(tmp_path / "state").raise_high_water(b"run", 1, 0)
    assert FileStore(tmp_path / "new").contributions == 0


def test_lines_of_sessions_long_over_are_deleted_and_none_that_may_go_on(tmp_path):
    def names():
        return sorted(path.stem for path in (tmp_path / "state" / "sessions").iterdir())

    digests = [bytes([number]) * 32 for number in range(7)]
    for number, digest in enumerate(digests[:6]):
        store = FileStore(tmp_path / "state")
        store.raise_high_water(b"run", number, 0, digest)
        store.append(digest, (b"line",))
    store.raise_high_water(b"another run", 50, 0, digests[6])
    assert names() == [digest.hex() for digest in digests[3:6]]
    assert [store.is_over(b"run", number) for number in (2, 3, 5)] == [True, False, False]
    assert not store.is_over(b"unheard of", 0)


def test_a_run_whose_mark_alone_was_lost_does_not_begin_again(tmp_path):
    store, path = FileStore(tmp_path / "state"), tmp_path / "state" / "counters.json"
    store.raise_high_water(b"run", 5, 0, SESSION)
    counters = json.loads(path.read_bytes())
    counters["high_water"] = {}
    del counters["checksum"]
    path.write_text(json.dumps(counters))
    with pytest.raises(DamagedStoreError, match="damaged or lost"):
        store.raise_high_water(b"run", 5, 0, SESSION)


USES = {
    "begin": lambda store: store.raise_high_water(b"new", 1, 0, SESSION, Openings(9, 9, 5.0)),
    "end runs": lambda store: store.raise_high_water(b"run", 9, 0, SESSION, Openings(9, 9, 5.0)),
    "append": lambda store: store.append(SESSION, (b"two",)),
    "count": lambda store: store.count_contribution(),
    "hold": lambda store: store.exclusive().__enter__(),
}


@pytest.mark.parametrize(
    ("use", "call"),
    [
        *((use, call) for use in USES for call in ("open", "mkdir")),
        *((use, "fsync") for use in USES if use != "hold"),
    ],
)
def test_a_disk_that_fails_is_one_line_and_a_record_that_it_keeps(tmp_path, monkeypatch, use, call):
    now = [100.0]
    store = FileStore(tmp_path / "state", lambda: now[0])
    store.raise_high_water(b"run", 1, 0, SESSION)
    store.raise_high_water(b"old", 1, 0)
    store.append(SESSION, (b"one",))
    now[0] += 10.0

    def fails(*arguments, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fails)
        with pytest.raises(UnusableStoreError, match=r"state-dir .*No space left on device"):
            USES[use](FileStore(tmp_path / "state", lambda: now[0]))
    assert store.lines(SESSION)[:1] == (b"one",)
    with pytest.raises(StaleSession):
        store.raise_high_water(b"run", 1, 0, SESSION)


def test_what_fails_while_the_store_is_held_is_not_taken_for_the_stores(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match="data"),
        FileStore(tmp_path / "state").exclusive(),
    ):
        raise FileNotFoundError("data")
