"""A rehearsal that its nodes would decline is refused before anything is started."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from zerosum.simulations.commands import rehearse as rehearse_command
from zerosum.simulations.commands.main import app
from zerosum.simulations.new.app import Asked, make_app
from zerosum.simulations.rehearsal import DeploymentError

STARTED = "the SuperLink would be started now"


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    """An app of four files, whose policy admits one run of its experiment."""
    folder = tmp_path_factory.mktemp("clinics")
    rng = np.random.default_rng(0)
    for number in range(4):
        age = rng.normal(50 + 3 * number, 9, 120).round()
        ill = (age + 8 * rng.normal(size=120) > 55).astype(int)
        pd.DataFrame({"age": age, "num": ill}).to_csv(folder / f"h{number}.csv", index=False)
    asked = Asked((str(folder / "h*.csv"),), label="num > 0", privacy="patient", epsilon=3.0)
    return make_app(folder / "policed-app", asked).folder


@pytest.fixture
def rehearse(clinics, tmp_path, monkeypatch):
    """Return a function that rehearses the app with settings, and stops before the SuperLink."""

    def federation(*given, **named):
        raise DeploymentError(STARTED)

    monkeypatch.setattr(rehearse_command, "federation", federation)
    monkeypatch.chdir(tmp_path)  # where the app's package cannot be found

    def rehearse(*settings):
        words = [word for each in settings for word in ("--set", each)]
        words += ["--out", str(tmp_path / "run")]
        return CliRunner().invoke(app, ["rehearse", str(clinics), *words], env={"COLUMNS": "500"})

    return rehearse


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("settings", [[], ["privacy.noise_multiplier=5"]])
def test_what_the_policy_admits_is_started(rehearse, settings):
    assert STARTED in rehearse(*settings).output


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("rounds=2", ["min_noise_multiplier = ", "rounds = 2 at epsilon 3 needs"]),
        ("privacy.clip=2.0", ["max_clip = 1.0 refuses it", "set privacy.clip = 1.0"]),
    ],
)
def test_a_change_that_the_policy_declines_is_one_line_with_the_cure(
    rehearse, clinics, tmp_path, setting, words
):
    done = rehearse(setting)
    assert done.exit_code == 2
    (line,) = done.output.splitlines()
    assert line.startswith(f"error: {clinics / 'policy.toml'}: ")
    assert [word for word in words if word not in line] == []
    assert not (tmp_path / "run").exists()


def test_a_run_that_cannot_be_had_with_so_many_nodes_is_not_waited_for(rehearse):
    done = rehearse("secagg.corruption=0.25")
    assert done.exit_code == 2
    assert "secagg.corruption = 0.25" in done.output


def test_a_model_that_fails_is_not_waited_for(rehearse, clinics):
    code = clinics / "policed_app" / "task.py"
    text = code.read_text()
    code.write_text(text.replace("nn.Sequential", "nn.Nothing"))
    try:
        done = rehearse()
    finally:
        code.write_text(text)
    assert done.exit_code == 2
    assert "its model() fails" in done.output
