"""The tables against mpmath, the draws against Fourier inversion, the rare paths on purpose."""

import hashlib
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from geometric_law import chi_square_p, power_of_laplace

from zerosum.client.privacy import jumps
from zerosum.client.privacy.jumps import JumpSampler, jump_rate, jump_sampler, poisson
from zerosum.client.privacy.samplers import TAU
from zerosum.secagg.randomness import Keystream, insecure_keystream

SCALES = [1 / 128, 0.3, 1.0, 2.5, 50.0, 2.0**40 - 1]
LARGEST = math.nextafter(2.0**40, 0)


def stream(*indices: int):
    return insecure_keystream(5, "noise", *indices)


class Bits(Keystream):
    """A keystream that begins with so many zeros, and goes on with one byte for ever."""

    def __init__(self, zeros: int, byte: int) -> None:
        self._zeros, self._byte = zeros, byte

    def take(self, count: int) -> bytes:
        zeros = min(count, self._zeros)
        self._zeros -= zeros
        # Words are little-endian: their leading bytes come last.
        return (bytes([self._byte]) * (count - zeros)) + bytes(zeros)


@pytest.mark.parametrize("scale", SCALES)
def test_the_rate_of_jumps_is_exact(scale: float) -> None:
    with mpmath.workprec(900):
        exact = -mpmath.log1p(-mpmath.exp(-1 / mpmath.mpf(scale)))
        assert abs(mpmath.mpf(jump_rate(scale)) / mpmath.mpf(2) ** 512 - exact) < (
            mpmath.mpf(2) ** -500
        )


@pytest.mark.parametrize("mean", [Fraction(1, 10**9), Fraction(1, 3), Fraction(63), Fraction(4000)])
@pytest.mark.parametrize("bits", [256, 512])
def test_a_poisson_table_has_the_law_where_it_is_looked_up(mean: Fraction, bits: int) -> None:
    """From 2^(-3/8) of its bits on, beyond which more bits are drawn."""
    most, cumulated = jumps._poisson_table(mean.numerator * 2**512 // mean.denominator, bits)
    with mpmath.workprec(700):
        exact_mean = mpmath.mpf(mean.numerator) / mean.denominator
        checked = 0
        for k in {0, 1, int(mean), int(mean) + 20, int(mean + 8 * math.sqrt(mean)), most}:
            beyond = mpmath.gammainc(k, 0, exact_mean, regularized=True) if k else mpmath.mpf(1)
            if 1 > beyond > mpmath.mpf(2) ** (-bits * 3 // 8):
                found = mpmath.mpf(cumulated[most - k]) / cumulated[-1]
                assert abs(found / beyond - 1) < mpmath.mpf(2) ** -120
                checked += 1
        assert checked


@pytest.mark.parametrize("zeros", [0, 12, 13, 40, 70])
def test_a_poisson_number_far_out_is_found_by_further_bits(zeros: int) -> None:
    mean = Fraction(63, 10)
    found = poisson(mean.numerator * 2**512 // mean.denominator, Bits(zeros, 0x5A))
    with mpmath.workprec(1200):
        # The number that was read: zeros, then 0x5a for ever.
        word = mpmath.mpf(0x5A) / 255 * mpmath.mpf(256) ** -zeros

        def beyond(k: int) -> mpmath.mpf:
            return mpmath.gammainc(k, 0, mpmath.mpf(6.3), regularized=True) if k else 1

        assert beyond(found + 1) < word < beyond(found)
    assert (found > 60) == (zeros >= 40)


@pytest.mark.parametrize("scale", [0.3, 2.5, 50.0])
def test_levels_and_kept_sizes_have_the_law_of_jumps(scale: float) -> None:
    total, *beyond = jumps._level_table(scale, 256)
    bounds = [2**256, *beyond, 0]
    with mpmath.workprec(400):
        a = mpmath.exp(-1 / mpmath.mpf(scale))
        ratios = []
        for k in (1, 2, 3, 5, 8, 13, 21, 34):
            level = k.bit_length() - 1
            proposed = mpmath.mpf(bounds[level] - bounds[level + 1]) / 2**256 / 2**level
            kept = (1 << level) * jumps._exp_negative(k - (1 << level), scale, 256)
            probability = proposed * kept / 2**256 / k
            if probability > mpmath.mpf(2) ** -96:
                ratios.append(probability * k / a**k)
        assert len(ratios) >= 4
        assert max(ratios) / min(ratios) - 1 < TAU
        # And so many proposals are needed for each that is kept.
        needed = a * total / 2**256 / -mpmath.log1p(-a)
        assert 0 <= jumps._proposals_a_jump(scale) - 256 * needed < 1


def test_exact_decisions_agree_with_float_ones() -> None:
    sampler = JumpSampler(20.0, Fraction(1))
    common, _ = sampler._jumps(400, stream())
    sampler._undecided = 2.0
    exact, sizes = sampler._jumps(400, stream())
    assert (common[:300] == exact[:300]).all()
    assert sizes.min() >= 1


def test_ties_of_levels_are_decided_by_further_bits() -> None:
    sampler = JumpSampler(20.0, Fraction(1))
    last = sampler._tops.size - 2
    for entry in (last, last - 3):
        top = int(sampler._tops[entry])
        level = sampler._tops.size - 1 - entry
        # The smaller the number, the further the level.
        assert sampler._level(top, Bits(0, 0x00)) >= level
        assert sampler._level(top, Bits(0, 0xFF)) == level - 1
    assert sampler._level(0, Bits(28, 0xFF)) > sampler._level(0, Bits(0, 0xFF))
    # 2^-352: finer tables than the first have levels that it lacks.
    assert sampler._level(0, Bits(40, 0xFF)) == next(
        j for j in range(20, 0, -1) if mpmath.exp(-(2**j - 1) / 20) / 7 > mpmath.mpf(2) ** -352
    )


def test_offsets_beyond_a_words_bits_are_drawn_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = JumpSampler(2.0**20, Fraction(1))
    monkeypatch.setattr(jumps, "_OFFSET_BITS", 10)
    monkeypatch.setattr(sampler, "_level", lambda top, rng: 40)
    sampler._tops[:] = 2**32 - 1
    words = stream()
    monkeypatch.setattr(words, "words", lambda n, kind=np.uint64: np.full(n, 2**32 - 1, kind))
    monkeypatch.setattr(sampler, "_keeps", lambda *args: True)
    sampler._undecided = 2.0
    _, sizes = sampler._jumps(50, words)
    assert (sizes >> 40 == 1).all()
    assert len(set(sizes.tolist())) == 50


@pytest.mark.parametrize(
    ("scale", "ratio", "digest"),
    [
        (1.0, Fraction(1, 240), "95dc7deee7a48db8"),
        (50.0, Fraction(1, 5), "7587a2905bf7c0c0"),
        (LARGEST, Fraction(1, 240), "b7d16028506a37a8"),
    ],
)
def test_a_keystream_gives_the_same_integers_everywhere(scale, ratio, digest) -> None:
    drawn = jump_sampler(scale, ratio).sample(50_000, stream())
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest()[:16] == digest


def test_other_streams_give_other_noise() -> None:
    one, two = (jump_sampler(1e6, Fraction(1, 2)).sample(1000, stream(i)) for i in range(2))
    assert np.mean(one == two) < 0.01


@pytest.mark.parametrize(("scale", "wrong"), [(10.0, 20 / 3), (10.0, 15.0)])
def test_draws_have_the_characteristic_function_and_no_other(scale: float, wrong: float) -> None:
    drawn = jump_sampler(scale, Fraction(1, 5)).sample(400_000, stream())
    assert chi_square_p(drawn, power_of_laplace(scale, 0.2)) > 1e-6
    assert chi_square_p(drawn, power_of_laplace(wrong, 0.2)) < 1e-6
    assert chi_square_p(drawn, power_of_laplace(scale, 0.3)) < 1e-6


@pytest.mark.parametrize("count", [1, 3, 1000, (1 << 14) + 5])
def test_every_coordinate_of_any_length_is_noised_alike(count: int) -> None:
    draws = min(1500, 60_000 // count + 4)
    sampler, masses = jump_sampler(1.0, Fraction(2)), power_of_laplace(1.0, 2.0)
    drawn = np.array([sampler.sample(count, stream(i)) for i in range(draws)])
    error = 5 * math.sqrt(3.6 / drawn.size)  # the law's kurtosis is 4.6
    assert drawn.var() == pytest.approx(1 / math.sinh(0.5) ** 2, rel=error)
    for end in (drawn[:, 0], drawn[:, -1]):
        assert np.mean(end == 0) == pytest.approx(masses[0], abs=2.5 / math.sqrt(draws))


def test_nothing_is_drawn_for_no_coordinate() -> None:
    assert jump_sampler(1.0, Fraction(1, 2)).sample(0, stream()).shape == (0,)


@pytest.mark.parametrize("ratio", [Fraction(1, 10**6), Fraction(1, 240), Fraction(999, 1000)])
@pytest.mark.parametrize("scale", [1 / 128, 1.0, LARGEST])
def test_the_extremes_are_drawn(scale: float, ratio: Fraction) -> None:
    drawn = jump_sampler(scale, ratio).sample(1 << 14, stream())
    assert drawn.dtype == np.int64
    assert drawn.any() == (scale > 1 / 128 and ratio > Fraction(1, 10**5))
    if ratio > Fraction(1, 2) and scale > 1 / 128:
        std = math.sqrt(ratio / 2) / math.sinh(0.5 / scale)
        assert drawn.std() == pytest.approx(std, rel=0.05)


def test_samplers_are_cached() -> None:
    assert jump_sampler(3.5, Fraction(1, 7)) is jump_sampler(3.5, Fraction(1, 7))
