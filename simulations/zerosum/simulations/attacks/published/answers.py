"""Answer an analyst's counting queries, each by the sum of some people's bits.

All answers are one private sum: a person is a client that adds its bit to every query that counts
it.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from dp_accounting import GaussianDpEvent

from zerosum.secagg.randomness import numpy_generator
from zerosum.server.privacy.accountant import Ledger
from zerosum.simulations.attacks.harness.interface import Defense, Masking, Scene, View
from zerosum.simulations.attacks.harness.to_specs import DELTA, check_played
from zerosum.simulations.attacks.published.people import dealt, private_bits
from zerosum.simulations.attacks.published.sums import Answered, private_sum_of
from zerosum.simulations.data.data_files import DataError

Noise = Literal["distributed", "central", "local"]


@dataclass(frozen=True)
class AnswersView(View):
    """Hold the answers that an analyst has.

    Attributes
    ----------
    queries : ndarray
        bool, shape (m, n): the people whom each query counts, chosen by the analyst.
    answers : ndarray
        float64, shape (m,): noise included.
    noise_std : float
        Standard deviation of each answer.
    share : float
        Fraction of the whole population whose bit is set: public.
    """

    queries: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    answers: np.ndarray = field(default_factory=lambda: np.zeros(0))
    noise_std: float = 0.0
    share: float = 0.5


@dataclass(frozen=True)
class AnswersSetting:
    """Ask random subset sums over people with one private bit each.

    Every person is in exactly half of the queries, drawn at random. Its whole contribution then has
    a norm of at most sqrt(m / 2), which is public, and a clip of that norm changes nothing.

    Attributes
    ----------
    people, queries : int
    path : str
        A data file, or empty: see :func:`~.people.private_bits`.
    """

    people: int = 100
    queries: int = 400
    path: str = ""

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"{self.queries} subset sums over {self.people} people"

    @property
    def most_seeds(self) -> int:
        """Return the number of seeds that have people of their own."""
        return len(private_bits(self.path)) // self.people

    @property
    def clip(self) -> float:
        """Return the norm of the contribution, to all answers, of a person whose bit is set."""
        return math.sqrt(self.queries / 2)

    def noised(self, kind: Noise, level: float) -> Defense:
        """Return a defense whose noise has the same deviation in an answer, whoever adds it.

        Parameters
        ----------
        kind : str
            "distributed", "central" or "local".
        level : float
            Standard deviation of an answer, in sqrt(people).

        Returns
        -------
        Defense
        """
        sigma = level * math.sqrt(self.people) / self.clip
        masking: Masking = "double"
        label: str = kind
        # Local sigma is of one contribution; the noises of all people add up in an answer.
        if kind == "local":
            sigma, masking = sigma / math.sqrt(self.people), "none"
        if kind == "distributed":
            label = "masked + distributed"
        name = f"{label} noise of {level:g} sqrt(n)"
        return Defense(name, masking=masking, clip=self.clip, noise=kind, sigma=sigma)

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Draw people and queries, and answer; see :class:`~.interface.Setting`."""
        check_played(protection)
        queries, bits, share = drawn_subsets(self, seed)
        answered = _answered(self, protection, seed)
        view = AnswersView(
            threat=attack.threat,
            protection=protection,
            queries=queries,
            answers=answered.total,
            noise_std=answered.noise_std,
            share=share,
        )
        return Scene(view, {"bits": bits}, self._epsilon(answered, protection), DELTA)

    def _epsilon(self, answered: Answered, protection: Defense) -> float:
        """Return the epsilon of all answers together, of one person's bit, for an analyst.

        Under local noise a run's ledger states more: any two messages may differ, and the server
        sees each one with its own noise alone. An analyst sees sums with the noise of all, and
        changing a bit removes one vector whose norm is the clip. Each person's Gaussian is rounded
        to steps far finer than its deviation, which does not show in the sum's distribution.
        """
        if protection.noise != "local":
            return answered.epsilon["release"]
        event = GaussianDpEvent(answered.noise_std / self.clip)
        return Ledger("zero_out").compose(event).epsilon(DELTA)


@lru_cache(maxsize=8)
def _answered(setting: AnswersSetting, protection: Defense, seed: int) -> Answered:
    """Return the answers, the same for every attack on them."""
    queries, bits, _ = drawn_subsets(setting, seed)
    # Each protection has its own stream of noise: with a shared one their columns would repeat the
    # same errors, and look alike by chance.
    coins = int(numpy_generator(seed, f"answers {protection.name}").integers(2**31))
    return private_sum_of((queries & bits).T.astype(np.float64), protection, coins)


@lru_cache(maxsize=8)
def drawn_subsets(setting: AnswersSetting, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Draw people and queries.

    Parameters
    ----------
    setting : AnswersSetting
        How many of either.
    seed : int
        Nobody is drawn with two seeds.

    Returns
    -------
    queries : ndarray of bool
        Shape (m, n): the people whom each query counts; each person is in half of them.
    bits : ndarray of bool
        Shape (n,): each person's.
    share : float
        Fraction of the whole population whose bit is set.

    Raises
    ------
    DataError
        If the data have fewer people, or cannot be read.
    ValueError
        If the queries are odd in number.
    NotApplicable
        If earlier seeds took too many people.
    """
    population = private_bits(setting.path)
    if not 0 < setting.people <= len(population):
        raise DataError(f"people = {setting.people}: give 1 to {len(population)}, as the data has")
    if setting.queries < 2 or setting.queries % 2:
        raise ValueError(
            f"queries = {setting.queries}: give an even number, for each person is in half of them"
        )
    rng = numpy_generator(seed, "subset sums")
    bits = population[dealt("people of subset sums", len(population), setting.people, seed)]
    half = np.arange(setting.queries) < setting.queries // 2
    queries = rng.permuted(np.tile(half, (setting.people, 1)), axis=1).T
    return queries, bits, float(np.mean(population))
