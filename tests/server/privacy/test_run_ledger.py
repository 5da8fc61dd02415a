import itertools
import json
import math
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from narrowed import present

from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.survivors import CohortTooSmallError
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.privacy.epsilons import all_figures
from zerosum.server.privacy.guarantees import ExampleUnit
from zerosum.server.privacy.ledger_file import LedgerMismatchError
from zerosum.server.privacy.release_sampling import sampling_terms
from zerosum.server.privacy.run_ledger import DeltaTooLargeError, RunLedger, UnknownKindError
from zerosum.server.private_sum.thresholds import Thresholds
from zerosum.server.spec import SamplingSpec

PRIVACY = PrivacySpec(noise_multiplier=2.1, honest_fraction=0.8)

SamplingKind = Literal["poisson", "fixed", "everyone", "once"]


def ledger(
    privacy: PrivacySpec = PRIVACY,
    *,
    path: Path | None = None,
    kind: SamplingKind = "poisson",
    protocol: str = "pairwise",
    dimension: int = 13_000,
    cohort: int = 100,
    evaluation: float | None = None,
    **rest,
) -> RunLedger:
    protections = {"train": build(privacy, cohort, dimension)}
    if evaluation:
        update = {"clip": 1.0, "noise_multiplier": evaluation}
        protections["evaluate"] = build(privacy.model_copy(update=update), cohort, 3)
    secagg = {"protocol": protocol, "dropout": 0.1} | rest.pop("secagg", {})
    return RunLedger(
        path,
        privacy=privacy,
        secagg=SecAggSpec(**secagg),
        sampling=SamplingSpec(kind=kind, cohort=rest.pop("expected", 100)),
        population=400,
        protections=protections,
        **rest,
    )


def build(privacy: PrivacySpec, cohort: int, dimension: int) -> Protection:
    return Protection.build(
        privacy, EncodingSpec(), cohort=cohort, dimension=dimension, rotation_seed=bytes(32)
    )


def play(book: RunLedger, rounds: int = 40, *, first: int = 0, kind: str = "train") -> RunLedger:
    for number in range(first, first + rounds):
        sampled = np.flatnonzero(np.random.default_rng(number).random(400) < 0.25).tolist()
        book.charge_contributions((number, 0, kind, 0), sampled, cohort=len(sampled))
        book.charge_sum((number, 0, kind, 0))
    return book


def values(book: RunLedger) -> dict[str, float]:
    return {name: figure.value for name, figure in book.figures().items()}


def test_the_default_run_costs_what_the_page_says() -> None:
    figures = play(ledger()).figures()
    # By Renyi divergences alone it was 2.5.
    assert figures["release"].value == pytest.approx(2.16, abs=0.02)
    assert figures["release"].accountant == "pld, coupled"
    assert 7 < figures["sum"].value < 11
    assert figures["local"].value > 1000
    assert figures["release"].participations == 40
    assert 17 <= present(figures["sum"].participations) <= 21
    assert [figures[f].adjacency for f in ("sum", "local", "release")] == [
        "zero_out",
        "replace",
        "zero_out",
    ]


def test_every_figure_is_complete() -> None:
    for figure in play(ledger(), 2).figures().values():
        assert figure.unit == "client"
        assert figure.delta == 1e-3
        assert 0 < figure.slack < 6e-7
        assert figure.reason is None
        assert figure.participations
        assert figure.assumptions


def test_nothing_asked_costs_nothing() -> None:
    assert values(ledger()) == {"sum": 0.0, "local": 0.0, "release": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1_970, 170_000])
def test_without_top_up_the_release_figure_is_refused(dimension: int) -> None:
    off = PRIVACY.model_copy(update={"top_up": False})
    figures = play(ledger(off, dimension=dimension), 3).figures()
    assert figures["release"].value == math.inf
    assert "top_up" in present(figures["release"].reason)
    assert str(dimension) in present(figures["release"].reason)
    assert figures["sum"].value < math.inf
    assert play(ledger(dimension=dimension), 3).figures()["release"].value < math.inf


def test_without_privacy_every_figure_is_infinite_with_a_reason() -> None:
    none = PrivacySpec(model="none")
    for figure in play(ledger(none), 2).figures().values():
        assert figure.value == math.inf
        assert "no noise" in present(figure.reason)


def test_without_masking_the_server_sees_what_clients_send() -> None:
    figures = play(ledger(protocol="none")).figures()
    assert figures["sum"].value == figures["local"].value
    assert any("no masking" in note for note in figures["sum"].assumptions)
    assert figures["release"].value < 3


def test_local_noise_is_exact_and_all_else_is_post_processing() -> None:
    local = PrivacySpec(model="local", noise_multiplier=2.0, delta=1e-5)
    book = ledger(local, kind="once")
    book.charge_contributions((0, 0, "train", 0), range(100), cohort=100)
    book.charge_sum((0, 0, "train", 0))
    found = values(book)
    # sigma = 2 clips, each once, delta 1e-5: the page's 4.4.
    assert found["local"] == pytest.approx(4.377178, abs=1e-5)
    assert found["sum"] == found["release"] == found["local"]


def test_fixed_size_cohorts_are_not_amplified() -> None:
    poisson, fixed = play(ledger()).figures(), play(ledger(kind="fixed")).figures()
    assert fixed["release"].value > 2 * poisson["release"].value
    assert any("no amplification" in note for note in fixed["release"].assumptions)
    assert fixed["release"].participations == fixed["sum"].participations
    # The constant total V/f covers more than the guaranteed V.
    assert fixed["release"].value < fixed["sum"].value


def test_noise_decides_the_sum_figure_and_the_fraction_does_not() -> None:
    lower = PRIVACY.model_copy(update={"honest_fraction": 0.6})
    one, two = values(play(ledger(), 10)), values(play(ledger(lower), 10))
    assert one["sum"] == pytest.approx(two["sum"], rel=1e-12)
    assert two["release"] < one["release"]


def test_a_client_asked_once_costs_one_share() -> None:
    book = ledger()
    book.charge_contributions((0, 0, "train", 0), [3], cohort=100)
    before = values(book)
    assert before["release"] == 0  # nothing has been opened
    assert before["local"] > 0
    book.charge_sum((0, 0, "train", 0))
    assert values(book)["release"] > 0


def test_larger_cohorts_leave_smaller_shares() -> None:
    small, large = ledger(), ledger()
    for book, cohort in ((small, 50), (large, 120)):
        book.charge_contributions((0, 0, "train", 0), [3], cohort=cohort)
        book.charge_sum((0, 0, "train", 0))
    assert values(large)["local"] > values(small)["local"]
    assert values(large)["sum"] == values(small)["sum"]


def test_an_evaluation_is_a_release_of_its_own() -> None:
    alone, both = play(ledger(), 5), play(ledger(evaluation=5.0), 5)
    assert values(both) == pytest.approx(values(alone), rel=1e-9)
    play(both, 5, kind="evaluate")
    after = values(both)
    for name, value in values(alone).items():
        assert after[name] > value


def test_an_unknown_kind_of_sum_is_refused() -> None:
    with pytest.raises(UnknownKindError, match="statistics"):
        ledger().charge_contributions((0, 0, "statistics", 0), [1], cohort=10)


def test_charging_a_key_again_is_the_same_release() -> None:
    book = play(ledger(), 5)
    before = values(book)
    assert values(play(book, 5)) == before
    book.charge_contributions((0, 1, "train", 0), [0], cohort=100)
    book.charge_sum((0, 1, "train", 0))
    assert values(book)["release"] > before["release"]


def test_a_key_is_bound_to_its_cohort() -> None:
    book = ledger()
    book.charge_contributions((0, 0, "train", 0), [1], cohort=100)
    with pytest.raises(ValueError, match="cohort of 100"):
        book.charge_contributions((0, 0, "train", 0), [1], cohort=50)


def test_a_sum_without_contributions_is_refused() -> None:
    with pytest.raises(ValueError, match="no contributions"):
        ledger().charge_sum((0, 0, "train", 0))


def test_clients_outside_the_roster_are_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.\.399"):
        ledger().charge_contributions((0, 0, "train", 0), [400], cohort=100)


@pytest.mark.slow
def test_no_figure_ever_decreases(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    previous = {"sum": 0.0, "local": 0.0, "release": 0.0}
    for number in range(12):
        found = values(play(ledger(path=path), 1, first=number))
        assert all(found[name] >= previous[name] for name in found)
        previous = found
    assert values(play(ledger(), 12)) == previous


@pytest.mark.slow
@pytest.mark.parametrize("examples", [None, {"train": ExampleUnit(q=0.05)}])
def test_no_figure_decreases_where_cohorts_differ(examples) -> None:
    # A client's shares add up to whole ones of the largest cohort now and then.
    book, previous = ledger(examples=examples), {"sum": 0.0, "local": 0.0, "release": 0.0}
    for number, cohort in enumerate([4, 2, 2, 3, 4, 1, 4, 2, 6, 3, 3, 6]):
        book.charge_contributions((number, 0, "train", 0), range(cohort), cohort=cohort)
        book.charge_sum((number, 0, "train", 0))
        found = values(book)
        assert all(found[name] >= previous[name] for name in found)
        previous = found


def test_lines_are_on_disk_before_the_call_returns(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    book = ledger(path=path)
    book.charge_contributions((4, 0, "train", 0), [7, 2], cohort=100)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["run", "contributions"]
    assert lines[1] == {
        "type": "contributions",
        "key": [4, 0, "train", 0],
        "cohort": 100,
        "clients": [2, 7],
    }
    book.charge_sum((4, 0, "train", 0))
    assert json.loads(path.read_text().splitlines()[-1]) == {
        "type": "sum",
        "key": [4, 0, "train", 0],
    }


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    expected = values(play(ledger(path=path), 3))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"contributions","key":[9,0,"tr')
    assert values(ledger(path=path)) == expected
    assert path.read_bytes() == whole


def test_a_ledger_of_other_terms_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    play(ledger(path=path), 1)
    ledger(path=path, cohort=37)  # terms do not depend on the cohort they are read from
    with pytest.raises(LedgerMismatchError, match=r"ledger\.jsonl"):
        ledger(PRIVACY.model_copy(update={"noise_multiplier": 2.0}), path=path)


def test_a_large_delta_is_refused_unless_allowed() -> None:
    large = PRIVACY.model_copy(update={"delta": 1 / 400})
    with pytest.raises(DeltaTooLargeError, match=r"0\.0025.*allow_large_delta"):
        ledger(large)
    ledger(large.model_copy(update={"allow_large_delta": True}))


def test_a_cohort_above_the_population_is_refused() -> None:
    with pytest.raises(ValueError, match="401 of a population of 400"):
        ledger(expected=401)


def test_colluders_and_seeds_are_among_the_assumptions() -> None:
    figures = play(ledger(secagg={"corruption": 0.02}), 1).figures()
    assert any("collude" in note for note in figures["sum"].assumptions)
    assert any("seed" in note for note in figures["release"].assumptions)
    deployed = play(ledger(seeded=False), 1).figures()
    assert not any("seed" in note for note in deployed["release"].assumptions)


def test_a_stricter_opening_rule_costs_more() -> None:
    loose = play(ledger()).figures()["release"].value
    tight = play(ledger(secagg={"dropout": 0.15})).figures()["release"].value
    assert tight > loose


def test_mixed_models_are_refused() -> None:
    book = ledger()
    local = ledger(PrivacySpec(model="local", noise_multiplier=2.0))
    terms = {"train": book.terms["train"], "evaluate": local.terms["train"]}
    with pytest.raises(ValueError, match="one privacy model"):
        all_figures(terms, book.tally(), book.sampling, 1e-3, masked=True)


def test_figures_are_cheap_each_round() -> None:
    book = play(ledger(), 39)
    book.figures()
    play(book, 1, first=39)
    start = time.process_time()
    book.figures()
    assert time.process_time() - start < 0.05


def by_groups(groups: int, rounds: int = 10, size: int = 40, fail: int = 0) -> RunLedger:
    """Play rounds of groups of ``size``, of which the last ``fail`` are never opened."""
    # Without dropouts a round tells nothing by being opened: noise alone decides.
    book = ledger(secagg={"groups": groups, "dropout": 0.0}, cohort=size)
    for number in range(rounds):
        order = np.random.default_rng(number).permutation(400)
        for group in range(groups):
            members = order[group * size : (group + 1) * size].tolist()
            book.charge_contributions((number, 0, "train", group), members, cohort=size)
            if group < groups - fail:
                book.charge_sum((number, 0, "train", group))
    return book


@pytest.mark.slow
def test_a_release_of_groups_carries_the_noise_of_all_of_them() -> None:
    one, four = by_groups(1), by_groups(4)
    # Four times the variance: the noise multiplier is doubled for outsiders ...
    twice = PRIVACY.model_copy(update={"noise_multiplier": 4.2})
    doubled = ledger(twice, secagg={"dropout": 0.0})
    for key in [(number, 0, "train", 0) for number in range(10)]:
        doubled.charge_contributions(key, range(40), cohort=40)
        doubled.charge_sum(key)
    assert values(four)["release"] == pytest.approx(values(doubled)["release"], rel=1e-4)
    assert values(four)["release"] < 0.6 * values(one)["release"]
    assert four.figures()["release"].participations == 10
    assert any("4 V/f" in note for note in four.figures()["release"].assumptions)


def test_the_server_sees_a_groups_sum_with_no_more_noise_than_one_sessions() -> None:
    four = by_groups(4, rounds=1)
    one = ledger(cohort=40)
    one.charge_contributions((0, 0, "train", 0), range(40), cohort=40)
    one.charge_sum((0, 0, "train", 0))
    assert values(four)["sum"] == pytest.approx(values(one)["sum"], rel=1e-6)
    # A share is V/(f n) of the group's n, not of the cohort's.
    assert values(four)["local"] == pytest.approx(values(one)["local"], rel=1e-6)
    assert any("4 groups" in note for note in four.figures()["sum"].assumptions)


def test_groups_that_fail_change_no_figure() -> None:
    assert values(by_groups(4, fail=3)) == values(by_groups(4))


@pytest.mark.slow
def test_the_share_of_rounds_opened_because_of_one_bounds_every_group() -> None:
    """By enumeration: five others, each out, or in one of two groups, surviving or not."""
    population, q, dropout, groups = 6, 0.7, 0.25, 2
    secagg = SecAggSpec(groups=groups, dropout=dropout, server="semi-honest")
    privacy = PRIVACY.model_copy(update={"honest_fraction": 0.5})
    sampling = SamplingSpec(kind="poisson", cohort=int(q * population))
    q = present(sampling.cohort) / population

    def opens(alive: int, size: int) -> bool:
        try:
            limits = Thresholds.of(size, roster=population, secagg=secagg, privacy=privacy)
        except CohortTooSmallError:
            return False
        return alive >= limits.min_survivors

    states = [(None, False), (0, True), (0, False), (1, True), (1, False)]
    weights = [1 - q] + [q / 2 * w for w in (1 - dropout, dropout)] * 2
    because = opened = 0.0
    for drawn in itertools.product(range(5), repeat=population - 1):
        chance = math.prod(weights[i] for i in drawn)
        size, alive = [0, 0], [0, 0]
        for i in drawn:
            group, survives = states[i]
            if group is not None:
                size[group] += 1
                alive[group] += survives
        without = [opens(alive[g], size[g]) for g in range(2)]
        joined = [opens(alive[g] + 1, size[g] + 1) for g in range(2)]
        opened += chance * (1 - q) * any(without)
        for g in range(2):
            opened += chance * q / 2 * (joined[g] or without[1 - g])
            because += chance * q / 2 * (joined[g] and not without[g])
    claimed = sampling_terms(privacy, secagg, sampling, population).p
    assert 0 < because / opened <= claimed <= 2.5 * because / opened


def test_without_noise_no_client_and_no_kind_has_a_finite_figure() -> None:
    book = play(ledger(PrivacySpec(model="none")), 2)
    assert "no noise" in str(book.client_figure(0).reason)
    assert {bound.value for bound in book.kind_figures("train").values()} == {math.inf}


@pytest.mark.slow
def test_kind_of_sum_alone_costs_no_more_than_all_kinds() -> None:
    book = play(play(ledger(evaluation=1.0), 2), 2, kind="evaluate")
    alone, whole = book.kind_figures("train"), book.figures()
    assert all(0 < alone[name].value <= whole[name].value for name in whole)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"type":"sum","key":[9,0,"train",0]}', "no contributions to sum"),
        ('{"type":"sum","key":[0,0,"statistics",0]}', "no privacy terms"),
        ('{"type":"survived","key":[0,0,"train",0],"cohort":2,"survived":3}', "3 survived"),
        ('{"type":"contributions","key":[9,0,"train",0],"cohort":9,"clients":[400]}', "0..399"),
        ('{"type":"contributions","key":[9,0,"train",0],"cohort":0,"clients":[1]}', "cohort of 0"),
    ],
)
def test_entry_that_contradicts_the_run_is_refused(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger(path=path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(LedgerMismatchError, match=message):
        ledger(path=path)


def test_survivors_of_a_session_are_at_most_its_cohort() -> None:
    with pytest.raises(ValueError, match="3 cannot have survived of a cohort of 2"):
        ledger().note_survivors((0, 0, "train", 0), cohort=2, survived=3)
