"""A setting: an analyst's counting queries, each answered by the sum of those people's bits.

The answers are one private sum: a person is a client who adds its bit to every query it is in.
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
from zerosum.simulations.data.datasets import DataError

Noise = Literal["distributed", "central", "local"]


@dataclass(frozen=True)
class AnswersView(View):
    """What an analyst has of a number of answers.

    Attributes
    ----------
    queries : ndarray
        bool, shape (m, n): which people each query counts. The analyst chose them.
    answers : ndarray
        float64, shape (m,): noise included.
    noise_std : float
        Of each answer.
    share : float
        Of people whose bit is set, in the whole population: public.
    """

    queries: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    answers: np.ndarray = field(default_factory=lambda: np.zeros(0))
    noise_std: float = 0.0
    share: float = 0.5


@dataclass(frozen=True)
class AnswersSetting:
    """Random subset sums over people of one private bit each.

    Every person is in exactly half of the queries, drawn at random: so its whole contribution has
    norm sqrt(m / 2) at most, which is public, and a clip of that norm cuts nothing.

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
        """As the table says."""
        return f"{self.queries} subset sums over {self.people} people"

    @property
    def clip(self) -> float:
        """Norm of what a person whose bit is set contributes to all answers."""
        return math.sqrt(self.queries / 2)

    def noised(self, kind: Noise, level: float) -> Defense:
        """Return noise with a deviation of level * sqrt(people) in an answer, whoever adds it."""
        sigma = level * math.sqrt(self.people) / self.clip
        masking: Masking = "double"
        called: str = kind
        if kind == "local":  # so many people's noises add up to that of an answer
            sigma, masking = sigma / math.sqrt(self.people), "none"
        if kind == "distributed":
            called = "masked + distributed"
        name = f"{called} noise of {level:g} sqrt(n)"
        return Defense(name, masking=masking, clip=self.clip, noise=kind, sigma=sigma)

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Draw people and queries, and answer; see :class:`Setting`."""
        check_played(protection)
        queries, bits, share = _drawn(self, seed)
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
        """Return what all answers together say of one person's bit, to whoever sees them alone.

        The ledger of a run says more where noise is local: what any two messages differ in, to a
        server that sees one with its own noise. An analyst sees sums, with the noise of all; and a
        bit takes away one vector whose norm is the clip. Each person's Gaussian is rounded, to far
        finer steps than its deviation, which a sum's law does not show.
        """
        if protection.noise != "local":
            return answered.epsilon["release"]
        event = GaussianDpEvent(answered.noise_std / self.clip)
        return Ledger("zero_out").compose(event).epsilon(DELTA)


@lru_cache(maxsize=8)
def _answered(setting: AnswersSetting, protection: Defense, seed: int) -> Answered:
    """Return the answers: the same for every attack on them."""
    queries, bits, _ = _drawn(setting, seed)
    # One stream of noise for all protections would make their figures the same guesses.
    coins = int(numpy_generator(seed, f"answers {protection.name}").integers(2**31))
    return private_sum_of((queries & bits).T.astype(np.float64), protection, coins)


@lru_cache(maxsize=8)
def _drawn(setting: AnswersSetting, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    population = private_bits(setting.path)
    if not 0 < setting.people <= len(population):
        raise DataError(f"people = {setting.people}: the data has 1 to {len(population)}")
    if setting.queries < 2 or setting.queries % 2:
        raise ValueError(f"queries = {setting.queries}: an even number, for each person is in half")
    rng = numpy_generator(seed, "subset sums")
    bits = population[dealt("people of subset sums", len(population), setting.people, seed)]
    half = np.arange(setting.queries) < setting.queries // 2
    queries = rng.permuted(np.tile(half, (setting.people, 1)), axis=1).T
    return queries, bits, float(np.mean(population))
