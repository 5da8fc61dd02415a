"""Ask clients with tables for subset sums, by real queries: counts in a group and outside of it.

Each query is about one group that the analyst chose at random. It counts the people in it whose bit
is set, and those outside: two subset sums, of which each person is in one. So a query costs every
person its epsilon, whatever the group, and all of them cost what they add up to. They are the
tables of one question, and are answered by one private sum.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.simulations.attacks.harness.interface import Defense, Scene
from zerosum.simulations.attacks.harness.to_specs import DELTA
from zerosum.simulations.attacks.published.answers import (
    AnswersSetting,
    AnswersView,
    drawn_subsets,
)
from zerosum.simulations.attacks.published.asked_tables import (
    HONEST_FRACTION,
    QueryDefense,
    checked,
    federation,
    released,
)
from zerosum.simulations.queries.builders import marginals


@dataclass(frozen=True)
class AskedSubsets:
    """Ask about random groups of people with one private bit each.

    Attributes
    ----------
    people, queries : int
        People, and groups; every person is in half of the groups.
    path : str
        A data file, or empty: see :func:`~.people.private_bits`.
    clients : int
        That hold the people, dealt at random.
    """

    people: int = 100
    queries: int = 200
    path: str = ""
    clients: int = 10

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"{self.queries} queries, of two subset sums each, over {self.people} people"

    @property
    def most_seeds(self) -> int:
        """Return the number of seeds that have people of their own."""
        return self._drawn.most_seeds

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Draw people and groups, and ask; see :class:`~.interface.Setting`."""
        groups, bits, share = drawn_subsets(self._drawn, seed)
        answers, noise_std, epsilon = _answered(self, protection, seed)
        view = AnswersView(
            threat=attack.threat,
            protection=protection,
            queries=np.concatenate([groups, ~groups]),
            answers=answers,
            noise_std=noise_std,
            share=share,
        )
        return Scene(view, {"bits": bits}, epsilon, DELTA)

    @property
    def _drawn(self) -> AnswersSetting:
        """Who is asked about; of a seed the same people as in other settings."""
        return AnswersSetting(self.people, self.queries, self.path)

    def noise(self, epsilon: float) -> float:
        """Return the standard deviation of an answer, in sqrt(people), at a query's epsilon."""
        law = ReleasedNoise("geometric", 1 / epsilon, 1 / HONEST_FRACTION)
        return law.std / math.sqrt(self.people)


def total_cost(view: AnswersView) -> str:
    """Say what all queries of a view cost together; empty where they are no real queries."""
    asked = view.protection
    if not isinstance(asked, QueryDefense):
        return ""
    queries = len(view.answers) // 2
    return (
        f"{queries} queries of epsilon {asked.epsilon:g} have {queries * asked.epsilon:g} in all, "
        "at delta 0"
    )


@lru_cache(maxsize=8)
def _answered(
    setting: AskedSubsets, protection: Defense, seed: int
) -> tuple[np.ndarray, float, float]:
    """Return the answers, within groups before those outside, their noise, and their epsilon."""
    groups, bits, _ = drawn_subsets(setting._drawn, seed)
    names = [f"group{number}" for number in range(setting.queries)]
    columns = dict(zip(names, groups.astype(np.int64), strict=True))
    domains = {name: {"integer": [0, 1]} for name in (*names, "bit")}
    whole = setting.queries * checked(protection).epsilon
    question = marginals([[name] for name in names], where="bit = 1", epsilon=whole)
    with federation(
        {**columns, "bit": bits.astype(np.int64)},
        domains,
        protection,
        clients=setting.clients,
        seed=seed,
    ) as asked:
        outside, within = asked.ask(question).noisy.reshape(-1, 2).T
        noise = asked.cost(question).noise
        return np.concatenate([within, outside]) * 1.0, noise.std, released(asked).epsilon(DELTA)
