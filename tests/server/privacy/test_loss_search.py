"""Epsilon of a privacy-loss distribution is dp_accounting's own, to the last bit."""

import math
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution as distributions
from dp_accounting.pld.pld_pmf import DensePLDPmf

from zerosum.server.privacy import loss_search
from zerosum.server.privacy.loss_search import epsilon_for_delta

DELTAS = (0.0, 1e-300, 1e-15, 1e-9, 1e-5, 1e-3, 0.3, 0.9999, 1.0)


def sampled(noise: float, q: float, times: int, interval: float = 1e-3) -> Any:
    one = distributions.from_gaussian_mechanism(
        noise, sampling_prob=q, value_discretization_interval=interval
    )
    return one.self_compose(times) if times > 1 else one


COMPOSITIONS = {
    "the default run": lambda: sampled(1.3, 0.14, 40),
    "much noise": lambda: sampled(20.0, 0.1, 3),
    "little noise": lambda: sampled(0.2, 1.0, 2, 0.05),
    "a fine grid": lambda: sampled(1.0, 0.5, 1, 1e-4),
    "nothing": lambda: distributions.identity(value_discretization_interval=1e-3),
    "pure": lambda: distributions.from_laplace_mechanism(1.0, value_discretization_interval=1e-2),
}


@pytest.mark.slow
@pytest.mark.parametrize("made", COMPOSITIONS.values(), ids=COMPOSITIONS)
def test_epsilon_is_that_of_dp_accounting(made: Any) -> None:
    distribution = made()
    for delta in DELTAS:
        expected = float(distribution.get_epsilon_for_delta(delta))
        assert epsilon_for_delta(distribution, delta) == expected, delta
    between = distribution.get_epsilon_for_delta(1.0001e-5)
    assert made is COMPOSITIONS["nothing"] or epsilon_for_delta(distribution, 1e-5) > between


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_epsilon_does_not_depend_on_the_pieces(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = sampled(0.8, 0.2, 5, 1e-2)
    expected = [float(distribution.get_epsilon_for_delta(delta)) for delta in DELTAS]
    monkeypatch.setattr(loss_search, "_CHUNK", chunk)
    assert [epsilon_for_delta(distribution, delta) for delta in DELTAS] == expected


def test_a_run_searches_without_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = sampled(1.3, 0.14, 40)
    expected = distribution.get_epsilon_for_delta(1e-3)
    monkeypatch.setattr(DensePLDPmf, "get_epsilon_for_delta", lambda *_: math.nan)
    assert epsilon_for_delta(distribution, 1e-3) == expected
    assert math.isnan(distribution.get_epsilon_for_delta(1e-3))
