"""Figures are compositions of events: checked against events composed by hand."""

import dataclasses
import math

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions
from dp_accounting.rdp import RdpAccountant
from narrowed import present
from scipy.stats import skellam

from zerosum.client.privacy.events import MaybeAbandonedDpEvent, SkellamDpEvent
from zerosum.client.privacy.samplers import TAU
from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.privacy.accountant import Ledger
from zerosum.server.privacy.epsilons import AT_LESS, all_figures
from zerosum.server.privacy.event_costs import doubled, for_replacement
from zerosum.server.privacy.guarantees import ExampleUnit, Guarantee, Participation, Sampling
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.spec import SamplingSpec

ONE = Participation(
    worst=(((10, 1000),),), opened=(40,), largest=(100,), smallest=(100,), draws=(1000,)
)
"""One client contributed 10 times to cohorts of 100; 40 sums were opened."""
POISSON = Sampling("poisson", 0.25, 0.0)


def terms(
    example: ExampleUnit | None = None, *, dimension: int = 1000, records: bool = False, **privacy
) -> dict[str, Guarantee]:
    spec = PrivacySpec(**{"noise_multiplier": 2.0, "honest_fraction": 0.8} | privacy)
    protection = Protection.build(
        spec,
        EncodingSpec(range=5.0) if records else EncodingSpec(),
        cohort=100,
        dimension=dimension,
        rotation_seed=bytes(32),
        records=records,
    )
    found = Guarantee.of(protection, model=spec.model, example=example)  # type: ignore[arg-type]
    assert found is not None
    return {"train": found}


def values(found: dict[str, Guarantee], delta: float = 1e-5, **changes) -> dict[str, float]:
    tally = dataclasses.replace(ONE, **changes.pop("tally", {}))
    figures = all_figures(found, tally, changes.pop("sampling", POISSON), delta, masked=True)
    return {name: figure.value for name, figure in figures.items()}


def skellam_event(found: Guarantee, shares: float) -> SkellamDpEvent:
    assert found.mechanism is not None
    return found.mechanism.event(shares)


# By client.


def test_a_sum_costs_its_guaranteed_shares_and_a_release_all_of_them() -> None:
    found = terms()
    whole, guaranteed = (skellam_event(found["train"], n) for n in (100, 80))
    release = PoissonSampledDpEvent(0.25, whole)
    spent = values(found)
    assert spent["sum"] == pytest.approx(
        Ledger("zero_out").compose(guaranteed, 10).epsilon(1e-5), rel=1e-6
    )
    assert spent["release"] == pytest.approx(
        Ledger("zero_out").compose(release, 40).epsilon(1e-5), rel=1e-6
    )
    share = skellam_event(found["train"], 1)
    own = SkellamDpEvent(2 * share.l2_sensitivity, 2 * share.l1_sensitivity, share.variance)
    assert spent["local"] == pytest.approx(
        Ledger("replace").compose(own, 10).epsilon(1e-5), rel=1e-6
    )


def test_a_trusted_server_is_protected_against_by_nothing() -> None:
    found = all_figures(terms(model="central"), ONE, POISSON, 1e-5, masked=True)
    assert found["sum"].value == found["local"].value == math.inf
    assert "trusted" in present(found["sum"].reason)
    # The curator's release: Poisson-sampled Gaussian noise, by its exact distribution.
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(0.25, GaussianDpEvent(2.0)), 40)
    assert found["release"].value == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    assert found["release"].accountant == "pld"
    assert any("trusted" in note for note in found["release"].assumptions)


def test_a_trusted_server_s_abandoned_rounds_cost_a_little() -> None:
    found = terms(model="central")
    often = values(found, sampling=Sampling("poisson", 0.25, 1e-2))["release"]
    never = values(found)["release"]
    event = MaybeAbandonedDpEvent(PoissonSampledDpEvent(0.25, GaussianDpEvent(2.0)), 1e-2)
    assert never < often  # type: ignore[operator]
    assert often == pytest.approx(Ledger("zero_out").compose(event, 40).epsilon(1e-5), rel=1e-4)


@pytest.mark.slow
def test_fixed_cohorts_of_a_trusted_server_are_drawn_without_replacement() -> None:
    fixed = Sampling("fixed", 1.0, 0.0, population=400, cohort=100)
    found = all_figures(terms(model="central"), ONE, fixed, 1e-5, masked=True)["release"]
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(SampledWithoutReplacementDpEvent(400, 100, GaussianDpEvent(1.0)), 40)
    assert found.value == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)
    assert found.adjacency == "replace"


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(
    ("privacy", "sampled"),
    [
        ({"mechanism": "discrete-gaussian"}, True),
        ({"clipping": "adaptive", "clip": 0.5}, True),
        ({}, True),
        ({"model": "local"}, False),
        ({"model": "local", "mechanism": "discrete-laplace"}, False),
        ({"model": "local", "mechanism": "privunit", "noise_multiplier": 0.5}, False),
    ],
)
def test_every_mechanism_has_figures_from_its_event_alone(privacy: dict, sampled: bool) -> None:
    found = terms(dimension=64, **privacy)
    spent = values(found)
    assert found["train"].mechanism is not None
    event = found["train"].mechanism.event
    if sampled:
        released = Ledger("zero_out").compose(PoissonSampledDpEvent(0.25, event(100)), 40)
        guaranteed = Ledger("zero_out").compose(event(80), 10)
        assert spent["release"] == pytest.approx(released.epsilon(1e-5), rel=1e-6)
        assert spent["sum"] == pytest.approx(guaranteed.epsilon(1e-5), rel=1e-6)
        assert spent["local"] > spent["sum"]  # type: ignore[operator]
    else:
        own = Ledger("replace").compose(event(1), 10)
        assert spent["local"] == pytest.approx(own.epsilon(1e-5), rel=1e-6)
        assert spent["local"] == spent["sum"] == spent["release"]


def test_privunit_says_what_is_unproved_of_it() -> None:
    found = terms(dimension=64, model="local", mechanism="privunit", noise_multiplier=0.5)
    figures = all_figures(found, ONE, POISSON, 1e-5, masked=True)
    assert any("float" in note for note in figures["local"].assumptions)


def test_adaptive_clipping_is_amplified_jointly() -> None:
    found = terms(clipping="adaptive", clip=0.5, clip_noise=0.75)["train"]
    pair = found.released()
    assert isinstance(pair, ComposedDpEvent)
    joint = Ledger("zero_out").compose(PoissonSampledDpEvent(0.25, pair), 40)
    apart = Ledger("zero_out")
    for part in pair.events:
        apart.compose(PoissonSampledDpEvent(0.25, part), 40)
    assert values({"train": found})["release"] == pytest.approx(joint.epsilon(1e-5), rel=1e-6)
    assert apart.epsilon(1e-5) < 0.95 * joint.epsilon(1e-5)
    # Both at z_delta cost what the update alone would at z.
    plain = values(terms(clip=0.5))["release"]
    assert joint.epsilon(1e-5) == pytest.approx(plain, rel=1e-3)


def pair_of(shift: int, variance: float, q: float) -> tuple[dict, dict]:
    reach = int(12 * math.sqrt(variance)) + 2 * shift
    half = variance / 2
    ks = range(-reach, reach + shift + 1)
    base = {k: float(skellam.pmf(k, half, half)) for k in ks}
    moved = {k: (1 - q) * base[k] + q * float(skellam.pmf(k - shift, half, half)) for k in ks}
    return base, moved


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shift", "variance", "q", "rounds"),
    [(1, 4.0, 0.25, 40), (3, 100.0, 0.05, 200), (10, 300.0, 0.25, 10)],
)
def test_both_directions_of_the_release_lie_above_exact_distributions(
    shift: int, variance: float, q: float, rounds: int, reverse: bool
) -> None:
    base, moved = pair_of(shift, variance, q)
    one, two = (base, moved) if reverse else (moved, base)
    logs = [{k: math.log(max(p, 1e-320)) for k, p in pair.items()} for pair in (two, one)]
    exact = from_two_probability_mass_functions(*logs, value_discretization_interval=1e-3)
    found = exact.self_compose(rounds).get_epsilon_for_delta(1e-5)
    event = PoissonSampledDpEvent(q, SkellamDpEvent(shift, shift**2, variance))
    bound = Ledger("zero_out").compose(event, rounds).epsilon(1e-5)
    assert 0.4 * bound < found < bound


# By example.


@pytest.mark.slow
def test_the_lot_of_distributed_dp_sgd_is_amplified_for_the_server_too() -> None:
    found = terms(ExampleUnit(q=0.01), records=True)
    whole, guaranteed, share = (skellam_event(found["train"], n) for n in (100, 80, 1))
    spent = values(found)
    expected = {
        "sum": (PoissonSampledDpEvent(0.01, guaranteed), 10),
        "release": (PoissonSampledDpEvent(0.25 * 0.01, whole), 40),
        "local": (PoissonSampledDpEvent(0.01, share), 10),
    }
    for name, (event, count) in expected.items():
        by_hand = Ledger("zero_out").compose(event, count).epsilon(1e-5)
        assert spent[name] == pytest.approx(by_hand, rel=1e-6), name
    figures = all_figures(found, ONE, POISSON, 1e-5, masked=True)
    assert {figure.unit for figure in figures.values()} == {"example"}
    assert {figure.adjacency for figure in figures.values()} == {"zero_out"}
    assert any("coins" in note for note in figures["sum"].assumptions)


def test_a_sum_of_records_has_the_sensitivity_of_one_record() -> None:
    found = terms(ExampleUnit(q=0.01), dimension=400, records=True)["train"]
    event = skellam_event(found, 1)
    # C/gamma + sqrt(d), with C/gamma at least 100 sqrt(d).
    assert (event.l2_sensitivity - 20) / 20 >= 100
    assert event.l2_sensitivity < 1.01 * (event.l2_sensitivity - 20) + 1e-6
    assert event.l1_sensitivity == pytest.approx(20 * event.l2_sensitivity)


def test_distributed_dp_sgd_costs_what_a_trusted_curator_s_does() -> None:
    everyone = {"worst": (((300, 30_000),),), "opened": (300,)}
    found = terms(ExampleUnit(q=0.07), records=True, noise_multiplier=4.5)
    spent = values(found, sampling=Sampling("everyone", 1.0, 0.0), tally=everyone)["sum"]
    renyi, exact = RdpAccountant(), PLDAccountant()
    for each in (renyi, exact):
        each.compose(PoissonSampledDpEvent(0.07, GaussianDpEvent(4.5)), 300)
    assert spent == pytest.approx(exact.get_epsilon(1e-5), rel=0.01)
    assert exact.get_epsilon(1e-5) < spent < 0.93 * renyi.get_epsilon(1e-5)  # type: ignore[operator]


@pytest.mark.slow
def test_dp_sgd_inside_local_training_is_accounted_by_its_distribution() -> None:
    unit = ExampleUnit(q=0.05, steps=20, noise_multiplier=1.0)
    figures = all_figures(terms(unit, model="local"), ONE, POISSON, 1e-5, masked=True)
    accountant = PLDAccountant()
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(0.05, GaussianDpEvent(1.0)), 200))
    for figure in figures.values():
        assert figure.value == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
        assert figure.accountant == "pld"
        assert figure.unit == "example"
    # 20 steps of 100 coordinates in each of the tally's vectors.
    integers = ONE.draws[0] * 20 * terms(unit, model="local")["train"].length
    told = figures["sum"]
    assert told.slack == pytest.approx((1 + math.exp(told.value)) * integers * TAU, rel=0.01)
    assert f"integer noise from a table{AT_LESS}" in told.assumptions


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"model": "distributed"}, "integer noise from a table"),
        ({"model": "local"}, "integer noise from a table"),
        ({"model": "local", "mechanism": "privunit"}, "noise in floating point"),
        ({"model": "local", "mechanism": "discrete-laplace"}, "integer noise from a table"),
        (
            {"model": "local", "mechanism": "discrete-laplace", "exact": True},
            "integer noise from OpenDP's exact sampler",
        ),
    ],
)
def test_every_figure_says_how_its_noise_is_drawn(monkeypatch, privacy: dict, words: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: "as if OpenDP were installed")
    figures = all_figures(terms(**privacy), ONE, POISSON, 1e-5, masked=True)
    for told in figures.values():
        assert any(note.startswith(words) for note in told.assumptions)
        assert (told.slack > 0) is (words == "integer noise from a table")


def test_a_sum_that_draws_no_examples_may_change_by_a_whole_vector() -> None:
    both = terms(ExampleUnit(q=0.01), records=True) | {"evaluate": terms(dimension=3)["train"]}
    tally = dataclasses.replace(
        ONE,
        worst=(((0, 0), (10, 1000)),),
        opened=(0, 10),
        largest=(1, 100),
        smallest=(0, 100),
        draws=(0, 1000),
    )
    found = all_figures(both, tally, Sampling("everyone", 1.0, 0.0), 1e-5, masked=True)
    evaluate = both["evaluate"]
    at: dict[ObserverName, int] = {"sum": 80, "local": 1}
    for name, shares in at.items():
        event = doubled(skellam_event(evaluate, shares))
        by_hand = Ledger("zero_out").compose(event, 10).epsilon(1e-5)
        assert found[name].value == pytest.approx(by_hand, rel=1e-6)


def test_the_lots_of_a_trusted_server_are_amplified_by_both_coins() -> None:
    found = terms(ExampleUnit(q=0.1), records=True, model="central")
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(0.025, GaussianDpEvent(2.0)), 40)
    assert values(found)["release"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


@pytest.mark.parametrize("unit", [{"q": 0.0}, {"q": 1.5}, {"q": 0.1, "steps": 5}])
def test_impossible_units_are_refused(unit: dict) -> None:
    with pytest.raises(ValueError, match=r"not at|cannot share"):
        ExampleUnit(**unit)


@pytest.mark.slow
def test_sampling_again_what_was_sampled_is_weaker_than_two_rounds_of_it() -> None:
    # A smaller lot costs less, and no lot at all the whole sum.
    spent = [values(terms(ExampleUnit(q=q), records=True))["sum"] for q in (0.01, 0.1, 1.0)]
    assert spent[0] < spent[1] < spent[2]  # type: ignore[operator]
    by_hand = Ledger("zero_out").compose(
        skellam_event(terms(ExampleUnit(q=1.0), records=True)["train"], 80), 10
    )
    assert spent[2] == pytest.approx(by_hand.epsilon(1e-5), rel=1e-6)


# Per client.


def book(**changes) -> RunLedger:
    privacy = PrivacySpec(noise_multiplier=2.0, delta=1e-3)
    protections = {
        "train": Protection.build(
            privacy, EncodingSpec(), cohort=50, dimension=100, rotation_seed=bytes(32)
        )
    }
    return RunLedger(
        changes.pop("path", None),
        privacy=privacy,
        secagg=SecAggSpec(dropout=0.1),
        sampling=SamplingSpec(cohort=50),
        population=100,
        protections=protections,
        **changes,
    )


def test_each_client_has_a_ledger_of_its_own_contributions(tmp_path) -> None:
    path = tmp_path / "ledger.jsonl"
    kept = book(path=path)
    for number in range(6):
        kept.charge_contributions((number, 0, "train", 0), range(number + 1), cohort=50)
        kept.charge_sum((number, 0, "train", 0))
    spent = [kept.client_figure(client) for client in range(7)]
    assert [figure.participations for figure in spent] == [6, 5, 4, 3, 2, 1, 0]
    found = [figure.value for figure in spent]
    assert found == sorted(found, reverse=True)
    assert found[6] == 0
    assert found[0] == kept.figures()["local"].value
    again = book(path=path)
    assert [again.client_figure(client).value for client in range(7)] == found
    again.charge_contributions((9, 0, "train", 0), [3], cohort=50)
    after = [again.client_figure(client).value for client in range(7)]
    assert after[3] > found[3]
    assert all(now >= before for now, before in zip(after, found, strict=True))


def test_delta_is_held_against_the_examples_where_they_are_the_unit() -> None:
    units = {"train": ExampleUnit(q=0.1)}
    with pytest.raises(ValueError, match=r"1/population = 0\.0005"):
        book(examples=units, records=2000)
    assert book(examples=units, records=500).figures()["sum"].unit == "example"


def test_a_randomiser_s_receipt_is_kept_under_replacement() -> None:
    event = RandomizedResponseDpEvent(0.5, 2)
    assert for_replacement(event) == event
    with pytest.raises(ValueError, match="no sensitivity"):
        doubled(event)
    assert np.isclose(Ledger("replace").compose(event).epsilon(0.0), math.log(3))
