"""A client that lies about a count: what it shifts, and what the server's check leaves of it."""

from dataclasses import replace

import numpy as np
import pytest
from narrowed import present, values_of, view_of

from zerosum.simulations.attacks.harness.interface import Case
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.published.asked_tables import MASKED, PLAIN, noised
from zerosum.simulations.attacks.published.lied_counts import LiedCountsSetting
from zerosum.simulations.attacks.published.lying_counts import AddingRecords, AsMuchAsPasses

LOOSE = LiedCountsSetting(clients=5, groups=2, size=60)
CLOSE = replace(LOOSE, max_records=1_000)
SHIFT = "shift of the count"


def played(attack, setting, protection, seed=0):
    outcome = play(0, Cell(attack, Case(setting, protection)), seed)
    assert outcome.status in ("value", "stopped"), outcome.note
    return outcome


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("protection", [PLAIN, MASKED, noised(1.0)], ids=lambda one: one.name)
def test_a_million_that_nobody_has_is_counted(protection):
    outcome = played(AddingRecords(), LOOSE, protection)
    added = values_of(outcome.units, SHIFT) - values_of(outcome.baseline, SHIFT)
    assert (added == 1_000_000).all()
    assert np.abs(values_of(outcome.baseline, SHIFT)).max() < 20


@pytest.mark.parametrize("protection", [PLAIN, noised(1.0)], ids=lambda one: one.name)
def test_a_sum_that_honest_clients_cannot_have_is_refused_and_shifts_nothing(protection):
    outcome = played(AddingRecords(), replace(CLOSE, clients=10), protection)
    assert outcome.status == "stopped"
    assert "exceeds what they can send" in outcome.note
    np.testing.assert_array_equal(
        values_of(outcome.units, SHIFT), values_of(outcome.baseline, SHIFT)
    )
    assert present(outcome.epsilon) > 0  # charged all the same


@pytest.mark.parametrize(("added", "status"), [(4_900, "value"), (5_100, "stopped")])
def test_the_bound_is_clients_times_max_records(added, status):
    assert played(AddingRecords(added), CLOSE, noised(1.0)).status == status


def test_what_wraps_around_the_ring_is_within_the_bound_again():
    """A ring of 2^14 holds 5,000 and its noise: a million is 576 in it."""
    outcome = played(AddingRecords(), CLOSE, noised(1.0))
    added = values_of(outcome.units, SHIFT) - values_of(outcome.baseline, SHIFT)
    assert (added == 1_000_000 % 2**14).all()


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize(("setting", "most"), [(LOOSE, 5 << 20), (CLOSE, 5_000)])
def test_who_knows_the_bound_stays_below_it(setting, most):
    outcome = played(AsMuchAsPasses(), setting, noised(1.0))
    assert outcome.status == "value"
    shift = values_of(outcome.units, SHIFT)
    assert np.allclose(shift, 0.9 * most, atol=30)


def test_who_adds_nothing_leaves_the_counts_as_they_are():
    scene = LOOSE.play(AddingRecords(0), noised(1.0), 1)
    np.testing.assert_array_equal(view_of(scene).counts, scene.truth["without"])
    moved = LOOSE.play(AddingRecords(1), noised(1.0), 1)
    np.testing.assert_array_equal(view_of(moved).counts, scene.truth["without"] + 1)


def test_who_is_asked_for_a_move_sees_no_counts():
    seen = []

    class Watching(AddingRecords):
        def craft(self, view, rng):
            seen.append(view)
            return 3

    LOOSE.play(Watching(), noised(1.0), 2)
    assert seen[0].counts is None
    assert (seen[0].clients, seen[0].max_records, seen[0].groups) == (5, 1 << 20, 2)
