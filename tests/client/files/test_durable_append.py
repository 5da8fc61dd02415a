"""Files that are flushed side by side: what waits for what."""

import errno
import os
import threading
from pathlib import Path

import pytest

from zerosum.client.files.durable_append import append_durably, append_flushing, replace_file


class Disk:
    """A disk that keeps flushes of one file waiting until it is told to end, and notes their order.

    Replacing a file is noted, too.
    """

    def __init__(self, slow: Path) -> None:
        self.events: list[str] = []
        self.go = threading.Event()
        self.failure: OSError | None = None
        self._slow = os.stat(slow).st_ino

    def fsync(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == self._slow:
            assert self.go.wait(10)
            self.events.append("line")
            if self.failure is not None:
                raise self.failure

    def replace(self, path: Path, target: Path) -> Path:
        self.events.append("replaced")
        os.replace(path, target)
        return target


@pytest.fixture
def disk(tmp_path, monkeypatch):
    append_durably(tmp_path / "line", b"1\n")
    disk = Disk(tmp_path / "line")
    monkeypatch.setattr(os, "fsync", disk.fsync)
    monkeypatch.setattr(Path, "replace", lambda path, target: disk.replace(path, target))
    yield disk
    disk.go.set()


def test_a_file_that_builds_on_a_line_takes_its_place_after_the_line_is_on_the_disk(disk, tmp_path):
    flush = append_flushing(tmp_path / "line", b"2\n")
    assert (tmp_path / "line").read_bytes() == b"1\n2\n"  # read by us before it is on the disk
    threading.Timer(0.1, disk.go.set).start()
    replace_file(tmp_path / "state", b"of both", after=flush)
    assert disk.events == ["line", "replaced"]


def test_without_being_told_it_does_not_wait(disk, tmp_path):
    """A control: the order above is the flush's doing."""
    flush = append_flushing(tmp_path / "line", b"2\n")
    replace_file(tmp_path / "state", b"of both")
    assert disk.events == ["replaced"]
    disk.go.set()
    flush.wait()


def test_a_line_that_the_disk_refuses_leaves_the_old_file(disk, tmp_path):
    (tmp_path / "state").write_bytes(b"old")
    disk.failure = OSError(errno.ENOSPC, "No space left on device")
    disk.go.set()
    flush = append_flushing(tmp_path / "line", b"2\n")
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "state", b"new", after=flush)
    assert (tmp_path / "state").read_bytes() == b"old"
    assert {path.name for path in tmp_path.iterdir()} == {"line", "state"}
    with pytest.raises(OSError, match="No space left"):
        flush.wait()


def test_a_new_file_is_on_the_disk_with_its_name_at_once(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(os.fstat(fd).st_ino))
    append_flushing(tmp_path / "new", b"1\n")
    assert flushed == [os.stat(tmp_path / "new").st_ino, os.stat(tmp_path).st_ino]
