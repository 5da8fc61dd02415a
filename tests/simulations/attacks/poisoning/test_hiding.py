"""Hidden attacks: their distances, against the papers' figures and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from zerosum.simulations.attacks.poisoning.directions import along
from zerosum.simulations.attacks.poisoning.goals import DIRICHLET_CLIENTS, IID_CLIENTS, NO_DEFENSE
from zerosum.simulations.attacks.poisoning.hiding import (
    LittleIsEnough,
    MinMax,
    deviations_of,
    furthest,
)
from zerosum.simulations.attacks.poisoning.malicious import PoisonView

RNG = np.random.default_rng(0)
KNOWN = RNG.normal(1.0, 2.0, size=(5, 40))
VIEW = PoisonView(MinMax.threat, NO_DEFENSE, clients=20, honest=KNOWN)


@pytest.mark.parametrize(
    ("clients", "malicious", "expected"), [(50, 24, 1.426), (20, 4, 0.1573), (50, 12, 0.3360)]
)
def test_deviations_are_those_of_a_normal_table(clients, malicious, expected) -> None:
    """Fractions 24/26, 9/16 and 24/38 of a normal distribution lie below."""
    assert deviations_of(clients, malicious) == pytest.approx(expected, abs=1e-3)


def test_deviations_grow_with_the_colluders() -> None:
    deviations = [deviations_of(20, malicious) for malicious in range(1, 10)]
    assert deviations == sorted(deviations)
    assert deviations[0] >= 0


@pytest.mark.parametrize("z", [None, 1.5])
def test_the_update_lies_z_deviations_below_the_mean(z) -> None:
    sent = LittleIsEnough(deviations=z).craft(VIEW, RNG)
    assert sent.shape == KNOWN.shape
    assert (sent == sent[0]).all()
    away = (KNOWN.mean(axis=0) - sent[0]) / KNOWN.std(axis=0, ddof=1)
    assert np.allclose(away, deviations_of(20, 5) if z is None else z)


@pytest.mark.parametrize("direction", ["deviation", "unit", "sign"])
def test_the_update_is_as_far_as_the_largest_known_distance(direction) -> None:
    sent = MinMax(direction=direction).craft(VIEW, RNG)[0]
    mean, largest = KNOWN.mean(axis=0), pdist(KNOWN).max()
    assert np.linalg.norm(KNOWN - sent, axis=1).max() == pytest.approx(largest)
    further = mean + 1.001 * (sent - mean)
    assert np.linalg.norm(KNOWN - further, axis=1).max() > largest


def test_furthest_is_the_root_of_the_quadratic() -> None:
    way = RNG.normal(size=40)
    way /= np.linalg.norm(way)
    away = KNOWN.mean(axis=0) - KNOWN
    along, largest = away @ way, pdist(KNOWN).max()
    roots = -along + np.sqrt(along**2 - (away**2).sum(axis=1) + largest**2)
    assert furthest(KNOWN, way) == pytest.approx(roots.min())


@pytest.mark.parametrize("direction", ["deviation", "unit", "sign"])
def test_min_sum_has_the_largest_known_sum_of_squared_distances(direction) -> None:
    sent = MinMax(direction=direction, summed=True).craft(VIEW, RNG)[0]
    largest = max(((KNOWN - one) ** 2).sum() for one in KNOWN)
    assert ((KNOWN - sent) ** 2).sum() == pytest.approx(largest)
    way = sent - KNOWN.mean(axis=0)
    assert way @ along(KNOWN, direction) == pytest.approx(np.linalg.norm(way))


@pytest.mark.parametrize("attack", [LittleIsEnough(deviations=1.5), MinMax(), MinMax(summed=True)])
def test_a_single_client_sends_its_own_update(attack) -> None:
    alone = replace(VIEW, honest=KNOWN[:1])
    assert np.array_equal(attack.craft(alone, RNG), KNOWN[:1])


@pytest.mark.parametrize("attack", [LittleIsEnough(deviations=1.5), MinMax(), MinMax(summed=True)])
def test_the_update_does_not_depend_on_the_colluders_order(attack) -> None:
    turned = replace(VIEW, honest=KNOWN[::-1].copy())
    assert np.allclose(attack.craft(turned, RNG), attack.craft(VIEW, RNG))


def test_hidden_attacks_are_played_on_uneven_data() -> None:
    for attack in (LittleIsEnough(), MinMax()):
        assert {case.setting for case in attack.cases("quick")} == {DIRICHLET_CLIENTS}
        assert IID_CLIENTS in {case.setting for case in attack.cases("full")}
