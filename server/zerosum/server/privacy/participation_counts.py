"""Count who was asked for what, and what was opened: the input of every figure of a run."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from zerosum.server.privacy.guarantees import Participation, Worst
from zerosum.server.privacy.ledger_file import Key


class ParticipationCounts:
    """Counts contributions by client and sums by kind.

    Parameters
    ----------
    kinds : tuple of str
        Kinds of private sums.
    population : int
        Clients in the roster.

    Attributes
    ----------
    asked : int
        Contributions in all.
    """

    def __init__(self, kinds: tuple[str, ...], population: int) -> None:
        self._kinds = kinds
        # Clients ascending, four bytes each: over many rounds they are asked a million times.
        self._contributions: dict[Key, tuple[int, NDArray[np.uint32]]] = {}
        self._sums: set[Key] = set()
        self.asked = 0
        shape = (len(kinds), population)
        self._counts: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._sizes: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._front: NDArray[np.int64] = np.zeros((0, 2 * len(kinds)), np.int64)

    def session(self, key: Key) -> tuple[int, frozenset[int]] | None:
        """Return the session's n and who was asked under a key; None where nobody was."""
        known = self._contributions.get(key)
        return None if known is None else (known[0], frozenset(known[1].tolist()))

    def opened(self, key: Key) -> bool:
        """Return whether the sum of a key was charged as opened."""
        return key in self._sums

    @property
    def sums(self) -> int:
        """Sums that were opened, each of its group."""
        return len(self._sums)

    def rounds(self, kind: str) -> int:
        """Return in how many rounds a kind of sum was asked for, attempts counted apart."""
        return _rounds(key for key in self._contributions if key[2] == kind)

    @property
    def last_round(self) -> int:
        """The latest round that anybody was asked in; 0 where nobody was."""
        return max((key[0] for key in self._contributions), default=0)

    def add_contributions(self, key: Key, cohort: int, clients: list[int]) -> None:
        """Count clients that are new to a key.

        Parameters
        ----------
        key : tuple of (round, attempt, kind, group)
            The session.
        cohort : int
            Its n.
        clients : list of int
            Roster indices.
        """
        row = self._kinds.index(key[2])
        self._counts[row, clients] += 1
        self._sizes[row, clients] += cohort
        self.asked += len(clients)
        added = np.array(clients, dtype=np.uint32)
        cohort, known = self._contributions.get(key, (cohort, added[:0]))
        self._contributions[key] = cohort, np.union1d(known, added)
        self._update_front(clients)

    def add_sum(self, key: Key) -> None:
        """Count a sum as opened.

        Parameters
        ----------
        key : tuple of (round, attempt, kind, group)
            The session.

        Raises
        ------
        ValueError
            If nobody was asked under its key.
        """
        if key not in self._contributions:
            raise ValueError(f"{key} has no contributions to sum")
        self._sums.add(key)

    def by_client(self) -> NDArray[np.int64]:
        """Return the contributions of each client to all kinds, shape (population,)."""
        total: NDArray[np.int64] = self._counts.sum(axis=0)
        return total

    def of_client(self, client: int) -> Worst:
        """Return the (count, cohort sizes) of one client for each kind."""
        counts, sizes = self._counts[:, client].tolist(), self._sizes[:, client].tolist()
        return tuple(zip(counts, sizes, strict=True))

    def tally(self, groups: int) -> Participation:
        """Return what was asked for and opened so far.

        Parameters
        ----------
        groups : int
            Of a cohort. Each is topped up, or replaced by noise where it failed: one draw more.
        """
        by_kind = {kind: [k for k in self._contributions if k[2] == kind] for kind in self._kinds}
        sizes = [[self._contributions[k][0] for k in keys] for keys in by_kind.values()]
        return Participation(
            self._worst(),
            tuple(_rounds(k for k in self._sums if k[2] == kind) for kind in self._kinds),
            largest=tuple(max(of, default=0) for of in sizes),
            smallest=tuple(min(of, default=0) for of in sizes),
            draws=tuple(
                sum(len(self._contributions[k][1]) for k in keys) + groups * _rounds(keys)
                for keys in by_kind.values()
            ),
        )

    def _worst(self) -> tuple[Worst, ...]:
        """Return the Pareto front as (count, cohort sizes) for each kind (mostly one client)."""
        kinds = len(self._kinds)
        return tuple(
            tuple((int(row[i]), int(row[kinds + i])) for i in range(kinds)) for row in self._front
        )

    def _update_front(self, clients: list[int]) -> None:
        """Update the Pareto front of per-client (count, cohort size) totals.

        A figure grows in every total, so that only clients on the front can be the worst one. Only
        this round's clients can enter it, since the others' totals have not grown, and stale rows
        of its members are dominated by their own new ones. So a round costs O(cohort).
        """
        grown = np.concatenate([self._counts[:, clients], self._sizes[:, clients]]).T
        # Descending lexicographic order: a row that dominates another comes before it.
        rows = np.unique(np.concatenate([self._front, grown]), axis=0)[::-1]
        front: list[NDArray[np.int64]] = []
        for row in rows:
            if not any((other >= row).all() for other in front):
                front.append(row)
        self._front = np.array(front, dtype=np.int64).reshape(-1, 2 * len(self._kinds))


def _rounds(keys: Iterable[Key]) -> int:
    """Count attempts at rounds, whatever their groups."""
    return len({key[:2] for key in keys})
