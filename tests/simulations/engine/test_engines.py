"""Engines: the same bits wherever clients are computed, and workers that end in every way."""

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from typing import Literal

import numpy as np
import pytest
import torch
from narrowed import present
from processes import alive, children, wait_for
from torch import nn

from zerosum.client.protocol import stages
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.training_outcomes import OutcomeCounts
from zerosum.secagg import Ring
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import METRICS, MODEL
from zerosum.simulations import api
from zerosum.simulations.engine import choice, cohort
from zerosum.simulations.engine.pool import WorkerPool
from zerosum.simulations.engine.work import LARGEST_CHUNK, Contributor, Serial, chunked

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = [
    "rounds=2",
    "data.clients=24",
    "sampling.cohort=10",
    "training.epochs=1",
    "privacy.delta=1e-2",
    "privacy.honest_fraction=0.5",
    "secagg.dropout=0.4",
    "faults.contribute=0.1",
    "faults.unmask=0.1",
]


class Toy:
    """Six clients of three records; `wrong` does something else for client 2."""

    def __init__(self, wrong=lambda: None):
        self.wrong = wrong

    def num_clients(self):
        return 6

    def model(self):
        return nn.Linear(4, 2)

    def data(self, client):
        if client.index == 2:
            self.wrong()
        generator = torch.Generator().manual_seed(client.index)
        return torch.randn(3, 4, generator=generator), torch.tensor([0, 1, 0])

    def test_data(self):
        return None

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def run(out, *settings):
    return api.run("digits", overrides=[*SMALL, *settings], out=out, report=False)


def outcome(result):
    lines = (result.folder / METRICS).read_text().splitlines()
    drop = ("seconds", "stage_seconds", "bytes_up_per_client", "bytes_down_per_client")
    records = [{k: v for k, v in json.loads(line).items() if k not in drop} for line in lines]
    return (result.folder / MODEL).read_bytes(), records


def works(private=True):
    """Return the work of one round of the toy task, as a coordinator would ask it."""
    settings = {
        "task": "toy:task",
        "data": {"clients": 6},
        "training": {"epochs": 1, "batch_size": 2},
        "privacy": {"delta": 1e-2} if private else {"model": "none", "clip": "none"},
        "encoding": {"range": 1.0},
        "sampling": {"kind": "everyone"},
        "secagg": {"protocol": "ideal"},
    }
    captured = []

    class Capturing(Serial):
        def total(self, work, clients):
            captured.append((work, tuple(clients)))
            return super().total(work, clients)

    experiment = api.load_experiment(settings)
    environment = api.SimulatedEnvironment.of(Toy(), SeededEntropy(0), experiment.secagg, 6)
    engine = Capturing(Contributor(Toy(), SeededEntropy(0)))
    coordinator = environment.coordinator(experiment, 6, bytes(16), engine)
    from zerosum.client.request import ModelRequest, model_payload
    from zerosum.client.training.initial_model import initial_vector
    from zerosum.server.privacy.protections import question_of

    draw: Literal["per_client"] = "per_client"
    if private:
        experiment = experiment.model_copy(
            update={"privacy": experiment.privacy.model_copy(update={"noise_draw": draw})}
        )
    question = question_of(experiment, 1, 6, noise_draw=draw)
    coordinator.private_sum(
        ModelRequest(question, model_payload(initial_vector(Toy(), 0))), [range(6)], round=2
    )
    return captured[0]


def pool(task, workers=2):
    return WorkerPool(
        Contributor(task, SeededEntropy(0)), workers, entries=10, length=14
    )  # counts of cuts


OPEN = ["privacy.model=none", "privacy.clip=none", "encoding.range=1"]
EACH_EXAMPLE = [
    "privacy.unit=example", "privacy.examples=1438", "privacy.lot=200", "privacy.clip=0.5",
    "privacy.delta=1e-4", "sampling.kind=everyone", "secagg.dropout=0.4", "encoding.range=1",
]  # fmt: skip

SETTINGS = {
    "ideal": ["secagg.protocol=ideal", "privacy.noise_draw=per_client"],
    "none": ["secagg.protocol=none", "privacy.noise_draw=per_client"],
    "pairwise": ["secagg.protocol=pairwise", "privacy.noise_draw=per_client"],
    "noise of the sum": ["secagg.protocol=ideal", "privacy.noise_draw=summed"],
    "no privacy": ["secagg.protocol=ideal", *OPEN],
    "each example": ["secagg.protocol=ideal", *EACH_EXAMPLE],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_is_the_same_wherever_its_clients_are_computed(tmp_path, name):
    one = run(tmp_path / "one", *SETTINGS[name], "engine=serial")
    three = run(tmp_path / "three", *SETTINGS[name], "engine=processes", "workers=3")
    assert outcome(one) == outcome(three)
    if name == "no privacy":  # what the comparison can tell
        other = run(tmp_path / "other", *SETTINGS[name], "engine=serial", "seed=1")
        assert outcome(other)[0] != outcome(one)[0]


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("workers", [1, 2, 3, 16])
@pytest.mark.parametrize("count", [0, 1, 7, 100, 1000])
def test_parts_of_a_cohort_hold_each_client_once_and_shrink_towards_its_end(
    workers: int, count: int
) -> None:
    parts = chunked(range(count), workers)
    assert [client for part in parts for client in part] == list(range(count))
    assert all(0 < len(part) <= LARGEST_CHUNK for part in parts)
    # A worker that is given a last part of this size keeps the others waiting no longer.
    assert not parts or len(parts[-1]) <= max(1, count / workers / 8 + 2)
    loads = [0] * workers
    for part in parts:  # of clients of one size, each to the worker that is done first
        loads[loads.index(min(loads))] += len(part)
    assert max(loads) - min(loads) <= max(1, count / workers / 8 + 2)


@pytest.mark.slow
def test_contributions_that_stay_in_their_process_are_the_same_unpacked(tmp_path, monkeypatch):
    packed, pack = [], Ring.pack

    def counted(self, vector):
        packed.append(len(vector))
        return pack(self, vector)

    monkeypatch.setattr(Ring, "pack", counted)
    settings = ["secagg.protocol=pairwise", "engine=serial"]
    here = run(tmp_path / "here", *settings)
    assert len(packed) == 2, "the one of each round that its record keeps"
    monkeypatch.setattr(cohort, "unpacked", stages._packed)
    sent = run(tmp_path / "sent", *settings)
    assert len(packed) > 10
    assert outcome(here) == outcome(sent)
    for name in ("bytes_up_per_client", "bytes_down_per_client"):
        assert [r[name] for r in here.rounds] == [r[name] for r in sent.rounds]


@pytest.mark.slow
def test_workers_compute_what_one_process_does():
    work, clients = works()
    serial = Serial(Contributor(Toy(), SeededEntropy(0)))
    engine = pool(Toy(), workers=3)
    try:
        done, total = engine.total(work, clients)
        vectors = dict(engine.vectors(work, clients))
        again = engine.total(work, clients)[1]
    finally:
        engine.close()
    expected = {i: present(vector) for i, vector in serial.vectors(work, clients)}
    assert done == list(clients)
    assert all(np.array_equal(present(vectors[i]), expected[i]) for i in clients)
    assert np.array_equal(total, sum(expected.values()))
    assert np.array_equal(again, total)
    assert np.array_equal(total, serial.total(work, clients)[1])


def test_without_privacy_a_client_that_raises_drops_out_alone():
    def fail():
        raise OSError("gone")

    work, clients = works(private=False)
    engine = pool(Toy(fail))
    try:
        assert engine.total(work, clients)[0] == [0, 1, 3, 4, 5]
        assert dict(engine.vectors(work, clients))[2] is None
    finally:
        engine.close()


@pytest.mark.slow
def test_a_client_that_kills_its_worker_twice_drops_out_alone(caplog):
    work, clients = works()
    engine = pool(Toy(lambda: os.kill(os.getpid(), signal.SIGKILL)))
    try:
        done, total = engine.total(work, clients)
        vectors = dict(engine.vectors(work, clients))
    finally:
        engine.close()
    assert done == [0, 1, 3, 4, 5]
    assert vectors[2] is None
    alone = Serial(Contributor(Toy(), SeededEntropy(0)))
    expected = [present(vector) for _, vector in alone.vectors(work, done)]
    assert np.array_equal(total, sum(expected))
    # Of both calls above: the client is counted where it was given up, and once.
    tally = engine.take_tally()
    assert (tally.trained, tally.failed, tally.idle) == (10, 2, 0)
    assert tally.first == (2, "its worker was killed (out of memory?), twice")
    assert engine.take_tally() == OutcomeCounts()
    assert "once more" in caplog.text
    assert "drop out" in caplog.text


def test_a_worker_that_dies_once_costs_nobody(tmp_path):
    flag = tmp_path / "died"

    def die_once():
        if not flag.exists():
            flag.touch()
            os._exit(3)

    work, clients = works()
    engine = pool(Toy(die_once))
    try:
        done, total = engine.total(work, clients)
    finally:
        engine.close()
    assert done == list(clients)
    assert np.array_equal(
        total, Serial(Contributor(Toy(), SeededEntropy(0))).total(work, clients)[1]
    )


@pytest.mark.slow
def test_workers_that_died_while_idle_cost_nobody():
    work, clients = works()
    engine = pool(Toy(), workers=3)
    try:
        engine.total(work, clients)
        for child in multiprocessing.active_children():
            os.kill(present(child.pid), signal.SIGKILL)
            child.join()
        assert engine.total(work, clients[:2])[0] == list(clients[:2])
        assert engine.total(work, clients)[0] == list(clients)
    finally:
        engine.close()


class Ours(Exception):
    """A mistake in the engine, not in a client."""


@pytest.mark.slow
def test_an_error_of_the_engine_ends_the_run(monkeypatch):
    def fails(*_):
        raise Ours("a bug")

    work, clients = works()
    monkeypatch.setattr(Contributor, "vector", fails)
    monkeypatch.setattr(Contributor, "add", fails)
    monkeypatch.setattr(Contributor, "vectors", fails)
    with pytest.raises(Ours):
        Serial(Contributor(Toy(), SeededEntropy(0))).total(work, clients)
    engine = pool(Toy())
    try:
        with pytest.raises(RuntimeError, match="Ours: a bug"):
            engine.total(work, clients)
    finally:
        engine.close()
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_caller_that_stops_early_leaves_a_pool_that_goes_on():
    work, clients = works()
    engine = pool(Toy())
    try:
        stream = engine.vectors(work, clients)
        next(stream)
        stream.close()
        assert engine.total(work, clients)[0] == list(clients)
    finally:
        engine.close()


@pytest.mark.slow
def test_nothing_is_left_behind():
    work, clients = works()
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    for _ in range(3):
        engine = pool(Toy())
        engine.total(work, clients)
        engine.close()
    gc.collect()
    assert not multiprocessing.active_children()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 1


def ended(workers):
    return not any(alive(pid) for pid in workers)


@pytest.mark.slow
def test_a_command_that_is_interrupted_or_killed_leaves_no_worker(tmp_path):
    command = [sys.executable, "-m", "zerosum.simulations.commands.main", "run", "digits", "--set"]
    command += ["rounds=100000", "--set", "engine=processes", "--set", "workers=2"]
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
    for number, (sign, code) in enumerate(codes.items()):
        out = tmp_path / str(number)
        process = subprocess.Popen(
            [*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for((out / METRICS).exists)
            workers = children(process.pid)
            assert len(workers) == 2
            process.send_signal(sign)
            assert process.wait(30) == code
            wait_for(partial(ended, workers))
        finally:
            process.kill()
            process.wait()


def test_cores_decide_unless_workers_are_asked_for(monkeypatch):
    def workers(*settings):
        return choice.workers_of(api.load_experiment("digits", settings))

    monkeypatch.setattr(choice, "cores", lambda: 4)
    monkeypatch.setattr(sys, "platform", "linux")
    assert [workers(), workers("workers=3"), workers("engine=serial")] == [4, 3, 0]
    assert [workers("workers=1"), workers("workers=1", "engine=processes")] == [0, 1]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert workers() == 0
    with pytest.raises(ConfigError, match=r'engine = "processes".*serial'):
        workers("engine=processes")


@pytest.mark.slow
def test_engine_and_workers_may_change_on_resume(tmp_path):
    whole = run(tmp_path / "whole", "engine=serial")
    run(tmp_path / "cut", "rounds=1", "workers=2")
    resumed = api.resume(tmp_path / "cut", overrides=["rounds=2", "engine=serial"], report=False)
    assert outcome(resumed) == outcome(whole)
