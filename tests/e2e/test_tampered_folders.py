"""A resumed run never forgets what was spent, whatever happened to its files."""

import json
import shutil

import pytest

from zerosum.server.config import ConfigError
from zerosum.server.runs.checkpoint import STATE
from zerosum.server.runs.resume import held
from zerosum.server.runs.run_folder import LEDGER, METRICS, RunFolder
from zerosum.simulations import api, load_experiment

SMALL = [
    "rounds=2",
    "data.clients=30",
    "sampling.cohort=12",
    "privacy.delta=1e-2",
    "training.epochs=1",
    "secagg.protocol=ideal",
]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return api.run("digits", overrides=SMALL, out=folder, report=False).folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def cut(path, keep):
    data = path.read_bytes()
    path.write_bytes(data[:keep])


def without_lines(path, count):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:count]))


DAMAGE = {
    "ledger deleted": lambda f: (f / LEDGER).unlink(),
    "ledger emptied": lambda f: (f / LEDGER).write_text(""),
    "ledger's header alone": lambda f: without_lines(f / LEDGER, 1),
    "ledger's last line gone": lambda f: without_lines(f / LEDGER, 4),
    "ledger's last newline gone": lambda f: cut(f / LEDGER, -1),
    "ledger doubled": lambda f: (f / LEDGER).write_text((f / LEDGER).read_text() * 2),
    "ledger is garbage": lambda f: (f / LEDGER).write_text("{\n[]\n"),
    "garbage after the ledger": lambda f: (f / LEDGER).write_text(
        (f / LEDGER).read_text() + "{}\n"
    ),
    "metrics deleted": lambda f: (f / METRICS).unlink(),
    "metrics torn": lambda f: cut(f / METRICS, -9),
    "metrics are garbage": lambda f: (f / METRICS).write_text("nonsense\n"),
    "checkpoint torn": lambda f: cut(f / STATE, -4),
    "checkpoint is text": lambda f: (f / STATE).write_text("nonsense"),
    "configuration edited": lambda f: (f / "config.toml").write_text(
        (f / "config.toml").read_text().replace("lr = 0.3", "lr = 0.2")
    ),
    "configuration emptied": lambda f: (f / "config.toml").write_text(""),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_folder_whose_parts_do_not_fit_is_refused_in_one_line(folder, damage):
    DAMAGE[damage](folder)
    with pytest.raises(ConfigError) as caught:
        api.resume(folder, overrides=["rounds=3"], report=False)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_another_runs_checkpoint_is_refused(folder, tmp_path):
    other = api.run("digits", overrides=[*SMALL, "seed=1"], out=tmp_path / "other", report=False)
    shutil.copy(other.folder / STATE, folder / STATE)
    with pytest.raises(ConfigError, match="another configuration"):
        api.resume(folder, overrides=["rounds=3"], report=False)


@pytest.mark.slow
def test_what_a_crash_leaves_behind_is_accepted(folder, finished):
    """Lines of the next round, whole or torn, were written ahead and count."""
    line = {"type": "contributions", "key": [3, 0, "train", 0], "cohort": 12, "clients": [0, 1]}
    with (folder / LEDGER).open("a") as ledger:
        ledger.write(json.dumps(line) + "\n" + '{"type": "sum", "ke')
    with (folder / METRICS).open("a") as metrics:
        metrics.write('{"round": 3, "coh')
    before = json.loads((finished / "summary.json").read_text())["epsilon"]
    resumed = api.resume(folder, overrides=["rounds=2"], report=False)
    for observer, figure in resumed.summary["epsilon"].items():
        assert figure["value"] >= before[observer]["value"]


@pytest.mark.slow
def test_a_target_epsilon_leaves_room_for_federated_evaluations(tmp_path):
    settings = [
        *SMALL,
        "privacy.epsilon=2.0",
        "evaluation.federated_every=1",
        "evaluation.federated_noise_multiplier=2.5",
    ]
    result = api.run("digits", overrides=settings, out=tmp_path / "run", report=False)
    assert 1.9 < result.summary["epsilon"]["release"]["value"] <= 2.0


@pytest.mark.slow
def test_a_sum_that_noise_can_wrap_is_reported(tmp_path):
    settings = [*SMALL, "encoding.ring_bits=21", "privacy.noise_multiplier=10.0", "rounds=1"]
    result = api.run("digits", overrides=settings, out=tmp_path / "run", report=False)
    assert result.summary["wrap_probability_log2"] > -40
    assert "wraps" in (result.folder / "server.log").read_text()
    whole = api.plan(load_experiment("digits", SMALL))
    assert whole.experiment.encoding.ring_bits is None


@pytest.mark.slow
def test_a_run_that_goes_on_elsewhere_is_not_continued(folder):
    before = (folder / LEDGER).read_bytes()
    with held(RunFolder(folder)), pytest.raises(ConfigError, match="goes on in another process"):
        api.resume(folder, overrides=["rounds=3"], report=False)
    assert (folder / LEDGER).read_bytes() == before
    assert len(api.resume(folder, overrides=["rounds=3"], report=False).rounds) == 3
