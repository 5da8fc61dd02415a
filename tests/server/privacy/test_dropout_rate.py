"""The assumed dropout rate, and what is charged when more drop out."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import PoissonSampledDpEvent
from scipy.stats import binomtest

from zerosum.client.privacy.events import MaybeAbandonedDpEvent
from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.privacy.accountant import Ledger
from zerosum.server.privacy.dropout_rate import FEWEST_SEEN, MISSED_RATE, DropoutRate
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.spec import SamplingSpec

PRIVACY = PrivacySpec(noise_multiplier=1.28, honest_fraction=0.6, delta=1e-3)


def digits(path: Path | None = None, **changes) -> RunLedger:
    """The shipped experiment at honest_fraction 0.6 and a dropout of 0.1 assumed."""
    protection = Protection.build(
        PRIVACY, EncodingSpec(), cohort=25, dimension=650, rotation_seed=bytes(32)
    )
    sampling = SamplingSpec(kind=changes.pop("kind", "poisson"), cohort=25)
    return RunLedger(
        path,
        privacy=PRIVACY,
        secagg=SecAggSpec(dropout=0.1, groups=changes.pop("groups", 1)),
        sampling=sampling,
        population=100,
        protections={"train": protection},
    )


def rounds(
    book: RunLedger, count: int, *, survived: int, first: int = 0, opened: bool = True
) -> RunLedger:
    for number in range(first, first + count):
        key = (number, 0, "train", 0)
        if opened:
            book.charge_contributions(key, range(25), cohort=25)
            book.charge_sum(key)
        book.note_survivors(key, cohort=25, survived=survived)
    return book


def release(book: RunLedger) -> EpsilonBound:
    return book.figures()["release"]


def test_the_assumed_rate_is_named() -> None:
    found = release(rounds(digits(), 15, survived=23))
    assert "dropout at most 0.1 a client, independent of data" in found.assumptions
    assert not any("confidence" in note for note in found.assumptions)


def test_more_dropouts_than_assumed_cost_more_and_say_so(caplog) -> None:
    honest = release(rounds(digits(), 15, survived=23)).value
    with caplog.at_level(logging.WARNING, logger="zerosum.server"):
        book = rounds(digits(), 15, survived=18)
    found = release(book)
    assert "more than secagg.dropout = 0.1" in caplog.text
    assert book.excess_dropout is not None
    assert book.excess_dropout > 0.28
    assert any("with confidence 1 - 1e-06" in note for note in found.assumptions)
    # At least what the true rate, 28 %, costs; by Renyi divergences above 3.26 for 2.51.
    event = book.terms["train"].released()
    renyi = Ledger("zero_out", "rdp")
    sampled = PoissonSampledDpEvent(0.25, event)
    p = book.sampling.p
    assert p > 0.024
    assert renyi.compose(MaybeAbandonedDpEvent(sampled, p), 15).epsilon(1e-3) > 3.26
    old = Ledger("zero_out", "rdp").compose(MaybeAbandonedDpEvent(sampled, 2.5e-4), 15)
    assert old.epsilon(1e-3) == pytest.approx(2.51, abs=0.01)
    coupled = Ledger("zero_out").compose(MaybeAbandonedDpEvent(sampled, p), 15)
    assert found.value == pytest.approx(coupled.epsilon(1e-3), rel=1e-6)
    assert found.value > 1.2 * honest


@pytest.mark.slow
def test_the_rate_that_is_named_is_the_one_that_is_charged_where_it_costs_no_more() -> None:
    book = rounds(digits(groups=25), 6, survived=5)
    release(book)
    before = book.sampling
    rounds(book, 6, survived=0, first=6, opened=False)
    assert before.p == book.sampling.p == 1
    assert before.dropout < book.sampling.dropout
    named = f"dropout at most {book.sampling.dropout:g} a client"
    assert any(note.startswith(named) for note in release(book).assumptions)


@pytest.mark.slow
def test_what_is_charged_never_falls(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    before = 0.0
    for number in range(20):
        # Many drop out early, none later: the average comes back to what was assumed.
        book = rounds(digits(path), 1, survived=15 if number < 8 else 25, first=number)
        found = release(book).value
        assert found >= before
        before = found
    assert book.excess_dropout is not None
    assert book.excess_dropout > 0.4


def test_dropouts_are_remembered_by_the_file_and_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first = rounds(digits(path), 6, survived=17)
    line = json.loads(path.read_text().splitlines()[-1])
    assert line == {"type": "survived", "key": [5, 0, "train", 0], "cohort": 25, "survived": 17}
    again = digits(path)
    assert release(again) == release(first)
    assert again.excess_dropout == first.excess_dropout
    size = path.stat().st_size
    rounds(again, 6, survived=17)
    assert path.stat().st_size == size
    assert again.attempts(5, "train") == 0


def test_rounds_that_were_given_up_count_too() -> None:
    book = rounds(digits(), 5, survived=10, opened=False)
    assert book.excess_dropout is not None
    assert release(book).value == 0


def test_known_cohorts_have_no_figure_that_dropouts_change() -> None:
    book = rounds(digits(kind="fixed"), 6, survived=10)
    assert book.excess_dropout is None
    assert not any("dropout" in note for note in release(book).assumptions)


@pytest.mark.parametrize("survived", [-1, 26])
def test_impossible_numbers_of_survivors_are_refused(survived: int) -> None:
    with pytest.raises(ValueError, match="of a cohort of 25"):
        digits().note_survivors((0, 0, "train", 0), cohort=25, survived=survived)


def test_too_few_seen_conclude_nothing() -> None:
    seen = DropoutRate(0.1)
    assert not seen.note(FEWEST_SEEN - 1, 0)
    assert seen.charged == 0.1
    assert seen.note(1, 0)
    assert seen.charged == 1.0


def test_the_charged_rate_is_the_bound_of_clopper_and_pearson() -> None:
    seen = DropoutRate(0.1)
    assert seen.note(200, 140)
    exact = binomtest(60, 200, alternative="less").proportion_ci(1 - MISSED_RATE / 2, "exact")
    assert exact.high <= seen.charged < exact.high + 1e-3


@pytest.mark.statistical
@pytest.mark.parametrize(("rate", "most"), [(0.1, 0.05), (0.097, 0.03)])
def test_a_true_assumption_is_seldom_refuted(rate: float, most: float) -> None:
    coins = np.random.default_rng(0)
    refuted = 0
    for _ in range(2000):
        seen = DropoutRate(0.1)
        for dropped in coins.binomial(60, rate, size=40):
            seen.note(60, 60 - int(dropped))
        refuted += seen.exceeded
    assert refuted / 2000 < most


@pytest.mark.statistical
def test_a_refuted_assumption_is_replaced_by_more_than_the_truth() -> None:
    coins = np.random.default_rng(1)
    refuted = 0
    for _ in range(500):
        seen = DropoutRate(0.1)
        for dropped in coins.binomial(60, 0.2, size=40):
            seen.note(60, 60 - int(dropped))
            assert not seen.exceeded or seen.charged > 0.2
        refuted += seen.exceeded
    assert refuted == 500
