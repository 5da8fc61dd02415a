"""What is on the disk when a round goes on: no crash finds a step without what it builds on."""

import os
import threading
import time
from pathlib import Path

import pytest

from zerosum.client.files.durable_append import Flush
from zerosum.server.runs.run_folder import LEDGER, METRICS
from zerosum.simulations import api
from zerosum.simulations.engine.cohort import SimulatedCohort

pytestmark = pytest.mark.usefixtures("one_thread")


class Disk:
    """Notes how much of each file was flushed, and what is not when a step of a round is taken."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder = folder
        self.flushed: dict[int, int] = {}
        self.steps: list[str] = []
        self.missing: set[tuple[str, str]] = set()
        self._patch(monkeypatch)

    def _patch(self, monkeypatch) -> None:
        fsync, replace, total = os.fsync, Path.replace, SimulatedCohort.total

        def flush(descriptor):
            before = os.fstat(descriptor)
            if threading.current_thread() is not threading.main_thread():
                time.sleep(0.1)  # whoever does not wait for it is seen
            fsync(descriptor)
            self.flushed[before.st_ino] = before.st_size

        def replaced(path, target):
            if path.name == "state.safetensors.new":
                self._step("checkpoint", LEDGER, METRICS)
            return replace(path, target)

        def asked(cohort, request, session, clients):
            self._step("asked", LEDGER)
            return total(cohort, request, session, clients)

        monkeypatch.setattr(os, "fsync", flush)
        monkeypatch.setattr(Path, "replace", replaced)
        monkeypatch.setattr(SimulatedCohort, "total", asked)

    def _step(self, step: str, *needed: str) -> None:
        self.steps.append(step)
        for name in needed:
            there = (self.folder / name).stat()
            if self.flushed.get(there.st_ino) != there.st_size:
                self.missing.add((step, name))

    def told(self, record) -> None:
        self._step("told", LEDGER, METRICS)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    return Disk(tmp_path / "run", monkeypatch)


def run(disk):
    overrides = [
        "rounds=2", "data.clients=30", "sampling.cohort=12", "privacy.delta=1e-2",
        "training.epochs=1", "secagg.protocol=ideal",
    ]  # fmt: skip
    api.run("digits", overrides=overrides, out=disk.folder, on_round=disk.told, report=False)


def test_each_step_of_a_round_finds_what_it_builds_on_on_the_disk(disk):
    run(disk)
    assert disk.steps == 2 * ["asked", "checkpoint", "told"]
    assert not disk.missing


def test_a_checkpoint_that_waits_for_no_line_is_found_out(disk, monkeypatch):
    """A control: the disk is slow enough for the test above to see it."""
    monkeypatch.setattr(Flush, "wait", lambda flush: None)
    run(disk)
    assert ("checkpoint", METRICS) in disk.missing or ("checkpoint", LEDGER) in disk.missing
