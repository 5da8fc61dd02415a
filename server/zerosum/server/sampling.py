"""Draw the cohort of a round, and split it into groups."""

import math
from dataclasses import dataclass

import numpy as np

from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.request import Kind
from zerosum.secagg.randomness import SEED_BYTES, Keystream
from zerosum.server.spec import Experiment, SamplingSpec


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
        if self._spec.kind == "everyone" or self._spec.cohort is None:
            return tuple(range(self._population))
        if self._spec.kind == "poisson":
            return tuple(np.flatnonzero(coins.uniform(self._population) < self.rate).tolist())
        if self._spec.kind == "fixed":
            order = _shuffled(self._population, coins)
            return tuple(sorted(order[: self._spec.cohort].tolist()))
        start = (round - 1) * self._spec.cohort
        order = _shuffled(self._population, Keystream(self.order_seed))
        return tuple(sorted(order[start : start + self._spec.cohort].tolist()))

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
            drawn = np.floor(coins.uniform(self._population) * groups).astype(np.intp)
            of = drawn[list(cohort)]
        else:
            of = _shuffled(len(cohort), coins) % groups
        members = np.array(cohort, dtype=np.intp)
        return tuple(tuple(members[of == group].tolist()) for group in range(groups))


def _shuffled(population: int, coins: Keystream) -> np.ndarray:
    """Return a uniform permutation: indices sorted by 64-bit keys, drawn anew on a collision."""
    while True:
        keys = coins.words(population)
        if len(np.unique(keys)) == population:
            return np.argsort(keys)
