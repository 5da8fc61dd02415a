"""The figures of a run that ended early are those of all planned rounds."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.privacy.calibration import (
    PlannedRun,
    planned_cohort,
    planned_figures,
    planned_participations,
)
from zerosum.server.privacy.run_ledger import Figures, RunLedger
from zerosum.server.privacy.unrun_rounds import unrun_rounds, whole_run_figures
from zerosum.server.spec import SamplingSpec

POPULATION, DIMENSION, ROUNDS, DONE = 60, 500, 12, 5
PRIVACY = PrivacySpec(noise_multiplier=2.0, delta=1e-3)
SECAGG = SecAggSpec(dropout=0.1)
Kind = Literal["poisson", "fixed", "everyone", "once"]


def protection(privacy: PrivacySpec, cohort: int, dimension: int) -> Protection:
    return Protection.build(
        privacy, EncodingSpec(), cohort=cohort, dimension=dimension, rotation_seed=bytes(32)
    )


def cohort_of(kind: Kind) -> int:
    return {"everyone": POPULATION, "once": POPULATION // ROUNDS}.get(kind, 20)


class Run:
    """A ledger of so many rounds, whose cohorts follow from their number."""

    def __init__(self, kind: Kind, rounds: int, privacy: PrivacySpec = PRIVACY) -> None:
        self.kind, self.privacy = kind, privacy
        self.sampling = SamplingSpec(kind=kind, cohort=cohort_of(kind))
        self.ledger = RunLedger(
            None,
            privacy=privacy,
            secagg=SECAGG,
            sampling=self.sampling,
            population=POPULATION,
            protections={"train": protection(privacy, cohort_of(kind), DIMENSION)},
        )
        for number in range(1, rounds + 1):
            self.play(number)

    def play(self, number: int, *, attempt: int = 0, opened: bool = True) -> None:
        clients = self.clients(number)
        key = (number, attempt, "train", 0)
        self.ledger.charge_contributions(key, clients, cohort=len(clients))
        if opened:
            self.ledger.charge_sum(key)

    def clients(self, number: int) -> list[int]:
        size, draw = cohort_of(self.kind), np.random.default_rng(number)
        if self.kind == "everyone":
            return [*range(POPULATION)]
        if self.kind == "once":
            return [*range(size * (number - 1), size * number)]
        if self.kind == "fixed":
            chosen: list[int] = draw.choice(POPULATION, size, replace=False).tolist()
            return chosen
        drawn: list[int] = np.flatnonzero(draw.random(POPULATION) < size / POPULATION).tolist()
        return drawn

    @property
    def plan(self) -> PlannedRun:
        return PlannedRun(
            sampling=self.sampling,
            secagg=SECAGG,
            encoding=EncodingSpec(),
            population=POPULATION,
            rounds=ROUNDS,
            dimension=DIMENSION,
        )

    def whole(self, done: int = DONE, *, by_caller: bool = False) -> Figures:
        left = unrun_rounds(done, ROUNDS, 0, by_caller=by_caller)
        return whole_run_figures(self.ledger, self.privacy, self.plan, left)


@pytest.mark.parametrize("observer", ["release", "sum", "local"])
def test_known_cohorts_cost_what_the_whole_run_costs(observer):
    ended, full = Run("everyone", DONE), Run("everyone", ROUNDS).ledger.figures()
    found = ended.whole()[observer]
    assert found.value == pytest.approx(full[observer].value, rel=1e-9)
    assert found.participations == full[observer].participations
    assert ended.ledger.figures()[observer].value < 0.8 * found.value, "the control: the odometer"


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("kind", ["poisson", "fixed", "everyone", "once"])
def test_releases_cost_what_those_of_all_rounds_cost(kind: Kind):
    ended, full = Run(kind, DONE), Run(kind, ROUNDS).ledger.figures()
    found = ended.whole()["release"]
    assert found.value >= full["release"].value * (1 - 1e-6)
    if kind != "fixed":  # whose known cohorts are counted as planned, for every observer
        assert found.value == pytest.approx(full["release"].value, rel=1e-6)
        assert found.participations == full["release"].participations


@pytest.mark.parametrize("kind", ["poisson", "fixed"])
def test_drawn_cohorts_cost_at_most_the_plan_and_no_less_than_the_run_that_went_on(kind: Kind):
    ended, full = Run(kind, DONE), Run(kind, ROUNDS).ledger.figures()
    planned = planned_figures(PRIVACY, ended.plan)
    for observer, bound in ended.whole().items():
        assert full[observer].value * (1 - 1e-6) <= bound.value
        assert bound.value <= planned[observer].value * (1 + 1e-3)
        noted = "no client would have been asked more than" in " ".join(bound.assumptions)
        assert noted == (observer != "release" or kind == "fixed")


def test_a_client_that_was_asked_more_often_than_any_plan_counts_is_charged_on_top():
    ended = Run("poisson", 0)
    most = planned_participations(ended.sampling, POPULATION, ROUNDS)
    for number in range(1, ROUNDS):
        ended.ledger.charge_contributions((number, 0, "train", 0), [0], cohort=20)
        ended.ledger.charge_contributions((number, 1, "train", 0), [0], cohort=20)
    assert most < 2 * (ROUNDS - 1)
    assert ended.whole(ROUNDS - 1)["sum"].participations == 2 * (ROUNDS - 1) + 1


def test_a_client_that_was_asked_less_often_so_far_is_covered_in_large_sessions_to_come():
    ended, other, done, rounds = Run("poisson", 0), Run("poisson", 0), 30, 60
    plan = replace(ended.plan, rounds=rounds)
    for number in range(1, done + 1):  # the first client, in small sessions; the second in none
        ended.ledger.charge_contributions((number, 0, "train", 0), [0], cohort=2)
    large = planned_cohort(plan.sampling, POPULATION, rounds)
    for number in range(planned_participations(plan.sampling, POPULATION, rounds - done)):
        other.ledger.charge_contributions((done + number, 0, "train", 0), [1], cohort=large)
    whole = whole_run_figures(ended.ledger, PRIVACY, plan, unrun_rounds(done, rounds, 0))
    reached, spent = other.ledger.figures()["local"].value, ended.ledger.figures()["local"].value
    assert whole["local"].value >= reached > spent


def test_who_is_asked_once_is_charged_once():
    ended = Run("once", DONE)
    spent, whole = ended.ledger.figures(), ended.whole()
    for observer, bound in whole.items():
        assert bound.participations == 1
        assert bound.value == pytest.approx(spent[observer].value, rel=1e-9)


def test_rounds_that_were_abandoned_and_attempts_stay_charged():
    ended = Run("everyone", DONE)
    ended.play(DONE + 1, opened=False)
    assert ended.whole(DONE + 1)["sum"].participations == ROUNDS
    again = Run("everyone", DONE)
    again.play(DONE, attempt=1)
    assert again.whole()["sum"].participations == ROUNDS + 1
    drawn = Run("poisson", DONE)
    drawn.play(DONE + 1, opened=False)
    assert drawn.whole(DONE + 1)["release"].participations == ROUNDS - 1


@pytest.mark.slow
def test_dropouts_beyond_the_assumed_ones_are_charged_in_the_rounds_that_are_left_too():
    done = ROUNDS - 3
    books = Run("poisson", done), Run("poisson", ROUNDS), Run("poisson", done)
    for book in books[:2]:
        for number in range(1, done + 1):
            key, cohort = (number, 0, "train", 0), len(book.clients(number))
            book.ledger.note_survivors(key, cohort=cohort, survived=cohort // 3)
    ended, full, calm = books
    assert ended.ledger.excess_dropout
    found = ended.whole(done)["release"].value
    assert found >= full.ledger.figures()["release"].value * (1 - 1e-6)
    assert found > calm.whole(done)["release"].value, "the control: as many as assumed"


def test_the_figure_says_that_the_run_ended_and_by_whom():
    ended = Run("everyone", DONE)
    for observer, bound in ended.whole(by_caller=True).items():
        notes = " ".join(bound.assumptions)
        assert f"all {ROUNDS} planned rounds were run: the run ended after {DONE}" in notes
        assert ("its caller ended it for nothing" in notes) == (observer == "release")
    assert "its caller" not in str(ended.whole())


def test_a_run_that_ends_before_anybody_was_asked_is_charged_all_the_same():
    whole = Run("everyone", 0).whole(1)
    full = Run("everyone", ROUNDS - 1).ledger.figures()
    assert whole["sum"].value == pytest.approx(full["sum"].value, rel=1e-9)


def test_evaluations_that_are_left_are_counted():
    assert unrun_rounds(5, 12, 4).sums == {"train": 7, "evaluate": 2}
    assert unrun_rounds(8, 12, 4).sums == {"train": 4, "evaluate": 1}
    assert unrun_rounds(5, 12, 0).sums == {"train": 7}


def test_without_noise_there_is_no_figure_to_raise():
    run = Run("everyone", DONE, PrivacySpec(model="none", clip=1.0))
    assert all(not bound.finite for bound in run.whole().values())


# Why: the best rule of stopping, by dynamic programming over the loss of Gaussian rounds.

MOST, DELTA = 12, 1e-3


def gaussian_delta(epsilon: float, rounds: int, z: float) -> float:
    """Balle and Wang (2018), theorem 8, of `rounds` releases of noise multiplier `z`."""
    mu = math.sqrt(rounds) / z
    above = norm.cdf(mu / 2 - epsilon / mu)
    return float(above - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def epsilon_of(rounds: int, z: float) -> float:
    return float(brentq(lambda e: gaussian_delta(e, rounds, z) - DELTA, 0, 100))


def delta_of_best_stopping(promised: Callable[[int], float], z: float) -> float:
    """The delta that an adversary reaches who ends the run when the loss so far suits it best.

    The loss is a walk with steps of law N(m, 2 m), m = 1/(2 z^2). Ended after t rounds at a loss L,
    a promise of epsilon_t is exceeded by max(0, 1 - exp(epsilon_t - L)).
    """
    mean = 1 / (2 * z**2)
    grid: NDArray[np.float64] = np.linspace(-6, 16, 1761)
    width = grid[1] - grid[0]
    steps = norm.pdf(grid[:, None] + mean, grid[None, :], math.sqrt(2 * mean)) * width

    def excess(rounds: int) -> NDArray[np.float64]:
        return np.maximum(0.0, 1 - np.exp(promised(rounds) - grid))

    value = excess(MOST)
    for rounds in range(MOST - 1, 0, -1):
        value = np.maximum(excess(rounds), steps @ value)
    return float(np.interp(0.0, grid, steps @ value))


@pytest.mark.slow
def test_an_epsilon_that_is_read_when_a_run_ends_promises_too_much():
    z = 3.0
    read = delta_of_best_stopping(lambda rounds: epsilon_of(rounds, z), z)
    whole = delta_of_best_stopping(lambda rounds: epsilon_of(MOST, z), z)
    assert whole == pytest.approx(DELTA, rel=0.02), "of all planned rounds it holds, and exactly"
    assert read > 2 * DELTA
