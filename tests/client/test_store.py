"""The durable record: decisions outlive a process, torn lines do not count."""

import pytest

from zerosum.client.store import FileStore, MemoryStore
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
