"""Publish small tables of people's ages, as statistical offices do.

The people and their ages are real: a table is of four people of one group and three of another.
Under local noise each person adds it to its age, by the real mechanism, before anything is
tabulated.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.harness.interface import Defense, Scene, View
from zerosum.simulations.attacks.harness.to_specs import DELTA, check_played
from zerosum.simulations.attacks.published.consistent import FIGURES, figures_of
from zerosum.simulations.attacks.published.people import ages_of_groups, dealt
from zerosum.simulations.attacks.published.sums import private_sum_of

SIZES = (4, 3)
"""People of the two groups of a table."""

_STEPS = (0.1, 0.5, 1.0, 1.0)
"""Published precision, in years, of mean, median, youngest and oldest, unless rounded further."""


@dataclass(frozen=True)
class TablesView(View):
    """Hold published tables, and how they were made.

    Attributes
    ----------
    figures : ndarray
        float64, shape (tables, 3, 4): of the first group, the second, and both together, the mean,
        median, youngest and oldest; NaN where not published.
    steps : tuple of float
        Years to a multiple of which each of the four was rounded.
    noise_std : float
        Standard deviation, in years, of the noise of each age before it was tabulated.
    youngest, oldest : int
        Range of ages in the tables, in years: public.
    """

    figures: np.ndarray = field(default_factory=lambda: np.zeros((0, 3, 4)))
    steps: tuple[float, ...] = _STEPS
    noise_std: float = 0.0
    youngest: int = 0
    oldest: int = 0


@dataclass(frozen=True)
class TablesSetting:
    """Draw tables of seven people each.

    Attributes
    ----------
    tables : int
    figures : tuple of str
        Published ones: "mean", "median", "youngest", "oldest".
    rounding : float
        Years to a multiple of which every figure is rounded; 0 leaves the published precision.
    youngest, oldest : int
        Range of ages, in years; ages beyond are clipped.
    """

    tables: int = 10
    figures: tuple[str, ...] = ("mean", "median")
    rounding: float = 0.0
    youngest: int = 18
    oldest: int = 90

    def __post_init__(self) -> None:
        unknown = [name for name in self.figures if name not in FIGURES]
        if unknown or not self.figures:
            raise ValueError(f"figures = {self.figures}: give some of {', '.join(FIGURES)}")

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"{', '.join(self.figures)} of the ages of 4, 3 and 7 people"

    @property
    def most_seeds(self) -> int:
        """Return the number of seeds that have people of their own."""
        pairs = zip(ages_of_groups(), SIZES, strict=True)
        return min(len(group) // (self.tables * size) for group, size in pairs)

    @property
    def clip(self) -> float:
        """Return half the range of ages: the largest distance from the middle, in years."""
        return (self.oldest - self.youngest) / 2

    @property
    def steps(self) -> tuple[float, ...]:
        """Return the years to a multiple of which each figure is rounded."""
        return (self.rounding,) * len(FIGURES) if self.rounding else _STEPS

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Draw people, tabulate and publish; see :class:`~.interface.Setting`."""
        check_played(protection)
        ages = self._ages(seed)
        tabulated, std, epsilon = _noised(self, protection, seed)
        view = TablesView(
            threat=attack.threat,
            protection=protection,
            figures=self._published(tabulated),
            steps=self.steps,
            noise_std=std,
            youngest=self.youngest,
            oldest=self.oldest,
        )
        first = SIZES[0]
        truth = {"first": np.sort(ages[:, :first], 1), "second": np.sort(ages[:, first:], 1)}
        return Scene(view, truth, epsilon, DELTA)

    def _ages(self, seed: int) -> np.ndarray:
        """Return int64, shape (tables, 7): nobody is in two tables, of any seeds."""
        drawn = [
            group[dealt("people of small tables", len(group), self.tables * size, seed)]
            for group, size in zip(ages_of_groups(), SIZES, strict=True)
        ]
        tables = [ages.reshape(self.tables, -1) for ages in drawn]
        ages: np.ndarray = np.clip(np.concatenate(tables, axis=1), self.youngest, self.oldest)
        return ages

    def _published(self, ages: np.ndarray) -> np.ndarray:
        groups = (ages[:, : SIZES[0]], ages[:, SIZES[0] :], ages)
        exact = np.stack([figures_of(group) for group in groups], axis=1)
        steps = np.array(self.steps)
        hidden = [name not in self.figures for name in FIGURES]
        return np.where(hidden, np.nan, np.round(exact / steps) * steps)


@lru_cache(maxsize=8)
def _noised(
    setting: TablesSetting, protection: Defense, seed: int
) -> tuple[np.ndarray, float, float]:
    """Return the ages as tabulated, their noise in years, and its epsilon."""
    ages = setting._ages(seed)
    if protection.noise == "none":
        return ages, 0.0, float("inf")
    if protection.noise != "local" or protection.clip != setting.clip:
        raise ValueError(
            f"{protection.name}: a median is no sum, so each person has to add the noise; give "
            f"local noise and a clip of {setting.clip:g} years"
        )
    coins = int(numpy_generator(seed, f"tables {protection.name}").integers(2**31))
    # Ages are sent relative to the middle. Two ages then differ by as much as two messages can, so
    # the ledger's epsilon is exactly that of an age.
    middle = (setting.oldest + setting.youngest) / 2
    answer = private_sum_of(ages.reshape(-1, 1) - middle, protection, coins)
    if answer.contributions is None:
        raise ValueError(f"{protection.name}: masked ages cannot be tabulated; leave the masks out")
    noised = np.round(answer.contributions + middle).reshape(ages.shape)
    return noised, protection.sigma * setting.clip, answer.epsilon["local"]
