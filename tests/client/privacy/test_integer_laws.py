import math

import mpmath
import numpy as np
import pytest
from scipy.stats import nbinom

from zerosum.client.privacy.integer_laws import (
    CUT_BITS,
    Geometric,
    Skellam,
    law_of,
    two_sided,
)
from zerosum.client.privacy.pmf import SkellamLaw


def reference_geometric(scale: float, r: float, k: int) -> mpmath.mpf:
    """P(X - Y = k) of negative binomials: a^k (r)_k/k! (1-a)^2r 2F1(r, r+k; k+1; a^2)."""
    with mpmath.workdps(40):
        a, r = mpmath.exp(-1 / mpmath.mpf(scale)), mpmath.mpf(r)
        rising = mpmath.rf(r, k) / mpmath.factorial(k)
        tail = mpmath.hyp2f1(r, r + k, k + 1, a**2)
        return a**k * rising * (1 - a) ** (2 * r) * tail


def reference_skellam(variance: float, k: int) -> mpmath.mpf:
    with mpmath.workdps(40):
        return mpmath.exp(-mpmath.mpf(variance)) * mpmath.besseli(k, variance)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("scale", [1 / 128, 0.05, 0.3, 1.0, 50.0, 1000.0])
@pytest.mark.parametrize("r", [1 / 240, 0.2, 1.0, 1.25, 7.5, 3000.0])
def test_geometric_probabilities_are_the_hypergeometric_series(scale, r):
    noise = Geometric(scale, r)
    last = noise.extent()
    logs = noise.log_probabilities(last)
    for k in {0, 1, last // 20, last // 3}:
        expected = float(mpmath.log(reference_geometric(scale, r, k)))
        assert logs[k] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("variance", [0.01, 1.0, 100.0, 1e4])
def test_skellam_probabilities_are_bessel_functions(variance):
    noise = Skellam(variance)
    last = noise.extent()
    logs = noise.log_probabilities(2 * last)
    for k in (0, 1, last // 2, last, 2 * last):
        expected = float(mpmath.log(reference_skellam(variance, k)))
        assert logs[k] == pytest.approx(expected, abs=1e-10)


def test_wide_skellam_probabilities_are_those_of_the_large_argument_expansion():
    variance = 2.0**27
    logs = Skellam(variance).log_probabilities(150_000)
    k = np.array([0, 1, 10_000, 100_000, 150_000])
    expected = SkellamLaw(variance).log_weights(k)
    assert logs[k] - logs[0] == pytest.approx(expected, abs=1e-9)


def test_geometric_noise_is_a_difference_of_negative_binomials():
    scale, r = 3.0, 1.7
    values, probabilities = two_sided(Geometric(scale, r))
    one = nbinom.pmf(np.arange(values.size), r, -math.expm1(-1 / scale))
    expected = np.correlate(one, one, "full")
    middle = expected.size // 2
    assert probabilities == pytest.approx(
        expected[middle - values[-1] : middle + values[-1] + 1], abs=1e-14
    )


@pytest.mark.parametrize("r", [0.2, 1.0, 2.5])
def test_shares_of_geometric_noise_add_up(r):
    scale = 2.0
    whole, part = two_sided(Geometric(scale, 2 * r))[1], two_sided(Geometric(scale, r))[1]
    summed = np.convolve(part, part)
    cut = (summed.size - whole.size) // 2
    assert summed[cut : cut + whole.size] == pytest.approx(whole, abs=1e-13)


@pytest.mark.parametrize(
    ("law", "parameters"),
    [
        ("geometric", (0.1, 1.0)),
        ("geometric", (20.0, 0.01)),
        ("geometric", (20.0, 30.0)),
        ("skellam", (0.001,)),
        ("skellam", (400.0,)),
    ],
)
def test_what_is_cut_off_is_below_the_cut_and_little_more_is_kept(law, parameters):
    noise = law_of(law, parameters)
    values, probabilities = two_sided(noise)
    far = 4 * int(values[-1]) + 20
    tails = 2 * np.exp(noise.log_probabilities(far))[::-1].cumsum()[::-1]
    assert tails[values[-1] + 1] <= 2.0**-CUT_BITS
    # Chernoff's bound asks for a few per cent more values than are needed.
    assert tails[int(values[-1] * 0.85)] > 2.0**-CUT_BITS
    assert (values == np.arange(-values[-1], values[-1] + 1)).all()
    assert math.fsum(probabilities) == pytest.approx(1, abs=1e-14)
    spread = math.sqrt(math.fsum(values**2 * probabilities))
    assert spread == pytest.approx(noise.std, rel=1e-12)


def test_probabilities_that_would_not_fit_into_memory_are_refused():
    with pytest.raises(ValueError, match="are made at most"):
        two_sided(Geometric(2.0**30, 1.25))
