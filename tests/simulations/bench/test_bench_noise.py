"""The noise benchmark draws what it says, by every sampler."""

import json

import pytest
from typer.testing import CliRunner

from zerosum.simulations.bench.noise import run as noise
from zerosum.simulations.commands.main import app


@pytest.mark.slow
def test_every_law_is_drawn_by_table_and_by_rejection_and_shares_by_jumps():
    found = noise(deviations=[5.0], count=20_000, few=20, repetitions=1, opendp=False)
    assert found["opendp"] is None
    assert [(row["law"], row["sampler"]) for row in found["rows"]] == [
        (law, sampler)
        for law in ("skellam", "binned-gaussian", "discrete-gaussian", "discrete-laplace")
        for sampler in ("table", "exact")
    ] + [(f"geometric {part}", "jumps") for part in ("1/240, s=1", "1/240, s=100", "1/4, s=10")]
    for row in found["rows"]:
        assert row["million_per_s"] > 0
        assert row["tau"] == 2.0**-100
        if row["sampler"] == "table":
            assert row["found_std"] == pytest.approx(5, rel=0.05)
    for row in found["rows"][-3:]:
        # A share of 240 is seldom other than 0: 20,000 have 76 jumps at s = 1.
        assert row["found_std"] == pytest.approx(row["std"], rel=0.3)


@pytest.mark.slow
def test_the_noise_command_writes_its_figures(tmp_path):
    file = tmp_path / "noise.json"
    arguments = ["bench", "noise", "--std", "3", "--count", "1000", "--few", "3"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "2^-100" in result.output
    rows = json.loads(file.read_text())["rows"]
    assert {row["std"] for row in rows if row["sampler"] != "jumps"} == {3.0}


def test_noise_too_small_to_be_tabled_is_refused():
    result = CliRunner().invoke(app, ["bench", "noise", "--std", "0.5"])
    assert result.exit_code == 2
    assert "--std" in result.output
