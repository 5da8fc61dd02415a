"""Events that say themselves what they cost, and the adapter for those that cannot."""

import math
from typing import ClassVar

import attr
import numpy as np
import pytest
from added_mechanism import AddedDpEvent
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from dp_accounting.pld.privacy_loss_distribution import from_randomized_response

from zerosum.client.privacy.events import (
    MaybeAbandonedDpEvent,
    NoiseDpEvent,
    UnsupportedEventError,
    rdp,
)
from zerosum.server.privacy import event_costs
from zerosum.server.privacy.accountant import Ledger


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ResponseDpEvent(NoiseDpEvent):
    """Randomised response on a bit, with odds e^epsilon: it knows all that can be known."""

    epsilon: float
    symmetric: ClassVar[bool] = True

    def divergences(self):
        return np.minimum(self.epsilon, np.arange(2, 513) * self.epsilon**2 / 2)

    def doubled(self):
        return ResponseDpEvent(2 * self.epsilon)

    def pure_epsilon(self):
        return self.epsilon

    def loss_distribution(self, interval):
        noise = 2 / (1 + math.exp(self.epsilon))
        return from_randomized_response(noise, 2, value_discretization_interval=interval)


def response_delta(epsilon: float, times: int, each: float) -> float:
    """Return delta of so many randomised responses, by the binomial sum itself."""
    p = math.exp(each) / (1 + math.exp(each))
    total = 0.0
    for k in range(times + 1):
        ways = math.comb(times, k)
        one, two = p**k * (1 - p) ** (times - k), (1 - p) ** k * p ** (times - k)
        total += ways * max(0.0, one - math.exp(epsilon) * two)
    return total


def test_an_events_own_distribution_is_composed() -> None:
    ledger = Ledger("zero_out").compose(ResponseDpEvent(0.5), 20)
    found = ledger.accounted(1e-3)
    assert found.accountant == "pld"
    assert response_delta(found.value, 20, 0.5) == pytest.approx(1e-3, rel=0.02)
    assert found.value < Ledger("zero_out", "rdp").compose(ResponseDpEvent(0.5), 20).epsilon(1e-3)


def test_an_events_own_pure_epsilon_caps_every_figure() -> None:
    assert Ledger("zero_out").compose(ResponseDpEvent(0.5), 2).epsilon(0.0) == 1.0
    sampled = PoissonSampledDpEvent(0.1, ResponseDpEvent(0.5))
    pure = event_costs.pure_epsilon(sampled, "zero_out")
    assert pure == pytest.approx(math.log1p(0.1 * math.expm1(0.5)))
    assert Ledger("zero_out").compose(sampled).epsilon(1e-9) <= pure


def test_an_event_without_a_distribution_is_accounted_by_its_divergences() -> None:
    ledger = Ledger("zero_out").compose(AddedDpEvent(2.0), 10)
    assert ledger.accounted(1e-5).accountant == "rdp"
    gaussian = Ledger("zero_out", "rdp").compose(GaussianDpEvent(2.0), 10)
    assert ledger.epsilon(1e-5) == pytest.approx(gaussian.epsilon(1e-5), rel=0.02)


def test_an_event_doubles_itself_wherever_it_is() -> None:
    pair = ComposedDpEvent([AddedDpEvent(2.0), SelfComposedDpEvent(AddedDpEvent(4.0), 3)])
    expected = ComposedDpEvent((AddedDpEvent(1.0), SelfComposedDpEvent(AddedDpEvent(2.0), 3)))
    assert event_costs.doubled(pair) == event_costs.for_replacement(pair) == expected
    mixed = ComposedDpEvent((AddedDpEvent(2.0), GaussianDpEvent(2.0)))
    assert event_costs.for_replacement(mixed).events == (AddedDpEvent(1.0), GaussianDpEvent(2.0))


def test_amplification_of_an_event_that_is_not_symmetric_is_refused() -> None:
    @attr.s(frozen=True, slots=True, auto_attribs=True)
    class Lopsided(AddedDpEvent):
        symmetric: ClassVar[bool] = False

    for event in (Lopsided(2.0), ComposedDpEvent([Lopsided(2.0), AddedDpEvent(2.0)])):
        with pytest.raises(UnsupportedEventError, match="Lopsided"):
            Ledger("zero_out").compose(PoissonSampledDpEvent(0.1, event))


@pytest.mark.parametrize("row", [np.ones(5), np.full(511, -1.0), np.full(511, np.nan)])
def test_divergences_that_are_none_are_refused(row) -> None:
    @attr.s(frozen=True, slots=True, auto_attribs=True)
    class Wrong(AddedDpEvent):
        def divergences(self):
            return row

    with pytest.raises(UnsupportedEventError, match="511 divergences of 0 or more"):
        rdp(Wrong(float(len(row)) + float(np.nansum(row))))
    with pytest.raises(UnsupportedEventError, match="no accountant"):
        Ledger("zero_out").compose(Wrong(float(len(row)) + float(np.nansum(row))))


@pytest.mark.parametrize(
    "event",
    [
        NonPrivateDpEvent(),
        GaussianDpEvent(0.0),
        PoissonSampledDpEvent(0.1, NonPrivateDpEvent()),
        MaybeAbandonedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(0.0)), 0.1),
    ],
)
def test_what_protects_nothing_has_no_pure_epsilon(event) -> None:
    assert event_costs.exposes(event)
    assert event_costs.pure_epsilon(event, "zero_out") == math.inf


def test_nothing_costs_nothing() -> None:
    nothing = NoOpDpEvent()
    assert event_costs.pure_epsilon(nothing, "replace") == 0.0
    assert event_costs.doubled(nothing) == nothing
    assert Ledger("replace").compose(nothing).epsilon(1e-5) == 0.0


def test_a_sample_without_replacement_is_doubled_for_gaussians_alone() -> None:
    drawn = SampledWithoutReplacementDpEvent(100, 10, GaussianDpEvent(2.0))
    assert event_costs.has_divergences(drawn, "replace")
    other = SampledWithoutReplacementDpEvent(100, 10, ZCDpEvent(0.1))
    assert not event_costs.has_divergences(other, "replace")
    with pytest.raises(UnsupportedEventError, match="no sensitivity to double"):
        event_costs.doubled(drawn)
