"""Terminal, tables, report, plan and budget name the observers alike and round epsilons alike."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from zerosum.server.planning.plan import Outlook
from zerosum.server.planning.spent_budget import KindSpending, ObserverSpending, RunSpending
from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.privacy.observers import OBSERVERS, ObserverName, observer_title, observer_who
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.records import RoundRecord, Summary
from zerosum.server.spec import Experiment
from zerosum.simulations.attacks.harness.results import Row
from zerosum.simulations.attacks.report.table import epsilon_text as attack_cell
from zerosum.simulations.commands.budget import _run_tables
from zerosum.simulations.commands.plan import _privacy_rows
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.report import words
from zerosum.simulations.report.html import _environment
from zerosum.simulations.report.record import RunRecord
from zerosum.simulations.terminal.round_lines import describe

PROTOCOLS = ("pairwise", "ideal", "none")


def bounds(value: float) -> dict[ObserverName, EpsilonBound]:
    parts = (1e-5, 0.0, "zero_out", "client")
    if math.isinf(value):
        return {o: no_bound(o, 1e-5, f"reason of {o}", unit="client") for o in OBSERVERS}
    return {o: EpsilonBound(value, *parts, o, "pld", 1, ("noise",)) for o in OBSERVERS}


def cells(table: Table) -> list[str]:
    rows = zip(*(column.cells for column in table.columns), strict=True)
    return [str(cell) for row in rows for cell in row]


def summary_cells(value: float, protocol: str) -> list[str]:
    engine = {"name": "serial", "device": "cpu", "trainer": "batched"}
    return cells(summary_table(Summary(epsilon=bounds(value), protocol=protocol, engine=engine)))


def plan_cells(value: float, protocol: str) -> list[str]:
    noise = dict.fromkeys(("norm_average", "norm_over_clip", "std_average"), 1.0)
    values = {
        "noise": noise, "noise_multiplier": 1.0, "model": "distributed", "clip": 1.0,
        "honest_fraction": 1.0, "unit": "client", "units": 2, "protocol": protocol,
        "epsilon_typical": dict.fromkeys(OBSERVERS, value),
    }  # fmt: skip
    return [cell for row in _privacy_rows(Outlook(values, bounds(value), ())) for cell in row]


def budget_cells(value: float, protocol: str) -> list[str]:
    observers = {o: ObserverSpending(bound, value) for o, bound in bounds(value).items()}
    kinds = {"train": KindSpending(1, 1, dict.fromkeys(OBSERVERS, value))}
    spent = RunSpending("mine", protocol, 1, 2, 1, observers, kinds)
    return cells(next(_run_tables(spent)))


def report_text(value: float, protocol: str) -> str:
    experiment = Experiment()
    secagg = experiment.secagg.model_copy(update={"protocol": protocol})
    run = RunRecord(
        name="mine",
        experiment=experiment.model_copy(update={"secagg": secagg}),
        toml="",
        rounds=[RoundRecord(round=1, status="completed")],
        summary=Summary(epsilon=bounds(value)),
        finished=True,
        bounds=bounds(value),
    )
    parts = _environment("zerosum.simulations.report").get_template("parts.html")
    table = vars(parts.module)["observer_table"](run, words, OBSERVERS, epsilon_text, words.COUNTS)
    return str(table)


PLACES = {"terminal": summary_cells, "plan": plan_cells, "budget": budget_cells}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("place", PLACES)
def test_observers_have_one_name_and_order_in_every_table(place, protocol):
    titles = [cell for cell in PLACES[place](2.5, protocol) if cell.startswith("epsilon_")]
    assert titles == [observer_title(observer, protocol) for observer in OBSERVERS]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_observers_have_the_same_name_and_order_in_the_report(protocol):
    text = report_text(2.5, protocol)
    at = [text.index(f"<code>epsilon_{observer}</code>") for observer in OBSERVERS]
    assert at == sorted(at)
    assert all(observer_who(observer, protocol) in text for observer in OBSERVERS)


def test_documentation_names_the_observers_as_programs_do():
    page = (Path(__file__).parents[3] / "docs" / "privacy.md").read_text()
    at = [page.index(f"| `epsilon_{o}` | {observer_who(o, 'pairwise')} |") for o in OBSERVERS]
    assert at == sorted(at)


@pytest.mark.parametrize("place", PLACES)
def test_infinite_figure_prints_its_reason_in_every_table(place):
    text = " ".join(PLACES[place](math.inf, "pairwise"))
    assert all(f"none: reason of {observer}" in text for observer in OBSERVERS)


def test_infinite_figure_prints_its_reason_in_the_report():
    text = report_text(math.inf, "pairwise")
    assert all(f"reason of {observer}" in text for observer in OBSERVERS)
    assert "∞" in text


def row(epsilon: float) -> Row:
    """Return a row of an attack's table; all but its epsilon is made up."""
    made_up = object.__new__(Row)
    object.__setattr__(made_up, "epsilon", epsilon)
    return made_up


@given(st.floats(0, 1e9))
def test_printed_epsilon_is_never_below_its_value_in_line_table_and_report(value):
    printed = epsilon_text(value)
    assert float(printed.replace(",", "")) >= value
    record = RoundRecord(round=1, status="completed", epsilon={"release": value, "sum": value})
    assert f"epsilon {printed} (release) {printed} (sum)" in describe(record, 2)
    assert f"{printed} at delta 1e-05 (zero_out)" in summary_cells(value, "pairwise")
    assert f"{printed} at delta 1e-05 (zero_out)" in plan_cells(value, "pairwise")
    assert budget_cells(value, "pairwise").count(printed) >= 6
    assert attack_cell(row(value)) == printed
    assert f">{printed}<" in report_text(value, "pairwise")


def test_attack_table_prints_infinity_for_an_epsilon_that_is_not_bounded():
    assert attack_cell(row(math.inf)) == "∞"


@pytest.mark.parametrize(
    ("corruption", "said"),
    [
        (0.0, "as long as no client colludes with it"),
        (0.0004, "as long as at most 0.04 % of the clients collude with it"),
        (0.1, "as long as at most 10 % of the clients collude with it"),
    ],
)
def test_how_many_may_collude_is_said_of_none_too(corruption: float, said: str) -> None:
    secagg = SimpleNamespace(server="malicious", corruption=corruption)
    run = SimpleNamespace(experiment=SimpleNamespace(secagg=secagg))
    assert said in words._withstood(run)  # type: ignore[arg-type]
