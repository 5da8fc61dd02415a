import csv
from pathlib import Path

import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    UnsupportedDpEvent,
    ZCDpEvent,
)

from zerosum.client.events import SkellamDpEvent, UnsupportedEventError
from zerosum.server.ledger import Ledger

VECTORS = Path(__file__).parent.parent / "vectors" / "epsilons.csv"
CASES = {row["id"]: row for row in csv.DictReader(VECTORS.read_text().splitlines())}
SKELLAM = SkellamDpEvent(1.0, 1.0, 100.0)


@pytest.mark.parametrize(
    ("case", "adjacency", "accountant", "event", "count", "column"),
    [
        ("gauss_single", "add_remove", "pld", GaussianDpEvent(1.0), 1, "eps_second"),
        ("gauss_full_T100", "zero_out", "pld", GaussianDpEvent(10.0), 100, "eps_second"),
        ("gauss_full_T100_rdp", "add_remove", "rdp", GaussianDpEvent(10.0), 100, "eps_primary"),
        ("gauss_replace_pld", "replace", "pld", GaussianDpEvent(10.0), 100, "eps_second"),
        ("gauss_replace_rdp_TRAP", "replace", "rdp", GaussianDpEvent(10.0), 100, "eps_second"),
        (
            "wor_C_2x",
            "replace",
            "rdp",
            SampledWithoutReplacementDpEvent(1000, 50, GaussianDpEvent(2.0)),
            200,
            "eps_primary",
        ),
        (
            "dpsgd_small",
            "add_remove",
            "pld",
            PoissonSampledDpEvent(0.05, GaussianDpEvent(1.0)),
            200,
            "eps_primary",
        ),
        (
            "dpsgd_small_rdp",
            "add_remove",
            "rdp",
            PoissonSampledDpEvent(0.05, GaussianDpEvent(1.0)),
            200,
            "eps_primary",
        ),
        ("skellam_1d_v100", "zero_out", "pld", SKELLAM, 50, "eps_second"),
    ],
)
def test_reference_epsilons_are_met(case, adjacency, accountant, event, count, column) -> None:
    row = CASES[case]
    found = Ledger(adjacency, accountant).compose(event, count).epsilon(float(row["delta"]))
    assert found == pytest.approx(float(row[column]), rel=float(row["suggested_rel_tol"]))


def test_adaptive_clipping_is_accounted_jointly() -> None:
    row = CASES["adaptive_clip"]
    pair = ComposedDpEvent([GaussianDpEvent(1.00503782), GaussianDpEvent(10.0)])
    ledger = Ledger("add_remove", "rdp").compose(PoissonSampledDpEvent(0.01, pair), 500)
    assert ledger.epsilon(1e-6) == pytest.approx(float(row["eps_primary"]), rel=1e-3)


def test_the_accountant_in_use_is_named() -> None:
    ledger = Ledger("zero_out").compose(GaussianDpEvent(5.0))
    assert ledger.accountant == "exact gaussian"
    ledger.compose(LaplaceDpEvent(20.0))
    assert ledger.accountant == "pld"
    ledger.compose(SKELLAM)
    assert ledger.accountant == "rdp"


def test_ours_and_theirs_compose_to_more_than_either() -> None:
    ours = Ledger("zero_out").compose(SKELLAM, 10)
    both = Ledger("zero_out").compose(SKELLAM, 10).compose(GaussianDpEvent(5.0), 4)
    assert both.epsilon(1e-5) > ours.epsilon(1e-5)
    # Skellam at this variance is about Gaussian: 10/100 + 4/25 in squares.
    alone = Ledger("zero_out", "rdp").compose(GaussianDpEvent((0.1 + 0.16) ** -0.5))
    assert both.epsilon(1e-5) == pytest.approx(alone.epsilon(1e-5), rel=0.02)


def test_nested_compositions_are_flattened() -> None:
    nested = SelfComposedDpEvent(ComposedDpEvent([SKELLAM, SKELLAM]), 5)
    flat = Ledger("zero_out").compose(SKELLAM, 10)
    assert Ledger("zero_out").compose(nested).epsilon(1e-5) == flat.epsilon(1e-5)


@pytest.mark.parametrize(
    ("adjacency", "event"),
    [
        ("replace", PoissonSampledDpEvent(0.1, SKELLAM)),
        ("add_remove", UnsupportedDpEvent()),
        ("add_remove", SampledWithoutReplacementDpEvent(10, 5, GaussianDpEvent(1.0))),
        ("replace", LaplaceDpEvent(1.0)),
        ("zero_out", PoissonSampledDpEvent(0.1, ZCDpEvent(0.1))),
    ],
)
def test_what_no_accountant_bounds_is_refused_by_name_and_changes_nothing(adjacency, event) -> None:
    ledger = Ledger(adjacency).compose(GaussianDpEvent(3.0))
    before = ledger.epsilon(1e-5)
    with pytest.raises(UnsupportedEventError, match=f"{type(event).__name__}.*{adjacency}"):
        ledger.compose(ComposedDpEvent([GaussianDpEvent(3.0), event]))
    assert ledger.epsilon(1e-5) == before


def test_an_event_that_only_the_other_accountant_knows_is_refused() -> None:
    # PLD alone knows subsampled Laplace; after a Skellam event only Renyi bounds compose.
    ledger = Ledger("zero_out").compose(SKELLAM)
    with pytest.raises(UnsupportedEventError, match="Laplace"):
        ledger.compose(PoissonSampledDpEvent(0.1, LaplaceDpEvent(1.0)))


def test_nothing_composed_costs_nothing() -> None:
    assert Ledger("zero_out").epsilon(1e-5) == 0
    assert Ledger("zero_out").compose(SKELLAM, 0).delta(1.0) == 0


def test_noise_of_zero_protects_nothing() -> None:
    assert Ledger("add_remove").compose(GaussianDpEvent(0.0)).epsilon(1e-5) == float("inf")


@pytest.mark.parametrize("event", [GaussianDpEvent(2.0), LaplaceDpEvent(2.0), SKELLAM])
def test_delta_and_epsilon_are_inverse(event) -> None:
    ledger = Ledger("zero_out").compose(event, 5)
    assert ledger.delta(ledger.epsilon(1e-4)) == pytest.approx(1e-4, rel=0.02)


@pytest.mark.parametrize("arguments", [("swap",), ("replace", "moments")])
def test_unknown_names_are_refused(arguments) -> None:
    with pytest.raises(ValueError, match="not"):
        Ledger(*arguments)
