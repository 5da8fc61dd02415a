"""Local reports keep their epsilon over every report, and support cells as often as claimed."""

import json
import math
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from zerosum.client.queries import oracles
from zerosum.client.queries.errors import QueryError
from zerosum.secagg.randomness import Keystream, insecure_keystream

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/queries.json").read_text("utf-8"))
KINDS = ["k-rr", "oue", "olh", "hadamard"]
HEADS = 1 << oracles.COIN_BITS


class Enumerated(Keystream):
    """Stands in for the coins: walks through every outcome, with its exact probability."""

    def __init__(self, path, seed):
        super().__init__(bytes(32))
        self.path: list[int] = path
        self.seed: bytes = seed
        self.at, self.chance = 0, Fraction(1)
        self.branches: list[tuple[int, int]] = []

    def _choose(self, chances):
        chosen = self.path[self.at] if self.at < len(self.path) else 0
        if self.at >= len(self.path):
            self.branches.append((self.at, len(chances)))
        self.at += 1
        self.chance *= chances[chosen]
        return chosen

    def coin(self, threshold):
        heads = Fraction(threshold, HEADS)
        return bool(self._choose([1 - heads, heads]))

    def coins(self, threshold, count):
        return np.array([self.coin(threshold) for _ in range(count)])

    def below(self, count):
        return self._choose([Fraction(1, count)] * count)

    def take(self, count):
        return self.seed[:count]


@pytest.fixture
def law(monkeypatch):
    """Return the function that gives the exact law of a report, by running the code itself."""
    monkeypatch.setattr(oracles, "_coin", lambda threshold, coins: coins.coin(threshold))
    monkeypatch.setattr(
        oracles, "_coins", lambda threshold, count, coins: coins.coins(threshold, count)
    )
    monkeypatch.setattr(oracles, "_below", lambda count, coins: coins.below(count))

    def enumerate_reports(kind, value, k, epsilon, seed=bytes(8)):
        chances: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        paths: list[list[int]] = [[]]
        while paths:
            path = paths.pop()
            coins = Enumerated(path, seed)
            report = oracles.report(kind, value, k, epsilon, coins)
            chances[tuple(report.tolist())] += coins.chance
            taken = path + [0] * (coins.at - len(path))
            for at, ways in coins.branches:
                paths += [[*taken[:at], way] for way in range(1, ways)]
        return chances

    return enumerate_reports


def worst_ratio(laws):
    reports = set().union(*laws)
    return max(a[r] / b[r] if b[r] else math.inf for r in reports for a in laws for b in laws)


def within(ratio, epsilon):
    with mpmath.workdps(120):
        exact = mpmath.mpf(ratio.numerator) / ratio.denominator
        return exact <= mpmath.exp(mpmath.mpf(epsilon))


SETTINGS = [(2, 1.0), (3, 0.1), (4, 2.5), (5, 1.0)]


@pytest.mark.parametrize(("k", "epsilon"), SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_report_is_more_likely_than_e_to_the_epsilon_times(law, kind, k, epsilon):
    # The seed of OLH is drawn apart from the value: its law is held for each of some seeds.
    seeds = [bytes([s] * 8) for s in range(12)] if kind == "olh" else [bytes(8)]
    ratios = []
    for seed in seeds:
        laws = [law(kind, value, k, epsilon, seed) for value in range(k)]
        assert all(sum(chances.values()) == 1 for chances in laws)
        ratios.append(worst_ratio(laws))
    assert all(within(ratio, epsilon) for ratio in ratios)
    # And no noise is wasted: the worst report is that likely.
    assert float(max(ratios)) == pytest.approx(math.exp(epsilon), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_control_a_threshold_that_is_rounded_the_wrong_way_is_found(law, kind, monkeypatch):
    epsilon = 1.0
    exact = oracles._least_ratio
    monkeypatch.setattr(oracles, "_least_ratio", lambda e: exact(e) - (1 << 80))
    laws = [law(kind, value, 3, epsilon, b"12345678") for value in range(3)]
    assert not within(worst_ratio(laws), epsilon)


@pytest.mark.parametrize(("k", "epsilon"), SETTINGS)
@pytest.mark.parametrize("kind", ["k-rr", "oue", "hadamard"])
def test_cells_are_supported_as_often_as_claimed(law, kind, k, epsilon):
    p, q = oracles.probabilities(kind, k, epsilon)
    for value in range(k):
        support = sum(np.array(r) * float(c) for r, c in law(kind, value, k, epsilon).items())
        expected = np.full(k, q)
        expected[value] = p
        np.testing.assert_allclose(support, expected, rtol=1e-12)


def test_a_hash_supports_other_cells_as_often_as_claimed(law):
    """Over seeds: a value's own cell as by randomised response, another by chance 1/g."""
    k, epsilon, seeds = 4, 1.0, 3000
    p, q = oracles.probabilities("olh", k, epsilon)
    assert oracles.hash_cells(epsilon) == 4
    support = np.zeros(k)
    for number in range(seeds):
        seed = number.to_bytes(8, "little")
        cells = [oracles.hashed(seed, value, 4) for value in range(k)]
        truth = oracles.truth(4, epsilon) / HEADS
        chance = np.where(np.array(cells) == cells[0], truth, (1 - truth) / 3)
        support += chance / seeds
    assert support[0] == pytest.approx(p, rel=1e-12)
    np.testing.assert_allclose(support[1:], q, atol=5 * 0.5 / seeds**0.5)


class Scripted(Keystream):
    """Gives the bytes that it was made of."""

    def __init__(self, data):
        self.data = data

    def take(self, count):
        taken, self.data = self.data[:count], self.data[count:]
        assert len(taken) == count
        return taken


def test_a_coin_is_an_exact_comparison_of_192_bits():
    threshold = HEADS // 3
    for value in (0, threshold - 1, threshold, HEADS - 1):
        coins = Scripted(value.to_bytes(24, "little"))
        assert oracles._coin(threshold, coins) == (value < threshold)


def test_many_coins_are_the_same_comparison():
    threshold = HEADS // 3
    top = threshold >> 128
    for low, heads in ((threshold - 1, True), (threshold, False), (threshold + 1, False)):
        tie = (low & ((1 << 128) - 1)).to_bytes(16, "little")
        words = [top - 1, top, top + 1]
        coins = Scripted(b"".join(w.to_bytes(8, "little") for w in words) + tie)
        assert oracles._coins(threshold, 3, coins).tolist() == [True, heads, False]
        assert not coins.data


@pytest.mark.parametrize("count", [1, 2, 3, 200, 255, 256])
def test_integers_below_a_count_are_equally_likely(count):
    data = bytes(range(256)) if count < 256 else None
    if data is None:
        values = [oracles._below(count, Scripted(i.to_bytes(2, "little"))) for i in range(65536)]
    else:
        kept = 256 // count * count
        values = [oracles._below(count, Scripted(data[i : i + 1])) for i in range(kept)]
        for refused in range(kept, 256):
            assert oracles._below(count, Scripted(bytes([refused, 0]))) == 0
    assert len(set(Counter(values).values())) == 1
    assert set(values) == set(range(count))


def test_auto_takes_direct_responses_for_small_domains():
    limit = 3 * math.exp(1.0) + 2
    assert oracles.choose(math.floor(limit), 1.0) == "k-rr"
    assert oracles.choose(math.ceil(limit), 1.0) == "oue"

    def variance(kind, k):
        p, q = oracles.probabilities(kind, k, 1.0)
        return q * (1 - q) / (p - q) ** 2

    assert variance("k-rr", 10) < variance("oue", 10)
    assert variance("k-rr", 11) > variance("oue", 11)


@pytest.mark.parametrize(
    ("value", "k", "epsilon", "reason"),
    [
        (0, 3, 0.0, "epsilon = 0.0"),
        (0, 3, -1.0, "epsilon = -1.0"),
        (0, 3, math.nan, "epsilon = nan"),
        (0, 3, 21.0, "at most 20"),
        (0, 1, 1.0, "says nothing"),
        (3, 3, 1.0, "no value 3"),
        (-1, 3, 1.0, "no value -1"),
    ],
)
def test_a_report_that_cannot_be_is_refused(value, k, epsilon, reason):
    with pytest.raises(QueryError, match=reason):
        oracles.report("k-rr", value, k, epsilon, insecure_keystream(1, "coins"))


@pytest.mark.parametrize("name", ["two_coin_randomized_response", "warner_two_thirds"])
def test_worked_example_of_randomised_response(name, law):
    example = VECTORS[name]
    k, epsilon = example["k"], example["epsilon"]
    assert epsilon == pytest.approx(math.log(round(math.exp(epsilon))), abs=1e-12)
    p, q = oracles.probabilities("rr", k, epsilon)
    assert p == pytest.approx(example["truth"], rel=1e-12)
    assert q == pytest.approx(1 - example["truth"], rel=1e-12)
    chances = law("rr", 1, k, epsilon)
    assert float(chances[0, 1]) == pytest.approx(example["truth"], rel=1e-12)
    if "estimate" in example:
        # (S/n - q)/(p - q) = slope mean + intercept.
        assert 1 / (p - q) == pytest.approx(example["estimate"]["slope"])
        assert -q / (p - q) == pytest.approx(example["estimate"]["intercept"])
        prior = example["prior"]
        posterior = prior * p / (prior * p + (1 - prior) * q)
        assert posterior == pytest.approx(example["posterior"], rel=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_an_estimate_varies_as_its_formula_says(kind):
    """The variance of a count of 3 in 10 reports, over 20,000 repetitions: one sd is 1 %."""
    k, epsilon, n, c, times = 5, 1.0, 10, 3, 20_000
    p, q = oracles.probabilities(kind, k, epsilon)
    coins = insecure_keystream(11, "coins")
    values = [0] * c + [1 + i % 3 for i in range(n - c)]
    estimates = np.empty((times, k))
    for time in range(times):
        total = sum(oracles.report(kind, value, k, epsilon, coins) for value in values)
        estimates[time] = (total - n * q) / (p - q)
    counts = np.bincount(values, minlength=k)
    formula = (n * q * (1 - q) + counts * (p * (1 - p) - q * (1 - q))) / (p - q) ** 2
    found = estimates.var(axis=0)
    np.testing.assert_allclose(found, formula, rtol=0.05)
    assert (np.abs(estimates.mean(axis=0) - counts) < 5 * np.sqrt(formula / times)).all()
    # A control: the variance at two thirds of epsilon is another.
    other_p, other_q = oracles.probabilities(kind, k, epsilon * 2 / 3)
    other = n * other_q * (1 - other_q) / (other_p - other_q) ** 2
    assert abs(found[-1] / other - 1) > 0.05


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kind", "k", "epsilon"), [("k-rr", 5, 1.0), ("oue", 20, 1.0), ("olh", 20, 2.0)]
)
def test_an_independent_library_supports_cells_as_often(kind, k, epsilon):
    """Reports of multi-freq-ldpy have the same chances as ours, cell by cell."""
    pytest.importorskip("multi_freq_ldpy", reason="multi-freq-ldpy is not installed")
    draws, value = 20_000, 2
    theirs = np.zeros(k)
    if kind == "k-rr":
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client

        for _ in range(draws):
            theirs[GRR_Client(value, k, epsilon)] += 1
    elif kind == "oue":
        from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client

        for _ in range(draws):
            theirs += UE_Client(value, k, epsilon, True)
    else:
        import xxhash
        from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Client

        g = round(math.exp(epsilon)) + 1
        for _ in range(draws):
            said, seed = LH_Client(value, k, epsilon, True)
            theirs += [xxhash.xxh32(str(v), seed=seed).intdigest() % g == said for v in range(k)]
    coins = insecure_keystream(12, "coins")
    ours = sum(oracles.report(kind, value, k, epsilon, coins) for _ in range(draws))
    pooled = (theirs + ours) / (2 * draws)
    deviation = np.sqrt(2 * pooled * (1 - pooled) / draws)
    assert (np.abs(theirs - ours) / draws < 5.5 * deviation).all()
