"""Real powers of the discrete Laplace by Fourier inversion: a reference of its own."""

import math

import numpy as np
from scipy.stats import chi2


def power_of_laplace(scale: float, r: float) -> np.ndarray:
    """Return p(0), p(1), ... of the law with the characteristic function phi^r.

    phi(t) = (1-a)^2 / |1 - a e^(it)|^2, a = exp(-1/scale), on a grid so fine that what lies beyond
    its half is below 1e-16.
    """
    size = 1 << math.ceil(math.log2(100 * scale + 100))
    a = math.exp(-1 / scale)
    t = 2 * np.pi * np.arange(size) / size
    phi = (1 - a) ** 2 / np.abs(1 - a * np.exp(1j * t)) ** 2
    return np.fft.ifft(phi**r).real[: size // 2]


def chi_square_p(drawn: np.ndarray, masses: np.ndarray) -> float:
    """Return the p-value of draws against p(0), p(1), ...: magnitudes by bins, and signs.

    Bins are single magnitudes as long as 50 are expected of each, then runs of them.
    """
    expected = masses * drawn.size * np.where(np.arange(masses.size), 2, 1)
    found = np.bincount(np.minimum(np.abs(drawn), masses.size - 1), minlength=masses.size)
    bins = np.minimum(np.cumsum(expected) // 50, drawn.size // 50 - 1).astype(int)
    names = np.unique(bins, return_inverse=True)[1]
    wanted, seen = (np.bincount(names, weights=each) for each in (expected, found))
    if wanted[-1] < 20:
        wanted[-2:], seen[-2:] = wanted[-2:].sum() / 2, seen[-2:].sum() / 2
    statistic = float(np.sum((seen - wanted) ** 2 / wanted))
    nonzero = int(np.count_nonzero(drawn))
    statistic += (2 * int(np.sum(drawn > 0)) - nonzero) ** 2 / max(1, nonzero)
    return float(chi2.sf(statistic, wanted.size))
