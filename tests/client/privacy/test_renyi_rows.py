import math

import numpy as np
import pytest
from scipy.special import ive, logsumexp

from zerosum.client.privacy.events import SkellamDpEvent
from zerosum.client.privacy.integer_laws import Geometric, Skellam
from zerosum.client.privacy.renyi_curves import pure
from zerosum.client.privacy.renyi_rows import geometric_row, moves_row, skellam_row
from zerosum.client.renyi_filter import ORDERS


def summed(logs: np.ndarray, move: int, alpha: int) -> float:
    """R(alpha) term by term, of ln p at -m to m."""
    here, moved = logs[:-move], logs[move:]
    return float(logsumexp(alpha * here + (1 - alpha) * moved)) / (alpha - 1)


@pytest.mark.parametrize(("scale", "move"), [(0.5, 1), (1.0, 3), (10.0, 1), (10.0, 7), (60.0, 200)])
def test_a_geometric_row_is_the_direct_sum(scale, move):
    k = np.arange(-int(60 * scale) - move, int(60 * scale) + move + 1)
    logs = math.log(math.tanh(0.5 / scale)) - np.abs(k) / scale
    row = geometric_row(scale, move)
    for alpha in (2, 3, 22, 512):
        assert row[ORDERS.index(alpha)] == pytest.approx(summed(logs, move, alpha), abs=1e-10)


@pytest.mark.parametrize(("scale", "move"), [(1e3, 1), (1e6, 3), (2.0**39, 1), (1e5, 1000)])
def test_a_geometric_row_is_never_above_what_pure_epsilon_implies(scale, move):
    row, bound = geometric_row(scale, move), pure(move / scale)
    assert (row <= bound).all()
    assert row[:30] == pytest.approx(bound[:30], rel=0.02)
    assert (row > 0).all()


@pytest.mark.parametrize(("variance", "move"), [(0.25, 1), (4.0, 2), (100.0, 5), (1024.0, 16)])
def test_a_skellam_row_is_the_direct_sum(variance, move):
    # scipy's Bessel functions end at e^-745: far enough for the orders asked about.
    k = np.arange(-700, 701)
    with np.errstate(divide="ignore"):
        logs = np.log(ive(np.abs(k), variance))
    finite = np.isfinite(logs)
    row = skellam_row(variance, move)
    for alpha in (2, 5):
        assert row[ORDERS.index(alpha)] == pytest.approx(
            summed(logs[finite], move, alpha), rel=1e-9
        )


@pytest.mark.parametrize(("variance", "move"), [(0.25, 1), (4.0, 2), (1000.0, 16)])
def test_a_skellam_row_reaches_as_far_as_its_peak(variance, move):
    reach = 2 * 512 * move + 2000
    half = Skellam(variance).log_probabilities(reach)
    logs = half[np.abs(np.arange(-reach, reach + 1))]
    row = skellam_row(variance, move)
    for alpha in (2, 22, 512):
        assert row[ORDERS.index(alpha)] == pytest.approx(summed(logs, move, alpha), rel=1e-10)


@pytest.mark.parametrize(("variance", "move"), [(1.0, 1), (100.0, 5), (1e6, 10), (1e9, 5000)])
def test_a_skellam_row_is_never_above_the_bound_in_closed_form(variance, move):
    bound = SkellamDpEvent(move, move, variance).divergences()
    row = skellam_row(variance, move)
    assert (row <= bound).all()
    assert (row > move**2 / (2 * variance) / 10).all()


def test_moves_add_up_and_shares_beyond_one_are_charged_as_one():
    row = moves_row(Geometric(10.0, 1.25), (1, 1, 4))
    assert row == pytest.approx(2 * geometric_row(10.0, 1) + geometric_row(10.0, 4))
