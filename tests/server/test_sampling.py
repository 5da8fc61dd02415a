"""Cohorts are drawn as the ledger accounts for them."""

import numpy as np
import pytest

from zerosum.client.protocol.noise_source import SeededEntropy, SystemEntropy
from zerosum.secagg.randomness import Keystream, insecure_keystream
from zerosum.server.sampling import CohortSampler, _below, _heads
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
    assert abs(np.corrcoef(both[:, 0], both[:, 1])[0, 1]) < 5 / np.sqrt(1000)


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


def test_once_spends_everybody_and_then_draws_nobody():
    one = sampler("once", 10, 45)
    drawn = [one.draw(r) for r in range(1, 8)]
    assert [len(cohort) for cohort in drawn] == [10, 10, 10, 10, 5, 0, 0]
    assert set().union(*drawn) == set(range(45))


def test_once_gives_a_round_the_same_cohort_whatever_was_drawn_before():
    whole = [sampler("once", 7, 100).draw(r) for r in range(1, 15)]
    one = sampler("once", 7, 100)
    assert [one.draw(r) for r in (9, 2, 14, 2, 1)] == [whole[r - 1] for r in (9, 2, 14, 2, 1)]


@pytest.mark.parametrize("kind", ["fixed", "once"])
def test_a_round_of_a_million_takes_the_coins_of_its_cohort_alone(monkeypatch, kind):
    taken = []

    def words(self, count):
        taken.append(count)
        return np.arange(count, dtype="<u8")

    monkeypatch.setattr(Keystream, "words", words)
    one = sampler(kind, 100, 10**6)
    for r in (1, 2, 3):
        assert len(one.draw(r)) == 100
    assert taken == [100, 100, 100]


def test_a_word_that_would_make_small_numbers_likelier_is_drawn_again():
    class Coins(Keystream):
        def __init__(self, *stream):
            self.stream = list(stream)

        def words(self, count, dtype=np.uint64, buffer=None):
            assert count == len(self.stream[0])
            return np.array(self.stream.pop(0), dtype=dtype)

    # 2^64 = 1 mod 3, so that the last word belongs to no whole round of 0, 1, 2.
    coins = Coins([2**64 - 1, 5], [2**64 - 1], [7])
    assert _below(np.array([3, 3]), coins) == [7 % 3, 5 % 3]
    assert not coins.stream
    assert _below(np.array([1, 2]), Coins([2**64 - 1, 2**64 - 1])) == [0, 1]


def test_poisson_throws_the_coins_of_uniform_floats_below_the_rate():
    for rate in (1e-19, 0.1, 1 / 3, 1 - 2.0**-53, 1.0):
        floats = insecure_keystream(3, "coins").uniform(20_000)
        heads = list(_heads(20_000, rate, insecure_keystream(3, "coins")))
        assert heads == np.flatnonzero(floats < rate).tolist()


def test_everyone_is_everyone():
    assert sampler("everyone", None, 7).draw(1) == tuple(range(7))
    assert sampler("everyone", None, 7).expected_cohort == 7


@pytest.mark.parametrize("kind", ["poisson", "fixed", "everyone"])
def test_groups_are_disjoint_and_make_up_the_cohort(kind):
    one = sampler(kind, 40, 100)
    cohort = one.draw(1)
    groups = one.split(cohort, 3, 1)
    assert len(groups) == 3
    assert sorted(index for group in groups for index in group) == list(cohort)
    assert all(list(group) == sorted(group) for group in groups)
    assert groups == one.split(cohort, 3, 1)
    assert groups != one.split(cohort, 3, 2)
    assert groups != one.split(cohort, 3, 1, "evaluate")
    assert one.split(cohort, 1, 1) == (cohort,)
    if kind != "poisson":
        assert max(map(len, groups)) - min(map(len, groups)) <= 1


def test_under_poisson_a_client_more_moves_no_other():
    one = sampler("poisson", 40, 100)
    cohort = one.draw(1)
    less = one.split(cohort[1:], 4, 1)
    assert [tuple(i for i in g if i != cohort[0]) for g in one.split(cohort, 4, 1)] == list(less)


def test_groups_are_even_and_those_of_two_clients_independent():
    one = sampler("poisson", 99, 100)
    everybody = tuple(range(100))
    of = np.zeros((1000, 100), dtype=int)
    for number in range(1000):
        for group, members in enumerate(one.split(everybody, 4, number)):
            of[number, list(members)] = group
    shares = np.bincount(of.ravel(), minlength=4) / of.size
    assert np.abs(shares - 0.25).max() < 5 * (0.25 * 0.75 / of.size) ** 0.5
    together = (of[:, :50] == of[:, 50:]).mean()
    assert abs(together - 0.25) < 5 * (0.25 * 0.75 / 50_000) ** 0.5


def test_a_group_may_be_empty():
    assert sum(not group for group in sampler("fixed", 2, 10).split((3, 7), 5, 1)) == 3
