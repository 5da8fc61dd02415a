import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions

from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.secagg.randomness import insecure_keystream


def test_the_claimed_deviation_is_drawn():
    mechanism = DiscreteLaplace(40.0, 10)
    noise = mechanism.apply(np.zeros(200_000, dtype=np.int64), insecure_keystream(1, "noise"))
    assert noise.std() == pytest.approx(mechanism.std(1), rel=0.02)


@pytest.mark.parametrize("shift", [(3, 1), (2, 2), (4, 0)])
def test_moving_one_coordinate_is_the_worst_case_of_an_l1_shift(shift):
    """Two coordinates moved together are told apart no better than one moved by their sum."""
    scale, reach = 2.0, 40
    values = np.arange(-reach, reach + 1)

    def law(centre: int) -> np.ndarray:
        return np.exp(-np.abs(values - centre) / scale) * math.tanh(0.5 / scale)

    def masses(*centres: int) -> dict[int, float]:
        joint = np.log(law(centres[0]))
        for centre in centres[1:]:
            joint = np.add.outer(joint, np.log(law(centre)))
        return dict(enumerate(joint.ravel().tolist()))

    def delta(upper: dict, lower: dict, epsilon: float) -> float:
        pld = from_two_probability_mass_functions(lower, upper, value_discretization_interval=1e-3)
        return float(pld.get_delta_for_epsilon(epsilon))

    for epsilon in (0.1, 0.8, 1.5):
        pair = delta(masses(*shift), masses(0, 0), epsilon)
        assert pair <= delta(masses(4), masses(0), epsilon) + 1e-6


def test_laplace_tail_bound_holds_within_a_factor_of_100():
    mechanism = DiscreteLaplace(10.0, 10)
    zero = np.zeros(400_000, dtype=np.int64)
    total = sum(mechanism.apply(zero, insecure_keystream(2, "noise", i)) for i in range(5))
    for margin in (100, 150):
        found = np.mean(np.asarray(total) > margin)
        assert 0 < found <= math.exp(mechanism.log_tail(5, margin)) < 100 * found
    assert -0.01 < mechanism.log_tail(5, 1.0) <= 0


def test_noise_for_less_than_one_contribution_is_refused():
    with pytest.raises(ValueError, match="divided"):
        DiscreteLaplace(10.0, 10).event(0.5)
    with pytest.raises(ValueError, match="scale"):
        DiscreteLaplace(0.0, 10)
