"""The room a sum needs: bounds on wrapping lie above exact tails, and messages never wrap."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from zerosum.secagg.vectors.wrapping import (
    MessageCanWrapError,
    check_message_fits,
    is_plausible,
    log2_wrap_probability,
    ring_bits_needed,
    skellam_log_tail,
)


def skellam(variance: float) -> partial[float]:
    return partial(skellam_log_tail, variance=variance)


def test_a_ring_is_as_small_as_the_message_and_noise_allow() -> None:
    bits = ring_bits_needed(100, 32767, skellam(5.9e9), 13_000)
    terms: dict[str, Any] = {
        "cohort": 100,
        "bound": 32767,
        "log_tail": skellam(5.9e9),
        "dimension": 13_000,
    }
    assert log2_wrap_probability(bits, **terms) <= -40
    assert log2_wrap_probability(bits - 1, **terms) > -40
    assert ring_bits_needed(100, 127, skellam(0.0), 10) == 15


def test_the_wrap_bound_lies_above_the_exact_tail() -> None:
    # Skellam: the difference of two Poisson counts of half the variance each.
    variance, ring = 50.0, 8
    margin = 2 ** (ring - 1) - 3 * 30

    def poisson(count: int) -> float:
        mean = variance / 2
        return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))

    masses = [poisson(count) for count in range(200)]
    above = [sum(masses[count:]) for count in range(200)]
    exact = 2 * sum(mass * above[count + margin] for count, mass in enumerate(masses[:-margin]))
    bound = log2_wrap_probability(ring, cohort=3, bound=30, log_tail=skellam(variance), dimension=1)
    assert math.log2(exact) < bound < math.log2(exact) + 6


def test_messages_that_can_wrap_are_refused_with_the_numbers() -> None:
    check_message_fits(8, 1, 127)
    with pytest.raises(MessageCanWrapError, match=r"ring_bits = 8.*128.*127.*least 9 bits"):
        check_message_fits(8, 1, 128)
    with pytest.raises(MessageCanWrapError, match="no ring of 64 bits"):
        ring_bits_needed(2**33, 2**31, skellam(0.0), 1)


def test_a_sum_beyond_its_clients_bound_is_not_plausible():
    within = np.array([300, -300, 0])
    assert is_plausible(within, survivors=3, bound=100, log_tail=skellam(0.0))
    for end in (301, -301, np.iinfo(np.int64).min, np.iinfo(np.int64).max):
        beyond = np.array([0, end])
        assert not is_plausible(beyond, survivors=3, bound=100, log_tail=skellam(0.0))
    assert is_plausible(np.array([301]), survivors=3, bound=100, log_tail=skellam(0.0), slack=1)


def test_noise_is_allowed_what_it_reaches_once_in_a_trillion():
    deviation = 50.0
    for deviations, plausible in ((5, True), (9, False)):
        reached = np.full(10, int(300 + deviations * deviation))
        found = is_plausible(reached, survivors=3, bound=100, log_tail=skellam(deviation**2))
        assert found is plausible
