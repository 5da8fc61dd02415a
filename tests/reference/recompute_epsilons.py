"""Recompute the epsilons that a run or a plan printed, with none of the project's code.

    python tests/reference/recompute_epsilons.py RUN_FOLDER
    python tests/reference/recompute_epsilons.py PLAN.json --config RESOLVED.toml

Three routes, of which the smallest figure counts: Renyi divergences of the integer noise; and the
loss distribution of the rounded Gaussian that the noise is near to, by their total variation or by
the ratio of their laws. Exit status 1 where a printed figure promises more than all of them allow.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import coupling
import losses
import numpy as np
import openings
import renyi
from scipy.optimize import brentq
from settings import (
    AMPLIFIED,
    OBSERVERS,
    NotCoveredError,
    Part,
    Setting,
    header_disagrees,
    lines_of,
    read,
)

BELOW = 1e-3
ABOVE = 1e-2
WIDTH = 3e-4
"""Of the grid of losses; its chords lie above the truth by a square of this."""


@dataclass(frozen=True)
class Rules:
    """What is reckoned with beyond plain accounting; all of it is what must hold."""

    fellows: bool = True
    dropouts: bool = True


@dataclass(frozen=True)
class Noised:
    """One noised vector as an observer meets it: integer sensitivities and variance."""

    l2: float
    l1: float
    variance: float
    length: int


@dataclass(frozen=True)
class Step:
    """`count` releases alike: of parts noised together, or of one Gaussian.

    The client's data are in with probability `rate`, and with probability `told` that is no secret.
    """

    count: int
    parts: tuple[Noised, ...] = ()
    gaussian: float | None = None
    rate: float = 1.0
    told: float = 0.0


@dataclass(frozen=True)
class Found:
    """An epsilon by each route, infinite where one leads nowhere.

    `p` is the probability with which a round's opening tells that one client was in it.
    """

    renyi: float
    variation: float = math.inf
    ratio: float = math.inf
    p: float = 0.0

    @property
    def least(self) -> float:
        return min(self.renyi, self.variation, self.ratio)


# What each observer meets.


def steps_of(setting: Setting, observer: str, rules: Rules) -> Iterator[tuple[Step, ...]]:
    """One sequence of steps for each client that differs from others, or one for outsiders."""
    if observer == "release" and setting.sampling in AMPLIFIED and setting.model != "local":
        told = openings_told(setting, rules)
        yield tuple(
            _step(setting, kind, "release", count, setting.rate, told, 0)
            for kind, count in setting.tally.opened.items()
        )
        return
    for seen in undominated(setting, observer, rules):
        yield tuple(
            _step(setting, kind, observer, count, 1.0, 0.0, size)
            for (kind, size), count in seen.items()
        )


def undominated(setting: Setting, observer: str, rules: Rules) -> list[Counter[tuple[str, int]]]:
    """How often each client meets each kind and size of cohort, without those who met less."""
    unlike = {}
    for seen in setting.tally.distinct():
        merged: Counter[tuple[str, int]] = Counter()
        for (kind, cohort), count in seen.items():
            # Only shares depend on the cohort; for the fellow clients' part the smallest counts.
            fellows = setting.tally.smallest if rules.fellows else 0
            size = cohort if observer == "local" else fellows
            merged[kind, size] += count
        unlike[frozenset(merged.items())] = merged
    found = list(unlike.values())
    return [a for a in found if not any(a is not b and a <= b for b in found)]


def _step(
    setting: Setting, kind: str, observer: str, count: int, rate: float, told: float, cohort: int
) -> Step:
    mechanism = setting.mechanisms[kind]
    rate *= mechanism.example_rate
    if rate != mechanism.example_rate and mechanism.example_rate != 1:
        raise NotCoveredError("examples drawn by clients that are drawn themselves")
    replaced = adjacency(setting, observer) == "replace"
    shift = 2 if replaced else 1
    if mechanism.gaussian is not None:
        return Step(count, gaussian=mechanism.gaussian / shift, rate=rate, told=told)
    parts = tuple(
        Noised(shift * p.l2, shift * p.l1, met(setting, p, observer, cohort), p.length)
        for p in mechanism.parts
    )
    return Step(count, parts, rate=rate, told=told)


def adjacency(setting: Setting, observer: str) -> str:
    """Zero in the client's place; one's own vector is against any other one's."""
    if setting.model == "local":
        return "replace"
    return "replace" if observer == "local" and setting.unit == "client" else "zero_out"


def met(setting: Setting, part: Part, observer: str, cohort: int) -> float:
    """The variance that the observer meets, of V that honest clients guarantee.

    Of a sum that may be a fellow client (in a cohort of 0 there are none), who knows its share: of
    the constant total, or of what survivors guarantee, unless it is one of the colluders assumed.
    """
    f, v = setting.fraction, part.variance
    if observer == "release":
        return setting.groups * v / f
    if observer == "local":
        return v / (f * cohort)
    if not cohort:
        return v
    if setting.top_up:
        return v * min(1.0, (setting.groups - 1 / cohort) / f)
    if setting.colluders:
        return v
    return v * min(1.0, (math.ceil(round(f * cohort, 9)) - 1) / (f * cohort))


def openings_told(setting: Setting, rules: Rules) -> float:
    """P(a round tells of its client by being opened), at the dropout rate that is charged."""
    opening = openings.Opening(
        setting.population,
        setting.rate,
        setting.fraction,
        setting.dropout,
        setting.colluders,
        setting.groups,
    )
    seen = setting.tally.drops if rules.dropouts else []
    return openings.most_told(opening, openings.rate_charged(setting.dropout, seen))


# Three routes to epsilon.


def _sum_of(divergences: Iterable[renyi.Floats]) -> renyi.Floats:
    return sum(divergences, np.zeros_like(renyi.ORDERS))


def by_renyi(steps: tuple[Step, ...], delta: float) -> float:
    return renyi.epsilon(_sum_of(step.count * _renyi_of(step) for step in steps), delta)


@lru_cache(maxsize=4096)
def _renyi_once(step: Step) -> renyi.Floats:
    if step.gaussian is not None:
        plain = renyi.gaussian(step.gaussian)
    else:
        plain = _sum_of(renyi.skellam(p.l2, p.l1, p.variance) for p in step.parts)
    return renyi.told_with(step.told, renyi.sampled(step.rate, plain), plain)


def _renyi_of(step: Step) -> renyi.Floats:
    return _renyi_once(Step(1, step.parts, step.gaussian, step.rate, step.told))


def multiplier(step: Step) -> float:
    """Noise over sensitivity of the Gaussian beside the step: parts are one vector, scaled."""
    if step.gaussian is not None:
        return step.gaussian
    return sum(p.l2**2 / (p.variance - 1 / 12) for p in step.parts) ** -0.5


def curves(steps: tuple[Step, ...]) -> list[Callable[[float], float]]:
    """delta as a function of epsilon for the Gaussians of `steps`, in both directions."""
    if all(step.rate == 1 for step in steps):
        mean_square = sum(step.count / multiplier(step) ** 2 for step in steps)
        return [lambda e: losses.analytic_delta(e, mean_square)]
    both = []
    for present_first in (True, False):
        parts = []
        for step in steps:
            sigma = multiplier(step)
            one = losses.sampled_gaussian(step.rate, sigma, WIDTH, present_first)
            if step.told:
                plain = losses.sampled_gaussian(1.0, sigma, WIDTH, present_first)
                one = losses.mixture(one, plain, step.told)
            parts.append((one, step.count))
        total = losses.composed(parts, WIDTH)
        both.append(losses.delta_curve(total, WIDTH))
    return both


def by_coupling(steps: tuple[Step, ...], delta: float) -> tuple[float, float]:
    """Return epsilon by total variation and by the ratio of the laws."""
    noised = [(p.length, p.variance, step.count) for step in steps for p in step.parts]
    tau = coupling.total_variation(noised)
    if tau >= 1:
        return math.inf, math.inf
    every = curves(steps)

    def worst(e: float) -> float:
        return max(curve(e) for curve in every)

    low = losses.least_epsilon(worst, delta)
    if not noised:
        return low, low
    by_variation = least_proved(lambda e: worst(e) + (1 + math.exp(e)) * tau - delta, low)
    skellam_drawn, gaussian_drawn = (coupling.ratio_missed(noised, way) for way in (True, False))

    def by_ratio(r: float) -> float:
        missed, missed_back = skellam_drawn(r), gaussian_drawn(r)

        def excess(e: float) -> float:
            return math.exp(r) * worst(e) + missed + math.exp(e + r) * missed_back - delta

        return least_proved(excess, low) + 2 * r

    # The r that serves is a few times what ln of the ratio deviates by, sqrt(2 KL).
    return by_variation, min(by_ratio(r) for r in tau * np.geomspace(0.5, 30, 40))


def least_proved(excess: Callable[[float], float], low: float) -> float:
    """The smallest epsilon from `low` on without excess over delta; infinite where there is none.

    It is convex in e^epsilon, so that what is allowed is an interval: it is found on a grid.
    """
    if excess(low) <= 0:
        return low
    for e in np.linspace(low, low + 2, 81)[1:]:
        if excess(float(e)) <= 0:
            return float(brentq(excess, low, float(e), xtol=1e-8))
        low = float(e)
    return math.inf


def recompute(setting: Setting, observer: str, rules: Rules) -> Found:
    """The largest figure of any client, by each route."""
    found: list[Found] = []
    for steps in filter(None, steps_of(setting, observer, rules)):
        one = Found(by_renyi(steps, setting.delta), p=steps[0].told)
        # Against 60 and more the e^epsilon before what is missed has long won.
        if one.renyi < 60 or not any(step.parts for step in steps):
            by_variation, by_ratio = by_coupling(steps, setting.delta)
            one = replace(one, variation=by_variation, ratio=by_ratio)
        found.append(one)
    return max(found, key=lambda each: each.least, default=Found(0.0))


# The table.


@dataclass(frozen=True)
class Row:
    """One printed figure beside what it should be."""

    observer: str
    printed: float
    found: Found

    @property
    def ratio(self) -> float:
        if not self.found.least:
            return math.inf if self.printed else 1.0
        return self.printed / self.found.least

    @property
    def verdict(self) -> str:
        if self.ratio < 1 - BELOW:
            return "TOO STRONG"
        return "higher than it needs to be" if self.ratio > 1 + ABOVE else "ok"

    def text(self) -> str:
        found = self.found
        return (
            f"{self.observer:8}{self.printed:12.4f}{found.renyi:12.4f}{found.variation:12.4f}"
            f"{found.ratio:12.4f}{found.p:10.2e}{self.ratio:9.4f}  {self.verdict}"
        )


def rows(setting: Setting, rules: Rules) -> list[Row]:
    found = []
    for observer in OBSERVERS:
        value = (setting.printed or {}).get(observer, {}).get("value")
        if value is not None:
            found.append(Row(observer, value, recompute(setting, observer, rules)))
    return found


def labels_disagree(setting: Setting) -> str | None:
    """Compare whom and at what delta the figures are said to be for with the configuration."""
    for observer, figure in (setting.printed or {}).items():
        meant = {
            "delta": setting.delta,
            "unit": setting.unit,
            "adjacency": adjacency(setting, observer),
        }
        for key, value in meant.items():
            if figure.get("value") is not None and figure.get(key, value) != value:
                return f"{key} of epsilon_{observer}: {figure[key]} is printed, {value} is meant"
    return None


def report(setting: Setting, rules: Rules) -> bool:
    """Print the table; return whether every figure holds."""
    print(f"{'':8}{'printed':>12}{'Renyi':>12}{'variation':>12}{'ratio':>12}{'p':>10}{'/least':>9}")
    found = rows(setting, rules)
    for row in found:
        print(row.text())
    if not found:
        print("no epsilon is printed")
    return not any(row.verdict.startswith("TOO STRONG") for row in found)


def checked(path: Path, config: Path | None, rules: Rules, every_round: bool) -> bool:
    setting = read(path, config)
    print(f"{setting.name}: delta {setting.delta:g}, {setting.model}, {setting.unit}")
    good = report(setting, rules)
    wrong = [labels_disagree(setting)]
    if path.is_dir():
        wrong.append(header_disagrees(path, setting))
        if every_round:
            for line in lines_of(path / "metrics.jsonl"):
                print(f"after round {line['round']}")
                good &= report(read(path, rounds=line["round"]), rules)
    for sentence in filter(None, wrong):
        print(f"the ledger was opened with something else, or the figure is: {sentence}")
    return good and not any(wrong)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="a run's folder, or what plan --json wrote")
    parser.add_argument("--config", type=Path, help="for a plan: its resolved configuration")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=["fellows", "dropouts"],
        help="do not reckon with fellow clients, or with dropouts, to see what that is worth",
    )
    parser.add_argument("--every-round", action="store_true", help="each round's figures as well")
    chosen = parser.parse_args(arguments)
    rules = Rules(**dict.fromkeys(chosen.without, False))
    return 0 if checked(chosen.path, chosen.config, rules, chosen.every_round) else 1


if __name__ == "__main__":
    sys.exit(main())
