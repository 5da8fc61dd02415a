"""Recovering a secret although some of its shares are wrong.

Right shares lie on one polynomial of degree below t. With m shares, up to (m - t) / 2 wrong
ones are found by Reed-Solomon decoding (Welch and Berlekamp, US patent 4,633,470, 1986); with
few shares, every choice of t of them is tried against a check that only the true secret passes.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.shamir import PRIME, combine, lagrange_weights

_P = np.uint64(PRIME)
_MOST_SUBSETS = 1000


def recover_around(
    points: Sequence[int],
    shares: NDArray[np.uint32],
    threshold: int,
    check: Callable[[bytes], bool],
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

    Returns
    -------
    secret, wrong : bytes and tuple of int
        The secret, and the places in ``points`` of the shares that are not on its polynomials.
        None if no search within bounds finds the secret.
    """
    found = _by_decoding(points, shares, threshold, check)
    if found is None and comb(len(points), threshold) <= _MOST_SUBSETS:
        found = _by_subsets(points, shares, threshold, check)
    if found is None:
        return None
    chosen, secret = found
    return secret, _off_polynomial(points, shares, chosen)


_Found = tuple[tuple[int, ...], bytes] | None


def _attempt(
    points: Sequence[int],
    shares: NDArray[np.uint32],
    chosen: tuple[int, ...],
    check: Callable[[bytes], bool],
) -> _Found:
    secret = combine([points[i] for i in chosen], shares[list(chosen)])
    return (chosen, secret) if secret is not None and check(secret) else None


def _by_decoding(
    points: Sequence[int],
    shares: NDArray[np.uint32],
    threshold: int,
    check: Callable[[bytes], bool],
) -> _Found:
    suspects: set[int] = set()
    for limb in range(shares.shape[1]):
        wrong = locate_errors(points, shares[:, limb], threshold)
        if wrong is None:
            return None
        suspects.update(wrong)
    clean = tuple(i for i in range(len(points)) if i not in suspects)
    if len(clean) < threshold:
        return None
    return _attempt(points, shares, clean[:threshold], check)


def _by_subsets(
    points: Sequence[int],
    shares: NDArray[np.uint32],
    threshold: int,
    check: Callable[[bytes], bool],
) -> _Found:
    # Wrong shares can cross the true secret at zero: most shares decide who was wrong.
    every = combinations(range(len(points)), threshold)
    passed = (_attempt(points, shares, chosen, check) for chosen in every)
    found = [each for each in passed if each is not None]
    return min(found, key=lambda each: len(_off_polynomial(points, shares, each[0])), default=None)


def _off_polynomial(
    points: Sequence[int], shares: NDArray[np.uint32], chosen: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the places whose shares differ from the polynomials through the chosen ones."""
    trusted = shares[list(chosen)].astype(np.uint64)
    wrong = []
    for i in set(range(len(points))) - set(chosen):
        shifted = tuple((points[j] - points[i]) % PRIME for j in chosen)
        value = (lagrange_weights(shifted)[:, None] * trusted % _P).sum(axis=0) % _P
        if (value != shares[i]).any():
            wrong.append(i)
    return tuple(sorted(wrong))


def locate_errors(
    points: Sequence[int], values: NDArray[np.uint32], threshold: int
) -> tuple[int, ...] | None:
    """Return which values are off the one polynomial of degree below t that most are on.

    Solves Q(x) = y E(x) at every point, with E monic of degree e = floor((m - t) / 2) and Q of
    degree below t + e; the polynomial is Q / E, and it is the only one within e errors.

    Returns
    -------
    tuple of int or None
        None if more than e values would have to be wrong.
    """
    budget = (len(points) - threshold) // 2
    x, y = np.array(points, np.uint64), values.astype(np.uint64)
    terms = threshold + budget
    powers = np.ones((len(points), terms + 1), np.uint64)
    for column in range(1, terms + 1):
        powers[:, column] = powers[:, column - 1] * x % _P
    unknown = [powers[:, :terms], (_P - y[:, None] * powers[:, :budget] % _P) % _P]
    right = y * powers[:, budget] % _P
    solution = _solve(np.concatenate([*unknown, right[:, None]], axis=1))
    if solution is None:
        return None
    locator = _evaluate([*solution[terms:], 1], x)
    target = _evaluate(solution[:terms], x)
    # Q - y E vanishes everywhere; a value is wrong only where E vanishes as well.
    wrong = [i for i in range(len(points)) if locator[i] == 0]
    if len(wrong) > budget or (target != y * locator % _P).any():
        return None
    return tuple(wrong)


def _evaluate(coefficients: Sequence[int], x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a polynomial's values modulo p, by Horner's rule; lowest coefficient first."""
    value = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        value = (value * x + np.uint64(coefficient)) % _P
    return value


def _solve(system: NDArray[np.uint64]) -> list[int] | None:
    """Solve an augmented linear system modulo p; free unknowns are zero, None if unsolvable."""
    rows, columns = system.shape
    pivots: list[int] = []
    for column in range(columns - 1):
        row = len(pivots)
        below = np.flatnonzero(system[row:, column])
        if not len(below):
            continue
        swap = row + int(below[0])
        system[[row, swap]] = system[[swap, row]]
        scale = np.uint64(pow(int(system[row, column]), -1, PRIME))
        system[row] = system[row] * scale % _P
        factors = (_P - system[:, column]) % _P
        factors[row] = 0
        system[:, column:] = (
            system[:, column:] + factors[:, None] * system[row, column:] % _P
        ) % _P
        pivots.append(column)
        if len(pivots) == rows:
            break
    if system[len(pivots) :, -1].any():
        return None
    solution = [0] * (columns - 1)
    for row, column in enumerate(pivots):
        solution[column] = int(system[row, -1])
    return solution
