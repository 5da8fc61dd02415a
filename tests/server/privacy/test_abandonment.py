import dataclasses
import itertools
import math
from typing import Any

import pytest

from zerosum.client.protocol.survivors import min_survivors
from zerosum.server.privacy.abandonment import (
    OpeningRule,
    largest_opened_only_because_of_one,
    opened_only_because_of_one,
)


def rule(**changes) -> OpeningRule:
    values: dict[str, Any] = {"population": 7, "q": 0.4, "dropout": 0.2, "needed": needed} | changes
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
def test_abandonment_probability_matches_enumeration(changes) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cohort", "opens_from"),
    [(57, 0.8), (25, 0.6), (25, 0.95), (6, 0.5)],
)
@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.45, 0.9])
def test_the_largest_share_up_to_a_dropout_is_found(cohort, opens_from, dropout) -> None:
    def at(rate: float) -> OpeningRule:
        return OpeningRule(400, cohort / 400, rate, lambda n: max(2, min_survivors(opens_from, n)))

    found = largest_opened_only_because_of_one(at(dropout))
    dense = max(opened_only_because_of_one(at(dropout * i / 200)) for i in range(201))
    assert dense <= found <= 1.002 * dense + 1e-20


def test_the_largest_share_can_lie_below_the_largest_dropout() -> None:
    # Opened with exactly half of four: all others dropping out opens nothing.
    chosen = rule(population=5, q=0.99, dropout=1.0, needed=lambda n: 3 if n >= 4 else n + 1)
    half = dataclasses.replace(chosen, dropout=0.999)
    peak = largest_opened_only_because_of_one(half)
    ends = [
        opened_only_because_of_one(dataclasses.replace(chosen, dropout=rate))
        for rate in (0.0, 0.999)
    ]
    assert peak >= max(ends)
    assert largest_opened_only_because_of_one(chosen) == 1.0
    # A round that opens with few only: what is likeliest in between is found.
    few = rule(population=9, q=0.5, dropout=0.97, needed=lambda n: 2 if n >= 2 else n + 1)
    dense = [
        opened_only_because_of_one(dataclasses.replace(few, dropout=0.97 * i / 400))
        for i in range(401)
    ]
    assert max(dense) <= largest_opened_only_because_of_one(few) <= 1.002 * max(dense)
