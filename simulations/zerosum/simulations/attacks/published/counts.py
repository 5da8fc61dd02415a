"""Count groups of people with a private bit, and the same groups without one of them.

Every group has a target, whose bit the two counts differ by. The groups are disjoint, so that one
histogram counts them all: a person is in one cell, so each cell has the noise, and costs a person
the epsilon, of a count that is asked alone.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from zerosum.secagg.randomness import numpy_generator
from zerosum.server.analytics.budget import BudgetExceeded
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.privacy.accountant import Ledger
from zerosum.simulations.attacks.harness.interface import Defense, Scene, View
from zerosum.simulations.attacks.harness.to_specs import DELTA
from zerosum.simulations.attacks.published.asked_tables import checked, federation, released
from zerosum.simulations.queries.builders import histogram
from zerosum.simulations.queries.federation import Federation


@dataclass(frozen=True)
class CountsView(View):
    """Hold the counts that an analyst has.

    Attributes
    ----------
    groups : int
        Each with a target of its own.
    counts : ndarray or None
        int64, shape (k, groups): people of each group with the bit, noise included; k answers. None
        where the budget refused the first.
    without : ndarray or None
        int64, shape (m, groups): the same without each group's target; m is k, or k - 1 where the
        budget ended in between. None where it refused the first.
    others : ndarray or None
        int64, shape (groups,): people beside the target with the bit. None unless the threat knows
        "other records".
    scale, shares_ratio : float
        s and r of the noise P(r) in each count, in people: public.
    times : int
        How often each question was to be asked.
    refused : str
        Why the budget ended the answers; else empty.
    pure : float
        Epsilons of the paid counts with the target, added up: the others say nothing of it.
    most : float
        The part of targets that any guess from these counts is right of at most, by the accounting
        of the noise that they carry.
    """

    groups: int = 0
    counts: np.ndarray | None = None
    without: np.ndarray | None = None
    others: np.ndarray | None = None
    scale: float = 1.0
    shares_ratio: float = 1.0
    times: int = 1
    refused: str = ""
    pure: float = math.inf
    most: float = 1.0


@dataclass(frozen=True)
class CountsSetting:
    """Ask two counts of each group, several times.

    Half of the targets have the bit; of all others, each by a fair coin.

    Attributes
    ----------
    groups : int
        Each with a target of its own.
    size : int
        People of a group. The noise of a count is the same whatever its size.
    clients : int
        That hold the people, dealt at random.
    times : int
        How often the two questions are asked.
    """

    groups: int = 20_000
    size: int = 4
    clients: int = 10
    times: int = 1

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        often = "" if self.times == 1 else f", {self.times} times"
        return f"a count, and the count without one person{often}"

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Draw people and ask; see :class:`~.interface.Setting`."""
        bits = _drawn(self, seed)
        asked = _asked(self, protection, seed)
        others = bits[:, 1:].sum(axis=1) if "other records" in attack.threat.knows else None
        view = CountsView(
            threat=attack.threat,
            protection=protection,
            stopped="" if len(asked.without) else asked.refused,
            groups=self.groups,
            counts=asked.counts if len(asked.counts) else None,
            without=asked.without if len(asked.without) else None,
            others=others,
            scale=asked.noise.scale,
            shares_ratio=asked.noise.shares_ratio,
            times=self.times,
            refused=asked.refused,
            pure=asked.pure,
            most=asked.most,
        )
        return Scene(view, {"bits": bits[:, 0] == 1}, asked.epsilon, DELTA)


@dataclass(frozen=True)
class _Asked:
    """Answers, what they cost, and why there are no more."""

    counts: np.ndarray
    without: np.ndarray
    noise: ReleasedNoise
    refused: str
    pure: float
    most: float
    epsilon: float


@lru_cache(maxsize=8)
def _asked(setting: CountsSetting, protection: Defense, seed: int) -> _Asked:
    """Return the answers, the same for every attack on them."""
    rules = checked(protection)
    questions = [
        histogram("group", where=where, epsilon=rules.epsilon, fresh=rules.fresh)
        for where in ("bit = 1", "bit = 1 and place != 0")
    ]
    with _people(setting, protection, seed) as asked:
        found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        refused = ""
        try:
            for _ in range(setting.times):
                for question, answers in zip(questions, found, strict=True):
                    answers.append(asked.ask(question).noisy)
        except BudgetExceeded as error:
            refused = str(error)
        first = asked.cost(questions[0])
        paid = asked.ledger.answers_begun(first.key)
        alone = Ledger(asked.terms.budget.adjacency).compose(first.event("release"), count=paid)
        counts, without = (
            np.array(each, dtype=np.int64).reshape(-1, setting.groups) for each in found
        )
        return _Asked(
            counts,
            without,
            first.noise,
            refused,
            pure=paid * rules.epsilon,
            # A fair bit is guessed right with probability (1 + TV)/2 at most, and the total
            # variation TV of two neighbouring answers is their delta at epsilon 0.
            most=(1 + alone.delta(0.0)) / 2,
            epsilon=released(asked).epsilon(DELTA),
        )


def _people(setting: CountsSetting, protection: Defense, seed: int) -> Federation:
    """Return clients that hold the people: each one's group, place in it, and bit."""
    bits = _drawn(setting, seed)
    groups, size = bits.shape
    columns = {
        "group": np.repeat(np.arange(groups), size),
        "place": np.tile(np.arange(size), groups),
        "bit": bits.ravel(),
    }
    domains = {
        "group": {"integer": [0, groups - 1]},
        "place": {"integer": [0, size - 1]},
        "bit": {"integer": [0, 1]},
    }
    return federation(columns, domains, protection, clients=setting.clients, seed=seed)


@lru_cache(maxsize=8)
def _drawn(setting: CountsSetting, seed: int) -> np.ndarray:
    """Return everybody's bit, int64, shape (groups, size), each group's target first."""
    for name, least in (("groups", 2), ("size", 2), ("clients", 2), ("times", 1)):
        if getattr(setting, name) < least:
            raise ValueError(f"{name} = {getattr(setting, name)}: give {least} or more")
    rng = numpy_generator(seed, "counted people")
    bits = rng.integers(0, 2, (setting.groups, setting.size))
    bits[:, 0] = rng.permutation(np.arange(setting.groups) < setting.groups // 2)
    bits.setflags(write=False)
    return bits
