"""Cohorts are drawn as the ledger accounts for them."""

import numpy as np
import pytest

from zerosum.client.entropy import SeededEntropy, SystemEntropy
from zerosum.server.sampling import CohortSampler
from zerosum.server.spec import SamplingSpec


def sampler(kind, cohort, population, seed=0):
    spec = SamplingSpec(kind=kind, cohort=cohort)
    return CohortSampler(spec, population, SeededEntropy(seed))


@pytest.mark.parametrize("kind", ["poisson", "fixed", "once", "everyone"])
def test_a_cohort_is_ascending_distinct_and_repeatable(kind):
    draw = sampler(kind, 10, 100).draw(3)
    assert list(draw) == sorted(set(draw))
    assert all(0 <= index < 100 for index in draw)
    assert draw == sampler(kind, 10, 100).draw(3)


@pytest.mark.parametrize("kind", ["poisson", "fixed", "once"])
def test_rounds_seeds_and_purposes_differ(kind):
    one = sampler(kind, 10, 100)
    assert one.draw(1) != one.draw(2)
    assert one.draw(1) != sampler(kind, 10, 100, seed=1).draw(1)
    if kind != "once":
        assert one.draw(1) != one.draw(1, "evaluate")


def test_poisson_cohorts_vary_in_size_around_their_mean():
    one = sampler("poisson", 100, 400)
    sizes = np.array([len(one.draw(r)) for r in range(1, 401)])
    # Binomial(400, 1/4): mean 100, standard deviation 8.66; the mean of 400 draws has 0.43.
    assert abs(sizes.mean() - 100) < 5 * 0.433
    assert abs(sizes.std() - 8.66) < 5 * 8.66 / np.sqrt(800)
    assert one.rate == 0.25


def test_poisson_coins_of_two_clients_are_independent():
    one = sampler("poisson", 50, 100)
    both = np.zeros((1000, 2))
    for r in range(1000):
        cohort = one.draw(r + 1)
        both[r] = 0 in cohort, 1 in cohort
    assert abs(np.corrcoef(both.T)[0, 1]) < 5 / np.sqrt(1000)


def test_fixed_cohorts_have_their_size_and_everybody_has_a_turn():
    one = sampler("fixed", 10, 30)
    cohorts = [one.draw(r) for r in range(1, 60)]
    assert {len(c) for c in cohorts} == {10}
    assert set().union(*cohorts) == set(range(30))


def test_once_never_draws_anybody_twice():
    one = sampler("once", 10, 45)
    drawn = [index for r in range(1, 5) for index in one.draw(r)]
    assert len(drawn) == len(set(drawn)) == 40


def test_once_continues_from_its_order_seed():
    spec = SamplingSpec(kind="once", cohort=10)
    before = CohortSampler(spec, 100, SystemEntropy())
    after = CohortSampler(spec, 100, SystemEntropy(), before.order_seed)
    assert before.draw(4) == after.draw(4)
    assert CohortSampler(spec, 100, SystemEntropy()).draw(4) != before.draw(4)


def test_everyone_is_everyone():
    assert sampler("everyone", None, 7).draw(1) == tuple(range(7))
    assert sampler("everyone", None, 7).expected_cohort == 7
