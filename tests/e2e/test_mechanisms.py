"""Whole runs under every mechanism and every way of clipping."""

import importlib.util
import json

import numpy as np
import pytest

from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import LEDGER, METRICS, MODEL
from zerosum.simulations import api

SMALL = [
    "rounds=3",
    "data.clients=30",
    "sampling.cohort=12",
    "privacy.delta=1e-2",
    "training.epochs=1",
    "secagg.dropout=0.4",
    "secagg.server=semi-honest",
    "privacy.honest_fraction=0.5",
]
ADAPTIVE = "privacy.clipping=adaptive"

pytestmark = pytest.mark.usefixtures("one_thread")


def run(settings, out):
    return api.run("digits", overrides=[*SMALL, *settings], out=out, report=False)


def model_bytes(result):
    return (result.folder / MODEL).read_bytes()


def epsilons(result):
    return {name: figure["value"] for name, figure in result.summary["epsilon"].items()}


@pytest.mark.slow
def test_a_discrete_gaussian_costs_what_skellam_does(tmp_path):
    one = run(["privacy.mechanism=discrete-gaussian"], tmp_path / "gaussian")
    two = run([], tmp_path / "skellam")
    for observer, value in epsilons(one).items():
        assert value == pytest.approx(epsilons(two)[observer], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["discrete-laplace", "privunit"])
def test_pure_local_noise_costs_its_epsilon_a_contribution(tmp_path, mechanism):
    settings = ["privacy.model=local", f"privacy.mechanism={mechanism}", "sampling.kind=once"]
    settings += ["sampling.cohort=10", "privacy.noise_multiplier=0.5"]
    result = run(settings, tmp_path / "run")
    for value in epsilons(result).values():
        assert value == pytest.approx(4.0, rel=0.01)


@pytest.mark.slow
def test_a_trusted_server_is_the_only_one_that_sees_more(tmp_path):
    result = run(["privacy.model=central", "secagg.protocol=ideal"], tmp_path / "central")
    figures = result.summary["epsilon"]
    for observer in ("sum", "local"):
        assert figures[observer]["value"] is None
        assert "central" in figures[observer]["reason"]
    shared = run([], tmp_path / "shared")
    # Shares add up to V/f, the server alone to V: half as much here.
    assert figures["release"]["value"] > epsilons(shared)["release"]
    # Without dropouts, assumed or played, nothing else is between them.
    stages = ("advertise", "share", "contribute", "confirm", "unmask")
    present = ["secagg.dropout=0.0", *(f"faults.{stage}=0.0" for stage in stages)]
    central = ["privacy.model=central", "secagg.protocol=ideal"]
    trusted = run([*present, *central], tmp_path / "trusted")
    whole = run([*present, "privacy.honest_fraction=1.0"], tmp_path / "whole")
    assert epsilons(trusted)["release"] == pytest.approx(epsilons(whole)["release"], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["pairwise", "ideal", "none"])
def test_central_noise_does_not_depend_on_the_protocol(tmp_path, protocol):
    settings = ["privacy.model=central", "faults.contribute=0.1"]
    result = run([*settings, f"secagg.protocol={protocol}"], tmp_path / "run")
    other = run([*settings, "secagg.protocol=ideal"], tmp_path / "ideal")
    assert model_bytes(result) == model_bytes(other)


def test_a_server_that_lies_is_not_trusted_with_the_noise(tmp_path):
    with pytest.raises(ConfigError, match=r"secagg\.server"):
        run(["privacy.model=central", "secagg.server=malicious"], tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["pairwise", "none"])
def test_an_adaptive_clip_is_the_same_under_every_protocol(tmp_path, protocol):
    settings = [ADAPTIVE, "privacy.noise_draw=per_client", "faults.contribute=0.1"]
    one = run([*settings, f"secagg.protocol={protocol}"], tmp_path / "one")
    two = run([*settings, "secagg.protocol=ideal"], tmp_path / "two")
    assert model_bytes(one) == model_bytes(two)
    assert [r.get("clip") for r in one.rounds] == [r.get("clip") for r in two.rounds]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [pytest.param([ADAPTIVE], marks=pytest.mark.slow), [ADAPTIVE, "privacy.model=none"]]
)
def test_an_adaptive_clip_survives_a_resume_bit_for_bit(tmp_path, settings):
    whole = run([*settings, "rounds=4"], tmp_path / "whole")
    part = run([*settings, "rounds=2"], tmp_path / "part")
    resumed = api.resume(part.folder, overrides=["rounds=4"], report=False)
    assert model_bytes(resumed) == model_bytes(whole)
    clips = [r["clip"] for r in whole.rounds if "clip" in r]
    assert len(set(clips)) > 2
    assert clips == [r["clip"] for r in resumed.rounds if "clip" in r]
    assert (whole.folder / LEDGER).read_bytes() == (resumed.folder / LEDGER).read_bytes()


@pytest.mark.slow
def test_an_adaptive_clip_costs_what_the_multiplier_says(tmp_path):
    adaptive, flat = run([ADAPTIVE], tmp_path / "adaptive"), run([], tmp_path / "flat")
    for observer, value in epsilons(adaptive).items():
        assert value == pytest.approx(epsilons(flat)[observer], rel=1e-4)
    assert adaptive.rounds[0]["noise_norm"] == pytest.approx(
        flat.rounds[0]["noise_norm"] / 0.96**0.5, rel=1e-3
    )


@pytest.mark.slow
def test_without_noise_the_clip_finds_the_median_norm(tmp_path):
    settings = [ADAPTIVE, "privacy.model=none", "sampling.kind=everyone", "privacy.clip=30.0"]
    settings += ["privacy.clip_rate=2.0", "rounds=14", "server.lr=1e-6"]
    result = run(settings, tmp_path / "run")
    # The model hardly moves, so neither do the norms.
    last = [r["fraction_within_clip"] for r in result.rounds[-4:]]
    assert np.mean(last) == pytest.approx(0.5, abs=0.25)
    assert result.rounds[0]["fraction_within_clip"] == 1.0
    lines = [json.loads(line) for line in (result.folder / METRICS).read_text().splitlines()]
    assert lines[-1]["clip"] == result.rounds[-1]["clip"] < 3


@pytest.mark.slow
def test_an_abandoned_round_leaves_the_clip_alone(tmp_path):
    settings = [ADAPTIVE, "faults.contribute=0.35", "privacy.honest_fraction=0.6", "rounds=8"]
    result = run(settings, tmp_path / "run")
    statuses = [r["status"] for r in result.rounds]
    assert "abandoned" in statuses
    for record in result.rounds:
        assert ("clip" in record) == (record["status"] == "completed")


@pytest.mark.slow
def test_layers_are_clipped_apart(tmp_path):
    settings = ["privacy.model=none", "privacy.clip=0.3", "sampling.kind=everyone", "rounds=1"]
    settings += ["model.name=mlp", "model.hidden=[8]"]
    flat = run(settings, tmp_path / "flat")
    layered = run([*settings, "privacy.clipping=per-layer"], tmp_path / "layered")
    skewed = ["privacy.clipping=per-layer", "privacy.clip_fractions=[1.0, 100.0]"]
    one = run([*settings, *skewed], tmp_path / "one")
    assert len({model_bytes(result) for result in (flat, layered, one)}) == 3
    for result in (flat, layered, one):
        assert result.rounds[0]["average_norm"] <= 0.3
    with pytest.raises(ConfigError, match="3 entries, and the model 2 layers"):
        run([*settings, skewed[0], "privacy.clip_fractions=[1.0,1.0,1.0]"], tmp_path / "bad")


@pytest.mark.slow
def test_a_federated_evaluation_is_charged_under_every_mechanism(tmp_path):
    evaluation = ["evaluation.federated_every=1", "evaluation.federated_noise_multiplier=1.0"]
    for name, settings in {
        "adaptive": [ADAPTIVE],
        "laplace": ["privacy.model=local", "privacy.mechanism=discrete-laplace"],
        "privunit": ["privacy.model=local", "privacy.mechanism=privunit"],
        "central": ["privacy.model=central"],
    }.items():
        with_it = run([*settings, *evaluation, "rounds=1"], tmp_path / name)
        without = run([*settings, "rounds=1"], tmp_path / f"{name} without")
        released = [epsilons(result)["release"] for result in (with_it, without)]
        assert released[0] > released[1]


def test_exact_noise_makes_a_run_that_is_not_continued(tmp_path):
    if importlib.util.find_spec("opendp") is None:
        pytest.skip("OpenDP is not installed: the extra `exact`")
    settings = ["privacy.mechanism=discrete-gaussian", "privacy.exact=true", "rounds=1"]
    settings += ["data.limit=200", "data.pool=2"]
    one, two = (run(settings, tmp_path / name) for name in "ab")
    assert model_bytes(one) != model_bytes(two)
    assert one.summary["noise_from_seed"] is False
    with pytest.raises(ConfigError, match="fresh noise"):
        api.resume(one.folder, overrides=["rounds=2"], report=False)


@pytest.mark.slow
def test_fresh_noise_is_not_drawn_again_for_a_round_that_was_charged(tmp_path, monkeypatch):
    def end(self, number, line):
        raise RuntimeError("killed before the first checkpoint")

    with monkeypatch.context() as patched:
        patched.setattr(api, "SeededEntropy", lambda seed: SystemEntropy())
        patched.setattr(api.FederatedTraining, "_save", end)
        with pytest.raises(RuntimeError, match="killed"):
            run(["rounds=1"], tmp_path / "run")
        with pytest.raises(ConfigError, match="fresh noise"):
            api.resume(tmp_path / "run", report=False)


def test_without_opendp_exact_noise_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"privacy\.exact = true needs OpenDP"):
        run(["privacy.mechanism=discrete-gaussian", "privacy.exact=true"], tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["privacy.mechanism=privunit"], "privacy"),
        (
            ["privacy.model=local", "privacy.mechanism=discrete-laplace", "encoding.rotate=true"],
            r"encoding\.rotate",
        ),
        ([ADAPTIVE, "encoding.range=1.0"], r"encoding\.range"),
        (
            ["privacy.model=local", "privacy.noise_multiplier=1e-8"],
            r"privacy\.noise_multiplier = 1e-08, .*: a rounded Gaussian's sigma .* raise",
        ),
        (
            ["privacy.model=local", "privacy.noise_multiplier=1e-12"],
            r"privacy\.noise_multiplier = 1e-12 must be 1e-09 or more",
        ),
        (["privacy.model=central", "privacy.epsilon=3.0", "privacy.epsilon_for=sum"], "central"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(tmp_path, settings, key):
    with pytest.raises(ConfigError, match=key):
        run(settings, tmp_path / "run")
