"""Seconds a round of engines that take turns, and what they are to the bare loop and the floor.

One worker is compared by CPU seconds: engines of one thread take turns, and what else the machine
does costs them little of it. Several workers are compared by wall seconds, which is what they are
for, and which ask for quiet cores; so is a GPU.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from zerosum.simulations.bench.engine_rows import Timings, clock_of
from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.bench.turns import Entrant, LateError, MissingError
from zerosum.simulations.bench.workload import FLOAT32, Workload

OURS = ("zerosum", "zerosum-protected")
MASKED = "zerosum-masked"
ALWAYS = ("floor", "bare", "bare-careful", *OURS)


@dataclass(frozen=True)
class Peer:
    """Another engine.

    Attributes
    ----------
    module : str
        Tells whether it is installed.
    install : str
        How it is.
    """

    module: str
    install: str

    def folder(self, name: str, peers: Path | None) -> Path | None:
        """Return the folder of its packages: that of its name, where each has one of its own.

        Parameters
        ----------
        name : str
            A key of :data:`PEERS`.
        peers : Path or None
            The folder of all peers.

        Returns
        -------
        Path or None
            None where there is none.
        """
        if peers is not None and (peers / name / self.module).is_dir():
            return peers / name
        return peers


PEERS = {
    "pfl": Peer("pfl", "pip install --no-deps pfl prv-accountant multiprocess dill"),
    "flower": Peer("ray", "pip install 'flwr[simulation]'"),
    "fedjax": Peer("fedjax", "pip install fedjax 'jax<0.6'"),
}
"""Peers that are measured."""

PEER_LIMIT_SECONDS = 150.0
"""That a peer may be waited for: three of them and our own rows within ten minutes."""

MOST_CLIENTS_OF_A_PEER = 10_000
"""Peers hold every client; a million would fill the memory before they are late."""

T = TypeVar("T")

WARM_UP, MEMORY = 1, 1
"""Rounds that are not timed: the first, and one in which memory is watched."""


@dataclass(frozen=True)
class Contest:
    """Which engines are compared.

    Attributes
    ----------
    workers : sequence of int
        Numbers of processes or threads; each is measured by itself.
    clients : sequence of int
        Populations; rows of ours alone are measured on those after the first.
    versus : sequence of str
        Keys of :data:`PEERS`, and :data:`MASKED`.
    peers : Path, optional
        A folder of packages for peers.
    peer_limit : float
        Seconds that a peer may be waited for.
    tell, wait : callable
        Are told what is being done; and what takes long.
    """

    workers: Sequence[int] = (1,)
    clients: Sequence[int] = (1000,)
    versus: Sequence[str] = ()
    peers: Path | None = None
    peer_limit: float = PEER_LIMIT_SECONDS
    tell: Callable[[str], None] = lambda what: None
    wait: Callable[[str], None] = lambda what: None

    def entrants(self, workload: Workload) -> list[Entrant]:
        """Start all engines."""
        started = []
        for workers in self.workers:
            for clients in self.clients:
                ours = (*OURS, *(name for name in self.versus if name == MASKED))
                names = (*ALWAYS, *self.versus) if clients == self.clients[0] else ours
                one = replace(workload, clients=clients)
                started += [self._entrant(name, one, workers) for name in names]
        return started

    def _entrant(self, name: str, workload: Workload, workers: int) -> Entrant:
        peer = PEERS.get(name)
        if peer is None:
            return Entrant(name, workload, workers, waiting=self.wait)
        folder = peer.folder(name, self.peers)
        return Entrant(
            name, workload, workers, extra=folder, time_limit=self.peer_limit, waiting=self.wait
        )


def run(
    models: Sequence[str] = ("mlp",),
    rounds: int = 5,
    contest: Contest | None = None,
    *,
    records: int = 100,
    cohort: int = 100,
    epochs: int = 1,
    precision: str = FLOAT32,
    device: str = "cpu",
    trainer: str = "auto",
    keep: Callable[[list[Values]], None] = lambda rows: None,
) -> Values:
    """Measure engines in turns.

    Parameters
    ----------
    models : sequence of str
        ``"mlp"``, ``"cnn"``.
    rounds : int
        Timed rounds.
    contest : Contest
        Which engines.
    records, cohort, epochs : int
        Of the workload.
    precision, trainer : str
        Of our rows.
    device : str
        Of every row; peers are measured on the CPU alone.
    keep : callable
        Is given the rows of all turns so far, after each.

    Returns
    -------
    dict
        ``rows``, each with engine, model, workers, clients, turns, clock, seconds_per_round,
        cpu_seconds, wall_seconds, ratio_to_bare, ratio_to_zerosum, ratio_to_floor and
        peak_memory_mb; ``missing``, why a peer was left out or ended early.

    Raises
    ------
    BenchError
        If an engine other than a peer fails.
    """
    contest = contest or Contest()
    rows: list[Values] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="zerosum-bench-") as folder:
        workload = Workload(
            "", folder, max(contest.clients), records, cohort, WARM_UP + rounds + MEMORY,
            device=device, trainer=trainer, epochs=epochs, precision=precision,
        )  # fmt: skip
        contest.tell("making records")
        workload.write()
        for model in models:
            one = replace(workload, model=model)
            rows += _rows(one, contest, missing, partial(_beside, rows, keep))
            keep(rows)
    return {"rows": rows, "missing": missing}


def _beside(rows: list[Values], keep: Callable[[list[Values]], None], more: list[Values]) -> None:
    """Keep the rows of a model that is being measured beside those of others."""
    keep([*rows, *more])


def _rows(
    workload: Workload,
    contest: Contest,
    missing: dict[str, str],
    keep: Callable[[list[Values]], None],
) -> list[Values]:
    """Let the engines do their rounds in turns."""
    with ExitStack() as stack:
        contest.tell("starting engines")
        entrants = contest.entrants(workload)
        for entrant in entrants:
            stack.callback(entrant.kill)
        field = _Field(entrants, contest.tell, missing)
        field.take_turns("starting", Entrant.ready)
        timings = Timings(workload, clock_of(workload.device, contest.workers))
        for number in range(workload.rounds - MEMORY):
            spent = field.take_turns(f"{workload.model}, round {number}:", Entrant.round)
            if number >= WARM_UP:
                timings.rounds.append(spent)
                keep(timings.rows(field.failed, {}))
        memory = field.take_turns("memory of", Entrant.peak_memory_mb)
        field.take_turns("ending", Entrant.end)
    return timings.rows(field.failed, memory)


class _Field:
    """The engines that are still running; a peer that fails is left out, with its reason."""

    def __init__(
        self, entrants: list[Entrant], tell: Callable[[str], None], missing: dict[str, str]
    ) -> None:
        self._entrants, self._tell, self._missing = entrants, tell, missing
        self.failed: set[Entrant] = set()

    def take_turns(self, what: str, act: Callable[[Entrant], T]) -> dict[Entrant, T]:
        """Let each engine act, and return what came of it.

        Raises
        ------
        BenchError
            If an engine other than a peer fails.
        """
        answers: dict[Entrant, T] = {}
        for entrant in self._entrants:
            self._tell(f"{what} {entrant.engine} on {entrant.workers}")
            try:
                answers[entrant] = act(entrant)
            except BenchError as error:
                if entrant.engine not in PEERS:
                    raise
                self._missing[entrant.engine] = _reason(entrant.engine, error)
                # The rounds of one that is merely late are rounds: its rows have fewer turns.
                if not isinstance(error, LateError):
                    self.failed.add(entrant)
                entrant.kill()
        self._entrants = list(answers)
        return answers


def _reason(peer: str, error: BenchError) -> str:
    if isinstance(error, LateError):
        return f"it is late ({error}; --peer-limit allows more)"
    if isinstance(error, MissingError):
        return f"not installed: {PEERS[peer].install} ({error})"
    return f"it fails ({error})"
