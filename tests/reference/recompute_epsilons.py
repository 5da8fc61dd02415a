"""Recompute the epsilons that a run or a plan printed, with none of the project's code.

    python tests/reference/recompute_epsilons.py RUN_FOLDER
    python tests/reference/recompute_epsilons.py PLAN.json --config RESOLVED.toml

The rules are those of the design: --without and --looks leave some out, to see their worth.

Two routes: Renyi divergences of the integer noise, and the loss distribution of the Gaussian that
the noise is within a computed total variation of. Exit status 1 where a printed figure promises
more than they allow.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    """Which of the rules beyond plain accounting are applied; all of them are what must hold."""

    fellows: bool = True
    looks: str = "highest"
    coupled: bool = True


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
    """An epsilon by each route, and the least that can be proved at all.

    `coupled` is None where the slack takes more than a tenth of delta: the rule is Renyi then.
    `p` is the probability with which a round's opening tells that one client was in it.
    """

    renyi: float
    coupled: float | None
    least: float
    slack: float
    p: float = 0.0

    @property
    def expected(self) -> float:
        return self.renyi if self.coupled is None else self.coupled


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
            size = cohort if observer == "local" else fellows_of(setting, rules)
            merged[kind, size] += count
        unlike[frozenset(merged.items())] = merged
    found = list(unlike.values())
    return [a for a in found if not any(a is not b and a <= b for b in found)]


def fellows_of(setting: Setting, rules: Rules) -> int:
    """The smallest cohort charged where a fellow client may be the observer, else 0: nobody is."""
    return setting.tally.smallest if rules.fellows and not setting.colluders else 0


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
    """The variance that the observer meets, of V that honest clients guarantee."""
    f, v = setting.fraction, part.variance
    if observer == "release":
        return setting.groups * v / f
    if observer == "local":
        return v / (f * cohort)
    if not cohort:
        return v
    if setting.top_up:
        return v * min(1.0, (1 - 1 / cohort) / f)
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
    rate = openings.rate_charged(setting.dropout, setting.tally.drops, rules.looks)
    return openings.most_told(opening, rate)


# Two routes to epsilon.


def by_renyi(steps: tuple[Step, ...], delta: float) -> float:
    return renyi.epsilon(sum(step.count * _renyi_of(step) for step in steps), delta)


@lru_cache(maxsize=4096)
def _renyi_once(step: Step) -> renyi.Floats:
    if step.gaussian is not None:
        plain = renyi.gaussian(step.gaussian)
    else:
        plain = sum(renyi.skellam(p.l2, p.l1, p.variance) for p in step.parts)
    return renyi.told_with(step.told, renyi.sampled(step.rate, plain), plain)


def _renyi_of(step: Step) -> renyi.Floats:
    return _renyi_once(Step(1, step.parts, step.gaussian, step.rate, step.told))


def multiplier(step: Step) -> float:
    """Noise over sensitivity of the Gaussian beside the step: parts are one vector, scaled."""
    if step.gaussian is not None:
        return step.gaussian
    return sum(p.l2**2 / (p.variance - 1 / 12) for p in step.parts) ** -0.5


def variation(steps: tuple[Step, ...]) -> float:
    """The total variation between the integers' transcript and the rounded Gaussians'."""
    each = [(p.length, p.variance, step.count) for step in steps for p in step.parts]
    exact = [(d, mu, n) for d, mu, n in each if mu >= 1]
    if len(exact) < len(each):
        return 1.0
    # By Pinsker: sqrt(KL / 2), with the sums where they exceed 1/(48 mu^2).
    worst = max((48 * mu**2 * _divergence(mu) for _, mu, _ in exact), default=1.0)
    return coupling.total_variation(exact) * math.sqrt(max(1.0, worst))


@lru_cache(maxsize=256)
def _divergence(mu: float) -> float:
    return coupling.divergence(mu)


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
        both.append(lambda e, total=total: losses.delta_of(total, WIDTH, e))
    return both


def by_coupling(steps: tuple[Step, ...], delta: float) -> tuple[float | None, float, float]:
    """Return epsilon by the rule, or None; the least that the coupling proves; and the slack.

    The rule: at 0.9 delta, where (1 + e^epsilon) tau takes no more than the tenth that is left.
    """
    tau, every = variation(steps), curves(steps)

    def worst(e: float) -> float:
        return max(curve(e) for curve in every)

    found = losses.least_epsilon(worst, (0.9 if tau else 1.0) * delta)
    slack = _slack(found, tau)
    return (found if slack <= delta / 10 else None), least_proved(worst, tau, delta), slack


def _slack(epsilon: float, tau: float) -> float:
    return (1 + math.exp(min(epsilon, 700))) * tau


def least_proved(curve: Callable[[float], float], tau: float, delta: float) -> float:
    """The smallest epsilon with curve + slack <= delta; infinite where there is none.

    Both are convex in e^epsilon, so that what is allowed is an interval: it is found on a grid.
    """

    def excess(e: float) -> float:
        return curve(e) + _slack(e, tau) - delta

    low = losses.least_epsilon(curve, delta)
    if excess(low) <= 0:
        return low
    for e in np.linspace(low, low + 2, 41)[1:]:
        if excess(float(e)) <= 0:
            return float(brentq(excess, low, float(e), xtol=1e-7))
        low = float(e)
    return math.inf


def recompute(setting: Setting, observer: str, rules: Rules) -> Found:
    """The largest figure of any client, by both routes."""
    found: list[Found] = []
    for steps in steps_of(setting, observer, rules):
        plain = by_renyi(steps, setting.delta)
        gaussian = all(step.gaussian is not None for step in steps)
        coupled, least, slack = None, plain, 0.0
        # Against 30 and more the slack's e^epsilon has long won over any tau.
        if (rules.coupled or gaussian) and (gaussian or plain < 30):
            coupled, least, slack = by_coupling(steps, setting.delta)
        found.append(Found(plain, coupled, min(plain, least), slack, steps[0].told))
    return max(found, key=lambda each: each.expected)


# The table.


@dataclass(frozen=True)
class Row:
    """One printed figure beside what it should be."""

    observer: str
    printed: float
    found: Found

    @property
    def ratio(self) -> float:
        return self.printed / self.found.expected

    @property
    def verdict(self) -> str:
        if self.printed < self.found.least * (1 - BELOW):
            return "TOO STRONG: no route allows it"
        if self.ratio < 1 - BELOW:
            return "TOO STRONG by the pages' rules"
        return "higher than it needs to be" if self.ratio > 1 + ABOVE else "ok"

    def text(self) -> str:
        found = self.found
        by = "-" if found.coupled is None else f"{found.coupled:.4f}"
        return (
            f"{self.observer:8}{self.printed:12.4f}{found.renyi:12.4f}{by:>12}"
            f"{found.least:12.4f}{found.slack:10.1e}{found.p:10.2e}"
            f"{found.expected:12.4f}{self.ratio:9.4f}  {self.verdict}"
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
    print(
        f"{'':8}{'printed':>12}{'Renyi':>12}{'coupled':>12}{'least':>12}{'slack':>10}{'p':>10}"
        f"{'expected':>12}{'ratio':>9}"
    )
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
        choices=["fellows", "coupled"],
        help="leave a rule out, to see what it is worth",
    )
    parser.add_argument(
        "--looks",
        default="highest",
        choices=["highest", "last", "none"],
        help="which bounds on the observed dropout rate count beside the assumed one",
    )
    parser.add_argument("--every-round", action="store_true", help="each round's figures as well")
    chosen = parser.parse_args(arguments)
    rules = Rules(looks=chosen.looks, **dict.fromkeys(chosen.without, False))
    return 0 if checked(chosen.path, chosen.config, rules, chosen.every_round) else 1


if __name__ == "__main__":
    sys.exit(main())
