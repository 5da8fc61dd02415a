"""Two counts and their difference: masks hide nothing, noise what its epsilon says, asking adds."""

from dataclasses import replace

import numpy as np
import pytest
from narrowed import hits_of, present, view_of
from view_parts import parts

from zerosum.analytics import Draft, count, histogram, marginals
from zerosum.simulations.attacks.harness.interface import Case, Defense, NotApplicable
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.published.asked_tables import (
    MASKED,
    PLAIN,
    QueryDefense,
    federation,
    noised,
)
from zerosum.simulations.attacks.published.counts import CountsSetting
from zerosum.simulations.attacks.published.differencing_counts import (
    ATTACKS,
    KnowingTheOthers,
    Subtracting,
)

FEW = CountsSetting(groups=200)
MANY = CountsSetting(groups=20_000)
ATTACKERS = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.adaptive)


def right(attack, setting, protection, seed=0):
    outcome = play(0, Cell(attack, Case(setting, protection)), seed)
    assert outcome.status == "value", outcome.note
    assert hits_of(outcome.baseline, "bits right").mean() == 0.5
    return hits_of(outcome.units, "bits right"), outcome


def error(part, of):
    """Return four standard errors of a part of so many."""
    return 4 * np.sqrt(part * (1 - part) / of)


def zero_chance(scale, r):
    """Return P(Z = 0) of geometric noise to the power r, by its characteristic function."""
    a, t = np.exp(-1 / scale), np.arange(1 << 14) * 2 * np.pi / (1 << 14)
    phi = (1 - a) ** 2 / np.abs(1 - a * np.exp(1j * t)) ** 2
    return float(np.mean(phi**r))


@ATTACKERS
@pytest.mark.parametrize("protection", [PLAIN, MASKED], ids=lambda one: one.name)
def test_a_count_without_noise_tells_every_bit_masked_or_not(attack, protection):
    hits, outcome = right(attack, FEW, protection)
    assert hits.all()
    assert present(outcome.epsilon) > 100


@pytest.mark.quick_one_in(5)
@ATTACKERS
@pytest.mark.parametrize(("epsilon", "subtracted"), [(0.1, 0.51), (1.0, 0.62), (4.0, 0.96)])
def test_under_noise_a_bit_is_right_as_often_as_the_law_says_and_the_bound_allows(
    attack, epsilon, subtracted
):
    hits, _ = right(attack, MANY, noised(epsilon))
    # One count carries P(1/f) of noise, f = 0.8; the difference of two twice as much.
    power = 2.5 if isinstance(attack, Subtracting) else 1.25
    wanted = (1 + zero_chance(1 / epsilon, power)) / 2
    assert hits.mean() == pytest.approx(wanted, abs=error(wanted, len(hits)))
    if isinstance(attack, Subtracting):
        assert wanted == pytest.approx(subtracted, abs=0.005)
    bound = np.exp(epsilon) / (1 + np.exp(epsilon))
    assert hits.mean() < bound + error(bound, len(hits))


def test_noise_of_twice_the_epsilon_would_break_the_bound():
    """What the bound is good for: counts that were noised for 1 are more than 0.5 allows."""
    hits, _ = right(KnowingTheOthers(), MANY, noised(1.0))
    bound = np.exp(0.5) / (1 + np.exp(0.5))
    assert hits.mean() > bound + error(bound, len(hits))


@pytest.mark.statistical
@pytest.mark.parametrize(("times", "epsilon"), [(1, 1.0), (3, 1.0), (1, 4.0)])
def test_who_knows_the_others_is_right_as_often_as_accounting_says_is_possible(times, epsilon):
    setting = CountsSetting(groups=8_000, times=times)
    hits, _ = right(KnowingTheOthers(), setting, noised(epsilon))
    view = view_of(setting.play(KnowingTheOthers(), noised(epsilon), 0))
    assert hits.mean() == pytest.approx(view.most, abs=error(view.most, len(hits)))
    assert view.pure == times * epsilon
    assert view.most < np.exp(view.pure) / (1 + np.exp(view.pure))


@pytest.mark.statistical
@ATTACKERS
def test_fresh_answers_add_up_and_stored_ones_do_not(attack):
    once, often = CountsSetting(groups=4_000), CountsSetting(groups=4_000, times=6)
    alone, asked_once = right(attack, once, noised(1.0))
    fresh, dear = right(attack, often, noised(1.0))
    stored, cheap = right(attack, often, noised(1.0, fresh=False))
    assert fresh.mean() > alone.mean() + error(0.5, 4_000)
    assert stored.mean() == pytest.approx(alone.mean(), abs=error(0.5, 4_000))
    assert cheap.epsilon == asked_once.epsilon
    assert 4 * present(cheap.epsilon) < present(dear.epsilon) < 12


@pytest.mark.slow
def test_a_stored_answer_is_the_same_answer():
    view = view_of(replace(FEW, times=4).play(Subtracting(), noised(1.0, fresh=False), 0))
    assert view.counts.shape == view.without.shape == (4, 200)
    assert (view.counts == view.counts[0]).all()
    fresh = view_of(replace(FEW, times=4).play(Subtracting(), noised(1.0), 0))
    assert (fresh.counts != fresh.counts[0]).any(axis=1).tolist() == [False, True, True, True]


@pytest.mark.slow
@ATTACKERS
@pytest.mark.parametrize(("limit", "answers", "counts"), [(4.0, 4, 2), (5.0, 5, 3)])
def test_the_budget_ends_the_answers_and_the_attack_says_where(attack, limit, answers, counts):
    setting = replace(FEW, times=3)
    _, outcome = right(attack, setting, noised(1.0, limit=limit))
    assert f"refused after {answers} of 6 answers (this query costs 1.00; 0.00" in outcome.note
    assert f"epsilon {counts} in all" in outcome.note
    assert present(outcome.epsilon) < limit
    assert "refused" not in right(attack, setting, noised(1.0))[1].note


@pytest.mark.parametrize(
    ("attack", "limit", "status"),
    [
        (Subtracting(), 0.5, "stopped"),
        (Subtracting(), 1.0, "stopped"),
        (KnowingTheOthers(), 0.5, "stopped"),
        (KnowingTheOthers(), 1.0, "value"),
    ],
    ids=lambda value: getattr(value, "adaptive", str(value)),
)
def test_who_is_refused_at_once_is_left_with_the_baseline(attack, limit, status):
    outcome = play(0, Cell(attack, Case(FEW, noised(1.0, limit=limit))), 0)
    assert outcome.status == status
    assert "this query costs 1.00; 0." in outcome.note
    alike = hits_of(outcome.units, "bits right") == hits_of(outcome.baseline, "bits right")
    assert alike.all() == (status == "stopped")


def test_a_cell_has_the_noise_and_the_cost_of_a_count_that_is_asked_alone():
    """Groups are disjoint: one histogram plays as many independent trials of a count."""
    domains = {"group": {"integer": [0, 9]}, "bit": {"integer": [0, 1]}}
    columns = {"group": np.arange(10), "bit": np.ones(10, dtype=np.int64)}
    with federation(columns, domains, noised(1.0), clients=5, seed=0) as asked:

        def cost(draft: Draft):
            found = asked.cost(draft)
            return found.privacy, found.receipts

        alone = cost(count(where="bit = 1 and group = 3", epsilon=1.0))
        assert cost(histogram("group", where="bit = 1", epsilon=1.0)) == alone
        twice = marginals([["group"], ["bit"]], where="bit = 1", epsilon=1.0)
        assert cost(twice) != alone


def test_masked_answers_are_those_of_a_trusted_sum():
    masked = noised(1.0)
    plain = replace(masked, masking="none")
    found = [view_of(FEW.play(Subtracting(), one, 2)) for one in (masked, plain)]
    np.testing.assert_array_equal(found[0].counts, found[1].counts)
    np.testing.assert_array_equal(found[0].without, found[1].without)
    other = view_of(FEW.play(Subtracting(), masked, 3))
    assert (other.counts != found[0].counts).any()


@pytest.mark.slow
def test_the_view_holds_the_others_for_whom_knows_them_and_never_a_bit():
    scene = FEW.play(Subtracting(), noised(1.0), 0)
    assert view_of(scene).others is None
    known = FEW.play(KnowingTheOthers(), PLAIN, 0)
    view = view_of(known)
    assert ((view.counts[0] - view.others).astype(bool) == known.truth["bits"]).all()
    for one in (scene, known):
        for part in parts(sealed(one.view)):
            if isinstance(part, np.ndarray):
                assert not np.array_equal(np.ravel(part), one.truth["bits"])


@ATTACKERS
def test_guesses_follow_the_order_of_groups(attack):
    view = view_of(FEW.play(attack, noised(1.0), 1))
    order = np.random.default_rng(0).permutation(200)
    others = None if view.others is None else view.others[order]
    moved = replace(
        view, counts=view.counts[:, order], without=view.without[:, order], others=others
    )
    rng = np.random.default_rng(0)
    assert (attack.run(moved, rng)["bits"] == attack.run(view, rng)["bits"][order]).all()


@pytest.mark.parametrize(
    ("protection", "said"),
    [
        (Defense("plain"), "give a QueryDefense"),
        (QueryDefense("median", rule="median"), "plays no rule"),
        (QueryDefense("epsilon alone", epsilon=1.0), 'noise "none" is epsilon 128'),
        (QueryDefense("noise alone", noise="distributed"), 'noise "none" is epsilon 128'),
        (QueryDefense("local", noise="local", epsilon=1.0), "\"distributed\" noise, not 'local'"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_these_clients_do_not_play_is_refused(protection, said):
    with pytest.raises(NotApplicable, match=said):
        FEW.play(Subtracting(), protection, 0)


@pytest.mark.parametrize("changed", [{"epsilon": 0.0}, {"epsilon": np.nan}, {"limit": -1.0}])
def test_a_query_defense_out_of_range_cannot_be_made(changed):
    with pytest.raises(ValueError, match=next(iter(changed))):
        QueryDefense("p", noise="distributed", **changed)


@pytest.mark.parametrize("name", ["groups", "size", "clients", "times"])
def test_a_setting_out_of_range_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} = 0: give"):
        replace(FEW, **{name: 0}).play(Subtracting(), PLAIN, 0)


def test_every_case_is_told_apart_and_named_after_what_is_played():
    cases = [case for suite in ("quick", "full") for case in Subtracting().cases(suite)]
    names = {(case.setting.name, case.protection.name) for case in cases}
    assert len(names) == len({(repr(case.setting), repr(case.protection)) for case in cases})
    assert len(names) == 12


@pytest.mark.slow
def test_processes_find_what_one_process_finds_for_each_seed():
    cells = [
        Cell(attack, Case(replace(FEW, times=2), noised(1.0, limit=3.0))) for attack in ATTACKS
    ]

    def rows(workers):
        found = play_all(cells, range(2), workers)
        key = [
            (one.number, one.seed, one.epsilon, one.note, *hits_of(one.units, "bits right"))
            for one in found
        ]
        return sorted(key)

    alone = rows(1)
    assert alone == rows(2)
    assert alone[0][4:] != alone[1][4:]
