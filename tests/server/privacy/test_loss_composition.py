"""A composition is dp_accounting's own, to the last bit, and asks the one distribution once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as distributions

from zerosum.server.privacy import loss_composition
from zerosum.server.privacy.loss_composition import self_composed


def gaussian(noise: float, q: float, interval: float = 1e-3) -> Any:
    return distributions.from_gaussian_mechanism(
        noise, sampling_prob=q, value_discretization_interval=interval
    )


ONES: dict[str, Callable[[], Any]] = {
    "the default run": lambda: gaussian(1.3, 0.14),
    "much noise": lambda: gaussian(20.0, 0.1),
    "little noise": lambda: gaussian(0.3, 1.0, 0.05),
    "nothing": lambda: distributions.identity(value_discretization_interval=1e-3),
    "pure": lambda: distributions.from_laplace_mechanism(1.0, value_discretization_interval=1e-2),
}


def parts(distribution: Any) -> list[Any]:
    return [distribution._pmf_remove, distribution._pmf_add]


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("made", ONES.values(), ids=ONES)
def test_a_composition_is_that_of_dp_accounting(made: Callable[[], Any]) -> None:
    one = made()
    for times in (1, 2, 3, 7, 40):
        ours, theirs = self_composed(one, times), one.self_compose(times)
        assert ours._symmetric == theirs._symmetric
        for own, their in zip(parts(ours), parts(theirs), strict=True):
            assert type(own) is type(their)
            own, their = own.to_dense_pmf(), their.to_dense_pmf()
            assert own._lower_loss == their._lower_loss
            assert own._infinity_mass == their._infinity_mass
            assert np.array_equal(own._probs, their._probs)
        deltas = [1e-9, 1e-5, 0.1]
        epsilons = [d.get_epsilon_for_delta(delta) for d in (ours, theirs) for delta in deltas]
        assert epsilons[:3] == epsilons[3:]


def test_rounds_ask_for_moments_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    own = loss_composition.logsumexp

    def counting(values: Any, **named: Any) -> Any:
        asked.append(values[1])
        return own(values, **named)

    monkeypatch.setattr(loss_composition, "logsumexp", counting)
    one = gaussian(1.1, 0.2)
    for times in (2, 3, 4):
        self_composed(one, times)
    assert len(asked) == 80  # 40 orders, adding and removing


def test_another_distribution_has_moments_of_its_own() -> None:
    for noise in (1.1, 1.2):
        one = gaussian(noise, 0.2)
        expected = one.self_compose(3).get_epsilon_for_delta(1e-5)
        assert self_composed(one, 3).get_epsilon_for_delta(1e-5) == expected
