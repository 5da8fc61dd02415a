"""Lying about dropouts: what each lie opens, and what refuses it."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from narrowed import hits_of, view_of

from zerosum.secagg import Policy, UnsafeGraph
from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.protocol.dropout_lies import LyingAboutDropouts
from zerosum.simulations.attacks.protocol.sessions import SessionsSetting

SINGLE = Defense("single", "single", 6, confirm=False)
DOUBLE = Defense("double", "double", 6, confirm=False)


def outcome(attack, protection, seed=0, **setting):
    case = Case(SessionsSetting(attack.clients, attack.trials, **setting), protection)
    outcome = play(0, Cell(attack, case), seed)
    assert outcome.status == "value", outcome.note
    assert not hits_of(outcome.baseline, "update recovered").any()
    return outcome


def recovered(attack, protection, **setting):
    return hits_of(outcome(attack, protection, **setting).units, "update recovered").tolist()


def confirmed(protection):
    return dataclasses.replace(protection, confirm=True)


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("confirm", [False, True])
def test_one_lie_opens_single_masks_and_not_double_masks(confirm):
    attack = LyingAboutDropouts("dropped", trials=3)
    single, double = (dataclasses.replace(defense, confirm=confirm) for defense in (SINGLE, DOUBLE))
    assert recovered(attack, single) == [True] * 3
    lied = outcome(attack, double)
    assert not hits_of(lied.units, "update recovered").any()
    assert lied.note == "", "the lie is a possible truth: nobody refuses it"


def test_only_clients_without_the_check_give_both_kinds_of_shares():
    attack = LyingAboutDropouts("both", trials=3)
    assert recovered(attack, DOUBLE, weakness="one-kind check") == [True] * 3
    lied = outcome(attack, DOUBLE)
    assert not hits_of(lied.units, "update recovered").any()
    assert lied.note == "clients refused: ConflictingMessage at unmask"


@pytest.mark.slow
def test_confirm_binds_clients_without_the_check_too():
    attack = LyingAboutDropouts("both", trials=2)
    lied = outcome(attack, confirmed(DOUBLE), weakness="one-kind check")
    assert not hits_of(lied.units, "update recovered").any()
    assert "ConflictingMessage at confirm" in lied.note


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "threshold"), [(9, 6), (8, 5), (6, 4), (7, 6)])
@pytest.mark.parametrize("confirm", [False, True])
def test_a_split_view_opens_a_vector_from_the_bound_on(clients, threshold, confirm):
    attack = LyingAboutDropouts("split", clients, threshold, trials=2)
    # As many colluders as the threshold need nobody, whatever was signed: it tells where t = k.
    bound = min(threshold, 2 * threshold - (clients - 1) + confirm)
    protection = dataclasses.replace(DOUBLE, threshold=threshold, confirm=confirm)
    for colluders in (bound - 1, bound, bound + 1):
        if colluders < clients:
            opened = recovered(attack, protection, colluders=colluders)
            assert opened == [colluders >= bound] * 2, colluders


@pytest.mark.slow
def test_a_split_view_below_the_bound_names_the_refusal():
    attack = LyingAboutDropouts("split", trials=2)
    refused = outcome(attack, confirmed(DOUBLE), colluders=attack.bound)
    assert refused.note == "clients refused: TooFewSignatures at unmask"


def test_the_client_s_policy_refuses_a_threshold_within_the_bound():
    setting = SessionsSetting(9, trials=1)
    (transcript,) = view_of(setting.play(LyingAboutDropouts(), confirmed(DOUBLE), 0)).trials[0]
    session = transcript.opened()
    Policy(corruption=3 / 9, smallest_cohort=2).admit(session)
    with pytest.raises(UnsafeGraph):
        Policy(corruption=4 / 9, smallest_cohort=2).admit(session)


@pytest.mark.slow
def test_guesses_follow_the_order_of_trials():
    attack = LyingAboutDropouts("split", trials=4)
    setting = SessionsSetting(9, 4, colluders=4)
    view: Any = sealed(setting.play(attack, DOUBLE, 0).view)
    turned = dataclasses.replace(view, trials=view.trials[::-1])
    rng = np.random.default_rng(0)
    straight, back = (attack.run(v, rng)["updates"] for v in (view, turned))
    assert straight.any(axis=1).all()
    np.testing.assert_array_equal(straight, back[::-1])


def test_quick_cases_lie_on_both_sides_of_the_bound():
    at = [case.at["colluders"] for case in LyingAboutDropouts("split").cases("quick")]
    assert at == [3, 3, 4, 4, 5, 5]
    assert len(list(LyingAboutDropouts("split").cases("full"))) == 14


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "rates"),
    [
        ("dropped", [1, 1, 1, 0, 0]),
        ("both", [0, 0, 1, 0]),
        ("split", [0, 0, 1, 0, 1, 1]),
    ],
)
def test_dropout_lies_reach_their_reported_figures(lie, rates):
    attack = LyingAboutDropouts(lie)
    measured = [
        np.mean(
            [hits_of(play(0, Cell(attack, case), s).units, "update recovered") for s in range(3)]
        )
        for case in attack.cases("quick")
    ]
    assert measured == rates
