"""Seconds a round of engines that take turns, and what they are to the bare loop and the floor."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.bench.turns import Entrant, MissingError
from zerosum.simulations.bench.workload import Workload

OURS = ("zerosum", "zerosum-protected")
ALWAYS = ("floor", "bare", *OURS)
PEERS = {
    "pfl": "pip install --no-deps pfl prv-accountant multiprocess dill",
    "flower": "pip install 'flwr[simulation]'",
    "fedjax": "pip install fedjax",
}
"""Peers that are measured, and how each is installed."""

WARM_UP, MEMORY = 1, 1
"""Rounds that are not timed: the first, and one in which memory is watched."""


def run(
    models: Sequence[str] = ("mlp",),
    workers: Sequence[int] = (1,),
    versus: Sequence[str] = (),
    rounds: int = 5,
    *,
    clients: int = 1000,
    records: int = 100,
    cohort: int = 100,
    extra: Path | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> Values:
    """Measure engines in turns.

    Parameters
    ----------
    models : sequence of str
        ``"mlp"``, ``"cnn"``.
    workers : sequence of int
        Numbers of processes or threads; each is measured by itself.
    versus : sequence of str
        Keys of :data:`PEERS`.
    rounds : int
        Timed rounds.
    clients, records, cohort : int
        Of the workload.
    extra : Path, optional
        A folder of packages for peers.
    tell : callable
        Is told what is being done.

    Returns
    -------
    dict
        ``rows``, each with engine, model, workers, seconds_per_round, ratio_to_bare,
        ratio_to_floor and peak_memory_mb; ``missing``, why a peer was left out.

    Raises
    ------
    BenchError
        If an engine other than a peer fails.
    """
    rows: list[Values] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="zerosum-bench-") as folder:
        workload = Workload("", folder, clients, records, cohort, WARM_UP + rounds + MEMORY)
        tell("making records")
        workload.write()
        for model in models:
            rows += _rows(replace(workload, model=model), workers, versus, extra, tell, missing)
    return {"rows": rows, "missing": missing}


def _rows(
    workload: Workload,
    workers: Sequence[int],
    versus: Sequence[str],
    extra: Path | None,
    tell: Callable[[str], None],
    missing: dict[str, str],
) -> list[Values]:
    with ExitStack() as stack:
        entrants = [
            entrant
            for count in workers
            for name in (*ALWAYS, *versus)
            if (entrant := _started(name, workload, count, extra, tell, missing, stack))
        ]
        seconds: dict[Entrant, list[float]] = {entrant: [] for entrant in entrants}
        for number in range(workload.rounds - MEMORY):
            for entrant in entrants:
                tell(f"{workload.model}, {entrant.engine}, round {number} on {entrant.workers}")
                spent = entrant.round()
                if number >= WARM_UP:
                    seconds[entrant].append(spent)
        memory = {entrant: entrant.peak_memory_mb() for entrant in entrants}
        for entrant in entrants:
            tell(f"ending {entrant.engine}")
            entrant.end()
    return [_row(workload.model, entrant, seconds, memory[entrant]) for entrant in entrants]


def _started(
    name: str,
    workload: Workload,
    workers: int,
    extra: Path | None,
    tell: Callable[[str], None],
    missing: dict[str, str],
    stack: ExitStack,
) -> Entrant | None:
    """Start an engine and let it warm up; None for a peer that cannot be had."""
    tell(f"starting {name} on {workers}")
    entrant = Entrant(name, workload, workers, extra=extra)
    stack.callback(entrant.kill)
    try:
        entrant.ready()
    except MissingError as error:
        if name not in PEERS:
            raise
        missing[name] = f"not installed: {PEERS[name]} ({error})"
    except BenchError as error:
        if name not in PEERS:
            raise
        missing[name] = f"does not start: {error}"
    else:
        return entrant
    return None


def _row(
    model: str,
    entrant: Entrant,
    seconds: dict[Entrant, list[float]],
    memory: float | None,
) -> Values:
    """Return what was found of an engine, beside the bare loop and the floor of equal width."""
    beside = {other.engine: other for other in seconds if other.workers == entrant.workers}
    least = beside["floor"].facts["floor_seconds"]
    own = [least] if entrant.engine == "floor" else seconds[entrant]
    bare = seconds[beside["bare"]]
    pairs = zip(own * len(bare) if len(own) == 1 else own, bare, strict=True)
    return {
        "engine": entrant.engine,
        "model": model,
        "workers": entrant.workers,
        "seconds_per_round": median(own),
        # Of the same turn: what slows one down slows the other.
        "ratio_to_bare": median(mine / theirs for mine, theirs in pairs),
        "ratio_to_floor": median(own) / least,
        "peak_memory_mb": memory,
        **{key: entrant.facts[key] for key in ("trainer", "gflop_per_s") if key in entrant.facts},
    }
