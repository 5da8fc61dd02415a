"""The laws against mpmath, the tables against the laws, and the rare paths against the common."""

import hashlib
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from zerosum.client.privacy import pmf, samplers
from zerosum.client.privacy.pmf import (
    BinnedGaussianLaw,
    DiscreteGaussianLaw,
    DiscreteLaplaceLaw,
    NoiseLaw,
    SkellamLaw,
    exp_negative,
)
from zerosum.client.privacy.samplers import (
    TAU,
    ExactSampler,
    TableSampler,
    alias_table,
    skellam_sampler,
)
from zerosum.secagg.randomness import Keystream, insecure_keystream

LAWS = [
    SkellamLaw(0.5),
    SkellamLaw(900.0),
    SkellamLaw(300.0**2),
    SkellamLaw(7690.3**2),
    BinnedGaussianLaw(0.3),
    BinnedGaussianLaw(30.0),
    BinnedGaussianLaw(5000.5),
    DiscreteGaussianLaw(1.0),
    DiscreteGaussianLaw(5000.5),
    DiscreteLaplaceLaw(0.4),
    DiscreteLaplaceLaw(5000.5),
]


def stream(*indices: int):
    return insecure_keystream(5, "noise", *indices)


def bits_right(found: int, first: int, exact: mpmath.mpf) -> float:
    """Return the number of bits to which found / first is exact."""
    error = abs(mpmath.mpf(found) / first / exact - 1)
    return float(-mpmath.log(error + mpmath.mpf(2) ** -300, 2))


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.7, 33.0, 120.5])
def test_the_exponential_is_exact(value: float) -> None:
    with mpmath.workprec(400):
        found = exp_negative(round(Fraction(value) * 2**256), 256)
        exact = mpmath.exp(-mpmath.mpf(value))
        assert abs(mpmath.mpf(found) / 2**256 - exact) < mpmath.mpf(2) ** -245


@pytest.mark.parametrize("variance", [0.01, 1.0, 100.0, 65025.5])
def test_skellam_weights_are_bessel_functions(variance: float) -> None:
    sigma = math.sqrt(variance)
    ks = sorted({0, 1, int(sigma), int(4 * sigma), int(8 * sigma)})
    weights = SkellamLaw(variance).weights(ks, 192)
    with mpmath.workprec(400):
        at_zero = mpmath.besseli(0, mpmath.mpf(variance))
        for k, weight in zip(ks, weights, strict=True):
            exact = mpmath.besseli(k, mpmath.mpf(variance)) / at_zero
            assert bits_right(weight, weights[0], exact) > 120


@pytest.mark.parametrize("sigma", [0.7, 30.0, 123456.7])
def test_discrete_gaussian_and_laplace_weights_are_exponentials(sigma: float) -> None:
    ks = sorted({0, 1, int(sigma), int(8 * sigma), int(16 * sigma)})
    gaussian = DiscreteGaussianLaw(sigma).weights(ks, 192)
    laplace = DiscreteLaplaceLaw(sigma).weights(ks, 192)
    with mpmath.workprec(400):
        for k, one, two in zip(ks, gaussian, laplace, strict=True):
            x = k / mpmath.mpf(sigma)
            if x < 9:
                assert bits_right(one, gaussian[0], mpmath.exp(-x * x / 2)) > 110
            assert bits_right(two, laplace[0], mpmath.exp(-x)) > 120


@pytest.mark.parametrize("law", [DiscreteGaussianLaw(3.0), DiscreteLaplaceLaw(3.0)])
def test_nominal_variances_are_right(law: NoiseLaw) -> None:
    ks = np.arange(-200, 201)
    masses = np.exp(law.log_weights(ks))
    assert np.sum(masses * ks**2) / masses.sum() == pytest.approx(law.variance, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("law", [SkellamLaw(16.0), BinnedGaussianLaw(4.0), DiscreteLaplaceLaw(3.0)])
def test_exact_rejection_draws_the_law_of_the_table(law: NoiseLaw) -> None:
    draws = 600
    drawn = ExactSampler(law).sample(draws, stream(3))
    ks = list(range(13))
    weights = np.array([float(w) for w in law.weights(ks, 64)])
    masses = weights / (2 * weights.sum() - weights[0])
    found = np.array([np.mean(drawn == k) for k in ks])
    assert np.abs(found - masses).max() < 5 * math.sqrt(masses.max() / draws)
    assert abs(drawn.mean()) < 5 * math.sqrt(law.variance / draws)


def test_recurrence_and_expansion_agree_where_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    law, ks = SkellamLaw(2.0**22), [0, 1, 2048, 9000, 16384, 20000]
    recurrence = law.weights(ks, 192)
    monkeypatch.setattr(pmf, "_SERIES_VARIANCE", 1)
    expansion = law.weights(ks, 192)
    with mpmath.workprec(400):
        for one, two in zip(recurrence, expansion, strict=True):
            assert bits_right(one, recurrence[0], mpmath.mpf(two) / expansion[0]) > 120


@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.7, 100.3, 7777.7, 1e6])
def test_binned_weights_are_differences_of_the_normal_distribution(sigma: float) -> None:
    ks = sorted({0, 1, int(sigma), int(4 * sigma), int(8 * sigma)})
    weights = BinnedGaussianLaw(sigma).weights(ks, 192)
    with mpmath.workprec(500):
        scale = mpmath.mpf(sigma) * mpmath.sqrt(2)

        def exact(k: int) -> mpmath.mpf:
            return mpmath.erfc((k - mpmath.mpf(1) / 2) / scale) - mpmath.erfc(
                (k + mpmath.mpf(1) / 2) / scale
            )

        for k, weight in zip(ks, weights, strict=True):
            assert bits_right(weight, weights[0], exact(k) / exact(0)) > 120


@pytest.mark.parametrize("law", [SkellamLaw(300.0**2), SkellamLaw(1e10), BinnedGaussianLaw(400.0)])
def test_float_logarithms_follow_the_exact_weights(law: NoiseLaw) -> None:
    sigma = math.sqrt(law.variance)
    ks = [0, int(sigma), int(3 * sigma), int(8 * sigma)]
    logs = law.log_weights(np.array(ks))
    with mpmath.workprec(300):
        weights = law.weights(ks, 192)
        for k, log in zip(range(1, 4), logs[1:], strict=True):
            exact = mpmath.log(mpmath.mpf(weights[k]) / weights[0])
            assert float(log - logs[0]) == pytest.approx(float(exact), rel=2e-14, abs=2e-14)


def table_masses(sampler: TableSampler) -> dict[int, Fraction]:
    """Return what the alias table gives to each value or marked block, as built."""
    size = len(sampler._thresholds)
    rest = samplers.WEIGHT_BITS - 32
    masses: dict[int, Fraction] = {}
    for i in range(size):
        threshold = (int(sampler._thresholds[i]) << rest) + sampler._low_thresholds[i]
        first, second = int(sampler._values[2 * i]), int(sampler._values[2 * i + 1])
        kept = Fraction(threshold, size << samplers.WEIGHT_BITS)
        masses[first] = masses.get(first, Fraction(0)) + kept
        masses[second] = masses.get(second, Fraction(0)) + Fraction(1, size) - kept
    return masses


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_table_as_built_has_the_law(law: NoiseLaw) -> None:
    sampler = TableSampler(law)
    masses = table_masses(sampler)
    width = 1 << sampler.shift
    starts = [v for v in masses if abs(v) < 2**60]
    probes = [starts[0], starts[-1], 0, starts[len(starts) // 3]]
    values = [s + o for s in probes for o in sorted({0, width // 3, width - 1})]
    weights = law.weights([abs(v) for v in values], 192)
    ratios = []
    for value, weight in zip(values, weights, strict=True):
        start = (value >> sampler.shift) << sampler.shift
        mass = masses[start] / width
        if sampler.shift:
            inner, outer = sorted((abs(start), abs(start + width)))
            top, bottom = law.weights([inner, outer], 192)
            edge = masses[start + 2**61] / width
            mass += edge * Fraction(weight - bottom, max(1, top - bottom))
        if weight > 2**140:
            ratios.append(mass / weight)
    assert max(ratios) / min(ratios) - 1 < Fraction(TAU)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_table_leaves_little_to_the_tails(law: NoiseLaw) -> None:
    masses = table_masses(TableSampler(law))
    # Laplace noise has its exp(-8 sqrt 2) there: a slow draw in a hundred thousand.
    little = Fraction(1, 2**16 if isinstance(law, DiscreteLaplaceLaw) else 2**48)
    assert masses[2**62] + masses[-(2**62)] < little


def test_an_alias_table_gives_back_its_weights() -> None:
    weights = [5, 0, 1, 100, 22, 1, 3, 0]
    thresholds, aliases = alias_table(weights)
    found = [Fraction(t, 8 << 192) for t in thresholds]
    for i, alias in enumerate(aliases):
        found[alias] += Fraction((1 << 192) - thresholds[i], 8 << 192)
    for weight, mass in zip(weights, found, strict=True):
        assert abs(mass - Fraction(weight, sum(weights))) < Fraction(1, 1 << 180)


@pytest.mark.slow
@pytest.mark.parametrize("law", [SkellamLaw(1e6), BinnedGaussianLaw(900.0)], ids=str)
def test_exact_decisions_agree_with_float_ones(law: NoiseLaw) -> None:
    common, exact = TableSampler(law), TableSampler(law)
    edges = np.random.default_rng(1).integers(-4000, 4000, 100)
    decided = common._accepts(edges, stream())
    exact._undecided = 2.0
    words = stream().words(edges.size)
    inner, outer = exact._block_ends(edges)
    again = [
        exact._accepts_exactly([abs(int(v)) for v in ends], int(word), stream(1))
        for *ends, word in zip(edges, inner, outer, words, strict=True)
    ]
    assert list(decided) == again
    assert 0.3 < np.mean(decided) < 0.7


def test_ties_are_decided_by_further_bits() -> None:
    sampler = TableSampler(SkellamLaw(4.0))

    class Tied(Keystream):
        """A keystream whose words tie with the threshold of entry 0."""

        def __init__(self, further: bytes) -> None:
            self._further = further

        def words(self, count: int, dtype: Any = np.uint64, buffer: Any = None) -> np.ndarray:
            return np.full(count, int(sampler._thresholds[0]) << 32, dtype)

        def take(self, count: int) -> bytes:
            return self._further[:1] * count

    first, second = sampler._values[:2]
    assert first != second
    assert sampler.sample(3, Tied(b"\x00")).tolist() == [first] * 3
    assert sampler.sample(3, Tied(b"\xff")).tolist() == [second] * 3


@pytest.mark.parametrize("law", [SkellamLaw(4.0), BinnedGaussianLaw(400.0)], ids=str)
def test_the_tail_sampler_has_the_tail_of_the_law(law: NoiseLaw) -> None:
    end = math.ceil(2 * math.sqrt(law.variance))
    shift = 0 if law.variance < 2**16 else 4
    tail, rng = samplers._Tail(law, end, shift), stream()
    draws = [tail.draw(rng) for _ in range(400)]
    kept = np.array([d for d in draws if d is not None])
    assert kept.min() >= end
    ks = range(end, end + math.ceil(8 * math.sqrt(law.variance)))
    weights = np.array([float(w) for w in law.weights(ks, 192)])
    mean = float(np.average(ks, weights=weights))
    spread = math.sqrt(float(np.average((np.array(ks) - mean) ** 2, weights=weights)) / kept.size)
    assert abs(kept.mean() - mean) < 5 * spread
    # And its envelope is what the table gives it room for.
    assert tail.weight / 2**192 == pytest.approx(
        float(weights.sum()) / 2**192 * len(draws) / kept.size, rel=0.25
    )


def test_a_tail_entry_is_resolved_in_place() -> None:
    sampler = TableSampler(SkellamLaw(4.0))
    values = np.array([3, 2**62, -(2**62), -4], dtype=np.int64)
    sampler._settle(values, stream())
    assert values[0] == 3
    assert values[3] == -4
    assert (np.abs(values) < 2**40).all()


@pytest.mark.parametrize("shift", [0, 5])
def test_marked_values_with_offsets_are_still_marked(shift: int) -> None:
    sampler = TableSampler(SkellamLaw(1e8 if shift else 4.0))
    width = (1 << sampler.shift) - 1
    values = np.array([2**62 + width, -(2**62) + width], dtype=np.int64)
    sampler._settle(values, stream())
    assert (np.abs(values) < 2**40).all()


@pytest.mark.parametrize(
    ("variance", "digest"),
    [(2.0, "cc44522d182d0185"), (7690.0**2, "6112cc00f128f27f"), (1e17, "dd5f9d9920b178c8")],
)
def test_a_keystream_gives_the_same_integers_everywhere(variance: float, digest: str) -> None:
    drawn = skellam_sampler(variance).sample(50_000, stream())
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest()[:16] == digest


def test_other_streams_give_other_noise() -> None:
    one, two = (skellam_sampler(1e8).sample(1000, stream(i)) for i in range(2))
    assert np.mean(one == two) < 0.01


def test_samplers_are_cached() -> None:
    assert skellam_sampler(123.5) is skellam_sampler(123.5)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_moments_are_those_of_the_law(law: NoiseLaw) -> None:
    drawn = TableSampler(law).sample(200_000, stream())
    reach = math.ceil(8 * math.sqrt(law.variance)) + 5
    weights = np.array([float(w) for w in law.weights(range(reach), 192)])
    second = 2 * float(np.sum(weights * np.arange(reach) ** 2.0))
    variance = second / (2 * float(weights.sum()) - float(weights[0]))
    assert drawn.var() == pytest.approx(variance, rel=0.02)
    assert abs(drawn.mean()) < 5 * math.sqrt(variance / drawn.size)
