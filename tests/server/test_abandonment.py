import itertools
import math

import pytest

from zerosum.client.contribution import min_survivors
from zerosum.server.abandonment import OpeningRule, opened_only_because_of_one


def rule(**changes) -> OpeningRule:
    values = {"population": 7, "q": 0.4, "dropout": 0.2, "needed": needed} | changes
    return OpeningRule(**values)


def needed(cohort: int) -> int:
    return cohort + 1 if cohort < 3 else min_survivors(0.7, cohort)


def by_enumeration(chosen: OpeningRule) -> float:
    """Go through every fate of every other client: absent, dropped or survived."""
    absent = 1 - chosen.q
    fates = {(0, 0): absent, (1, 0): chosen.q * chosen.dropout}
    fates[1, 1] = chosen.q * (1 - chosen.dropout)
    only = opened = 0.0
    for others in itertools.product(fates, repeat=chosen.population - 1):
        weight = math.prod(fates[f] for f in others)
        cohort, survivors = (sum(column) for column in zip(*others, strict=True))
        alone = survivors >= chosen.needed(cohort)
        joined = survivors + 1 >= chosen.needed(cohort + 1)
        opened += weight * (absent * alone + chosen.q * joined)
        only += weight * chosen.q * (joined and not alone)
    return only / opened


@pytest.mark.parametrize(
    "changes", [{}, {"dropout": 0.0}, {"q": 0.9}, {"needed": lambda n: max(4, n)}]
)
def test_the_sums_are_those_of_enumeration(changes) -> None:
    chosen = rule(**changes)
    assert opened_only_because_of_one(chosen) == pytest.approx(by_enumeration(chosen), rel=1e-9)


def test_a_generous_limit_costs_nothing_and_a_tight_one_much() -> None:
    def at(fraction: float) -> float:
        return opened_only_because_of_one(
            OpeningRule(400, 0.25, 0.1, lambda n: min_survivors(fraction, n) if n > 1 else n + 1)
        )

    assert at(0.6) < 1e-12
    assert at(0.8) == pytest.approx(5.5e-5, rel=0.05)
    assert at(0.9) > 100 * at(0.8)


def test_a_cohort_limit_counts_too() -> None:
    def at(smallest: int) -> float:
        return opened_only_because_of_one(
            OpeningRule(400, 0.25, 0.0, lambda n: 1 if n >= smallest else n + 1)
        )

    assert at(60) < 1e-6 < at(90)


def test_rounds_that_never_open_reveal_everything() -> None:
    assert opened_only_because_of_one(rule(needed=lambda n: n + 1)) == 1.0


def test_large_populations_are_quick() -> None:
    chosen = OpeningRule(10**8, 1e-6, 0.1, lambda n: min_survivors(0.8, n) if n else 1)
    assert 0 < opened_only_because_of_one(chosen) < 1e-6
