"""Masking graphs: share neighbours, mask neighbours, and the quorum of a session.

N(u), the share neighbours of u, are those it gives shares to: its out-edges. Its mask neighbours
are N(u) and all v with u in N(v). On the complete graph, and on the permuted Harary graph of a
semi-honest server, edges run both ways and the two are the same; against a malicious server
every client draws N(u) itself, so that nobody chooses anybody's neighbours.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.graph import tails
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.session import Session

Positions = NDArray[np.intp]


class Graph(Protocol):
    """The edges of one session, between cohort positions; all answers are ascending."""

    def named_by(self, position: int) -> Positions:
        """Return N(u): those that a client gives shares to."""
        ...

    def naming(self, position: int) -> Positions:
        """Return those that give shares to a client."""
        ...

    def masking(self, position: int) -> Positions:
        """Return those that a client masks with."""
        ...

    def counts(self, live: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return, for each position, how many of its share neighbours are live."""
        ...


class CompleteGraph:
    """Everybody is everybody's neighbour.

    Parameters
    ----------
    size : int
        The cohort's size.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def named_by(self, position: int) -> Positions:
        """Return all others."""
        return np.delete(np.arange(self._size), position)

    def naming(self, position: int) -> Positions:
        """Return all others."""
        return self.named_by(position)

    def masking(self, position: int) -> Positions:
        """Return all others."""
        return self.named_by(position)

    def counts(self, live: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many others are live."""
        return np.int64(np.count_nonzero(live)) - live.astype(np.int64)


class SparseGraph:
    """Edges by position, in memory of the order of their number.

    Parameters
    ----------
    named : sequence of ndarray of int, each ascending
        N(u) of each position; empty where it is not known.
    """

    def __init__(self, named: Sequence[Positions]) -> None:
        self._named = named

    @cached_property
    def _edges(self) -> tuple[Positions, Positions]:
        """Both ends of every edge: who names, who is named; by position of who names."""
        lengths = [len(neighbours) for neighbours in self._named]
        return np.repeat(np.arange(len(lengths)), lengths), np.concatenate(list(self._named))

    @cached_property
    def _naming(self) -> list[Positions]:
        namer, named = self._edges
        order = np.argsort(named, kind="stable")
        counts = np.bincount(named, minlength=len(self._named))
        return np.split(namer[order], np.cumsum(counts)[:-1])

    def named_by(self, position: int) -> Positions:
        """Return N(u): those that a client gives shares to."""
        return self._named[position]

    def naming(self, position: int) -> Positions:
        """Return those that give shares to a client."""
        return self._naming[position]

    def masking(self, position: int) -> Positions:
        """Return those that a client masks with."""
        return np.union1d(self._named[position], self._naming[position])

    def counts(self, live: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return, for each position, how many of its share neighbours are live."""
        namer, named = self._edges
        alive = np.bincount(namer[live[named]], minlength=len(self._named))
        return alive.astype(np.int64)


def public_graph(session: Session) -> Graph | None:
    """Return the graph that the session alone determines; None where the clients draw it."""
    if session.complete:
        return CompleteGraph(session.size)
    if session.drawn:
        return None
    return _permuted_harary(session.graph_seed, session.size, session.degree)


class HararyGraph:
    """The Harary graph of degree k, its n places filled in an order drawn from a seed.

    The circulant graph with steps of 1 to floor(k/2), and, for odd k, of n/2 (Harary, "The
    maximum connectivity of a graph", PNAS 1962). It holds the order alone, not the n k edges, so
    that a client that is told a large degree allocates no more than the cohort's size.

    Parameters
    ----------
    seed : bytes
        32 bytes.
    size, degree : int
        n and k, one of them even.
    """

    def __init__(self, seed: bytes, size: int, degree: int) -> None:
        self._size, self._degree = size, degree
        self._order = np.argsort(Keystream(seed).words(size), kind="stable")
        self._place = np.empty(size, np.intp)
        self._place[self._order] = np.arange(size)

    def named_by(self, position: int) -> Positions:
        """Return N(u), which is found anew each time."""
        half = self._degree // 2
        steps = np.concatenate([np.arange(-half, 0), np.arange(1, half + 1)])
        if self._degree % 2:
            steps = np.append(steps, self._size // 2)
        neighbours: Positions = np.sort(self._order[(self._place[position] + steps) % self._size])
        return neighbours

    def naming(self, position: int) -> Positions:
        """Return N(u): edges run both ways."""
        return self.named_by(position)

    def masking(self, position: int) -> Positions:
        """Return N(u): edges run both ways."""
        return self.named_by(position)

    def counts(self, live: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return, for each position, how many of its neighbours are live, by running sums."""
        half, placed = self._degree // 2, live[self._order].astype(np.int64)
        around = np.concatenate([placed[self._size - half :], placed, placed[:half]])
        sums = np.concatenate([[0], np.cumsum(around)])
        by_place = sums[2 * half + 1 :] - sums[: self._size] - placed
        if self._degree % 2:
            by_place += np.roll(placed, -(self._size // 2))
        counts: NDArray[np.int64] = by_place[self._place]
        return counts


@lru_cache(maxsize=4)
def _permuted_harary(seed: bytes, size: int, degree: int) -> HararyGraph:
    return HararyGraph(seed, size, degree)


def draw_neighbours(session: Session, position: int, seed: bytes) -> Positions:
    """Draw k distinct positions other than the own, uniformly.

    Parameters
    ----------
    session : Session
        Its cohort and degree k.
    position : int
        The client's own.
    seed : bytes
        32 bytes.

    Returns
    -------
    ndarray of int, shape (k,)
        Ascending.
    """
    others, stream = session.size - 1, Keystream(seed)
    mask = np.uint64((1 << (others - 1).bit_length()) - 1)
    drawn = np.empty(0, np.uint64)
    while len(drawn) < session.degree:
        words = stream.words(4 * session.degree) & mask
        drawn = np.concatenate([drawn, words[words < others]])
        _, first = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first)]
    chosen = np.sort(drawn[: session.degree]).astype(np.intp)
    return chosen + (chosen >= position)


CROWD = 3
"""A client is crowded where more than this many times the degree drew it as a neighbour."""

FALSE_NAMING = 2.0**-40
"""Most that the probability may be, over a cohort, of naming an honest client a crowder."""


def crowders(named: Sequence[Positions], degree: int) -> Positions:
    """Find clients that drew crowded clients as neighbours more often than chance allows.

    A client is crowded, as u sees it, where more than 3k *others than u* drew it. The set of these
    does not depend on what u drew, so that an honest u, which draws uniformly, draws X of them with
    X ~ Hyp(n - 1, their number, k) exactly, whatever the others do: u is named where X is larger
    than happens with probability 2^-40 / n. (Counting u's own edge would bias X.) This holds as
    long as nobody sees u's advert before drawing, which an honest server sees to; a lying one, who
    could show it to colluders, needs no excuse to leave a client out.

    Parameters
    ----------
    named : sequence of ndarray of int
        N(u) of each position; empty where it is not known.
    degree : int
        k.

    Returns
    -------
    ndarray of int
        Positions, ascending.
    """
    size = len(named)
    lengths = [len(neighbours) for neighbours in named]
    namer, chosen = np.repeat(np.arange(size), lengths), np.concatenate(list(named))
    drawn = np.bincount(chosen, minlength=size)
    # Without u's own edge, at least CROWD k + 1 are left: one more where u is among the namers.
    above, at = drawn > CROWD * degree + 1, drawn == CROWD * degree + 1
    if not (above | at).any():
        return np.empty(0, np.intp)
    hits = np.bincount(namer[above[chosen]], minlength=size)
    own = np.bincount(namer[at[chosen]], minlength=size)
    crowded = np.count_nonzero(above | at) - (above | at) - own
    bounds = {
        count: tails.rarely_exceeded(size - 1, count, degree, FALSE_NAMING, size)
        for count in set(crowded.tolist())
    }
    above_chance: Positions = np.flatnonzero(
        hits > np.array([bounds[count] for count in crowded.tolist()])
    )
    return above_chance


def quorum(session: Session) -> int:
    """Return the fewest live clients with which a session can still end in a sum.

    Each needs ``threshold`` live neighbours; on the complete graph those are all the others.
    """
    return session.threshold + 1
