"""Choice of the engine that an experiment runs on."""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from zerosum.client.files.operating_system import cores
from zerosum.server.config import ConfigError
from zerosum.server.spec import Experiment
from zerosum.simulations.engine.pool import WorkerPool
from zerosum.simulations.engine.work import Contributor, Engine, Serial


def workers_of(experiment: Experiment) -> int:
    """Return how many worker processes an experiment asks for.

    Parameters
    ----------
    experiment : Experiment
        With its engine, workers, device and trainer.

    Returns
    -------
    int
        0 for none: everything happens in this process, or on Ray.

    Raises
    ------
    ConfigError
        If processes are asked for where none can be forked, or Ray where it is not installed.
    """
    if experiment.device != "cpu" or experiment.trainer == "batched":
        _check_alone(experiment)
        return 0
    if experiment.engine == "ray" and find_spec("ray") is None:
        raise ConfigError(
            'engine = "ray" needs the extra ray: pip install "zerosum[ray]", or choose another'
        )
    if experiment.engine in ("serial", "ray"):
        return 0
    asked = cores() if experiment.workers == "auto" else experiment.workers
    reason = forkless()
    if reason is None:
        return asked if asked > 1 or experiment.engine == "processes" else 0
    if experiment.engine == "processes":
        raise ConfigError(f'engine = "processes": {reason}; write engine = "serial", or "auto"')
    if experiment.workers not in ("auto", 1):
        raise ConfigError(f'workers = {experiment.workers}: {reason}; write workers = 1, or "auto"')
    return 0


def forkless() -> str | None:
    """Return why this process cannot fork workers; None if it can."""
    # Forking is not safe on macOS, whose libraries keep threads.
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return f"{sys.platform} cannot fork safely"
    if multiprocessing.current_process().daemon:
        return "this process is a daemonic worker itself, of a multiprocessing.Pool or DataLoader"
    ray: Any = sys.modules.get("ray")
    inside = ray is not None and ray.is_initialized()
    if inside and ray.get_runtime_context().worker.mode == ray.WORKER_MODE:
        # The threads of its network library do not survive a fork.
        return "this process is a worker of Ray, which cannot fork safely"
    return None


def _check_alone(experiment: Experiment) -> None:
    """Refuse workers where one process trains clients in groups, or on a GPU."""
    why = f'device = "{experiment.device}"'
    if experiment.device == "cpu":
        why = 'trainer = "batched"'
    if experiment.engine not in ("auto", "serial"):
        raise ConfigError(
            f'engine = "{experiment.engine}": with {why} one process trains clients in groups; '
            'write engine = "serial", or leave it'
        )
    if experiment.workers not in ("auto", 1):
        raise ConfigError(
            f"workers = {experiment.workers}: with {why} one process trains clients in groups; "
            "write workers = 1, or leave it"
        )


@contextmanager
def started(
    experiment: Experiment, contributor: Contributor, capacity: tuple[int, int]
) -> Iterator[Engine]:
    """Start the engine of an experiment, and end it however the block ends.

    Parameters
    ----------
    experiment : Experiment
        With its engine and workers.
    contributor : Contributor
        Computes clients in each process.
    capacity : tuple of int
        Entries of the longest model, and length of the longest encoded vector.

    Yields
    ------
    Engine
        Started.
    """
    engine = _made(experiment, contributor, capacity)
    try:
        yield engine
    finally:
        engine.close()


def _made(experiment: Experiment, contributor: Contributor, capacity: tuple[int, int]) -> Engine:
    if experiment.engine == "ray":
        from zerosum.simulations.engine.cluster import RayEngine

        workers = None if experiment.workers == "auto" else experiment.workers
        return RayEngine(contributor, workers)
    count = workers_of(experiment)
    return WorkerPool(contributor, count, *capacity) if count else Serial(contributor)
