"""The rows of engines that took turns: seconds, and ratios of the same turn."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from zerosum.simulations.bench.process import Values
from zerosum.simulations.bench.turns import Entrant, Spent, cpu_seconds
from zerosum.simulations.bench.workload import Workload

QUIET = 0.9
"""Share of its cores that the floor is given on a quiet machine, at least."""

_FACTS = ("trainer", "device", "gflop_per_s", "version")
"""Facts that an engine reports of itself; absent for those that report none."""


def clock_of(device: str, workers: Sequence[int]) -> str:
    """Return what engines are compared by.

    Parameters
    ----------
    device : str
        Where they train.
    workers : sequence of int
        Numbers of workers that are measured.

    Returns
    -------
    str
        ``"cpu"`` for one worker on a CPU, where the system tells; else ``"wall"``.
    """
    counted = cpu_seconds(os.getpid()) is not None
    return "cpu" if counted and device == "cpu" and list(workers) == [1] else "wall"


def share_of_cores(rows: Sequence[Values]) -> float:
    """Return the share of their time that cores gave to the engine that never waits.

    The floor multiplies matrices without a pause: it takes less CPU time than its workers could
    only where something else runs, and wall seconds are then of both.

    Parameters
    ----------
    rows : sequence of dict
        As :func:`zerosum.simulations.bench.engine.run` returns them.

    Returns
    -------
    float
        The least of all numbers of workers; 1 where nothing tells.
    """
    return min(
        (
            row["cpu_seconds"] / (row["wall_seconds"] * row["workers"])
            for row in rows
            if row["engine"] == "floor" and row["cpu_seconds"] is not None
        ),
        default=1.0,
    )


@dataclass(frozen=True)
class Timings:
    """What each engine took in each timed round, and the rows that say so.

    Attributes
    ----------
    workload : Workload
        What they did.
    clock : str
        ``"cpu"`` or ``"wall"``: what they are compared by.
    rounds : list of dict of Entrant to Spent
        An engine that was late is absent from the later ones.
    """

    workload: Workload
    clock: str
    rounds: list[dict[Entrant, Spent]] = field(default_factory=list)

    def rows(self, failed: set[Entrant], memory: Mapping[Entrant, float | None]) -> list[Values]:
        """Return a row for each engine that did a round and did not fail.

        Parameters
        ----------
        failed : set of Entrant
            Left out.
        memory : dict of Entrant to float or None
            Most memory of each, in units of 10^6 bytes.

        Returns
        -------
        list of dict
            As :func:`zerosum.simulations.bench.engine.run` says.
        """
        there = [entrant for entrant in (self.rounds or [{}])[0] if entrant not in failed]
        return [self._row(entrant, there, memory.get(entrant)) for entrant in there]

    def _row(self, entrant: Entrant, there: Sequence[Entrant], memory: float | None) -> Values:
        """Return what was found of an engine, beside others of equal width."""
        beside: dict[str, Entrant] = {}
        for other in there:  # those of the first population stand first
            if other.workers == entrant.workers:
                beside.setdefault(other.engine, other)
        least = beside["floor"].facts["floor_seconds"]
        own = self._seconds(entrant)
        row: Values = {
            "engine": entrant.engine,
            "model": self.workload.model,
            "workers": entrant.workers,
            "clients": entrant.clients,
            "epochs": self.workload.epochs,
            "precision": self.workload.precision,
            "turns": len(own),
            "clock": self.clock,
            "seconds_per_round": median(own),
            "wall_seconds": self._median(entrant, "wall"),
            "cpu_seconds": self._median(entrant, "cpu"),
            "ratio_to_bare": self._ratio(entrant, beside["bare"]),
            "ratio_to_zerosum": self._ratio(entrant, beside["zerosum"]),
            "ratio_to_floor": median(own) / least,
            "peak_memory_mb": memory,
        }
        if entrant.clients != beside["zerosum"].clients:
            row["ratio_to_fewest_clients"] = self._ratio(entrant, beside[entrant.engine])
        single = [e for e in there if (e.engine, e.workers) == (entrant.engine, 1)]
        if entrant.workers > 1 and single:
            row["times_one_worker"] = 1 / self._ratio(entrant, single[0])
        return row | {key: entrant.facts[key] for key in _FACTS if key in entrant.facts}

    def _seconds(self, entrant: Entrant) -> list[float]:
        """Return the seconds of each round; of the floor, the least that they could be."""
        if entrant.engine == "floor":
            return [entrant.facts["floor_seconds"]] * len(self.rounds)
        return [self._of(spent[entrant]) for spent in self.rounds if entrant in spent]

    def _of(self, spent: Spent) -> float:
        seconds: float = getattr(spent, self.clock)
        return seconds

    def _median(self, entrant: Entrant, clock: str) -> float | None:
        seconds = [getattr(spent[entrant], clock) for spent in self.rounds if entrant in spent]
        return None if None in seconds else median(seconds)

    def _ratio(self, entrant: Entrant, other: Entrant) -> float:
        """Return the median ratio of the same turn: what slows one down slows the other."""
        # An engine that was late lacks the last turns: both begin with the first.
        pairs = zip(self._seconds(entrant), self._seconds(other), strict=False)
        return median(mine / theirs for mine, theirs in pairs)
