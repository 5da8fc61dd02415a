"""Lines of the ledger come back as they were written, or not at all."""

import json
import os
import threading

import pytest

from zerosum.server.privacy.ledger_file import (
    ContributionsCharged,
    LedgerFile,
    LedgerMismatchError,
    RunHeader,
    SessionEnded,
    SumCharged,
    read_entries,
    read_header,
)

HEADER = RunHeader(
    population=9,
    model="distributed",
    protocol="pairwise",
    corruption=0.0,
    dropout=0.1,
    groups=1,
    sampling={"kind": "poisson", "cohort": 4},
    kinds={"train": {"length": 7, "variance": 1e16}},
)
KEY = (1, 0, "train", 0)
ENTRIES: list[ContributionsCharged | SumCharged | SessionEnded] = [
    ContributionsCharged(key=KEY, cohort=3, clients=[0, 4, 8]),
    SumCharged(key=KEY),
    SessionEnded(key=KEY, cohort=3, survived=2),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.jsonl"
    file = LedgerFile(path)
    file.open(HEADER)
    for entry in ENTRIES:
        file.append(entry)
    return path


def test_entries_come_back_as_written(path):
    assert LedgerFile(path).open(HEADER) == read_entries(path) == ENTRIES
    assert read_header(path) == HEADER


def test_lines_are_compact_json_with_floats_as_python_writes_them(path):
    lines = path.read_text().splitlines()
    assert lines[1] == '{"type":"contributions","key":[1,0,"train",0],"cohort":3,"clients":[0,4,8]}'
    assert lines[0].endswith('"kinds":{"train":{"length":7,"variance":1e+16}}}')
    assert [json.loads(line)["type"] for line in lines] == [
        "run", "contributions", "sum", "survived",
    ]  # fmt: skip


def test_ledger_of_other_settings_is_refused(path):
    with pytest.raises(LedgerMismatchError, match=r"other privacy parameters.*start a new run"):
        LedgerFile(path).open(HEADER.model_copy(update={"dropout": 0.2}))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"type":"sum","key":[1,0,"train",0],"spent":3}', "a newer version wrote it"),
        ('{"type":"sums","key":[1,0,"train",0]}', "damaged"),
        ('{"type":"sum"}', r"damaged.*key: it is missing"),
        ('{"type":"sum","key":["1",0,"train",0]}', "damaged"),
        ('{"type":"contributions","key":[1,0,"train",0],"cohort":3,"clients":[-1]}', "damaged"),
        ('{"type":"contributions","key":[1,0,"train",0],"cohort":3,"clients":[true]}', "damaged"),
        ("[]", "damaged"),
        ("{", "what was spent is not known any more"),
    ],
)
def test_line_that_cannot_be_counted_is_refused(path, line, message):
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(LedgerMismatchError, match=message):
        LedgerFile(path).open(HEADER)
    with pytest.raises(LedgerMismatchError, match=message):
        read_entries(path)


def test_header_without_lengths_is_refused(path):
    path.write_text(path.read_text().replace('"length":7', '"length":"7"', 1))
    with pytest.raises(LedgerMismatchError, match="without the length of its vector"):
        read_header(path)


def test_absent_ledger_has_no_entries_and_no_header(tmp_path):
    assert read_entries(tmp_path / "ledger.jsonl") == []
    with pytest.raises(LedgerMismatchError, match="has not begun"):
        read_header(tmp_path / "ledger.jsonl")


def test_read_only_ledger_is_left_as_it_is(path):
    torn = path.read_bytes() + b'{"type":"su'
    path.write_bytes(torn)
    file = LedgerFile(path, read_only=True)
    assert file.open(HEADER) == ENTRIES
    file.append(SumCharged(key=KEY))
    assert path.read_bytes() == torn
    assert LedgerFile(path).open(HEADER) == ENTRIES
    assert path.read_bytes() == torn[: torn.rindex(b"\n") + 1]


def test_ledger_in_memory_writes_nothing():
    file = LedgerFile(None)
    assert file.open(HEADER) == []
    file.append(SumCharged(key=KEY))


@pytest.mark.parametrize("then", [lambda file: file.settle(), lambda file: file.append(ENTRIES[0])])
def test_a_line_that_was_not_waited_for_is_waited_for_by_what_follows(path, then, monkeypatch):
    go, flushed = threading.Event(), []

    def fsync(descriptor):
        slow = threading.current_thread() is not threading.main_thread()
        assert not slow or go.wait(10)
        flushed.append("not waited for" if slow else "charge")

    monkeypatch.setattr(os, "fsync", fsync)
    file = LedgerFile(path)
    file.append(ENTRIES[2], wait=False)
    assert read_entries(path) == [*ENTRIES, ENTRIES[2]]
    assert not flushed
    threading.Timer(0.05, go.set).start()
    then(file)
    assert flushed[0] == "not waited for"


def test_a_charge_is_on_the_disk_when_it_returns(path, monkeypatch):
    """The control: its thread is the caller's."""
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(threading.current_thread()))
    LedgerFile(path).append(ENTRIES[0])
    assert flushed == [threading.main_thread()]
