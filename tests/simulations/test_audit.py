"""Canaries through the whole pipeline: nothing is told that the ledger does not allow."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from zerosum.client.privacy.skellam import DistributedSkellam
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import RunFolder
from zerosum.simulations import audit
from zerosum.simulations.audit import AuditPlan, run_audit, verdict
from zerosum.simulations.commands.main import app
from zerosum.simulations.config import load_experiment
from zerosum.simulations.report import write_report
from zerosum.simulations.report.audited import AUDIT

IDEAL = ["secagg.protocol=ideal"]


def audited(*overrides: str, **plan) -> dict:
    sizes = {"canaries": 120, "repetitions": 2} | plan
    return run_audit(load_experiment("mnist5k", [*IDEAL, *overrides]), AuditPlan(**sizes))


@pytest.mark.slow
def test_an_audit_says_what_it_did() -> None:
    found = audited()
    assert found["canaries"] == 120
    assert found["repetitions"] == len(found["lower"]) == len(found["null"]) == 2
    assert found["survivors"] == [120, 120]
    assert found["observer"] == "sum"
    assert found["violations"] == []
    assert found["delta"] == 1e-5
    # z = 1 at delta 1e-5: 4.377 exactly, a little more by Renyi divergences.
    assert 4.377 < found["upper"] < 4.8
    assert found["score_deviation"] == pytest.approx(1.0, abs=1e-3)
    # At most 3.4 of 4.4 with 120 canaries.
    assert verdict(found).startswith("Could not fail")


def without_noise(part: float):
    drawn = DistributedSkellam.noise

    def noise(self, shares, count, rng):
        if not part:
            return np.zeros(count, dtype=np.int64)
        return drawn(self, shares * part**2, count, rng)

    return noise


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.0, 0.2])
def test_noise_that_is_missing_fails_the_audit(monkeypatch, part) -> None:
    monkeypatch.setattr(DistributedSkellam, "noise", without_noise(part))
    sizes = ["--canaries", "1000", "--repetitions", "1"]
    result = CliRunner().invoke(app, ["audit", "digits", "--set", *IDEAL, *sizes])
    assert result.exit_code == 1, result.output
    assert "FAILED: in 1 of 1" in result.output
    assert "they fail noise below" in result.output


@pytest.mark.slow
def test_noise_as_claimed_passes_an_audit_that_could_fail() -> None:
    said: list[str] = []
    found = run_audit(load_experiment("mnist5k", IDEAL), AuditPlan(1000, 1), on_power=said.append)
    assert found["violations"] == []
    assert found["largest"] > found["upper"]
    assert 0.2 < found["detects"] < 0.5
    assert verdict(found).startswith("Passed")
    assert min(found["lower"]) > 0.8
    assert len(said) == 1


@pytest.mark.slow
def test_an_audit_that_cannot_fail_says_so_before_it_runs() -> None:
    said: list[str] = []
    sizes = AuditPlan(canaries=100, repetitions=1)
    found = run_audit(load_experiment("mnist5k", IDEAL), sizes, on_power=said.append)
    assert found["largest"] < found["upper"]
    assert "cannot fail; raise --canaries" in said[0]
    assert verdict(found).startswith("Could not fail")


def test_masks_change_nothing_that_is_observed() -> None:
    masked = audited("secagg.protocol=pairwise", canaries=30, repetitions=1)
    ideal = audited(canaries=30, repetitions=1)
    assert masked["protocol"] == "pairwise"
    for key in ("correct", "correct_null", "lower", "guesses", "upper"):
        assert masked[key] == ideal[key]


@pytest.mark.slow
def test_more_noise_tells_less() -> None:
    loud, quiet = audited(noise_multiplier=0.2), audited(noise_multiplier=3.0)
    assert min(loud["lower"]) > max(quiet["lower"])
    assert loud["upper"] > quiet["upper"]


@pytest.mark.slow
def test_clients_that_vanish_are_guessed_about_too() -> None:
    found = audited(dropout=0.1, canaries=200)
    assert all(150 < survivors < 200 for survivors in found["survivors"])
    assert found["honest_fraction"] < 0.9
    assert found["violations"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corruption", "canaries", "dropout", "fraction"),
    [(0.1, 120, 0.0, 0.9), (1 / 3, 50, 0.0, 0.68), (0.15, 130, 0.0, 0.8538), (0.1, 200, 0.1, 0.67)],
)
def test_an_experiment_that_withstands_colluders_can_be_audited(
    corruption, canaries, dropout, fraction
) -> None:
    sizes = {"canaries": canaries, "dropout": dropout, "repetitions": 1}
    found = audited(f"secagg.corruption={corruption}", **sizes)
    assert found["violations"] == []
    assert found["honest_fraction"] == pytest.approx(fraction, abs=0.005)
    # What is guaranteed is the noise that is named; all clients together draw more.
    assert found["upper"] == pytest.approx(audited(**sizes)["upper"], rel=0.02)
    assert found["score_deviation"] > 1.0


def test_a_pipeline_that_forgets_its_noise_fails_the_audit(monkeypatch) -> None:
    class Leaky(audit._CanaryEnvironment):
        def update(self, request, task, client):
            # Not clipped to what the ledger believes: forty canaries at once.
            return 40 * super().update(request, task, client)

    def unclipped(self, update, total, rounding, whose):
        total.add(np.rint(np.asarray(update) / self.encoding.step).astype(np.int64))

    monkeypatch.setattr(audit, "_CanaryEnvironment", Leaky)
    monkeypatch.setattr("zerosum.client.protocol.protection.Protection._encode", unclipped)
    found = audited("encoding.ring_bits=40", canaries=400, noise_multiplier=2.0)
    assert found["violations"] == [1, 2]
    assert verdict(found).startswith("FAILED")


@pytest.mark.parametrize(
    ("overrides", "plan", "words"),
    [
        (["privacy.model=local"], {}, "distributed"),
        (["privacy.model=central"], {}, "distributed"),
        ([], {"delta": 1e-3}, "says nothing"),
        ([], {"canaries": 2}, "at least"),
        ([], {"dropout": 0.7}, "dropout"),
        ([], {"canaries": 50, "dropout": 0.3}, "--canaries 50 --dropout 0.3: with room for chance"),
        *[
            ([], {"noise_multiplier": z}, "needs noise")
            for z in (0.0, -1.0, math.nan, math.inf, 1e9)
        ],
        (["encoding.ring_bits=8"], {}, "ring_bits = 8"),
    ],
)
def test_what_cannot_be_audited_is_refused(overrides, plan, words) -> None:
    with pytest.raises(ConfigError, match=words):
        audited(*overrides, **plan)


def test_exact_noise_without_its_sampler_is_refused(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs OpenDP"):
        audited("privacy.mechanism=discrete-gaussian", "privacy.exact=true")


def test_an_unwritable_file_is_refused_before_the_work(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(audit, "run_audit", lambda *arguments: pytest.fail("it ran"))
    for path in (tmp_path / "absent" / "a.json", tmp_path):
        result = CliRunner().invoke(app, ["audit", "digits", "--json", str(path)])
        assert result.exit_code == 2
        assert "--json" in result.output


@pytest.mark.slow
def test_a_run_s_audit_goes_into_its_report(tmp_path, caplog) -> None:
    experiment = load_experiment("digits")
    folder = RunFolder.create(tmp_path / "run", experiment)
    folder.write_json(AUDIT, audited())
    page = write_report(folder).read_text(encoding="utf-8")
    assert "What an audit could tell" in page
    assert "This audit could not have failed" in page
    folder.write_json(AUDIT, audited() | {"largest": 9.0})
    able = write_report(folder).read_text(encoding="utf-8")
    assert "Passed: no observer of the sum told more" in able
    folder.write(AUDIT, b'{"lower": []}')
    assert "What an audit could tell" not in write_report(folder).read_text(encoding="utf-8")
    assert AUDIT in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("violated", [False, True])
def test_the_command_fails_where_the_ledger_is_contradicted(tmp_path, monkeypatch, violated):
    found = audited() | {"violations": [1] if violated else []}
    monkeypatch.setattr(audit, "run_audit", lambda *arguments: found)
    result = CliRunner().invoke(app, ["audit", "digits", "--json", str(tmp_path / "a.json")])
    assert result.exit_code == (1 if violated else 0)
    assert ("FAILED" if violated else "Could not fail") in result.output
    assert json.loads((tmp_path / "a.json").read_text())["lower"] == found["lower"]


@pytest.mark.slow
def test_the_command_puts_its_result_beside_a_run(tmp_path) -> None:
    folder = RunFolder.create(tmp_path / "run", load_experiment("digits", IDEAL))
    sizes = ["--canaries", "40", "--repetitions", "1"]
    result = CliRunner().invoke(app, ["audit", "--run", str(folder.path), *sizes])
    assert result.exit_code == 0, result.output
    assert (folder.path / AUDIT).exists()
    assert "What an audit could tell" in (folder.path / "report.html").read_text()
    both = CliRunner().invoke(app, ["audit", "digits", "--run", str(folder.path)])
    assert both.exit_code == 2


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.timeout(900)
def test_the_specified_audit_tells_much_and_never_too_much() -> None:
    found = audited(canaries=1000, repetitions=20)
    assert sum(bound > 0.8 for bound in found["lower"]) >= 18
    assert max(found["lower"]) <= found["upper"]
    assert max(found["null"]) < 0.2
    assert 1.2 < found["lower_median"] < 2.0
    assert found["largest"] > found["upper"]
