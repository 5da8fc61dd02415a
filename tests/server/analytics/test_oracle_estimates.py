"""Estimates of local oracles: against the exact law of the summed reports."""

import numpy as np
import pytest
from scipy import stats

from zerosum.client.queries.oracles import probabilities
from zerosum.client.queries.query import OracleKind
from zerosum.server.analytics.oracle_estimates import (
    oracle_counts,
    oracle_interval,
    oracle_variances,
)

KINDS: list[OracleKind] = ["k-rr", "oue", "olh", "hadamard"]
CLIENTS = 200


def law(count: int, p: float, q: float) -> np.ndarray:
    """Return P(S = s): a binomial of those who have the value, and one of the others."""
    own = stats.binom.pmf(np.arange(CLIENTS + 1), count, p)
    others = stats.binom.pmf(np.arange(CLIENTS + 1), CLIENTS - count, q)
    return np.convolve(own, others)[: CLIENTS + 1]


@pytest.mark.parametrize("count", [0, 1, 60, 199, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_estimates_have_the_mean_and_variance_that_they_claim(kind: OracleKind, count: int) -> None:
    p, q = probabilities(kind, 7, 1.0)
    sums, mass = np.arange(CLIENTS + 1), law(count, p, q)
    seen = oracle_counts(sums, CLIENTS, p, q)
    assert float(mass @ seen) == pytest.approx(count, abs=1e-9)
    variance = float(mass @ (seen - count) ** 2)
    assert oracle_variances([count], CLIENTS, p, q)[0] == pytest.approx(variance)


@pytest.mark.parametrize("count", [0, 1, 10, 100, 190, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_few_and_many(kind: OracleKind, count: int) -> None:
    p, q = probabilities(kind, 7, 1.0)
    sums, mass = np.arange(CLIENTS + 1), law(count, p, q)
    low, high = oracle_interval(sums, CLIENTS, p, q, 0.95)
    inside = float(mass[(low <= count + 1e-9) & (count - 1e-9 <= high)].sum())
    assert inside >= 0.935
    # The control: half as wide.
    middle, half = (low + high) / 2, (high - low) / 4
    narrow = float(mass[np.abs(middle - count) <= half].sum())
    assert narrow < 0.9 or count in (0, 1, 200)


def test_variance_is_that_of_the_binary_response_of_warner() -> None:
    """P(truth) = 3/4: the share's estimate is 2 mean - 1/2, of variance (1/4 - (1/16)...)/n."""
    p, q = 0.75, 0.25
    np.testing.assert_allclose(oracle_counts([90], 160, p, q) / 160, 2 * 90 / 160 - 0.5)
    np.testing.assert_allclose(oracle_variances([0, 160], 160, p, q), 160 * 3 / 16 / 0.25)


def test_impossible_counts_are_cut_for_the_variance_alone() -> None:
    p, q = probabilities("oue", 7, 1.0)
    assert oracle_counts([0], CLIENTS, p, q)[0] < 0
    below, none = oracle_variances([-50, 0], CLIENTS, p, q)
    assert below == none
    low, high = oracle_interval([0, CLIENTS], CLIENTS, p, q, 0.95)
    assert low[0] == high[0] == 0
    assert low[1] == high[1] == CLIENTS


def test_no_clients_have_no_counts() -> None:
    low, high = oracle_interval([0], 0, 0.75, 0.25, 0.95)
    assert (low[0], high[0]) == (0, 0)
