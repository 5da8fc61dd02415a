"""Cohorts have the law that the ledger accounts for: uniform, without replacement."""

from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy.stats import chi2

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.secagg.randomness import Keystream, insecure_keystream
from zerosum.server.sampling import CohortSampler, SecretOrder
from zerosum.server.spec import SamplingSpec

pytestmark = pytest.mark.statistical

MILLIONTH = 1e-6


def is_uniform(draws, outcomes):
    """Return whether a chi-square test lets the draws be uniform over all outcomes."""
    counts, outcomes = Counter(draws), list(outcomes)
    assert set(counts) <= set(outcomes)
    expected = counts.total() / len(outcomes)
    statistic = sum((counts[outcome] - expected) ** 2 for outcome in outcomes) / expected
    return statistic < chi2.isf(MILLIONTH, len(outcomes) - 1)


def fixed(rounds, cohort, population):
    spec = SamplingSpec(kind="fixed", cohort=cohort)
    sampler = CohortSampler(spec, population, SeededEntropy(5))
    return [sampler.draw(number) for number in range(1, rounds + 1)]


def test_every_fixed_cohort_of_seven_is_equally_likely():
    for cohort in (1, 3, 6):
        assert is_uniform(fixed(20_000, cohort, 7), combinations(range(7), cohort))


def test_control_a_subset_whose_last_places_are_likelier_is_rejected():
    def likelier(coins):  # Floyd's loop with each bound one too large
        subset = set()
        for last in range(4, 7):
            drawn = int(coins.words(1)[0] % (last + 2))
            subset.add(last if drawn in subset or drawn > last else drawn)
        return tuple(sorted(subset))

    coins = insecure_keystream(5, "control")
    draws = [likelier(coins) for _ in range(20_000)]
    assert not is_uniform(draws, combinations(range(7), 3))


def orders(count, size=1, population=4):
    for number in range(count):
        order = SecretOrder(population, insecure_keystream(number, "seed").take(32))
        slices = [order.slice(place, size) for place in range(1, -(-population // size) + 1)]
        yield tuple(index for each in slices for index in each)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_order_in_which_once_spends_four_clients_is_equally_likely(size):
    assert is_uniform(orders(20_000, size), permutations(range(4)))


def test_control_a_shuffle_that_swaps_with_any_place_is_rejected():
    def swapped(number):  # 4^4 equally likely ways do not divide by 24
        order, coins = list(range(4)), insecure_keystream(number, "seed")
        for place, other in enumerate((coins.words(4) % 4).tolist()):
            order[place], order[other] = order[other], order[place]
        return tuple(order)

    assert not is_uniform(map(swapped, range(20_000)), permutations(range(4)))


def test_slices_of_a_long_order_hold_each_client_equally_often_and_independently():
    slices = np.zeros((3_000, 2, 200), dtype=bool)
    for number, of_seed in enumerate(slices):
        order = SecretOrder(200, insecure_keystream(number, "long").take(32))
        for place in (1, 2):
            of_seed[place - 1, order.slice(place, 50)] = True
    # A quarter of the seeds each; a client of the first slice is never in the second.
    rates = slices.mean(axis=0)
    assert np.abs(rates - 0.25).max() < 6 * (0.25 * 0.75 / 3_000) ** 0.5
    assert not (slices[:, 0] & slices[:, 1]).any()
    first = slices[:, 0].astype(float)
    correlation = np.corrcoef(first.T)[~np.eye(200, dtype=bool)]
    assert np.abs(correlation + 1 / 199).max() < 6 / 3_000**0.5


def test_keystreams_of_two_seeds_spend_a_population_in_unrelated_orders():
    one, other = (SecretOrder(5_000, Keystream(bytes([n]) * 32).take(32)) for n in (1, 2))
    pairs = np.array([one.slice(1, 5_000), other.slice(1, 5_000)])
    assert abs(np.corrcoef(pairs)[0, 1]) < 5 / 5_000**0.5
