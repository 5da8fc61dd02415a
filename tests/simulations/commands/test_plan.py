"""Plans: every figure of a setting, before anything runs."""

import json
import math

import pytest
from typer.testing import CliRunner

from zerosum.server.config import ConfigError
from zerosum.simulations import api
from zerosum.simulations.commands.main import app
from zerosum.simulations.commands.plan import plan, plan_table

DIGITS400 = [
    "privacy.noise_multiplier=2.1",
    "privacy.honest_fraction=0.8",
    "sampling.cohort=100",
    "secagg.dropout=0.1",
    "secagg.server=semi-honest",
]
"""400 clients of 10 digits, z = 2.1, f = 0.8, q = 0.25, 40 rounds, 10 % dropouts."""


def planned(*overrides: str, source: str = "mnist5k", population=400, dimension=1970, **rest):
    return plan(source, list(overrides), population=population, dimension=dimension, **rest)


def test_the_page_s_distributed_orientation_comes_out() -> None:
    values = planned(*DIGITS400).values
    # By Renyi divergences alone 2.5, and 9 for the sum.
    assert values["epsilon"]["release"]["value"] == pytest.approx(2.16, abs=0.02)
    assert values["epsilon_typical"]["sum"] == pytest.approx(8.1, abs=0.5)
    assert values["epsilon_typical"]["local"] > 1000
    assert 17 <= values["participations"]["worst_typical"] <= 21
    assert values["participations"]["mean"] == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "population", "dimension", "observer", "promised"),
    [
        ("mnist5k", 400, 1970, "release", 2.98),
        ("digits", 100, 650, "release", 3.28),
        ("heart", 4, 14, "sum", 3.0),
        ("mnist-dpsgd", 100, 44_600, "sum", 2.0),
        ("mnist-distributed", 6000, 2000, "release", 2.0),
        ("mnist-local", 6000, 600, "local", 4.38),
    ],
)
def test_shipped_experiments_keep_their_promises(
    name: str, population: int, dimension: int, observer: str, promised: float
) -> None:
    values = planned(source=name, population=population, dimension=dimension).values
    assert 0.96 * promised < values["epsilon"][observer]["value"] <= promised


@pytest.mark.slow
def test_the_page_s_affordable_noise_comes_out() -> None:
    values = planned(*DIGITS400, epsilon=3.0).values
    assert values["noise_multiplier"] / math.sqrt(0.8) == pytest.approx(1.855, abs=0.01)
    assert 2.997 <= values["epsilon"]["release"]["value"] <= 3.0


@pytest.mark.parametrize(("z", "expected"), [(2.0, 4.4), (4.0, 2.0)])
def test_the_page_s_local_orientation_comes_out(z: float, expected: float) -> None:
    values = planned(
        "privacy.model=local",
        f"privacy.noise_multiplier={z}",
        "privacy.delta=1e-5",
        "sampling.kind=once",
        "sampling.cohort=3000",
        "rounds=2",
        population=6000,
    ).values
    assert values["epsilon"]["local"]["value"] == pytest.approx(expected, abs=0.05)
    assert values["participations"]["worst_planned"] == 1


@pytest.mark.slow
def test_a_plan_says_what_the_run_then_reports(tmp_path) -> None:
    overrides = [
        "rounds=2",
        "data.clients=30",
        "privacy.delta=1e-2",
        "sampling.kind=everyone",
        *(f"faults.{stage}=0" for stage in ("advertise", "share", "contribute", "confirm",
                                            "unmask")),
    ]  # fmt: skip
    values = plan("digits", overrides).values
    result = api.run("digits", overrides=overrides, out=tmp_path / "run", report=False)
    summary, record = result.summary, result.rounds[0]
    for name, figure in summary["epsilon"].items():
        assert values["epsilon"][name]["value"] == pytest.approx(figure["value"], rel=1e-6)
    assert values["bytes_up_per_client"] == summary["bytes_up_per_client"]
    assert values["noise"]["norm_average"] == pytest.approx(record["noise_norm"], rel=1e-6)
    assert values["wrap_probability_log2"] == pytest.approx(summary["wrap_probability_log2"])
    assert (values["population"], values["dimension"]) == (30, summary["dimension"])


@pytest.mark.parametrize("protocol", ["pairwise", "ideal"])
def test_larger_cohorts_get_sparse_graphs(protocol: str) -> None:
    values = planned(
        f"secagg.protocol={protocol}", "sampling.kind=everyone", population=1000
    ).values
    graph = values["graph"]
    assert not graph["complete"]
    assert graph["threshold"] < graph["degree"] < 999
    assert graph["min_survivors"] == 800
    assert values["bytes_up_per_client"] > 1970 * values["ring_bits"] / 8


@pytest.mark.parametrize(
    ("overrides", "rest", "words"),
    [
        pytest.param(
            *(["rounds=2"], {"dimension": 10_000_000}, "times as long as all they can learn"),
            marks=pytest.mark.slow,
        ),
        (["privacy.noise_multiplier=0.3"], {}, "epsilon_release"),
        (["privacy.delta=0.01"], {}, "1/population"),
        (["privacy.top_up=false"], {}, "epsilon_release is infinite"),
        (["privacy.model=none", "privacy.noise_multiplier=0"], {}, "nobody is protected"),
        (["encoding.ring_bits=23", "sampling.kind=everyone"], {"population": 127}, "wraps"),
    ],
)
def test_hopeless_settings_are_warned_of(overrides, rest, words) -> None:
    found = planned(*overrides, **rest)
    assert any(words in warning for warning in found.warnings), found.warnings


def test_a_good_setting_has_no_warnings() -> None:
    found = planned("sampling.kind=once", "privacy.delta=1e-4", population=4000)
    assert found.warnings == ()


@pytest.mark.slow
def test_examples_are_counted_where_they_are_the_unit() -> None:
    found = planned(source="mnist-dpsgd", population=100, dimension=810)
    values = found.values
    assert values["epsilon"]["sum"]["unit"] == "example"
    assert values["epsilon"]["sum"]["value"] <= 2.0
    assert values["units"] == 60_000
    # 1/lot of the sum's noise: far less than a client's share of a cohort.
    assert values["noise"]["norm_over_clip"] < 0.1


@pytest.mark.parametrize(
    ("overrides", "rest", "words"),
    [
        (["privacy.model=none", "privacy.noise_multiplier=0"], {"epsilon": 1.0}, "no noise"),
        ([], {"epsilon": -1.0}, "above 0"),
        ([], {"population": 1}, "at least 2"),
        (["sampling.cohort=500"], {}, "exceeds the population"),
    ],
)
def test_what_cannot_be_planned_is_refused(overrides, rest, words) -> None:
    with pytest.raises(ConfigError, match=words):
        planned(*overrides, **rest)


def test_the_command_prints_a_table_and_writes_json(tmp_path) -> None:
    out = tmp_path / "plan.json"
    sizes = ["--population", "400", "--dimension", "1970"]
    result = CliRunner().invoke(app, ["plan", "mnist5k", *sizes, "--json", str(out)])
    assert result.exit_code == 0, result.output
    for words in ("epsilon_release", "times the clip", "Warning", "bytes up"):
        assert words in result.output
    values = json.loads(out.read_text())
    assert set(values["epsilon"]) == {"sum", "local", "release"}
    assert values["warnings"]


@pytest.mark.slow
def test_no_task_is_resolved_where_both_sizes_are_given() -> None:
    found = planned("task=nowhere:nothing", dimension=100)
    assert found.values["dimension"] == 100
    assert plan_table(found).row_count > 8


@pytest.mark.parametrize(
    ("overrides", "sizes", "words"),
    [
        ([], {"dimension": 10**14}, "10,000,000,000 parameters"),
        ([], {"population": 10**14}, "10,000,000,000 clients"),
        (["rounds=9223372036854775807"], {}, "less than or equal to 1000000"),
    ],
)
def test_sizes_beyond_any_run_are_refused_at_once(overrides, sizes, words) -> None:
    with pytest.raises(ConfigError, match=words):
        planned(*overrides, **sizes)


def test_a_model_larger_than_memory_is_planned() -> None:
    # Without noise: with so little of it for so many, cures would be looked for, for seconds.
    values = planned("privacy.model=none", "privacy.noise_multiplier=0", dimension=10**10).values
    assert values["bytes_up_per_client"] > 10**10
