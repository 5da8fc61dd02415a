"""Draw the cohort of a round, and split it into groups."""

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.request import Kind
from zerosum.secagg.randomness import SEED_BYTES, Keystream
from zerosum.server.spec import Experiment, SamplingSpec

_COINS = 1 << 13
"""Coins thrown at once: so many words stay in the cache, whatever the population."""


def group_sizes(cohort: int, groups: int) -> tuple[int, int]:
    """Return the least and the largest size of groups that a cohort is split into evenly.

    Parameters
    ----------
    cohort : int
        Clients of a round.
    groups : int
        Into how many they are split.

    Returns
    -------
    tuple of int
        They differ by one at most.
    """
    return cohort // groups, -(-cohort // groups)


def expected_cohort(experiment: Experiment, population: int) -> int:
    """Return the cohort of a round: exact, or expected under Poisson sampling.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    population : int
        Clients in the roster.

    Returns
    -------
    int
        At least 1.
    """
    return experiment.sampling.cohort or population


def largest_session(experiment: Experiment, population: int) -> int:
    """Return the clients in the largest session that is planned for: six deviations over most.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    population : int
        Clients in the roster.

    Returns
    -------
    int
        Clients of one group.
    """
    cohort = group_sizes(expected_cohort(experiment, population), experiment.secagg.groups)[1]
    if experiment.sampling.kind == "poisson":
        return min(population, math.ceil(cohort + 6 * math.sqrt(cohort)))
    return cohort


@dataclass(frozen=True)
class Planned:
    """One private sum of a run, with its cohort.

    Attributes
    ----------
    kind : str
        What is asked.
    number : int
        The round of training that it belongs to; 0 for what comes before the first.
    attempt : int
        How many attempts at it were charged before, with other noise.
    groups : tuple of tuple of int
        Roster indices.
    left_out : int
        How many more were drawn and are not asked.
    """

    kind: Kind
    number: int
    attempt: int
    groups: tuple[tuple[int, ...], ...]
    left_out: int = 0

    @property
    def session_round(self) -> int:
        """The round of its sessions: they rise through a run."""
        if self.kind == "components":
            return 1
        return 2 * self.number + (self.kind == "evaluate")

    @property
    def cohort(self) -> int:
        """Clients asked."""
        return sum(map(len, self.groups))


class CohortSampler:
    """Draws one cohort a round, exactly as the ledger accounts for it.

    Parameters
    ----------
    spec : SamplingSpec
        Kind and cohort size.
    population : int
        Number of clients in the roster.
    entropy : Entropy
        Source of the sampling coins: they are noise randomness, secret from outsiders.
    order_seed : bytes, optional
        Seed of the order in which ``once`` spends the population, from an earlier
        :attr:`order_seed`; drawn from ``entropy`` where absent.
    """

    def __init__(
        self,
        spec: SamplingSpec,
        population: int,
        entropy: Entropy,
        order_seed: bytes | None = None,
    ) -> None:
        self._spec = spec
        self._population = population
        self._entropy = entropy
        self.order_seed = order_seed or entropy.keystream("order").take(SEED_BYTES)
        self._order = SecretOrder(population, self.order_seed)

    @property
    def rate(self) -> float:
        """Probability that one client takes part in a round."""
        if self._spec.cohort is None:
            return 1.0
        return self._spec.cohort / self._population

    @property
    def expected_cohort(self) -> float:
        """Expected number of clients in a round: the divisor of every noised average."""
        return self.rate * self._population

    def draw(self, round: int, purpose: str = "train") -> tuple[int, ...]:
        """Return the cohort of a round: distinct indices in ascending order, perhaps none.

        Parameters
        ----------
        round : int
            Counts from 1. Under ``once``, round r takes the r-th slice of one secret order.
        purpose : str
            Cohorts of different purposes are independent.

        Returns
        -------
        tuple of int
            Roster indices.
        """
        coins = self._entropy.keystream(f"cohort {purpose}", round)
        cohort = self._spec.cohort
        if self._spec.kind == "everyone" or cohort is None:
            return tuple(range(self._population))
        if self._spec.kind == "poisson":
            return tuple(_heads(self._population, self.rate, coins))
        if self._spec.kind == "fixed":
            return tuple(sorted(_subset(self._population, cohort, coins)))
        return tuple(sorted(self._order.slice(round, cohort)))

    def split(
        self, cohort: tuple[int, ...], groups: int, round: int, purpose: str = "train"
    ) -> tuple[tuple[int, ...], ...]:
        """Split a cohort into groups at random; each is in ascending order, perhaps empty.

        Under ``poisson`` each client draws its group by itself, so that whether one takes part
        moves no other: each group is a Poisson sample too. Otherwise sizes differ by one at most.

        Parameters
        ----------
        cohort : tuple of int
            Roster indices, ascending.
        groups : int
            Into how many.
        round : int
            Of the coins.
        purpose : str
            Groups of different purposes are independent.

        Returns
        -------
        tuple of tuple of int
            One for each group.
        """
        if groups == 1:
            return (cohort,)
        coins = self._entropy.keystream(f"groups {purpose}", round)
        if self._spec.kind == "poisson":
            # Drawn for the whole population: a client's group must not depend on who else is in.
            words = coins.words(self._population)[list(cohort)]
            # A float of 53 bits, as of Keystream.uniform, made of the cohort's words alone.
            of = np.floor((words >> np.uint64(11)) * 2.0**-53 * groups).astype(np.intp)
        else:
            of = _shuffled(len(cohort), coins) % groups
        members = np.array(cohort, dtype=np.intp)
        return tuple(tuple(members[of == group].tolist()) for group in range(groups))


class SecretOrder:
    """Uniform order of a population, found as far as it is asked for.

    Parameters
    ----------
    population : int
        Clients.
    seed : bytes
        32 bytes: the whole order follows from them, however it is asked for.

    Notes
    -----
    Fisher and Yates' shuffle. A place that no swap has touched holds its own index and is not
    stored, so that r slices take time and memory of r slices, whatever the population.
    """

    def __init__(self, population: int, seed: bytes) -> None:
        self._population = population
        self._coins = Keystream(seed)
        self._moved: dict[int, int] = {}
        self._drawn = array("Q")

    def slice(self, number: int, size: int) -> list[int]:
        """Return the clients of a slice; fewer, or none, where the population is spent.

        Parameters
        ----------
        number : int
            Counts from 1.
        size : int
            Clients of every slice: the same on every call, by which the coins are read.

        Returns
        -------
        list of int
            In the secret order.
        """
        while len(self._drawn) < min(number * size, self._population):
            self._draw(min(size, self._population - len(self._drawn)))
        return self._drawn[(number - 1) * size : number * size].tolist()

    def _draw(self, count: int) -> None:
        """Draw the next clients, each uniform among those that are left."""
        place = len(self._drawn)
        left = np.arange(self._population - place, self._population - place - count, -1)
        for ahead in _below(left, self._coins):
            other = place + ahead
            mine = self._moved.pop(place, place)
            self._drawn.append(self._moved.get(other, other) if ahead else mine)
            if ahead:
                self._moved[other] = mine
            place += 1


def _subset(population: int, count: int, coins: Keystream) -> set[int]:
    """Return a uniform subset of 0 .. population - 1, in time of its size.

    R. Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987).
    """
    first = max(0, population - count)
    subset: set[int] = set()
    for last, drawn in enumerate(_below(np.arange(first + 1, population + 1), coins), first):
        subset.add(last if drawn in subset else drawn)
    return subset


def _below(bounds: NDArray[np.int64], coins: Keystream) -> list[int]:
    """Return for each bound an integer that is uniform on 0 .. bound - 1."""
    limits = bounds.astype(np.uint64)
    # 2^64 mod bound words at the end would make the first remainders likelier: drawn again.
    most = ~((np.uint64(0) - limits) % limits)
    words = coins.words(len(limits)).copy()
    while (again := np.flatnonzero(words > most)).size:
        words[again] = coins.words(again.size)
    remainders: list[int] = (words % limits).tolist()
    return remainders


def _heads(population: int, rate: float, coins: Keystream) -> Iterator[int]:
    """Yield the clients whose own coin falls heads, ascending: a word each, below the rate."""
    # A uniform float is a word's upper 53 bits over 2^53; words are compared without making any.
    most = np.uint64((math.ceil(rate * 2**53) << 11) - 1)
    for start in range(0, population, _COINS):
        heads = coins.words(min(_COINS, population - start)) <= most
        yield from (np.flatnonzero(heads) + start).tolist()


def _shuffled(population: int, coins: Keystream) -> NDArray[np.intp]:
    """Return a uniform permutation: indices sorted by 64-bit keys, drawn anew on a collision."""
    while True:
        keys = coins.words(population)
        if len(np.unique(keys)) == population:
            return np.argsort(keys)
