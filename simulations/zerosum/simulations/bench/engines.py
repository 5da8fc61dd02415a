"""Run our engine and the floating-point floor for a comparison."""

import contextlib
import tempfile
import time
from pathlib import Path

import torch

from zerosum.client.training.devices import described
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.runs.run_summary import trainer_name
from zerosum.server.spec import Experiment
from zerosum.simulations import api
from zerosum.simulations.bench.bare import finish
from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.bench.turns import Turn
from zerosum.simulations.bench.workload import BATCH, FLOAT32, LEARNING_RATE, Workload
from zerosum.simulations.terminal.round_lines import describe

_SIZES = (512, 1024, 2048)
_SIZES_OF_A_GPU = (2048, 4096, 8192)
_SPELL_SECONDS = 0.1

_OPEN: Values = {"model": "none", "clip": "none"}
_PROTECTED: Values = {
    "model": "distributed",
    "mechanism": "skellam",
    "clip": 1.0,
    "noise_multiplier": 1.0,
    "noise_draw": "summed",
    "delta": 1e-5,
}


class _Over(Exception):
    """No more rounds are wanted."""


def unprotected(workload: Workload, workers: int, turn: Turn) -> None:
    """Run a simulation of ours without privacy, under a trusted sum.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        Processes.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    _simulate(workload, workers, turn, _OPEN)


def protected(workload: Workload, workers: int, turn: Turn) -> None:
    """Run the same with clipping, rounding and distributed Skellam noise, drawn once a sum.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        Processes.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    _simulate(workload, workers, turn, _PROTECTED)


def masked(workload: Workload, workers: int, turn: Turn) -> None:
    """Run a simulation without privacy whose clients mask, against a server that may lie.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        Processes.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    _simulate(workload, workers, turn, _OPEN, "pairwise")


def in_groups(workload: Workload) -> bool:
    """Tell whether our rows train clients in groups, in one process."""
    return workload.device != "cpu" or workload.trainer == "batched"


def experiment_of(
    workload: Workload, workers: int, privacy: Values, protocol: str = "ideal"
) -> Experiment:
    """Return the experiment that our rows run.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        Processes.
    privacy : dict
        The section ``[privacy]``.
    protocol : str
        ``secagg.protocol``.

    Returns
    -------
    Experiment
        The experiment.
    """
    # Delta has to be below the inverse of the population, and costs no time.
    delta = {"delta": min(privacy["delta"], 0.1 / workload.clients)} if "delta" in privacy else {}
    return Experiment.model_validate(
        {
            "name": "bench engine",
            "task": "zerosum.simulations.bench.workload:WorkloadTask",
            "seed": workload.seed,
            "rounds": workload.rounds,
            "engine": "serial" if workers == 1 or in_groups(workload) else "processes",
            "workers": workers,
            "device": workload.device,
            "trainer": workload.trainer,
            "data": {"path": workload.folder, "clients": workload.clients},
            "model": {"name": workload.model},
            "training": _training(workload),
            "privacy": privacy | delta,
            "encoding": {} if privacy["model"] == "distributed" else {"range": 1.0},
            "secagg": {"protocol": protocol, "server": "malicious"},
            "sampling": {"kind": "fixed", "cohort": workload.cohort},
        }
    )


def _training(workload: Workload) -> Values:
    settings: Values = {"epochs": workload.epochs, "batch_size": BATCH, "lr": LEARNING_RATE}
    # Named only where it is not the default, so that a node without the key takes the experiment.
    return settings | ({} if workload.precision == FLOAT32 else {"precision": workload.precision})


def _simulate(
    workload: Workload, workers: int, turn: Turn, privacy: Values, protocol: str = "ideal"
) -> None:
    """Do what ``zerosum run`` does: coordinator, ledger, server step, run folder, checkpoint."""
    planned = api.plan(experiment_of(workload, workers, privacy, protocol))
    turn.facts["trainer"] = trainer_name(planned.experiment, planned.task)
    turn.facts["device"] = described(workload.device)

    def on_round(record: RoundRecord) -> None:
        # A client that fails at once is no fast client, nor a round of them a fast round.
        if record["status"] != "completed" or record.get("clients_failed"):
            raise BenchError(f"a round is not timed: {describe(record, planned.experiment.rounds)}")
        if not turn():
            raise _Over

    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", planned.experiment)
        if turn():
            with contextlib.suppress(_Over):
                api.simulate(planned, run, on_round, report=False)


def floor(workload: Workload, workers: int, turn: Turn) -> None:
    """Measure the best rate of a matrix product in float32 that this machine gives.

    Parameters
    ----------
    workload : Workload
        Whose operations a round has.
    workers : int
        Threads.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    torch.set_num_threads(workers)
    flops, device = workload.flops(), torch.device(workload.device)
    sizes = _SIZES if device.type == "cpu" else _SIZES_OF_A_GPU
    matrices = [torch.rand(2, size, size, device=device) for size in sizes]
    best = float("inf")
    while turn():
        for left, right in matrices:
            out = torch.empty_like(left)
            operations = 2 * len(left) ** 3
            until = time.perf_counter() + _SPELL_SECONDS
            while (started := time.perf_counter()) < until:
                torch.mm(left, right, out=out)
                finish(device)
                best = min(best, (time.perf_counter() - started) / operations)
        turn.facts |= {"gflop_per_s": 1e-9 / best, "floor_seconds": best * flops}
