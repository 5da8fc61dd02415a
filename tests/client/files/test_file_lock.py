"""A lock that no other user can take, and that says who has it."""

import fcntl
import os
import subprocess
import sys

import pytest

from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.client.files.private_files import OpenToOthersError
from zerosum.client.protocol.decision_store import BusyStoreError
from zerosum.client.protocol.file_store import FileStore

HOLD = """
import sys
from pathlib import Path
from zerosum.client.files.file_lock import held_alone
with held_alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_that_others_can_open_is_refused_for_one_who_only_reads_it_can_hold_it(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    path.chmod(0o644)
    reader = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the control: reading is enough
        with pytest.raises(OpenToOthersError, match="chmod 600"), held_alone(path):
            pass
    finally:
        os.close(reader)


def test_a_lock_behind_a_link_is_refused(tmp_path):
    (tmp_path / "theirs").touch(0o600)
    (tmp_path / "lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(OpenToOthersError, match="symbolic link"), held_alone(tmp_path / "lock"):
        pass


def test_who_waits_in_vain_is_told_which_process_holds_the_lock(tmp_path):
    FileStore(tmp_path / "state")
    path = tmp_path / "state" / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HeldError, match=f"process {holder.pid}"), held_alone(path):
            pass
        waits = FileStore(tmp_path / "state").exclusive(0.1)
        with pytest.raises(BusyStoreError, match=f"held by process {holder.pid}, "), waits:
            pass
        holder.kill()
        holder.wait(10)
        with held_alone(path, 10.0):  # the dead hold nothing
            assert path.read_bytes() == b"%d\n" % os.getpid()
    finally:
        holder.kill()
        holder.wait(10)
        holder.stdin.close()
        holder.stdout.close()


def test_a_holder_that_wrote_nothing_is_another_process(tmp_path):
    path = tmp_path / "lock"
    with held_alone(path):
        os.truncate(path, 0)
        with pytest.raises(HeldError, match="another process"), held_alone(path):
            pass


FORKED = """
import os, sys
from pathlib import Path
from zerosum.client.files.file_lock import HeldError, held_alone
path, (ends, stays) = Path(sys.argv[1]), os.pipe()
try:
    with held_alone(path):
        child = os.fork()
        if child == 0 and sys.argv[2] == "unwinds":
            sys.exit()
        if child == 0:  # as a worker that loads data, and outlives the answer
            os.close(stays)
            os.read(ends, 1)
            os._exit(0)
        if sys.argv[2] == "unwinds":
            os.waitpid(child, 0)
            with held_alone(path):
                print("taken twice")
    with held_alone(path):
        print("free")
except HeldError:
    print("held")
"""


@pytest.mark.parametrize(("child", "then"), [("stays", "free"), ("unwinds", "held")])
def test_a_process_that_was_forked_meanwhile_neither_keeps_nor_ends_the_lock(tmp_path, child, then):
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "lock"), child],
        stdout=subprocess.PIPE,
        timeout=20,
    )
    assert done.stdout == then.encode() + b"\n"
