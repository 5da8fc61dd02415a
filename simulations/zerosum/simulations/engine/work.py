"""One private sum as workers see it, and what computes a client's vector for it."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zerosum.client.protocol.client_vector import Work, add_protected, client_of
from zerosum.client.protocol.noise_source import Entropy, RoundingCoins
from zerosum.client.protocol.training_outcomes import Notes, OutcomeCounts, quoted
from zerosum.client.request import about_model
from zerosum.client.task import ClientInfo, Task
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.compute import Answer, LocalComputation
from zerosum.client.training.torch_seed import many_seeded
from zerosum.secagg.vectors.vector_sum import VectorSum

log = logging.getLogger("zerosum.client")

Vector = NDArray[np.int64]
Signed = NDArray[np.signedinteger[Any]]

SMALLEST_SHARE = 1 / 16
"""Part of a worker's share below which it is not split: a message costs the parent about 0.4 ms."""

LARGEST_CHUNK = 64
"""Clients of one part, at most: a worker that dies has its whole part computed once more."""


class Engine(Protocol):
    """Engine that computes the vectors of many clients, in any order and any process."""

    name: str

    @property
    def workers(self) -> int:
        """Processes that compute at once."""
        ...

    def vectors(self, work: Work, clients: Sequence[int]) -> Iterator[tuple[int, Signed | None]]:
        """Compute the vectors of some clients.

        Parameters
        ----------
        work : Work
            What they are asked, for one session.
        clients : sequence of int
            Indices in the roster, each once.

        Returns
        -------
        iterator of tuple of int and numpy.ndarray or None
            A client and its vector, int64 or int32, shape (work.session.vector_length,); None
            where it dropped out. In any order.
        """
        ...

    def total(self, work: Work, clients: Sequence[int]) -> tuple[list[int], Vector]:
        """Compute the sum of some clients' vectors.

        Parameters
        ----------
        work : Work
            What they are asked, for one session.
        clients : sequence of int
            Indices in the roster, each once.

        Returns
        -------
        tuple of list of int and numpy.ndarray
            The contributors, ascending, and int64, shape (work.session.vector_length,).
        """
        ...

    def take_tally(self) -> OutcomeCounts:
        """Return the outcomes of all clients since the last call."""
        ...

    def close(self) -> None:
        """Stop the engine's processes."""
        ...


class Contributor:
    """Computation of clients' vectors in one process.

    Parameters
    ----------
    task : Task
        Resolved once; the model is made once.
    entropy : Entropy
        Noise and rounding.
    device : str
        Where clients train.
    trainer : str
        Which local training, as :func:`zerosum.client.training.fast.choose_trainer` names it.
    """

    def __init__(
        self, task: Task, entropy: Entropy, *, device: str = "cpu", trainer: str = "auto"
    ) -> None:
        self._notes, self._tally, self._trained = Notes(), OutcomeCounts(), 0
        self._computation = LocalComputation(
            task, device=device, trainer=trainer, notes=self._notes
        )
        self._entropy, self._coins = entropy, RoundingCoins(entropy)

    def vector(self, work: Work, index: int) -> Signed | None:
        """Compute what a client adds to the sum.

        Under privacy none drops out: it sends zero and its noise.

        Parameters
        ----------
        work : Work
            What it is asked.
        index : int
            In the roster.

        Returns
        -------
        numpy.ndarray or None
            int64 or int32, shape (work.session.vector_length,); None where it failed and drops out.
        """
        ((_, vector),) = self.vectors(work, [index])
        return vector

    def vectors(self, work: Work, clients: Sequence[int]) -> Iterator[tuple[int, Vector | None]]:
        """Yield each client and its vector, in order; some trainers train many at once."""
        for index, answer in self._answers(work, clients):
            alone = VectorSum(work.session.vector_length)
            contributed = self._add(work, index, answer, alone)
            yield index, alone.integers() if contributed else None

    def add(self, work: Work, clients: Sequence[int], total: VectorSum) -> list[int]:
        """Add what clients' :meth:`vectors` are to a sum, and return whose were added.

        Parameters
        ----------
        work : Work
            What they are asked.
        clients : sequence of int
            Indices in the roster.
        total : VectorSum
            Of length work.session.vector_length.

        Returns
        -------
        list of int
            In order.
        """
        answers = self._answers(work, clients)
        return [index for index, answer in answers if self._add(work, index, answer, total)]

    def _answers(self, work: Work, clients: Sequence[int]) -> Iterator[tuple[int, Answer]]:
        infos = [_client(work, index) for index in clients]
        answers = self._computation.answers(about_model(work.request), infos, self._entropy)
        return zip(clients, answers, strict=True)

    def take_tally(self) -> OutcomeCounts:
        """Return the outcomes of all clients since the last call."""
        taken = self._tally + OutcomeCounts(trained=self._trained)
        self._tally, self._trained = OutcomeCounts(), 0
        return taken

    def _add(self, work: Work, index: int, answer: Answer, total: VectorSum) -> bool:
        """Add a client's vector to a sum; without privacy one that fails drops out."""
        notes = self._notes
        notes.clear()
        try:
            add_protected(work, index, self._entropy, answer, notes, total, self._coins)
        except FAILURES as error:
            notes.spoil(error)
            log.warning("client %d drops out: %s", index, quoted(error))
            return False
        finally:
            if notes.plain:  # most are, and records of theirs take longer than to count them
                self._trained += 1
            else:
                self._tally += OutcomeCounts.of(index, notes)
        return True


def _client(work: Work, index: int) -> ClientInfo:
    population = work.request.question.population
    config = {"partition-id": index, "num-partitions": population}
    return client_of(work.request, index, config)


class Serial:
    """Engine that computes in this process, one client or one group at a time."""

    name = "serial"
    workers = 1

    def __init__(self, contributor: Contributor) -> None:
        self._contributor = contributor

    def vectors(self, work: Work, clients: Sequence[int]) -> Iterator[tuple[int, Signed | None]]:
        """Yield each client and its vector, in order."""
        yield from self._contributor.vectors(work, clients)

    def total(self, work: Work, clients: Sequence[int]) -> tuple[list[int], Vector]:
        """Return who contributed, and the sum."""
        total = np.zeros(work.session.vector_length, dtype=np.int64)
        done = add_up(self._contributor, work, clients, total)
        return done, total

    def take_tally(self) -> OutcomeCounts:
        """Return what came of all clients since the last call."""
        return self._contributor.take_tally()

    def close(self) -> None:
        """Do nothing."""


def chunked(clients: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """Split a cohort into the parts that workers are given.

    Clients differ in size, and workers in speed, so that each worker is given several parts, one
    when it is done with the one before. Each time half of what is left is dealt out in equal parts
    ("factoring": Hummel, Schonberg and Flynn 1992): large ones first, which take few messages, and
    small ones last, for which the cohort waits little.

    Parameters
    ----------
    clients : sequence of int
        The cohort.
    workers : int
        Who share it.

    Returns
    -------
    list of tuple of int
        The parts, in order.
    """
    workers = max(1, workers)
    least = max(1, math.ceil(SMALLEST_SHARE * len(clients) / workers))
    parts: list[tuple[int, ...]] = []
    start = 0
    while left := len(clients) - start:
        dealt = left if left <= 2 * least * workers else -(-left // 2)
        size, more = divmod(min(dealt, LARGEST_CHUNK * workers), workers)
        for worker in range(workers):
            end = start + size + (worker < more)
            if end > start:
                parts.append(tuple(clients[start:end]))
            start = end
    return parts


def summed(work: Work, parts: Iterable[tuple[list[int], Vector]]) -> tuple[list[int], Vector]:
    """Add partial sums.

    Parameters
    ----------
    work : Work
        Of which they are.
    parts : iterable of tuple
        Contributors and their sum, int64.

    Returns
    -------
    tuple of list of int and numpy.ndarray
        All contributors, ascending, and int64, shape (work.session.vector_length,).
    """
    total = np.zeros(work.session.vector_length, dtype=np.int64)
    done: list[int] = []
    for contributed, part in parts:
        np.add(total, part, out=total)
        done += contributed
    return sorted(done), total


def one_by_one(
    clients: Sequence[int], parts: Iterable[tuple[list[int], Vector]]
) -> Iterator[tuple[int, Vector | None]]:
    """Yield each client with its vector, as they come, and then those that never came.

    Parameters
    ----------
    clients : sequence of int
        Who was asked.
    parts : iterable of tuple
        Contributors, one each, and their vector.

    Yields
    ------
    tuple of int and numpy.ndarray or None
        A client and its vector; None for those left at the end.
    """
    missing = dict.fromkeys(clients)
    for contributed, vector in parts:
        for index in contributed:
            del missing[index]
            yield index, vector
    for index in missing:
        yield index, None


def add_up(
    contributor: Contributor, work: Work, clients: Sequence[int], total: Vector
) -> list[int]:
    """Add the clients' vectors to ``total``.

    Parameters
    ----------
    contributor : Contributor
        Computes them.
    work : Work
        What they are asked.
    clients : sequence of int
        Indices in the roster.
    total : numpy.ndarray
        int64, shape (work.session.vector_length,); added to.

    Returns
    -------
    list of int
        Whose were added.
    """
    sums = VectorSum(len(total))
    with many_seeded():
        done = contributor.add(work, clients, sums)
    sums.add_to(total)
    return done
