"""Small published tables: few data sets agree with a mean and a median, and all can be listed.

Dinur and Nissim's point made by hand, as Garfinkel, Abowd and Martindale (2018), "Understanding
database reconstruction attacks on public data", do it with a census block of seven people. Where
figures were rounded, or ages noised, whatever could have led to the figures counts as consistent.
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
"""Of the noise, within which a figure is believed to lie."""


@dataclass(frozen=True)
class ConsistentRecords:
    """Lists every data set that agrees with what was published.

    Attributes
    ----------
    tables : int
        Of seven people each, a seed.
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
        """How many data sets there are; whose age is the same in all; whose is guessed."""
        return (
            Metric("consistent data sets", "log10", higher=False),
            Metric(f"ages pinned to {self.near} years"),
            Metric(f"ages guessed within {self.near} years"),
        )

    def cases(self, suite: str) -> Iterable[Case]:
        """Return more and more figures; then rounded ones, and ones of noised ages."""
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
        """List what agrees with no more than whom the tables are of."""
        shape = view.figures.shape
        low, high = np.full(shape, float(view.youngest)), np.full(shape, float(view.oldest))
        return _guess(view, [_listed(view, low[0], high[0])] * len(low), low, high)

    def run(self, view: TablesView, rng: np.random.Generator) -> Guess:
        """List what agrees with the figures; where nothing does, believe them less."""
        found = [_believed(view, figures) for figures in view.figures]
        listed, low, high = zip(*found, strict=True)
        return _guess(view, listed, np.stack(low), np.stack(high))

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Score the lists; one that lacks the truth has told nothing, and counts as all there are.

        Ages are compared by rank within their group.
        """
        ages = np.concatenate([truth["first"], truth["second"]], axis=1)
        figures = [sets.figures_of(each) for each in (truth["first"], truth["second"], ages)]
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
    """Return how far from each figure the true one may be, shape (3, 4).

    Of a mean of n noised ages by the noise over sqrt(n); a figure of ranks moves by no more than
    the noise of whoever has most.
    """
    people = np.array([*SIZES, sum(SIZES)], dtype=np.float64)
    noise = np.full((3, 4), _DEVIATIONS * view.noise_std)
    noise[:, 0] /= np.sqrt(people)
    widths: np.ndarray = noise + np.array(view.steps) / 2
    return widths


def _believed(view: TablesView, figures: np.ndarray) -> tuple[Consistent, np.ndarray, np.ndarray]:
    """Return what agrees with a table, within as little as anything does."""
    widths, unpublished = _widths(view), np.isnan(figures)
    while True:
        low = np.where(unpublished, view.youngest, np.maximum(figures - widths, view.youngest))
        high = np.where(unpublished, view.oldest, np.minimum(figures + widths, view.oldest))
        found = _listed(view, low, high)
        if found.count:
            return found, low, high
        widths = 2 * widths


def _listed(view: TablesView, low: np.ndarray, high: np.ndarray) -> Consistent:
    first, second, together = (
        Limits(tuple(least.tolist()), tuple(most.tolist()))
        for least, most in zip(low, high, strict=True)
    )
    return sets.consistent(SIZES, (first, second), together, view.youngest, view.oldest)


def _guess(
    view: TablesView, found: Sequence[Consistent], low: np.ndarray, high: np.ndarray
) -> Guess:
    every = np.stack([np.concatenate(each.marginals) for each in found])  # (tables, 7, ages)
    below = np.cumsum(every, axis=2) / every.sum(axis=2, keepdims=True)
    seen, ages = every > 0, view.oldest - view.youngest + 1
    possible = sum(math.log10(math.comb(ages + size - 1, size)) for size in SIZES)
    return Guess(
        {
            "ages": (below >= 0.5).argmax(axis=2),
            "youngest": seen.argmax(axis=2),
            "oldest": every.shape[2] - 1 - seen[:, :, ::-1].argmax(axis=2),
            "log10": np.array([math.log10(each.count) for each in found]),
            "log10 of all": np.full(len(found), possible),
            "low": low,
            "high": high,
        }
    )


ATTACKS = (ConsistentRecords(),)
"""As the table has them."""
