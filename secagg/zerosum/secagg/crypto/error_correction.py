"""Locating wrong shares, and recovering a secret in spite of them.

Right shares lie on one polynomial of degree below t: m of them are a word of a Reed-Solomon code,
and up to (m - t) / 2 wrong ones are located from the word's syndromes by Berlekamp and Massey's
algorithm (Massey, "Shift-register synthesis and BCH decoding", IEEE Transactions on Information
Theory 15, 1969), here without division and for many words side by side. Words of the same holders
have their wrong shares in the same few places, so a random combination of all of them shows all
places at once (Bleichenbacher, Kiayias and Yung, "Decoding interleaved Reed-Solomon codes over
noisy channels", Theoretical Computer Science 379, 2007). With few shares, every choice of t of them
is tried against a check that only the true secret passes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.shamir import (
    LIMB_BITS,
    PRIME,
    combine,
    evaluation_rows,
    from_limbs,
    lagrange_weights,
    leave_out_rows,
    uniform_elements,
    weigh,
)
from zerosum.secagg.randomness import Keystream

Words = NDArray[np.uint64]

_P = np.uint64(PRIME)
# Choices of t shares that are all tried, in one product. Decoding bears errors in half of the
# redundancy only, and few shares have little of it.
_MOST_SUBSETS = 1000


@dataclass(frozen=True, eq=False)
class Located:
    """Places of wrong values in many words.

    Attributes
    ----------
    wrong : ndarray of bool, shape (words, m)
        The places of wrong values, of words that are ``sound``.
    sound : ndarray of bool, shape (words,)
        Whether a word's places are known: no more of them than half its redundancy.
    decodings : int
        How many words went through the algorithm: one where a combination of all tells all.
    """

    wrong: NDArray[np.bool_]
    sound: NDArray[np.bool_]
    decodings: int


def dual_weights(points: Sequence[int]) -> Words:
    """Return what a word is multiplied by before its syndromes are taken, shape (m,).

    They are 1 / prod over j of (x_i - x_j), up to one factor for all, which changes no syndrome
    from or to zero. sum over i of u_i f(x_i) vanishes for every f of degree below m - 1.
    """
    weights: Words = lagrange_weights(tuple(points)) * np.array(points, np.uint64) % _P
    return weights


def syndromes(words: Words, points: Words, count: int) -> Words:
    """Compute the syndromes of words: sum over i of words_i x_i^j for j < ``count``.

    Parameters
    ----------
    words : ndarray of uint64, shape (words, m)
        Multiplied by :func:`dual_weights`.
    points : ndarray of uint64, shape (m,)
    count : int
        How many syndromes.

    Returns
    -------
    ndarray of uint64, shape (words, count)
        Below p; all zero for a word of a polynomial of degree below m - count.
    """
    sums = np.zeros((len(words), max(0, count)), np.uint64)
    powers = words
    for j in range(count):
        sums[:, j] = powers.sum(axis=1) % _P
        powers = powers * points % _P
    return sums


def locate_all(
    words: Words,
    points: Words,
    redundancy: NDArray[np.intp],
    given: NDArray[np.bool_],
    stream: Keystream,
) -> Located:
    """Locate the wrong values of many words on the same points.

    A random combination of the words is wrong wherever one of them is, but for one chance in p
    for each place; it is decoded first. Dealers of wrong shares can put more errors into it than
    it can bear, each in other places: then every word is decoded by itself, all side by side.

    Parameters
    ----------
    words : ndarray of uint64, shape (words, m)
        Multiplied by :func:`dual_weights`; zero where not ``given``.
    points : ndarray of uint64, shape (m,)
    redundancy : ndarray of int, shape (words,)
        How many syndromes of each word vanish where nothing is wrong.
    given : ndarray of bool, shape (words, m)
        Where a word has a value.
    stream : Keystream
        Coefficients of the combination: drawn when all values are in, or a liar could cancel them.

    Returns
    -------
    Located
    """
    redundancy = np.maximum(redundancy, 0)
    # One word that lacks many values would leave the combination few syndromes.
    together = np.flatnonzero(redundancy >= np.median(redundancy) - 1)
    explained, places = _jointly(words[together], points, redundancy[together], stream)
    explained &= ~(places & ~given[together]).any(axis=1)
    wrong, sound = np.zeros(words.shape, bool), np.zeros(len(words), bool)
    done = together[explained]
    wrong[done], sound[done] = places[explained], True
    left = np.flatnonzero(~sound)
    rows = syndromes(words[left], points, int(redundancy[left].max(initial=0)))
    rows[np.arange(rows.shape[1]) >= redundancy[left, None]] = 0
    off = rows.any(axis=1)
    sound[left[~off]] = True
    left, rows = left[off], rows[off]
    locator, length = _locators(rows, redundancy[left])
    zeros = _zeros(locator, points) & given[left]
    decoded = (zeros.sum(axis=1) == length) & (2 * length <= redundancy[left])
    wrong[left[decoded]], sound[left[decoded]] = zeros[decoded], True
    return Located(wrong, sound, 1 + len(left))


def _jointly(
    words: Words, points: Words, redundancy: NDArray[np.intp], stream: Keystream
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Decode one combination; return which words its places explain, and where each is wrong."""
    least = redundancy.min(keepdims=True)
    coefficients = uniform_elements(stream, len(words))[:, None]
    mixed = (coefficients * words % _P).sum(axis=0, keepdims=True) % _P
    locator, length = _locators(syndromes(mixed, points, int(least[0])), least)
    zeros, errors = _zeros(locator, points)[0], int(length[0])
    places = np.zeros(words.shape, bool)
    if int(zeros.sum()) != errors or 2 * errors > least[0]:
        return np.zeros(len(words), bool), places
    # S(z) L(z) has no terms from z^errors on where L has a word's places among its own: the first
    # of them tells, but for one chance in p. Those before, at 1 / x, are the word's error at x but
    # for a factor (Forney, "On decoding BCH codes", IEEE Transactions on Information Theory 11).
    rows = syndromes(words, points, errors + 1)
    product = np.zeros_like(rows)
    for i, coefficient in enumerate(locator[0, : errors + 1]):
        product[:, i:] = (product[:, i:] + coefficient * rows[:, : errors + 1 - i]) % _P
    at = np.flatnonzero(zeros)
    places[:, at] = _reversed_values(product[:, :errors], points[at]) != 0
    return product[:, errors] == 0, places


def _locators(rows: Words, redundancy: NDArray[np.intp]) -> tuple[Words, NDArray[np.intp]]:
    """Return the shortest recurrence of each row of syndromes, lowest first, and its length.

    Coefficients of more than half of all syndromes are cut off: such a row is not decodable.
    """
    count, total = rows.shape
    width = total // 2 + 1
    locator = np.zeros((count, width), np.uint64)
    locator[:, 0] = 1
    before, scale = locator.copy(), np.ones(count, np.uint64)
    length = np.zeros(count, np.intp)
    padded = np.concatenate([np.zeros((count, width - 1), np.uint64), rows], axis=1)
    shifted = np.zeros_like(locator)
    for j in range(total):
        window = padded[:, j : j + width][:, ::-1]
        discrepancy = (locator * window % _P).sum(axis=1) % _P
        discrepancy[j >= redundancy] = 0
        shifted[:, 1:] = before[:, :-1]
        longer = (discrepancy != 0) & (2 * length <= j)
        before = np.where(longer[:, None], locator, shifted)
        # Scaled by what the usual algorithm divides by: a locator's factor does not matter.
        locator = (scale[:, None] * locator + (_P - discrepancy)[:, None] * shifted) % _P
        scale = np.where(longer, discrepancy, scale)
        length = np.where(longer, j + 1 - length, length)
    return locator, length


def _zeros(locator: Words, points: Words) -> NDArray[np.bool_]:
    """Return, by locator and point, whether a point is a place of it: L(1 / x) = 0."""
    zeros: NDArray[np.bool_] = _reversed_values(locator, points) == 0
    return zeros


def _reversed_values(coefficients: Words, points: Words) -> Words:
    """Return x^(w-1) P(1 / x) modulo p, by Horner's rule, shape (polynomials, points)."""
    values = np.zeros((len(coefficients), len(points)), np.uint64)
    for column in range(coefficients.shape[1]):
        values = (values * points + coefficients[:, column : column + 1]) % _P
    return values


def locate_errors(
    points: Sequence[int], values: NDArray[np.unsignedinteger], threshold: int
) -> tuple[int, ...] | None:
    """Locate the values off the one polynomial of degree below t that most are on.

    Parameters
    ----------
    points : sequence of int
        m distinct points.
    values : ndarray of unsigned integers, shape (m,)
        Below p.
    threshold : int
        t.

    Returns
    -------
    tuple of int or None
        Places in ``points``; None if more than floor((m - t) / 2) values would have to be wrong.
    """
    x, redundancy = np.array(points, np.uint64), np.array([len(points) - threshold])
    words = (dual_weights(points) * values.astype(np.uint64) % _P)[None, :]
    locator, length = _locators(syndromes(words, x, int(redundancy[0])), redundancy)
    places = np.flatnonzero(_zeros(locator, x)[0])
    if len(places) != length[0] or 2 * len(places) > redundancy[0]:
        return None
    return tuple(places.tolist())


def recover_around(
    points: Sequence[int],
    shares: NDArray[np.uint32],
    threshold: int,
    check: Callable[[bytes], bool],
    stream: Keystream,
) -> tuple[bytes, tuple[int, ...]] | None:
    """Recover a secret from shares of which some are wrong.

    Parameters
    ----------
    points : sequence of int
        m distinct points.
    shares : ndarray of uint32, shape (m, 9)
    threshold : int
        t, at most m.
    check : callable
        Tells whether a candidate is the secret that was committed to.
    stream : Keystream
        Coefficients of one combination of the nine limbs.

    Returns
    -------
    secret, wrong : bytes and tuple of int
        The secret, and the places in ``points`` of the shares that are not on its polynomials.
        None if no search within bounds finds the secret.
    """
    candidate = _by_decoding(points, shares, threshold, check, stream)
    if candidate is None and comb(len(points), threshold) <= _MOST_SUBSETS:
        candidate = _by_subsets(points, shares, threshold, check)
    if candidate is None:
        return None
    chosen, secret = candidate
    return secret, off_polynomial(points, shares, chosen)


_Candidate = tuple[tuple[int, ...], bytes] | None


def _attempt(
    points: Sequence[int],
    shares: NDArray[np.uint32],
    chosen: tuple[int, ...],
    check: Callable[[bytes], bool],
) -> _Candidate:
    secret = combine([points[i] for i in chosen], shares[list(chosen)])
    return (chosen, secret) if secret is not None and check(secret) else None


def _by_decoding(
    points: Sequence[int],
    shares: NDArray[np.uint32],
    threshold: int,
    check: Callable[[bytes], bool],
    stream: Keystream,
) -> _Candidate:
    coefficients = uniform_elements(stream, shares.shape[1])
    mixed = (shares * coefficients % _P).sum(axis=1) % _P
    wrong = locate_errors(points, mixed, threshold)
    if wrong is None:
        return None
    clean = tuple(i for i in range(len(points)) if i not in wrong)
    return _attempt(points, shares, clean[:threshold], check)


def _by_subsets(
    points: Sequence[int],
    shares: NDArray[np.uint32],
    threshold: int,
    check: Callable[[bytes], bool],
) -> _Candidate:
    # All candidates in one product: wrong shares of a few dealers would cost what all others do.
    count = len(points)
    spare = np.array(list(combinations(range(count), count - threshold)), np.intp)
    rows = leave_out_rows(points, np.array(points, np.uint64)[spare])
    limbs = weigh(rows, np.broadcast_to(shares[:, None, :], (count, len(rows), shares.shape[1])))
    candidates = []
    for row in np.flatnonzero((limbs >> np.uint64(LIMB_BITS) == 0).all(axis=1)).tolist():
        secret = from_limbs(limbs[row].tolist())
        if secret is not None and check(secret):
            candidates.append((tuple(np.delete(np.arange(count), spare[row]).tolist()), secret))
    # Wrong shares can cross the true secret at zero: most shares decide who was wrong.
    return min(
        candidates,
        key=lambda candidate: len(off_polynomial(points, shares, candidate[0])),
        default=None,
    )


def off_polynomial(
    points: Sequence[int], shares: NDArray[np.uint32], chosen: Sequence[int]
) -> tuple[int, ...]:
    """Find the shares that differ from the polynomials through the chosen ones.

    Parameters
    ----------
    points : sequence of int
        m distinct points.
    shares : ndarray of uint32, shape (m, 9)
    chosen : sequence of int
        Places of t shares that are trusted.

    Returns
    -------
    tuple of int
        Places in ``points``, ascending.
    """
    others = sorted(set(range(len(points))) - set(chosen))
    if not others:
        return ()
    rows = evaluation_rows([points[i] for i in chosen], [points[i] for i in others])
    trusted = np.broadcast_to(shares[list(chosen)][:, None, :], (len(chosen), len(others), 9))
    differs = (weigh(rows, trusted) != shares[others]).any(axis=1)
    return tuple(np.array(others)[differs].tolist())
