import json
import math

import attr
import numpy as np
import pytest
from dp_accounting import RandomizedResponseDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions

from zerosum.client.privacy.events import (
    IntegerNoiseDpEvent,
    UnsupportedEventError,
    rdp,
    twice,
)
from zerosum.client.privacy.integer_laws import law_of, two_sided
from zerosum.server.privacy.accountant import Ledger


def epsilon(event, count: int = 1, delta: float = 1e-6) -> float:
    return Ledger("zero_out").compose(event, count).epsilon(delta)


def exact_delta(probabilities: np.ndarray, move: int, at: float) -> float:
    padded = np.concatenate((probabilities, np.zeros(move)))
    return math.fsum(np.maximum(padded - math.exp(at) * np.roll(padded, move), 0))


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "moves"), [(10.0, (1,)), (1.0, (1,)), (4.0, (7,)), (0.3, (2,))])
@pytest.mark.parametrize("count", [1, 20])
def test_one_discrete_laplace_costs_what_dp_accounting_says(scale, moves, count):
    theirs = epsilon(DiscreteLaplaceDpEvent(1 / scale, moves[0]), count)
    own = epsilon(IntegerNoiseDpEvent("geometric", (scale, 1), moves), count)
    assert own == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("r", [1.0, 1.25, 3.0])
def test_geometric_noise_is_pure_at_delta_zero(r):
    event = IntegerNoiseDpEvent("geometric", (10.0, r), (1, 2, 3))
    assert epsilon(event, 1, 0.0) == 0.6
    assert epsilon(event, 3, 0.0) == pytest.approx(1.8)


def test_skellam_noise_has_no_pure_epsilon():
    assert epsilon(IntegerNoiseDpEvent("skellam", (100.0,), (1,)), 1, 0.0) == math.inf


@pytest.mark.parametrize(
    ("law", "parameters", "move"),
    [
        ("geometric", (3.0, 1.0), 2),
        ("geometric", (3.0, 1.25), 2),
        ("geometric", (40.0, 2.0), 9),
        ("skellam", (2.0,), 1),
        ("skellam", (300.0,), 4),
    ],
)
def test_losses_are_never_below_the_exact_ones_and_hardly_above(law, parameters, move):
    pmf = two_sided(law_of(law, parameters))
    ledger = Ledger("zero_out").compose(IntegerNoiseDpEvent(law, parameters, (move,)))
    for at in (0.0, 0.01234, 0.1, 0.5, 0.99):
        exact = exact_delta(pmf[1], move, at)
        assert exact <= ledger.delta(at) + 1e-15
        assert ledger.delta(at) == pytest.approx(exact, rel=1e-3, abs=1e-12)


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize(("law", "parameters"), [("geometric", (3.0, 1.25)), ("skellam", (9.0,))])
@pytest.mark.parametrize("mirrored", [False, True])
def test_losses_of_both_directions_are_within_a_step_of_dp_accountings(law, parameters, mirrored):
    logs = law_of(law, parameters).log_probabilities(120)
    here = {k: logs[abs(k)] for k in range(-110, 111)}
    moved = {k: logs[abs(k - 3)] for k in range(-110, 111)}
    pair = (here, moved) if mirrored else (moved, here)
    theirs = from_two_probability_mass_functions(*pair, symmetric=False).self_compose(10)
    own = epsilon(SelfComposedDpEvent(IntegerNoiseDpEvent(law, parameters, (3,)), 10))
    assert theirs.get_epsilon_for_delta(1e-6) - 10 * 1e-4 <= own
    assert own <= theirs.get_epsilon_for_delta(1e-6) + 1e-9


def test_twenty_and_a_hundred_counts_cost_what_is_published():
    def count(scale: float, r: float) -> IntegerNoiseDpEvent:
        return IntegerNoiseDpEvent("geometric", (scale, r), (1,))

    assert epsilon(count(10, 1), 20, 0.0) == pytest.approx(2.00)
    assert epsilon(count(10, 1), 20) == pytest.approx(1.79, abs=0.005)
    assert epsilon(count(10, 1.25), 20) == pytest.approx(1.40, abs=0.005)
    assert epsilon(count(20, 1), 100, 0.0) == pytest.approx(5.00)
    assert epsilon(count(20, 1), 100) == pytest.approx(2.21, abs=0.005)
    assert epsilon(count(20, 1.25), 100) == pytest.approx(1.69, abs=0.005)


@pytest.mark.parametrize("r", [1.0, 1.25])
@pytest.mark.parametrize(("scale", "move"), [(2.0**14, 1000), (2.0**20, 2**17)])
def test_wide_geometric_noise_is_charged_as_one_discrete_laplace(r, scale, move):
    own = epsilon(IntegerNoiseDpEvent("geometric", (scale, r), (move,)), 20)
    # dp_accounting rounds each of the losses up: 20 times half a step of 1e-4, about.
    theirs = epsilon(DiscreteLaplaceDpEvent(1 / scale, move), 20)
    assert theirs - 2e-3 < own <= theirs + 1e-9


def test_wide_skellam_noise_is_charged_by_its_divergences():
    event = IntegerNoiseDpEvent("skellam", (2.0**29,), (1000,))
    ledger = Ledger("zero_out").compose(event)
    assert ledger.accountant == "rdp"
    # A standard deviation of 23 moves, as a Gaussian's.
    assert ledger.epsilon(1e-6) > epsilon(IntegerNoiseDpEvent("skellam", (2.0**29 / 1e6,), (1,)))


@pytest.mark.parametrize(
    "event",
    [
        IntegerNoiseDpEvent("geometric", (1e-2, 1.25), (5, 5000)),
        IntegerNoiseDpEvent("geometric", (1e-2, 1), (2**40,)),
        IntegerNoiseDpEvent("skellam", (1e-4,), (3, 10**6)),
    ],
)
def test_hardly_any_noise_is_accounted_at_once(event):
    assert 100 < epsilon(event) < math.inf


def test_a_client_is_charged_the_sum_of_rows():
    event = IntegerNoiseDpEvent("geometric", (10.0, 1), (1, 1))
    single = IntegerNoiseDpEvent("geometric", (10.0, 1), (1,))
    assert rdp(event) == pytest.approx(2 * rdp(single))


def test_moves_are_never_doubled():
    event = IntegerNoiseDpEvent("geometric", (10.0, 1), (1,))
    with pytest.raises(UnsupportedEventError, match="written for its adjacency"):
        twice(event)
    assert Ledger("replace").compose(event).epsilon(0.0) == epsilon(event, 1, 0.0)


def test_counts_and_local_reports_add_up_in_one_ledger():
    report = RandomizedResponseDpEvent(2 / (1 + math.e), 2)
    counts = IntegerNoiseDpEvent("geometric", (10.0, 1), (1, 1))
    ledger = Ledger("replace").compose(report, 2).compose(counts, 3)
    assert ledger.epsilon(0.0) == pytest.approx(2 * 1 + 3 * 0.2)
    assert ledger.accountant == "pld"
    assert 2 < ledger.epsilon(1e-3) < 2.6


@pytest.mark.parametrize(
    ("law", "parameters", "moves", "match"),
    [
        ("gaussian", (1.0,), (1,), "law is"),
        ("geometric", (1.0,), (1,), "2 parameters"),
        ("skellam", (1.0, 1.0), (1,), "1 parameters"),
        ("geometric", (1.0, 0.999), (1,), "no receipt"),
        ("geometric", (math.nan, 1.0), (1,), "finite"),
        ("skellam", (math.inf,), (1,), "finite"),
        ("skellam", (0.0,), (1,), "above 0"),
        ("geometric", (1.0, 1.0), (), "one or more"),
        ("geometric", (1.0, 1.0), (1, 0), "above 0"),
    ],
)
def test_what_describes_no_sum_is_refused(law, parameters, moves, match):
    with pytest.raises(ValueError, match=match):
        IntegerNoiseDpEvent(law, parameters, moves)


def test_a_receipt_is_read_back_from_json():
    event = IntegerNoiseDpEvent("geometric", (10, 1.25), (1, 4096))
    read = IntegerNoiseDpEvent(**json.loads(json.dumps(attr.asdict(event))))
    assert read == event
    assert hash(read) == hash(event)
