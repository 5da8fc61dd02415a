"""Private files stay their owner's whatever the umask; others are refused."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from policies import LEAST_TOML

from zerosum.client.files import private_files
from zerosum.client.files.private_files import (
    OpenToOthersError,
    open_private,
    private_folder,
    read_private,
    replace_private,
    write_private,
)
from zerosum.client.flower.node_policy import PolicyError, read_policy
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.node_keys import ProvisioningError, read_identity, read_roster
from zerosum.secagg import IdentityKey

SESSION = bytes(32)


@pytest.fixture(params=[0o000, 0o002, 0o022, 0o077, 0o777], ids=lambda mask: f"umask {mask:03o}")
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def used(folder):
    """Do with a state folder everything that a node does."""
    store = FileStore(folder, clock=lambda: 10.0)
    with store.exclusive():
        store.raise_high_water(b"run", 1, 0, SESSION)
        store.append(SESSION, (b"one",))
        store.admit_roster(1, bytes(32))
        store.count_contribution()
    return store


def test_a_state_folder_is_its_owners_alone_whatever_the_umask(umask, tmp_path):
    store = used(tmp_path / "above" / "state")
    assert store.lines(SESSION) == (b"one",)
    folders = {tmp_path / "above", tmp_path / "above" / "state", store._sessions}
    assert {mode(folder) for folder in folders} == {0o700}
    files = [path for path in store._folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"lock", "counters.json", f"{SESSION.hex()}.log"}
    assert {mode(path) for path in files} == {0o600}


def test_new_and_replaced_files_are_their_owners_alone_whatever_the_umask(umask, tmp_path):
    write_private(tmp_path / "key", b"secret")
    for data in (b"one", b"two"):
        replace_private(tmp_path / "counters", data)
    assert (mode(tmp_path / "key"), mode(tmp_path / "counters")) == (0o600, 0o600)
    assert (read_private(tmp_path / "key"), read_private(tmp_path / "counters")) == (
        b"secret",
        b"two",
    )
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key", b"another")


@pytest.mark.parametrize("bits", [0o701, 0o710, 0o704, 0o720, 0o755, 0o777, 0o1777])
def test_a_folder_open_to_others_is_refused_with_its_cure(tmp_path, bits):
    folder = tmp_path / "state"
    used(folder)
    folder.chmod(bits)
    with pytest.raises(OpenToOthersError, match=rf"mode {bits:04o}.*chmod 700 {folder}"):
        FileStore(folder)
    folder.chmod(0o700)
    assert FileStore(folder).contributions == 1


@pytest.mark.parametrize("bits", [0o601, 0o604, 0o620, 0o644, 0o666])
@pytest.mark.parametrize("name", ["lock", "counters.json", f"sessions/{SESSION.hex()}.log"])
def test_a_file_open_to_others_is_refused_with_its_cure(tmp_path, name, bits):
    used(tmp_path / "state")
    file = tmp_path / "state" / name
    file.chmod(bits)
    with pytest.raises(OpenToOthersError, match=rf"mode {bits:04o}.*chmod 600 {file}"):
        again(tmp_path / "state")
    file.chmod(0o600)
    again(tmp_path / "state")


def again(folder):
    store = FileStore(folder)
    with store.exclusive():
        store.append(SESSION, (*store.lines(SESSION), b"two"))
        store.count_contribution()


@pytest.mark.parametrize("kind", ["link to a folder", "dangling link", "file", "pipe"])
def test_what_is_no_folder_of_its_own_is_refused(tmp_path, kind):
    path = tmp_path / "state"
    match kind:
        case "link to a folder":
            used(tmp_path / "real")
            path.symlink_to(tmp_path / "real")
        case "dangling link":
            path.symlink_to(tmp_path / "nowhere")
        case "file":
            path.touch(0o600)
        case "pipe":
            os.mkfifo(path, 0o600)
    with pytest.raises(OpenToOthersError, match="symbolic link" if "link" in kind else "no folder"):
        private_folder(path)


@pytest.mark.parametrize("use", [open_private, read_private])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_what_is_no_file_of_its_own_is_refused_and_not_waited_for(tmp_path, use, kind):
    path, real = tmp_path / "file", tmp_path / "real"
    write_private(real, b"secret")
    match kind:
        case "link":
            path.symlink_to(real)
        case "dangling link":
            path.symlink_to(tmp_path / "nowhere")
        case "pipe":
            os.mkfifo(path, 0o600)
        case "folder":
            path.mkdir(0o700)
    with pytest.raises((OpenToOthersError, IsADirectoryError)):
        use(path)
    assert not (tmp_path / "nowhere").exists()


def roster_at(path):
    return read_roster(path, "00" * 32)


@pytest.mark.parametrize("read", [read_policy, roster_at])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "pipe behind a link", "no path"])
def test_a_file_of_a_node_that_is_none_is_refused_and_not_waited_for(tmp_path, read, kind):
    path, pipe, refused = tmp_path / "file", tmp_path / "pipe", []
    os.mkfifo(pipe)
    match kind:
        case "pipe":
            path = pipe
        case "folder":
            path.mkdir()
        case "device":
            path = Path(os.devnull)  # one with an end: a reader of others comes to none
        case "pipe behind a link":
            path.symlink_to(pipe)
        case "no path":
            path = tmp_path / "a\0b"

    def reading():
        try:
            read(str(path))
        except (PolicyError, ProvisioningError) as error:
            refused.append(str(error))

    reader = threading.Thread(target=reading, daemon=True)
    reader.start()
    reader.join(5)
    waits = reader.is_alive()
    os.close(os.open(pipe, os.O_RDWR))  # lets go of whoever waits
    assert not waits, "a pipe was waited for"
    cause = "null byte" if kind == "no path" else "no regular file"
    assert cause in refused[0]
    assert "cannot be used" in refused[0]


def test_a_policy_behind_a_link_is_read(tmp_path):
    """A cluster mounts its files as links."""
    (tmp_path / "real").write_text(LEAST_TOML)
    (tmp_path / "policy.toml").symlink_to("real")
    assert read_policy(str(tmp_path / "policy.toml")).min_cohort == 2


def test_what_belongs_to_another_user_is_refused(tmp_path, monkeypatch):
    used(tmp_path / "state")
    owner = os.geteuid()
    monkeypatch.setattr(private_files.os, "geteuid", lambda: owner + 1)
    for use in (private_folder, lambda path: FileStore(path)):
        with pytest.raises(OpenToOthersError, match=f"belongs to user {owner}, .*user {owner + 1}"):
            use(tmp_path / "state")
    with pytest.raises(OpenToOthersError, match="belongs to user"):
        read_private(tmp_path / "state" / "counters.json")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_finds_of_another_user_is_refused(tmp_path):
    used(tmp_path / "state")
    os.chown(tmp_path / "state" / "lock", 12345, 12345)
    with pytest.raises(OpenToOthersError, match=r"lock belongs to user 12345.*chown 0 "):
        again(tmp_path / "state")
    os.chown(tmp_path / "state", 12345, 12345)
    with pytest.raises(OpenToOthersError, match="belongs to user 12345"):
        FileStore(tmp_path / "state")


AS_ANOTHER = """
import os, sys
from pathlib import Path
from zerosum.client.protocol.file_store import FileStore
os.setgroups([])
os.setgid(12345)
os.setuid(12345)
os.umask(int(sys.argv[2], 8))
for _ in range(2):
    store = FileStore(Path(sys.argv[1]))
    with store.exclusive():
        store.count_contribution()
print(store.contributions, oct(os.stat(sys.argv[1]).st_mode & 0o777))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("mask", ["000", "777"])
def test_a_user_that_is_not_root_has_a_state_folder_whatever_the_umask(mask):
    with tempfile.TemporaryDirectory() as home:  # pytest's own folders let nobody else in
        os.chown(home, 12345, 12345)
        command = [sys.executable, "-c", AS_ANOTHER, f"{home}/a/state", mask]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["2", "0o700"], done.stderr


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o644, 0o777])
def test_a_signing_key_that_others_can_reach_is_refused_as_ssh_does(tmp_path, bits):
    key = IdentityKey.generate()
    file = tmp_path / "node.key"
    write_private(file, key.to_bytes())
    assert read_identity(str(file)).public == key.public
    file.chmod(bits)
    with pytest.raises(ProvisioningError, match=rf"identity: .*{bits:04o}.*chmod 600 {file}"):
        read_identity(str(file))
    file.chmod(0o400)
    assert read_identity(str(file)).public == key.public


def test_a_signing_key_behind_a_link_is_refused(tmp_path):
    write_private(tmp_path / "real", IdentityKey.generate().to_bytes())
    (tmp_path / "node.key").symlink_to(tmp_path / "real")
    with pytest.raises(ProvisioningError, match=r"identity: .*symbolic link"):
        read_identity(str(tmp_path / "node.key"))
