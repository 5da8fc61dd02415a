"""Sign flip and inner product: their updates, under a mean and a median."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from narrowed import present

from zerosum.simulations.attacks.harness.interface import Case
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import POOLED, rows_of
from zerosum.simulations.attacks.poisoning.goals import (
    CLIPS,
    IID_CLIENTS,
    LOCAL,
    MASKED_AND_CLIPPED,
    MASKED_SUM,
    NO_DEFENSE,
    OWN_CODE,
    PROTECTIONS,
    RULES,
)
from zerosum.simulations.attacks.poisoning.hiding import ATTACKS as HIDING
from zerosum.simulations.attacks.poisoning.malicious import PoisonView
from zerosum.simulations.attacks.poisoning.opposing import ATTACKS, InnerProduct, SignFlip
from zerosum.simulations.attacks.poisoning.replacement import ATTACKS as REPLACING

RNG = np.random.default_rng(0)
KNOWN = RNG.normal(size=(4, 50))
VIEW = PoisonView(SignFlip.threat, NO_DEFENSE, clients=20, honest=KNOWN)


def test_sign_flip_negates_each_client_s_own_update() -> None:
    assert np.array_equal(SignFlip(scale=3.0).craft(VIEW, RNG), -3 * KNOWN)


@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_inner_product_with_the_known_mean_is_minus_epsilon(epsilon) -> None:
    sent, mean = InnerProduct(epsilon=epsilon).craft(VIEW, RNG), KNOWN.mean(axis=0)
    assert sent.shape == KNOWN.shape
    assert np.allclose(sent @ mean, -epsilon * mean @ mean)


@pytest.mark.parametrize("attack", ATTACKS)
def test_updates_follow_the_colluders_order(attack) -> None:
    order = np.array([2, 0, 3, 1])
    turned = replace(VIEW, honest=KNOWN[order])
    assert np.allclose(attack.craft(turned, RNG), attack.craft(VIEW, RNG)[order])


@pytest.mark.parametrize("name", ["sign flip", "inner product", "a little is enough", "min-max"])
def test_variants_share_the_quick_columns_and_play_each_in_the_full_suite(name: str) -> None:
    variants = [
        attack for attack in (*ATTACKS, *HIDING) if attack.name == name and not attack.own_code
    ]
    columns = [case.protection for attack in variants for case in attack.cases("quick")]
    assert set(columns) == set(PROTECTIONS)
    for attack in variants:
        assert {one.name for one in attack.protections("quick")} == set(attack.only)
        assert {*PROTECTIONS, LOCAL} == {case.protection for case in attack.cases("full")}


@pytest.mark.parametrize("attack", [*ATTACKS, *HIDING, *REPLACING])
def test_a_description_of_a_clip_names_whose_it_is(attack: Any) -> None:
    """A caption is of all columns, with a clip and without."""
    if "clip" in attack.adaptive:
        assert attack.adaptive.startswith(OWN_CODE if attack.own_code else CLIPS)
    if attack.own_code:
        assert all(case.protection.clip for case in attack.cases("full"))


@pytest.mark.slow
def test_sign_flip_ruins_the_mean_and_not_the_median() -> None:
    median = next(rule for rule in RULES if rule.name == "median")
    tried = (NO_DEFENSE, MASKED_SUM, MASKED_AND_CLIPPED, median)
    cells = [Cell(SignFlip(), Case(IID_CLIENTS, one)) for one in tried]
    rows = rows_of(cells, play_all(cells, seeds=(0, 1, 2), workers=1))
    found = {row.protection: present(row.value) for row in rows if row.seed == POOLED}
    blind = {row.protection: present(row.baseline) for row in rows if row.seed == POOLED}
    assert found["plain"] == found["masked"] < 0.3
    assert found["median"] > 0.65
    assert found[MASKED_AND_CLIPPED.name] > 0.65
    assert all(value > 0.75 for value in blind.values())
