"""Many clients and many rounds: what a round costs, and keeps, is its cohort's."""

import gc
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.spec import SecAggSpec
from zerosum.secagg import IdentityKey
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.run_folder import MODEL
from zerosum.simulations import api
from zerosum.simulations.engine.grid import FIRST_NODE, nodes
from zerosum.simulations.engine.simulated_clients import (
    DrawnIdentities,
    SimulatedEnvironment,
    roster_of,
)

HERE = Path("/proc/self")
SIGNED = ["secagg.protocol=pairwise", "secagg.server=malicious"]


class Lazy:
    """Any number of clients, whose four records are made when they are asked for."""

    def __init__(self) -> None:
        self.asked: set[int] = set()

    def num_clients(self) -> int:
        return 100

    def model(self) -> nn.Module:
        return nn.Linear(10, 2)

    def data(self, client: object) -> tuple[torch.Tensor, torch.Tensor]:
        index = getattr(client, "index")  # noqa: B009
        self.asked.add(index)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(4, 10, generator=generator), torch.tensor([0, 1, 0, 1])

    def test_data(self) -> None:
        return None

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def simulated(
    out: Path, on_round: Callable[[RoundRecord], None], *settings: str
) -> tuple[Lazy, api.SimulatedEnvironment]:
    """Run a lazy task in this process; return it, and what its clients stood in."""
    task, made = Lazy(), []
    patch = pytest.MonkeyPatch()
    original = SimulatedEnvironment.coordinator

    def remember(self: SimulatedEnvironment, *args: object) -> object:
        made.append(self)
        return original(self, *args)  # type: ignore[arg-type]

    base = ["task=lazy:task", "training.epochs=1", "training.batch_size=4", "privacy.delta=1e-6"]
    with patch.context() as patched:
        patched.setattr(api, "resolve_task", lambda *args: task)
        patched.setattr(SimulatedEnvironment, "coordinator", remember)
        overrides = [*base, *settings]
        api.run("cross-device", overrides=overrides, out=out, on_round=on_round, report=False)
    return task, made[0]


def resident() -> float:
    """Return the memory of this process and its workers, in MB."""
    gc.collect()
    pids = ["self", *(str(child.pid) for child in multiprocessing.active_children())]
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_nodes_are_numbered_without_a_table() -> None:
    many = nodes(10**9)
    assert (many[0], many[10**9 - 1], len(many)) == (FIRST_NODE, FIRST_NODE + 10**9 - 1, 10**9)
    with pytest.raises(KeyError):
        many[10**9]
    assert dict(nodes(3)) == {index: FIRST_NODE + index for index in range(3)}


def test_drawn_identities_are_the_same_keys_each_time_they_are_made() -> None:
    drawn = DrawnIdentities(5)
    roster = roster_of(drawn)
    assert roster is not None
    assert [drawn[i].public for i in range(5)] == [roster.entries[i] for i in range(5)]
    assert len(set(roster.entries.values())) == 5
    assert roster.verifies(3, drawn[3].sign(b"words"), b"words")
    assert not roster.verifies(2, drawn[3].sign(b"words"), b"words")
    assert [key.public for key in drawn[1:3]] == [drawn[1].public, drawn[2].public]
    assert isinstance(drawn[-1], IdentityKey)
    with pytest.raises(IndexError):
        drawn[5]
    assert roster_of(DrawnIdentities(0)) is None


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_only_who_is_asked_has_data_and_state(tmp_path: Path) -> None:
    settings = ["data.clients=100_000", "sampling.cohort=12", "rounds=2", "engine=serial"]
    settings += ["privacy.honest_fraction=0.5", "secagg.dropout=0.3", "secagg.protocol=none"]
    task, environment = simulated(tmp_path / "run", lambda record: None, *settings)
    assert 2 < len(task.asked) < 60
    assert 2 < len(environment._stores) < 60
    assert len(environment._parties) < 30


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_records_may_stay_in_a_mapped_file(tmp_path: Path) -> None:
    count = 400
    records = np.random.default_rng(0).normal(size=(count, 4, 10)).astype(np.float32)
    np.save(tmp_path / "records.npy", records)
    mapped = np.load(tmp_path / "records.npy", mmap_mode="r")
    targets = np.tile(np.array([0, 1], dtype=np.int64), (count, 2))
    settings = [f"data.clients={count}", "sampling.cohort=12", "rounds=2", "engine=serial"]
    settings += ["privacy.honest_fraction=0.5", "secagg.dropout=0.3", "secagg.protocol=ideal"]
    settings += ["privacy.delta=1e-3"]
    models = []
    for place in (records, mapped):
        with pytest.MonkeyPatch().context() as patch:
            own = lambda self, client, place=place: (place[client.index], targets[client.index])  # noqa: E731
            patch.setattr(Lazy, "data", own)
            out = tmp_path / type(place).__name__
            simulated(out, lambda record: None, *settings)
        models.append((out / MODEL).read_bytes())
    assert isinstance(mapped, np.memmap)
    assert models[0] == models[1]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_lines_of_a_session_are_forgotten_with_it(tmp_path: Path) -> None:
    settings = ["data.clients=12", "sampling.kind=everyone", "rounds=3", "engine=serial"]
    settings += ["privacy.honest_fraction=0.5", "secagg.dropout=0.3", "privacy.delta=1e-2"]
    settings += ["faults.unmask=0.2"]
    _, environment = simulated(tmp_path / "run", lambda record: None, *settings)
    left = {index for index, store in environment._stores.items() if store._lines is not None}
    assert left == set(environment._parties)
    assert len(left) < len(environment._stores) == 12


def test_signing_clients_have_a_roster_of_all_before_the_first_session() -> None:
    secagg = SecAggSpec(protocol="pairwise", server="malicious")
    environment = SimulatedEnvironment.of(Lazy(), SeededEntropy(0), secagg, 50)
    assert environment.roster is not None
    assert len(environment.roster) == 50
    unsigned = SecAggSpec(protocol="pairwise", server="semi-honest")
    assert SimulatedEnvironment.of(Lazy(), SeededEntropy(0), unsigned, 50).roster is None


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(not HERE.is_dir(), reason="needs /proc")
@pytest.mark.parametrize(
    "settings",
    [
        ["engine=serial", "secagg.protocol=ideal"],
        ["engine=processes", "workers=2", "secagg.protocol=ideal"],
        ["engine=serial", "rounds=200", *SIGNED],
    ],
    ids=["serial", "processes", "pairwise"],
)
def test_nothing_grows_from_round_to_round(tmp_path: Path, settings: list[str]) -> None:
    memory: list[float] = []
    files: list[int] = []
    children: list[int] = []

    def look(record: RoundRecord) -> None:
        if record["round"] == 10 or int(str(record["round"])) % 100 == 0:
            memory.append(resident())
            files.append(len(list((HERE / "fd").iterdir())))
            children.append(len(multiprocessing.active_children()))

    base = ["data.clients=60", "sampling.cohort=12", "rounds=500", "privacy.delta=1e-2"]
    # Cohorts of one size: each size has tables of its noise, the latest 256 of which are kept.
    base += ["privacy.honest_fraction=0.5", "secagg.dropout=0.3", "sampling.kind=fixed"]
    simulated(tmp_path / "run", look, *base, *settings)
    assert len(memory) >= 3
    assert memory[-1] - memory[0] < 8, memory
    assert max(files) <= files[0] + 2, files  # the run's two logs are opened at their first line
    assert max(children) == children[0] == (2 if "workers=2" in settings else 0)
    assert not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(not HERE.is_dir(), reason="needs /proc")
def test_a_hundred_thousand_clients_take_little_more_memory_than_a_thousand(
    tmp_path: Path,
) -> None:
    peaks = {}
    for population in (1000, 100_000):
        memory: list[float] = []
        settings = [f"data.clients={population}", "sampling.cohort=100", "rounds=5"]
        settings += ["engine=serial", "secagg.protocol=ideal"]
        before = resident()

        def look(record: RoundRecord, kept: list[float] = memory) -> None:
            kept.append(resident())

        simulated(tmp_path / str(population), look, *settings)
        peaks[population] = max(memory) - before
    assert peaks[100_000] - peaks[1000] < 100, peaks
