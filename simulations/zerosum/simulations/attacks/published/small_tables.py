"""Reconstruct small published tables: list all data sets that agree with their figures.

Few data sets agree with a mean and a median. Garfinkel, Abowd and Martindale (2018), "Understanding
database reconstruction attacks on public data", show so by a census block of seven people. Where
figures were rounded, or ages noised, every data set that could have led to them counts as
consistent.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Units
from zerosum.simulations.attacks.published import consistent as sets
from zerosum.simulations.attacks.published.ages import SIZES, TablesSetting, TablesView
from zerosum.simulations.attacks.published.consistent import Consistent, Limits

_DEVIATIONS = 2.0
"""Standard deviations of noise within which a figure is assumed to lie.

Fewer exclude the truth more often, and such a list scores nothing; more lengthen every list.
"""


@dataclass(frozen=True)
class ConsistentRecords:
    """List every data set that agrees with the published figures.

    Attributes
    ----------
    tables : int
        In each seed, of seven people each.
    near : int
        Years within which an age counts as known.
    """

    tables: int = 10
    near: Annotated[int, Ge(0)] = 2

    name: ClassVar[str] = "all consistent records"
    adaptive: ClassVar[str] = "knows rounding and noise"
    threat: ClassVar[ThreatModel] = ThreatModel("analyst", knows=frozenset({"rounding", "sigma"}))
    requires: ClassVar[tuple[str, ...]] = ("figures",)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the number of data sets, ages equal in all of them, and ages guessed."""
        return (
            Metric("consistent data sets", "log10", higher=False),
            Metric(f"ages pinned to {self.near} years"),
            Metric(f"ages guessed within {self.near} years"),
        )

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield more and more figures; then rounded ones, and figures of noised ages."""
        both = TablesSetting(self.tables)
        for figures in (("mean",), both.figures, sets.FIGURES):
            yield Case(replace(both, figures=figures), Defense("plain"))
        for years in (5.0, 10.0) if suite == "full" else (5.0,):
            name = f"figures rounded to {years:g} years"
            yield Case(replace(both, rounding=years), Defense(name))
        for years in (3.0, 10.0, 90.0) if suite == "full" else (10.0, 90.0):
            name = f"local noise of {years:g} years"
            noise = Defense(name, clip=both.clip, noise="local", sigma=years / both.clip)
            yield Case(both, noise)

    def baseline(self, view: TablesView, rng: np.random.Generator) -> Guess:
        """List all data sets within the public range of ages."""
        shape = view.figures.shape
        low, high = np.full(shape, float(view.youngest)), np.full(shape, float(view.oldest))
        return _guess(view, [_listed(view, low[0], high[0])] * len(low), low, high)

    def run(self, view: TablesView, rng: np.random.Generator) -> Guess:
        """List the data sets that agree; where there is none, widen the limits."""
        tables = [_believed(view, figures) for figures in view.figures]
        listed, low, high = zip(*tables, strict=True)
        return _guess(view, listed, np.stack(low), np.stack(high))

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Score the lists; one that lacks the truth counts as long as the list of all data sets.

        Ages are compared by rank within their group.
        """
        ages = np.concatenate([truth["first"], truth["second"]], axis=1)
        figures = [sets.figures_of(group) for group in (truth["first"], truth["second"], ages)]
        within = sets.agrees(np.stack(figures, axis=1), guess["low"], guess["high"])
        holds = np.asarray(within.all(axis=1))
        size, pinned, guessed = (metric.name for metric in self.metrics)
        narrow = guess["oldest"] - guess["youngest"] <= self.near
        near = np.abs(guess["ages"] - ages) <= self.near
        return {
            size: Mean(np.where(holds, guess["log10"], guess["log10 of all"])),
            pinned: Proportion((narrow & holds[:, None]).ravel()),
            guessed: Proportion(near.ravel()),
        }


def _widths(view: TablesView) -> np.ndarray:
    """Return the distance within which each true figure is assumed to lie, in years, shape (3, 4).

    The noise of a mean of n ages is that of one over sqrt(n). A median, minimum or maximum moves by
    no more than the largest noise of one age.
    """
    people = np.array([*SIZES, sum(SIZES)], dtype=np.float64)
    noise = np.full((3, 4), _DEVIATIONS * view.noise_std)
    noise[:, 0] /= np.sqrt(people)
    widths: np.ndarray = noise + np.array(view.steps) / 2
    return widths


def _believed(view: TablesView, figures: np.ndarray) -> tuple[Consistent, np.ndarray, np.ndarray]:
    """Return the data sets that agree with a table, within the narrowest limits that any fits."""
    widths, unpublished = _widths(view), np.isnan(figures)
    while True:
        low = np.where(unpublished, view.youngest, np.maximum(figures - widths, view.youngest))
        high = np.where(unpublished, view.oldest, np.minimum(figures + widths, view.oldest))
        listed = _listed(view, low, high)
        if listed.count:
            return listed, low, high
        widths = 2 * widths


def _listed(view: TablesView, low: np.ndarray, high: np.ndarray) -> Consistent:
    first, second, together = (
        Limits(tuple(least.tolist()), tuple(most.tolist()))
        for least, most in zip(low, high, strict=True)
    )
    return sets.consistent(SIZES, (first, second), together, view.youngest, view.oldest)


def _guess(
    view: TablesView, listed: Sequence[Consistent], low: np.ndarray, high: np.ndarray
) -> Guess:
    every = np.stack([np.concatenate(table.marginals) for table in listed])  # (tables, 7, ages)
    below = np.cumsum(every, axis=2) / every.sum(axis=2, keepdims=True)
    occurs, ages = every > 0, view.oldest - view.youngest + 1
    possible = sum(math.log10(math.comb(ages + size - 1, size)) for size in SIZES)
    return Guess(
        {
            "ages": (below >= 0.5).argmax(axis=2),
            "youngest": occurs.argmax(axis=2),
            "oldest": every.shape[2] - 1 - occurs[:, :, ::-1].argmax(axis=2),
            "log10": np.array([math.log10(table.count) for table in listed]),
            "log10 of all": np.full(len(listed), possible),
            "low": low,
            "high": high,
        }
    )


ATTACKS = (ConsistentRecords(),)
"""As the table lists them."""
