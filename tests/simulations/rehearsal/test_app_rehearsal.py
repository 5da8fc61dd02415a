"""``zerosum rehearse`` of anybody's app: what is checked, how it ends, and one that really runs."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from zerosum.client.flower.node_policy import read_policy
from zerosum.server.analytics.query_folder import held_folder
from zerosum.server.analytics.stored_answers import AnswerEntry, StoredAnswers
from zerosum.server.flower.serving import AUTHORITY, ROSTER
from zerosum.server.privacy.epsilon_bound import no_bound
from zerosum.server.runs.records import Summary
from zerosum.server.runs.run_folder import CONFIG, METRICS, RunFolder
from zerosum.simulations import load_experiment
from zerosum.simulations.commands import rehearse as rehearse_command
from zerosum.simulations.commands import rehearse_apps
from zerosum.simulations.commands.main import app
from zerosum.simulations.rehearsal import DeploymentError, Federation, load_app
from zerosum.simulations.rehearsal.app_bundle import Bundle, check_loads, packed, reason
from zerosum.simulations.rehearsal.app_folder import AppRehearsal
from zerosum.simulations.rehearsal.namespaces import Loopback

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "means"
version = "1.0.0"
description = "Nothing but numpy"
license = "Apache-2.0"
dependencies = ["flwr>=1.39", "numpy"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "means.server_app:app"
clientapp = "means.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 3
"""

CLIENT = """
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from zerosum.client import private_mod

app = ClientApp(mods=[private_mod])


@app.train()
def train(message, context):
    place = float(context.node_config["partition-id"])
    model = [array + 0.1 * place for array in message.content["arrays"].to_numpy_ndarrays()]
    metrics = MetricRecord({"num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord(model), "metrics": metrics})
    return Message(content=content, reply_to=message)
"""

SERVER = """
import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from zerosum.server import PrivateStrategy

app = ServerApp()


@app.main()
def main(grid, context):
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy = PrivateStrategy(
        strategy, privacy={"model": "none", "clip": "none"}, encoding={"range": 4.0, "bits": 24},
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(4)]),
        num_rounds=context.run_config["num-server-rounds"],
    )
    np.savez("final_model", *result.arrays.to_numpy_ndarrays())
"""


@pytest.fixture
def own(tmp_path):
    """Write an app with two lines of ours, and return its folder."""
    folder = tmp_path / "means"
    (folder / "means").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    for name, text in (("__init__", ""), ("client_app", CLIENT), ("server_app", SERVER)):
        (folder / "means" / f"{name}.py").write_text(text)
    return folder


def contents(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow  # a process of Flower's and one that imports the app, a second or two each
def test_an_app_is_packed_as_flower_does_and_its_folder_is_not_written(own, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    before = contents(own)
    bundle = packed(own)
    check_loads(bundle)
    assert contents(own) == before
    bundle.unpack(tmp_path / "again")
    assert packed(tmp_path / "again").data == bundle.data
    assert bundle.config == {"num-server-rounds": 3}
    assert bundle.components["clientapp"] == "means.client_app:app"
    assert list(bundle.sources) == [f"means/{name}.py" for name in
                                    ("__init__", "client_app", "server_app")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("pyproject.toml", "serverapp = ", "server = ", r'does not take it: .*"serverapp" missing'),
        ("pyproject.toml", "[project]", "[project", r"is not valid TOML: .*line 6"),
        ("means/client_app.py", "@app.train()", "@app.train(", r"SyntaxError: .*, line 9\)$"),
        ("means/client_app.py", "from flwr.app", "import nosuch\nfrom flwr.app",
         r"ModuleNotFoundError: No module named 'nosuch' \(means/client_app.py, line 2\); install"),
    ],
)  # fmt: skip
def test_what_flower_or_python_refuses_is_one_line_with_the_reason(own, file, old, new, said):
    text = (own / file).read_text()
    assert old in text
    (own / file).write_text(text.replace(old, new))
    with pytest.raises(DeploymentError, match=said) as refused:
        check_loads(packed(own))
    assert "\n" not in str(refused.value)


def test_flowers_frame_is_taken_off_its_reason():
    text = "╭─ Error ───╮\n│ Invalid configuration in 'a':   │\n│ - Property missing │\n╰──╯\n"
    assert reason(text) == "Invalid configuration in 'a': - Property missing"


COMPONENTS = {
    "raises": ("1 / 0", "ZeroDivisionError: division by zero", "module.py, line 1"),
    "ends": ("import sys\nsys.exit(3)", "SystemExit: 3", "module.py, line 2"),
    "lacks it": ("other = 1", "AttributeError: module 'module' has no attribute 'app'", ""),
    "is another": ("app = 1", "app is a int, and a ServerApp is needed", ""),
    "is right": ("from flwr.serverapp import ServerApp\napp = ServerApp()", None, ""),
}


@pytest.mark.parametrize("what", COMPONENTS)
def test_a_component_that_does_not_load_says_why_and_where(what, tmp_path, monkeypatch):
    code, error, where = COMPONENTS[what]
    (tmp_path / "module.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        found = load_app.failure(tmp_path, "module:app", "serverapp")
    finally:
        sys.modules.pop("module", None)
    if error is None:
        assert found == {}
    else:
        assert found == {"component": 'serverapp = "module:app"', "error": error, "where": where}


def test_the_superlinks_environment_names_the_roster(tmp_path):
    built = Federation(tmp_path / "all", Loopback(), [Loopback(), Loopback()])
    assert built.env[ROSTER] == str(built.roster)
    assert built.env[AUTHORITY] == built.authority


class Built(SimpleNamespace):
    """Stands for the federation: notes what its nodes and its run are given."""

    mark = ""

    def start_supernode(self, index, config):
        self.nodes.append(config)

    def submit_config(self, folder, config):
        self.ran.append((folder, config))
        return 7


@pytest.fixture
def rehearse(own, tmp_path, monkeypatch):
    """Return a function that rehearses the app on nodes that leave such logs, and what it gave."""
    out = tmp_path / "run"
    built = Built(nodes=[], ran=[])

    def stands_for(folder):
        import io
        import zipfile

        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as file:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    file.write(path, path.relative_to(folder))
        return Bundle(str(folder), data.getvalue())

    def rehearse(
        *arguments,
        logs=("", ""),
        server="",
        status="finished:completed",
        private=True,
        ends=None,
    ):
        @contextmanager
        def federation(path, nodes, *, apart, tell):
            path.mkdir(parents=True)
            built.folder = path
            yield built

        def until_end(watch, seconds):
            folder = watch.kept.nodes / "runs" / "7"
            log = f"INFO : PrivateStrategy waits; run folder: {folder}\n" if private else ""
            (watch.kept.nodes / "serverapp.log").write_text(log + server)
            for index, text in enumerate(logs):
                (watch.kept.nodes / f"supernode{index}.log").write_text(text)
            if private:
                write_run(folder)
            return status

        monkeypatch.setattr(rehearse_command, "federation", federation)
        monkeypatch.setattr(rehearse_apps, "packed", stands_for)
        monkeypatch.setattr(rehearse_apps, "check_loads", lambda bundle: None)
        monkeypatch.setattr(rehearse_apps.Watch, "until_end", ends or until_end)
        words = ["rehearse", str(own), "--nodes", "2", "--out", str(out), *arguments]
        return CliRunner().invoke(app, words, env={"COLUMNS": "500"})

    given: Any = rehearse
    given.built, given.out = built, out
    return given


def write_run(folder):
    """Write what PrivateStrategy does: two rounds that were completed."""
    folder.mkdir(parents=True)
    RunFolder(folder).write_config(load_experiment("digits", ["rounds=2"]))
    line: dict[str, Any] = {"status": "completed", "epsilon": {}, "cohort": 2, "survivors": 2}
    lines = [line | {"round": number, "seconds": 1.5} for number in (1, 2)]
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    bound = no_bound("sum", 1e-3, "no noise", unit="client")
    RunFolder(folder).write_summary(Summary(rounds=2, server="malicious", epsilon={"sum": bound}))


FAILED = textwrap.dedent("""\
    ERROR client 0: its answer to round 1 failed
    Traceback (most recent call last):
      File "means/client_app.py", line 3, in train
    FileNotFoundError: no file a.csv
    """)


def test_a_run_that_ends_well_says_where_it_is_and_what_nodes_recorded(rehearse):
    done = rehearse()
    assert done.exit_code == 0, done.output
    folder = rehearse.out / "rehearsal" / "runs" / "7"
    assert (
        "2 nodes, protected against a malicious server: 2 rounds, 0 abandoned, 1.5 s a round"
        in (done.output)
    )
    assert f"Report      zerosum report {folder}\n" in done.output
    assert "Node 1      0 contributions" in done.output


@pytest.mark.parametrize(("ignored", "warns"), [("", True), ("/runs/\n", False)])
def test_a_run_folder_that_flower_would_send_to_nodes_is_told(ignored, warns, rehearse, own):
    (own / ".gitignore").write_text(ignored)
    done = rehearse("--out", str(own / "runs" / "first"))
    assert done.exit_code == 0, done.output
    said = f"write a line /runs/ into {own / '.gitignore'}, or name a folder elsewhere by --out"
    assert done.output.count(said) == int(warns)


def test_a_serverapp_that_raises_ends_it_with_1_and_its_error(rehearse):
    server = "Traceback (most recent call last):\n  File 'a'\nRuntimeError: no weights.bin\n"
    done = rehearse(server=server, status="finished:failed", logs=(FAILED, ""))
    assert done.exit_code == 1
    assert "error: the ServerApp failed: RuntimeError: no weights.bin\n" in done.output
    assert "its answer to round 1 failed: FileNotFoundError: no file a.csv" in done.output
    assert "Traceback" not in done.output
    assert f"{rehearse.out}/rehearsal/*.log" in done.output


def test_a_clientapp_that_raises_at_every_node_ends_it_with_1_and_its_error(rehearse):
    done = rehearse(logs=(FAILED * 2, FAILED.replace("client 0", "client 1") * 2))
    assert done.exit_code == 1
    assert "no node trained in any of 2 rounds" in done.output
    assert "FileNotFoundError: no file a.csv" in done.output


def test_one_node_that_fails_ends_nothing(rehearse):
    done = rehearse(logs=(FAILED * 2, ""))
    assert done.exit_code == 0
    assert "Failures of training in the nodes' logs: 2" in done.output


def test_a_run_without_a_private_round_ends_it_with_1(rehearse):
    done = rehearse(private=False)
    assert done.exit_code == 1
    assert "completed without a private sum" in done.output


def policy_of(rehearse):
    (file,) = {re.findall(r'policy="(.+?)"', config)[0] for config in rehearse.built.nodes}
    return read_policy(file)


def test_without_a_policy_nodes_accept_anything_and_are_told_so(rehearse):
    done = rehearse()
    assert "each node accepts anything" in done.output
    policy = policy_of(rehearse)
    assert set(policy.servers) == {"malicious", "semi-honest"}
    assert (policy.min_cohort, policy.corruption, policy.max_epsilon) == (2, 0.0, float("inf"))
    assert policy.protocols == ["pairwise"]
    assert policy.budget_unit == "client"


@pytest.mark.slow
def test_the_server_that_is_typed_is_the_only_one_that_nodes_accept(rehearse):
    rehearse("--server", "malicious")
    assert policy_of(rehearse).servers == ["malicious"]


def test_an_apps_own_policy_is_taken_as_it_is(rehearse, own):
    (own / "policy.toml").write_text(
        'servers = ["semi-honest"]\nmin_cohort = 7\ncorruption = 0.1\nmax_epsilon = 3.0\n'
    )
    done = rehearse()
    assert "the app's own policy.toml" in done.output
    assert (policy_of(rehearse).min_cohort, policy_of(rehearse).servers) == (7, ["semi-honest"])
    (own / "policy.toml").write_text("min_cohort = 7\n")
    shutil.rmtree(rehearse.out)
    done = rehearse()
    assert done.exit_code == 2
    assert "lacks keys that have no default" in done.output


def test_settings_go_to_the_run_config_and_node_config_to_each_node(rehearse):
    rehearse("--set", "num-server-rounds=2", "--node-config", 'data-path="/data/{}.csv"')
    ((folder, config),) = rehearse.built.ran
    assert Path(config).read_text() == "num-server-rounds = 2\n"
    assert contents(folder).keys() >= {"pyproject.toml", "means/client_app.py"}
    for index, given in enumerate(rehearse.built.nodes):
        assert given.endswith(f'data-path="/data/{index}.csv"')


def test_a_run_of_queries_alone_ends_with_its_answers(rehearse, monkeypatch):
    folder = rehearse.out / "rehearsal" / "runs" / "7"

    def summary_or_answers(kept):
        raise AssertionError("no rounds are looked for")

    monkeypatch.setattr(rehearse_apps, "_summary", summary_or_answers)
    told: list[str] = []

    def until_end(watch, seconds):
        folder.mkdir(parents=True)
        (watch.kept.nodes / "serverapp.log").write_text(
            f"INFO : PrivateQueries waits for its nodes; folder of queries: {folder}\n"
        )
        with held_folder(folder):
            values = {"kind": "app", "asked_epsilon": 0.5, "values": {"ages": list(range(10))},
                      "clients": 2, "std": {"ages": 1.5}}  # fmt: skip
            StoredAnswers(folder).keep(AnswerEntry("query", "a" * 64, 1, values, []))
        told.extend(news.line for news in watch.kept.news(0))
        return "finished:completed"

    done = rehearse(ends=until_end)
    assert done.exit_code == 0, done.output
    assert told == ["query 1  query: ages (10), of 2 nodes, epsilon 0.5"]
    assert "2 nodes: 1 answer\n" in done.output
    assert "epsilon 0.5: ages 0 1 2 3 4 5 6 7 ..." in done.output
    assert f"Folder      {folder}" in done.output


MISTAKES = {
    "resume": (["--resume", "run"], "keeps no checkpoint to go on from"),
    "an unknown key": (["--set", "rounds=2"], "the app's run config has num-server-rounds"),
    "files": (["--data", "0=a.csv"], "--node-config"),
}


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("what", MISTAKES)
def test_what_such_an_app_cannot_do_is_one_line_and_exit_2(what, own, rehearse, monkeypatch):
    given, said = MISTAKES[what]
    done = rehearse(*given)
    assert done.exit_code == 2
    assert said in done.output
    assert rehearse.built.nodes == []


def test_the_records_are_where_the_log_says(tmp_path):
    kept = AppRehearsal(tmp_path)
    kept.nodes.mkdir()
    assert not AppRehearsal(tmp_path).begun
    log = kept.nodes / "serverapp.log"
    log.write_text(f"INFO : waits; run folder: {tmp_path}/mine of\nINFO : other\n")
    assert kept.run == tmp_path / "mine of"
    write_run(kept.run)
    assert (kept.run / CONFIG).is_file()
    assert kept.begun
    assert [news.number for news in kept.news(1)] == [2]
    assert not kept.goes_on
    assert "2 of 2 rounds are over" in kept.left(Path("app"))


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1200)
def test_an_app_with_two_lines_runs_on_three_nodes_against_a_server_that_may_lie(
    own, tmp_path, monkeypatch
):
    """Its mean is that of its nodes; a node's 0.1 * index; the folder stays as it was."""
    import numpy as np

    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    before = contents(own)
    command = [sys.executable, "-m", "zerosum.simulations.commands.main", "rehearse", str(own)]
    out = tmp_path / "run"
    done = subprocess.run(
        [*command, "--out", str(out), "--set", "num-server-rounds=2", "--seconds", "900"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert contents(own) == before
    assert "round 1/2" in done.stdout
    assert "protected against a malicious server: 2 rounds, 0 abandoned" in done.stdout
    assert done.stdout.count(" contributions") == 3
    nodes = out / "rehearsal"
    (run,) = (nodes / "runs").iterdir()
    rounds = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    assert [record["survivors"] for record in rounds] == [3, 3]
    assert all("confirm" in record["dropouts"] for record in rounds)
    (model,) = np.load(nodes / "final_model.npz").values()
    np.testing.assert_allclose(model, np.full(4, 2 * 0.1), atol=1e-5)
