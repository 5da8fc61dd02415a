"""Integer noise at the speed of numpy, exact to 2^-100: an alias table over blocks.

The line is cut into at most 2,046 blocks of a power-of-two width that cover eight standard
deviations. An alias table picks, with thresholds of 192 bits, one of

- a block's *core*: the part of its mass that is uniform over the block;
- a block's *edge*: what lies above the core, found by rejection (about 1 % of the draws);
- the tail on either side, found by rejection from a geometric envelope.

Where the standard deviation is at most 255 a block is one integer and there are no edges. The
table is as cheap for a standard deviation of 10^8 as for 10^3, which matters because every cohort
size has a variance of its own. Comparisons are lazy: 32 bits decide all but one in 2^32, and only
then are the other 160 drawn; a float64 decides an edge unless it falls within 2^-30 of it, and
then exact integers do. So a keystream gives the same integers on every machine.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.pmf import (
    BinnedGaussianLaw,
    DiscreteGaussianLaw,
    DiscreteLaplaceLaw,
    NoiseLaw,
    SkellamLaw,
)
from zerosum.secagg.randomness import Keystream

WEIGHT_BITS = 192
"""Bits of weights and thresholds. At eight standard deviations a weight is 2^-46 of the largest,
and there are 2^12 of them: the least keeps a relative precision far below :data:`TAU`."""

CHUNK = 1 << 14
"""Integers drawn at a time: part of what a keystream means, so never tuned at run time."""

TAU = 2.0**-100
"""Every probability is right to a relative 2^-100, which bounds the total variation too."""

_MAX_ENTRIES = 1 << 12
"""Of a table: its thresholds and pairs of values, 80 kB, stay in a core's cache."""

_HALF_BLOCKS = _MAX_ENTRIES // 4 - 1
"""Blocks on a side: each of the two sides' blocks has two entries, a core and an edge."""

_MAX_UNIT_SIGMA = 255
"""Largest standard deviation at which eight of them fit into the table one by one."""

_EDGE = 1 << 61
_TAIL = 1 << 62
_MARKED = 1 << 60
"""Marks that are added to candidates of edges and tails. No noise comes near 2^60, so that one
comparison tells a marked value from a draw."""


class TableSampler:
    """Draws from one noise law; immutable after construction.

    Parameters
    ----------
    law : NoiseLaw
        What to draw from; its variance must be above 0.

    Attributes
    ----------
    name : str
        What a report calls it.
    tau : float
        Bound on the total-variation distance of one integer from the law.
    """

    name = "alias table over blocks, exact tails"
    tau = TAU

    def __init__(self, law: NoiseLaw) -> None:
        sigma = math.sqrt(law.variance)
        self.law = law
        self._undecided = 2.0**-30
        if sigma <= _MAX_UNIT_SIGMA:
            self.shift = 0
            self.reach = math.ceil(8 * sigma) + 12
            tops = law.weights(range(self.reach + 1), WEIGHT_BITS)
            weights, values = _unit_entries(tops)
            ends = (self.reach + 1, self.reach + 1)
        else:
            self.shift = max(0, math.ceil(math.log2(8 * sigma / _HALF_BLOCKS)))
            half = math.ceil(8 * sigma / 2**self.shift)
            self.reach = half << self.shift
            tops = law.weights([j << self.shift for j in range(half + 1)], WEIGHT_BITS)
            weights, values = _block_entries(tops, self.shift)
            ends = (self.reach, self.reach + 1)
        self._tails = tuple(_Tail(law, end, self.shift) for end in ends)
        weights += [tail.weight for tail in self._tails]
        values += [_TAIL, -_TAIL]
        self._install(weights, values)

    def sample(self, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw independent integers from the keystream's next words.

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
        result = np.empty(count, dtype=np.int64)
        for start in range(0, count, CHUNK):
            part = result[start : start + CHUNK]
            part[:] = self._candidates(part.size, rng)
        self._settle(result, rng)
        return result

    def _install(self, weights: list[int], values: list[int]) -> None:
        self._index_bits = (len(weights) - 1).bit_length()
        size = 1 << self._index_bits
        filler = size - len(weights)
        thresholds, aliases = alias_table(weights + [0] * filler)
        values = values + [0] * filler
        rest = WEIGHT_BITS - 32
        self._thresholds = np.array([t >> rest for t in thresholds], dtype=np.uint32)
        self._low_thresholds = [t & ((1 << rest) - 1) for t in thresholds]
        pairs = [[values[i], values[alias]] for i, alias in enumerate(aliases)]
        self._values = np.array(pairs, dtype=np.int64).ravel()

    def _candidates(self, count: int, rng: Keystream) -> NDArray[np.int64]:
        words = rng.words(count)
        top = words.view("<u4")[1::2]
        entry = (words & np.uint64((1 << self._index_bits) - 1)).view(np.int64)
        threshold = self._thresholds.take(entry)
        second = top >= threshold
        ties = np.flatnonzero(top == threshold)
        for tie in ties:
            second[tie] = _integer(rng, WEIGHT_BITS - 32) >= self._low_thresholds[entry[tie]]
        entry += entry
        entry += second
        values = self._values.take(entry)
        if self.shift:
            values += self._offsets(words, rng)
        return values

    def _offsets(self, words: NDArray[np.uint64], rng: Keystream) -> NDArray[np.int64]:
        mask = np.uint64((1 << self.shift) - 1)
        if self._index_bits + self.shift > 32:
            return (rng.words(words.size) & mask).view(np.int64)
        offsets: NDArray[np.int64] = ((words >> np.uint64(self._index_bits)) & mask).view(np.int64)
        return offsets

    def _settle(self, values: NDArray[np.int64], rng: Keystream) -> None:
        """Decide, in place, the edges and tails among candidates; redraw what they reject."""
        # Marked values lie beyond +-2^60; one unsigned comparison finds both signs.
        shifted = (values + _MARKED).view(np.uint64)
        marked = np.flatnonzero(shifted > np.uint64(2 * _MARKED))
        if not marked.size:
            return
        drawn = values[marked]
        accepted = np.zeros(marked.size, dtype=np.bool_)
        in_tail = np.abs(drawn) > _EDGE + _MARKED
        for i in np.flatnonzero(in_tail):
            sign = 1 if drawn[i] > 0 else -1
            magnitude = self._tails[0 if sign > 0 else 1].draw(rng)
            if magnitude is not None:
                accepted[i], values[marked[i]] = True, sign * magnitude
        edges = np.flatnonzero(~in_tail)
        candidates = drawn[edges] - _EDGE
        values[marked[edges]] = candidates
        accepted[edges] = self._accepts(candidates, rng)
        rejected = marked[~accepted]
        values[rejected] = self.sample(rejected.size, rng)

    def _accepts(self, values: NDArray[np.int64], rng: Keystream) -> NDArray[np.bool_]:
        """Return, for values in edges, a coin of (p(x) - p_min) / (p_max - p_min) each."""
        inner, outer = self._block_ends(values)
        log_top = self.law.log_weights(inner)
        drop = np.expm1(self.law.log_weights(outer) - log_top)
        chance = 1 - np.expm1(self.law.log_weights(values) - log_top) / drop
        words = rng.words(values.size)
        coins = words * 2.0**-64
        accepted: NDArray[np.bool_] = coins < chance
        for i in np.flatnonzero(np.abs(coins - chance) < self._undecided):
            ends = [abs(int(v[i])) for v in (values, inner, outer)]
            accepted[i] = self._accepts_exactly(ends, int(words[i]), rng)
        return accepted

    def _block_ends(self, values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        start = (values >> self.shift) << self.shift
        end = start + (1 << self.shift)
        positive = values >= 0
        return np.where(positive, start, end), np.where(positive, end, start)

    def _accepts_exactly(self, magnitudes: Sequence[int], word: int, rng: Keystream) -> bool:
        at, top, bottom = self.law.weights(magnitudes, WEIGHT_BITS)
        coin = (word << 128) | _integer(rng, 128)
        return coin * (top - bottom) < (at - bottom) << 192


class _Tail:
    """The mass at and beyond an end, under a geometric envelope that log-concavity provides.

    Blocks of 2^shift integers; block j has at most p(end) ratio^j at each.
    """

    def __init__(self, law: NoiseLaw, end: int, shift: int) -> None:
        self._law, self._end, self._shift = law, end, shift
        first, next_block = law.weights([end, end + (1 << shift)], 2 * WEIGHT_BITS)
        # Rounded up: never below the true ratio.
        ratio = ((next_block + 2) << WEIGHT_BITS) // max(first, 1) + 1
        self._ratio = min((1 << WEIGHT_BITS) - 1, ratio)
        self.weight = (first << shift) // ((1 << WEIGHT_BITS) - self._ratio)

    def draw(self, rng: Keystream) -> int | None:
        """Return a magnitude from the tail, or None for a rejection (draw everything anew)."""
        blocks = 0
        while _integer(rng, WEIGHT_BITS) < self._ratio:
            blocks += 1
        offset = _integer(rng, 64) & ((1 << self._shift) - 1)
        at = self._end + (blocks << self._shift) + offset
        # Enough bits for the smallness of p(at), in steps that keep tables of the exponential few.
        wanted = 2 * WEIGHT_BITS + math.ceil(2 * at * at / self._law.variance)
        here, first = self._law.weights([at, self._end], -(-wanted // 256) * 256)
        envelope = first * self._ratio**blocks
        coin = _integer(rng, WEIGHT_BITS)
        return at if coin * envelope < here << (WEIGHT_BITS * (blocks + 1)) else None


class ExactSampler:
    """Draws one integer at a time by rejection from a geometric envelope, comparing exactly.

    What the table calls beyond its reach, applied to the whole line: thousands of times slower,
    with no table to be wrong. For checks, comparisons and a handful of integers.

    Parameters
    ----------
    law : NoiseLaw
        What to draw from.
    """

    name = "exact rejection"
    tau = TAU

    def __init__(self, law: NoiseLaw) -> None:
        width = max(0, round(math.log2(max(1.0, math.sqrt(law.variance)))))
        self._side = _Tail(law, 0, width)

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
        return np.array([self._draw(rng) for _ in range(count)], dtype=np.int64)

    def _draw(self, rng: Keystream) -> int:
        while True:
            magnitude = self._side.draw(rng)
            negative = rng.take(1)[0] & 1
            # Zero would otherwise be counted on both sides.
            if magnitude is not None and not (negative and magnitude == 0):
                return -magnitude if negative else magnitude


def alias_table(weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return thresholds (in 2^-192) and aliases for integer weights, by Vose's method.

    Entry i is drawn uniformly, then kept if a uniform number of 192 bits is below its threshold;
    else its alias is taken. All arithmetic is exact but for the last floor. A full entry has
    threshold 0 and itself as alias.
    """
    size, total = len(weights), sum(weights)
    scaled = [w * size for w in weights]
    thresholds, aliases = [0] * size, list(range(size))
    small = [i for i, w in enumerate(scaled) if w < total]
    large = [i for i, w in enumerate(scaled) if w >= total]
    while small and large:
        low, high = small.pop(), large[-1]
        thresholds[low] = (scaled[low] << WEIGHT_BITS) // total
        aliases[low] = high
        scaled[high] -= total - scaled[low]
        if scaled[high] < total:
            small.append(large.pop())
    return thresholds, aliases


def _unit_entries(tops: Sequence[int]) -> tuple[list[int], list[int]]:
    reach = len(tops) - 1
    values = list(range(-reach, reach + 1))
    return [tops[abs(v)] for v in values], values


def _block_entries(tops: Sequence[int], shift: int) -> tuple[list[int], list[int]]:
    """Return weights and first integers of cores and edges; tops[j] is the weight of j blocks."""
    half = len(tops) - 1
    weights, values = [], []
    for block in range(-half, half):
        near, far = (block, block + 1) if block >= 0 else (-block - 1, -block)
        weights += [tops[far] << shift, (tops[near] - tops[far]) << shift]
        values += [block << shift, (block << shift) + _EDGE]
    return weights, values


def _integer(rng: Keystream, bits: int) -> int:
    return int.from_bytes(rng.take(bits // 8), "little")


@lru_cache(maxsize=256)
def skellam_sampler(variance: float) -> TableSampler:
    """Return the sampler of Skellam noise of a total variance in (0, 2^100), cached."""
    return TableSampler(SkellamLaw(variance))


@lru_cache(maxsize=256)
def binned_gaussian_sampler(sigma: float) -> TableSampler:
    """Return the sampler of a Gaussian of standard deviation sigma, rounded; cached.

    Below a sigma of 1/16 a table takes seconds and more: each bin is cut into 16/sigma pieces.
    """
    return TableSampler(BinnedGaussianLaw(sigma))


@lru_cache(maxsize=256)
def discrete_gaussian_sampler(sigma: float) -> TableSampler:
    """Return the sampler of the discrete Gaussian of parameter sigma; cached."""
    return TableSampler(DiscreteGaussianLaw(sigma))


@lru_cache(maxsize=256)
def discrete_laplace_sampler(scale: float) -> TableSampler:
    """Return the sampler of the discrete Laplace of this scale; cached."""
    return TableSampler(DiscreteLaplaceLaw(scale))
