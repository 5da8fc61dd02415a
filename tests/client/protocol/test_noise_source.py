"""Coins of roundings: each client's own, whoever was before it."""

import itertools

import numpy as np

from zerosum.client.protocol.noise_source import RoundingCoins, SeededEntropy, SystemEntropy


def test_a_clients_coins_do_not_depend_on_the_clients_before():
    together = RoundingCoins(SeededEntropy(3))
    keys = [(1, 0, 5), (1, 0, 6), (1, 1, 5), (2, 0, 5), (1, 0, 5)]
    first: dict[tuple[int, int, int], bytes] = {}
    for count, key in enumerate(keys):
        coins = together.of(*key)
        coins.take(40_001 * count)  # as if its vector were long, or rounded again
        coins = together.of(*key)
        first.setdefault(key, coins.take(64))
        assert RoundingCoins(SeededEntropy(3)).of(*key).take(64) == first[key]
    assert len(set(first.values())) == 4
    assert RoundingCoins(SeededEntropy(4)).of(1, 0, 5).take(64) not in first.values()


def test_coins_of_two_clients_are_uncorrelated():
    coins = RoundingCoins(SeededEntropy(3))
    rows = [coins.of(1, 0, client).uniform(20_000) for client in (0, 1, 2, 2**32, 2**63)]
    for a, b in itertools.combinations(rows, 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.04
    assert np.corrcoef(rows[0], coins.of(1, 0, 0).uniform(20_000))[0, 1] > 0.99


def test_a_rounds_coins_take_one_key():
    asked = []

    class Counting(SeededEntropy):
        def keystream(self, purpose, *indices):
            asked.append((purpose, *indices))
            return super().keystream(purpose, *indices)

    coins = RoundingCoins(Counting(3))
    for round, client in itertools.product((1, 2), range(4)):
        coins.of(round, 0, client)
    assert asked == [("rounding", 1, 0), ("rounding", 2, 0)]


def test_a_deployed_clients_coins_are_fresh_each_time():
    first, second = (RoundingCoins(SystemEntropy()).of(1, 0, 7).take(16) for _ in range(2))
    assert first != second
