"""Shares of geometric noise, drawn by their jumps: exact, and as cheap as the jumps are few.

P(r), the r-th power of the discrete Laplace, is compound Poisson: in each coordinate a
Poisson(Lambda) number of jumps, Lambda = -2 r ln(1-a) with a = exp(-1/s), each +L or -L with
equal chance, P(L = k) proportional to a^k / k. (The logarithm of its characteristic function is
r sum_k a^k/k (2 cos kt - 2).) So no table of P(r) is needed, which is not log-concave for r below
1, and of which every number of survivors has another.

Comparisons are lazy, as in :mod:`~zerosum.client.privacy.samplers`: 32 bits or a float64 decide
nearly always, exact integers otherwise. Numbers so small that a table's relative precision would
end are drawn with further bits and looked up in a finer table, so that nothing is cut off and every
probability is right to a relative 2^-100.
"""

import math
from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.pmf import GUARD_BITS, exp_negative
from zerosum.client.privacy.samplers import CHUNK, TAU
from zerosum.secagg.randomness import Keystream

TABLE_BITS = 256
"""Bits behind the point of tables; a finer one has as many more at a time."""

_RATE_BITS = 512
"""Of rates: -ln(1-a) is 2^-185 at the least scale."""

_BATCH = 1 << 15
"""Jumps drawn at a time: part of what a keystream means, so never tuned at run time."""

_PLACE_BITS = CHUNK.bit_length() - 1
_OFFSET_BITS = 64 - _PLACE_BITS - 1
"""Bits of a word that are left for an offset, behind a place and a sign: those of 2^49 cover the
levels that 32 bits can choose, at any scale below 2^40."""


class JumpSampler:
    """Draws from P(r, s), r above 0; immutable after construction.

    Parameters
    ----------
    scale : float
        s, in integer units: at least 1/128, below 2^40.
    ratio : Fraction
        r. Time and room grow with it.

    Attributes
    ----------
    name : str
        What a report calls it.
    tau : float
        Bound on the log-ratio of an integer's probability to the law's, and so on their distance.
    """

    name = "jumps of a compound Poisson law"
    tau = TAU

    def __init__(self, scale: float, ratio: Fraction) -> None:
        self.scale, self.ratio = scale, ratio
        self._undecided = 2.0**-30
        self._rate = 2 * jump_rate(scale) * ratio.numerator // ratio.denominator
        self._proposals = _proposals_a_jump(scale)
        # In ascending order, which numpy searches; the last entry is no level's.
        tops = [t >> (TABLE_BITS - 32) for t in reversed(_level_table(scale, TABLE_BITS)[1:])]
        self._tops = np.array([*tops, 2**32 - 1], dtype=np.uint32)

    def sample(self, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw independent integers.

        Parameters
        ----------
        count : int
            How many.
        rng : Keystream

        Returns
        -------
        ndarray of int64, shape (count,)
            In integer units.
        """
        result = np.zeros(count, dtype=np.int64)
        self.add_to(result, rng)
        return result

    def add_to(self, values: NDArray[np.int64], rng: Keystream) -> None:
        """Add independent integers to a vector, in place.

        Parameters
        ----------
        values : ndarray of int64, shape (count,)
            Changed where there are jumps.
        rng : Keystream
        """
        for start in range(0, values.size, CHUNK):
            part = values[start : start + CHUNK]
            # Jumps fall on a power of two of places, so that each is exactly as likely, and those
            # behind the end are left out.
            places = 1 << (part.size - 1).bit_length()
            jumps = poisson(self._rate * places, rng)
            while jumps:
                words, sizes = self._jumps(min(jumps, _BATCH), rng)
                jumps -= sizes.size
                at = (words & np.uint64(places - 1)).view(np.int64)
                if places > part.size:
                    within = at < part.size
                    at, words, sizes = at[within], words[within], sizes[within]
                negative = (words >> np.uint64(_PLACE_BITS) & np.uint64(1)).view(np.int64)
                np.add.at(part, at, (sizes ^ -negative) + negative)

    def _jumps(self, wanted: int, rng: Keystream) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the sizes of so many jumps or fewer, with words for their places and signs.

        A level j is drawn with weight a^(2^j), a size k uniformly in [2^j, 2^(j+1)); it is kept
        with probability (2^j/k) exp(-(k - 2^j)/s), which makes it a^k/k.
        """
        # Four deviations more than are expected to be needed.
        proposals = (wanted + 4 * math.isqrt(wanted) + 4) * self._proposals >> 8
        words = rng.words(proposals)
        halves = rng.words(2 * proposals, np.uint32)
        coins, tops = halves[:proposals], halves[proposals:]
        entry = np.searchsorted(self._tops, tops)
        levels = self._tops.size - 1 - entry
        for tie in np.flatnonzero(self._tops[entry] == tops):
            levels[tie] = self._level(int(tops[tie]), rng)
        base = np.left_shift(1, levels)
        offset = ((words >> np.uint64(64 - _OFFSET_BITS)).view(np.int64)) & (base - 1)
        for far in np.flatnonzero(levels > _OFFSET_BITS):
            offset[far] = _integer(rng, 64) & (int(base[far]) - 1)
        sizes = base + offset
        chance = base / sizes * np.exp(offset * (-1 / self.scale))
        coin = coins * 2.0**-32
        kept = coin < chance
        for near in np.flatnonzero(np.abs(coin - chance) < self._undecided):
            kept[near] = self._keeps(int(base[near]), int(offset[near]), int(coins[near]), rng)
        first = np.flatnonzero(kept)[:wanted]
        return words[first], sizes[first]

    def _level(self, top: int, rng: Keystream) -> int:
        """Return the level of a number of which the first 32 bits do not decide."""
        word = top << (TABLE_BITS - 32) | _integer(rng, TABLE_BITS - 32)
        word, bits = _refined(word, rng)
        thresholds = _level_table(self.scale, bits)
        return sum(word < threshold for threshold in thresholds[1:])

    def _keeps(self, base: int, offset: int, coin: int, rng: Keystream) -> bool:
        """Decide with exact integers whether a proposed size is kept."""
        # Enough bits for the smallness of the chance, in steps that keep tables few.
        bits = TABLE_BITS + 256 * math.ceil(2 * offset / self.scale / 256)
        coin = coin << (bits - 32) | _integer(rng, bits - 32)
        return coin * (base + offset) < base * _exp_negative(offset, self.scale, bits)


def poisson(mean: int, rng: Keystream) -> int:
    """Draw a Poisson number, exactly, by inversion.

    Parameters
    ----------
    mean : int
        In units of 2^-512, above 0. A table has some 38 roots of it entries.
    rng : Keystream

    Returns
    -------
    int
        0 or more.
    """
    word, bits = _refined(_integer(rng, TABLE_BITS), rng)
    most, cumulated = _poisson_table(mean, bits)
    return most - bisect_right(cumulated, word * cumulated[-1] >> bits)


@lru_cache(maxsize=64)
def jump_rate(scale: float) -> int:
    """Return -ln(1-a) with a = exp(-1/s), in units of 2^-512.

    One step of Newton's from a float64, the logarithm by its series.

    Parameters
    ----------
    scale : float
        s.

    Returns
    -------
    int
        Right to 2^-510; the rate is 2^-185 at the least scale.
    """
    work = _RATE_BITS + GUARD_BITS
    one = 1 << work
    log = math.log(-math.expm1(-1 / scale)) if scale > 2 else math.log1p(-math.exp(-1 / scale))
    guess = int(-log * 2**60) << (work - 60)
    result = guess
    distance = ((one - _exp_negative(1, scale, work)) << work) // exp_negative(guess, work) - one
    power, n = distance, 1
    while power:
        result -= power // n if n % 2 else -(power // n)
        power, n = power * distance >> work, n + 1
    return result >> GUARD_BITS


@lru_cache(maxsize=64)
def _proposals_a_jump(scale: float) -> int:
    """Return how many sizes are proposed for each that is kept, in units of 2^-8, rounded up.

    Integers, because the words that are read must not depend on a machine's last bit.
    """
    proposed = _exp_negative(1, scale, _RATE_BITS) * _level_table(scale, TABLE_BITS)[0]
    return -(-(proposed << 8) // (jump_rate(scale) << TABLE_BITS))


@lru_cache(maxsize=32)
def _poisson_table(mean: int, bits: int) -> tuple[int, list[int]]:
    """Return the largest number tabled, and the cumulated weights of it and those below it.

    Weights are 2^bits at the mode; tabled are all of 1 and more.
    """
    mode = mean >> _RATE_BITS
    above, k, weight = [], mode, 1 << bits
    while weight:
        k += 1
        weight = (weight * mean >> _RATE_BITS) // k
        above.append(weight)
    below, least, weight = [], mode, 1 << bits
    while weight and least:
        weight = (weight * least << _RATE_BITS) // mean
        least -= 1
        below.append(weight)
    return k, list(accumulate([*reversed(above), 1 << bits, *below]))


@lru_cache(maxsize=64)
def _level_table(scale: float, bits: int) -> tuple[int, ...]:
    """Return the weights of all levels, and 2^bits P(level >= j) for each j from 1.

    The weight of level j is a^(2^j - 1), times 2^bits; tabled are all of 1 and more.
    """
    weights, weight, j = [], 1 << bits, 0
    while weight:
        weights.append(weight)
        j += 1
        weight = _exp_negative((1 << j) - 1, scale, bits)
    total = sum(weights)
    beyond = list(accumulate(reversed(weights)))[-2::-1]
    return (total, *((part << bits) // total for part in beyond))


def _refined(word: int, rng: Keystream) -> tuple[int, int]:
    """Return a uniform number with bits enough for a table's relative precision, and their number.

    A table of so many bits is right to their 2^(-5/8) where the number is no smaller than their
    2^(-3/8); one of 2^96 is.
    """
    bits = TABLE_BITS
    while not word >> (bits * 5 // 8):
        word = word << TABLE_BITS | _integer(rng, TABLE_BITS)
        bits += TABLE_BITS
    return word, bits


def _exp_negative(k: int, scale: float, bits: int) -> int:
    """Return exp(-k/s) in units of 2^-bits, for integers k of 0 and more."""
    work = bits + GUARD_BITS
    numerator, denominator = scale.as_integer_ratio()
    return exp_negative((k * denominator << work) // numerator, work) >> GUARD_BITS


def _integer(rng: Keystream, bits: int) -> int:
    return int.from_bytes(rng.take(bits // 8), "little")


@lru_cache(maxsize=256)
def jump_sampler(scale: float, ratio: Fraction) -> JumpSampler:
    """Return the sampler of P(r, s), cached.

    Parameters
    ----------
    scale : float
        s.
    ratio : Fraction
        r.

    Returns
    -------
    JumpSampler
        The same object for the same law.
    """
    return JumpSampler(scale, ratio)
