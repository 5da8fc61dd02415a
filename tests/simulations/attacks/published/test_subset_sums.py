"""Subset sums: exact answers reveal bits, noise of order sqrt(n) hides them."""

import numpy as np
import pytest
from narrowed import hits_of, present, view_of
from scipy.stats import norm
from view_parts import parts

from zerosum.simulations.attacks.harness.interface import Case, Defense, NotApplicable
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.published.answers import AnswersSetting, AnswersView
from zerosum.simulations.attacks.published.asked_subsets import AskedSubsets
from zerosum.simulations.attacks.published.asked_tables import MASKED, noised
from zerosum.simulations.attacks.published.asked_tables import PLAIN as UNNOISED
from zerosum.simulations.attacks.published.people import dealt
from zerosum.simulations.attacks.published.subset_sums import LeastSquares, LinearProgram, WithPrior
from zerosum.simulations.attacks.published.sums import private_sum_of
from zerosum.simulations.data.data_files import DataError

ATTACKS = [LeastSquares(), LinearProgram(), WithPrior()]
SMALL = AnswersSetting(people=40, queries=160)
PLAIN = Defense("plain", clip=SMALL.clip)


def right(attack, setting, protection, seed=0):
    outcome = play(0, Cell(attack, Case(setting, protection)), seed)
    assert outcome.status == "value", outcome.note
    return hits_of(outcome.units, "bits right").mean(), outcome


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.adaptive)
def test_exact_answers_reveal_every_bit_masked_or_not(attack):
    masked = Defense("masked", masking="double", clip=SMALL.clip)
    assert right(attack, SMALL, PLAIN)[0] == 1
    assert right(attack, SMALL, masked)[0] == 1


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.adaptive)
def test_much_noise_leaves_little_beyond_the_majority(attack):
    fraction, outcome = right(attack, SMALL, SMALL.noised("distributed", 8.0))
    assert fraction < 0.85
    assert 0 < outcome.epsilon < 1


def test_too_few_answers_do_not_determine_the_bits():
    few = AnswersSetting(people=40, queries=20)
    assert right(LeastSquares(), few, Defense("plain", clip=few.clip))[0] < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["distributed", "central", "local"])
def test_an_answer_has_the_noise_of_its_defense(kind):
    setting = AnswersSetting(people=30, queries=2000)
    scene = setting.play(LeastSquares(), setting.noised(kind, 0.5), 3)
    view = view_of(scene)
    errors = view.answers - view.queries.astype(float) @ scene.truth["bits"]
    wanted = 0.5 * np.sqrt(30)
    assert view.noise_std == pytest.approx(wanted, rel=0.02)
    assert errors.std() == pytest.approx(wanted, rel=0.1)
    assert abs(errors.mean()) < 5 * wanted / np.sqrt(2000)


def test_the_clip_changes_no_contribution():
    view = view_of(SMALL.play(LeastSquares(), PLAIN, 0))
    assert (view.queries.sum(axis=0) == 80).all()
    assert SMALL.clip**2 == pytest.approx(80)


@pytest.mark.slow
def test_the_view_holds_no_bits():
    scene = SMALL.play(LeastSquares(), SMALL.noised("distributed", 0.5), 0)
    for part in parts(sealed(scene.view)):
        if isinstance(part, np.ndarray):
            assert part.shape != scene.truth["bits"].shape
    assert not hasattr(scene.view, "bits")


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.adaptive)
def test_guesses_follow_the_order_of_people(attack):
    view = view_of(SMALL.play(attack, SMALL.noised("distributed", 0.5), 1))
    order = np.random.default_rng(0).permutation(40)
    other = AnswersView(
        view.threat,
        view.protection,
        queries=view.queries[:, order],
        answers=view.answers,
        noise_std=view.noise_std,
        share=view.share,
    )
    rng = np.random.default_rng(0)
    assert (attack.run(other, rng)["bits"] == attack.run(view, rng)["bits"][order]).all()


@pytest.mark.slow
def test_epsilon_falls_with_noise():
    spent = [
        present(SMALL.play(LeastSquares(), SMALL.noised("central", level), 0).epsilon)
        for level in (0.5, 2)
    ]
    assert spent[0] > 2 * spent[1] > 0
    assert SMALL.play(LeastSquares(), PLAIN, 0).epsilon == np.inf


def test_an_analyst_s_epsilon_counts_all_noise_of_an_answer():
    """Whoever adds it: noise of one deviation promises the same of the answers that carry it."""
    local, central = (
        present(SMALL.play(LeastSquares(), SMALL.noised(kind, 1.0), 0).epsilon)
        for kind in ("local", "central")
    )
    mu = np.sqrt(80) / np.sqrt(40)  # a bit moves 80 of 160 answers by one; each has sqrt(40)
    e = local
    delta = norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu)
    assert delta == pytest.approx(1e-5, rel=0.01)
    assert local == pytest.approx(central, rel=0.01)


def test_two_seeds_share_no_people():
    taken = [dealt("people of subset sums", 569, 100, seed) for seed in range(5)]
    assert len(np.unique(taken)) == 500
    with pytest.raises(NotApplicable, match=r"seeds from 0 to 4 take 100 people each, of 569"):
        AnswersSetting().play(LeastSquares(), PLAIN, 5)


def test_a_private_sum_of_vectors_equals_their_sum():
    vectors = np.random.default_rng(0).uniform(-1, 1, (5, 7))
    for protection in (Defense("p", clip=3.0), Defense("m", masking="double", clip=3.0)):
        answered = private_sum_of(vectors, protection, 0)
        assert np.allclose(answered.total, vectors.sum(axis=0), atol=1e-5)
        assert (answered.contributions is None) == protection.masked


def test_a_missing_file_is_named():
    gone = AnswersSetting(path="gone/heart.csv")
    with pytest.raises(DataError, match=r"gone/heart\.csv.*no such file"):
        gone.play(LeastSquares(), PLAIN, 0)


ASKED = AskedSubsets(people=40, queries=80, clients=5)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.adaptive)
def test_real_queries_without_noise_reveal_every_bit_masked_or_not(attack):
    assert right(attack, ASKED, UNNOISED)[0] == 1
    assert right(attack, ASKED, MASKED)[0] == 1


def test_a_query_counts_a_group_and_everybody_else():
    scene = ASKED.play(LeastSquares(), UNNOISED, 0)
    view = view_of(scene)
    assert view.queries.shape == (160, 40)
    assert (view.queries[:80] ^ view.queries[80:]).all()
    np.testing.assert_array_equal(view.answers, view.queries.astype(float) @ scene.truth["bits"])


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_queries_cost_what_they_add_up_to(epsilon):
    """Each one's noise is of scale 1/epsilon, and the server tops it up to 1/f of it."""
    scene = ASKED.play(LeastSquares(), noised(epsilon), 0)
    view = view_of(scene)
    errors = view.answers - view.queries.astype(float) @ scene.truth["bits"]
    a = np.exp(-epsilon)
    wanted = np.sqrt(1.25 * 2 * a) / (1 - a)
    assert view.noise_std == pytest.approx(wanted)
    assert ASKED.noise(epsilon) == pytest.approx(wanted / np.sqrt(40))
    assert errors.std() == pytest.approx(wanted, rel=0.25)
    _, outcome = right(LeastSquares(), ASKED, noised(epsilon))
    assert f"80 queries of epsilon {epsilon:g} have {80 * epsilon:g} in all" in outcome.note
    assert present(outcome.epsilon) < 80 * epsilon


def test_the_ledger_of_real_queries_adds_up_to_answers_times_epsilon(monkeypatch):
    from zerosum.simulations.attacks.published import asked_subsets

    spent = []

    def watched(asked):
        spent.append((asked.budget.used, asked.ledger.receipts("sum")))
        return released(asked)

    released = asked_subsets.released
    monkeypatch.setattr(asked_subsets, "released", watched)
    ASKED.play(LeastSquares(), noised(0.25), 7)
    ((used, (receipt,)),) = spent
    assert used == 80 * 0.25
    assert receipt.moves == (1,) * 80
    assert receipt.pure_epsilon() == pytest.approx(20, rel=1e-12)


@pytest.mark.slow
def test_much_noise_in_real_queries_leaves_little_beyond_the_majority():
    loud = [right(WithPrior(), ASKED, noised(0.05), seed)[0] for seed in range(2)]
    quiet = [right(WithPrior(), ASKED, noised(2.0), seed)[0] for seed in range(2)]
    assert np.mean(loud) < 0.8 < 0.99 < np.mean(quiet)


@pytest.mark.slow
def test_subset_sums_reach_their_reported_figures():
    setting = AnswersSetting()
    wanted = {0.25: (0.9, 1.0), 0.5: (0.75, 0.93), 1.0: (0.6, 0.8), 2.0: (0.5, 0.72)}
    for level, (low, high) in wanted.items():
        noised = setting.noised("distributed", level)
        fraction = np.mean([right(WithPrior(), setting, noised, seed)[0] for seed in range(3)])
        assert low <= fraction <= high, level


@pytest.mark.parametrize("wanted", [0, 570])
def test_too_many_people_are_an_error_not_an_inapplicable_cell(wanted):
    with pytest.raises(ValueError, match=f"{wanted} of 569 people; choose 1 to 569"):
        dealt("people of subset sums", 569, wanted, 0)
