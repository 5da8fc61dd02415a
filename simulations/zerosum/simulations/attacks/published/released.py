"""Release a table of people without names, to an outsider with a register of names.

Rows are released as they are, or k-anonymous. Or each person adds noise to its own sensitive value,
by the real local mechanism, before the table is made.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import norm

from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.harness.interface import Defense, Scene, View
from zerosum.simulations.attacks.harness.to_specs import DELTA, check_played
from zerosum.simulations.attacks.published.generalisation import mondrian
from zerosum.simulations.attacks.published.people import People, dealt, people
from zerosum.simulations.attacks.published.sums import private_sum_of


@dataclass(frozen=True)
class ReleasedView(View):
    """Hold a released table, and a register of some people in it.

    Attributes
    ----------
    low, high : ndarray
        int64, shape (n, q): ranges of each row's quasi-identifiers, ends included.
    secret : ndarray or None
        bool, shape (n,): the sensitive value of each row, as released.
    flipped : float
        Probability that a released value is wrong.
    share : float
        Fraction of the whole population with the sensitive value: public.
    register : ndarray or None
        int64, shape (targets, q): exact quasi-identifiers of named people.
    """

    low: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    high: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    secret: np.ndarray | None = None
    flipped: float = 0.0
    share: float = 0.5
    register: np.ndarray | None = None


@dataclass(frozen=True)
class ReleasedSetting:
    """Release one table, linked by some attributes.

    Attributes
    ----------
    attributes : int
        Number of quasi-identifiers in table and register.
    k : int
        Of k-anonymity; 1 releases rows as they are.
    targets : int
        People in a seed's register. The table is of all people, and each is in the register of at
        most one seed.
    path : str
        The Adult file, or empty: see :func:`~.people.people`.
    """

    attributes: int = 5
    k: int = 1
    targets: int = 88
    path: str = ""

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        what = "census incomes" if self.path else "diabetes patients"
        return f"table of {what}, {self.attributes} attributes"

    @property
    def most_seeds(self) -> int:
        """Return the number of seeds that have people of their own."""
        return len(people(self.path).secret) // self.targets

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Release the table in a new random order; see :class:`~.interface.Setting`."""
        check_played(protection)
        table = people(self.path)
        if not 1 <= self.attributes <= len(table.names):
            raise ValueError(f"attributes = {self.attributes}: give 1 to {len(table.names)}")
        rng = numpy_generator(seed, "released table")
        rows = rng.permutation(len(table.secret))
        targets = dealt("registered people", len(table.secret), self.targets, seed)
        low, high = _ranges(self)
        secret, flipped, epsilon = _released(table, protection, seed)
        view = ReleasedView(
            threat=attack.threat,
            protection=protection,
            low=low[rows],
            high=high[rows],
            secret=secret[rows],
            flipped=flipped,
            share=float(np.mean(table.secret)),
            register=table.known[targets, : self.attributes],
        )
        return Scene(view, {"secret": table.secret[targets]}, epsilon, DELTA)


@lru_cache(maxsize=8)
def _ranges(setting: ReleasedSetting) -> tuple[np.ndarray, np.ndarray]:
    known = people(setting.path).known[:, : setting.attributes]
    return (known, known) if setting.k == 1 else mondrian(known, setting.k)


def _released(table: People, protection: Defense, seed: int) -> tuple[np.ndarray, float, float]:
    """Return the sensitive values as released, the probability that one is wrong, and epsilon.

    A person sends plus or minus the clip with noise; the sign is released.
    """
    if protection.noise == "none":
        return table.secret, 0.0, float("inf")
    if protection.noise != "local" or protection.clip is None:
        raise ValueError(f"{protection.name}: a row is no sum; give local noise")
    signs = np.where(table.secret, protection.clip, -protection.clip)[:, None]
    coins = int(numpy_generator(seed, f"released {protection.name}").integers(2**31))
    answer = private_sum_of(signs, protection, coins)
    if answer.contributions is None:
        raise ValueError(f"{protection.name}: masked values cannot be released; leave masks out")
    secret = answer.contributions[:, 0] > 0
    return secret, float(norm.sf(1 / protection.sigma)), answer.epsilon["local"]
