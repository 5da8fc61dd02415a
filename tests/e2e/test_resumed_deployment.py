"""A ServerApp that was killed goes on where its checkpoint says, and what it spent stays spent."""

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import read_loggers
from flwr.app import Context, RecordDict
from policies import LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.noise_source import SeededEntropy, SystemEntropy
from zerosum.server.config import ConfigError
from zerosum.server.flower.server_app import serve
from zerosum.server.runs.resume import held
from zerosum.server.runs.run_folder import LEDGER, RunFolder
from zerosum.simulations.engine.grid import InProcessGrid

CLIENTS = 6
EXPERIMENT = """
name = "resumed"
task = "digits"
rounds = 3
[data]
limit = 300
[model]
name = "linear"
[training]
epochs = 1
[sampling]
kind = "{sampling}"
cohort = {cohort}
[privacy]
clip = 1.0
noise_multiplier = 2.0
delta = 0.05
honest_fraction = 0.6
allow_large_delta = true
[secagg]
server = "semi-honest"
dropout = 0.2
[deployment]
min_nodes = 6
stage_timeout = 5.0
"""


class Killed(BaseException):
    """The ServerApp's process is gone: no code of it runs any more."""


class Seeded(DeployedEnvironment):
    entropy = SeededEntropy(0)


class Nodes:
    """Six nodes, and ServerApps that come and go."""

    def __init__(self, folder, *, sampling="fixed", cohort=5, seeded=False):
        self.folder, self.out = folder, folder / "run"
        self.experiment = folder / "experiment.toml"
        self.experiment.write_text(EXPERIMENT.format(sampling=sampling, cohort=cohort))
        (folder / "policy.toml").write_text('servers = ["semi-honest"]\n' + LEAST_TOML)
        self.app = build_app(Seeded if seeded else DeployedEnvironment)
        self.entropy = SeededEntropy(0) if seeded else SystemEntropy()
        self.runs = 0

    def node_config(self, index):
        state = str(self.folder / "state" / str(index))
        return {"state-dir": state, "policy": str(self.folder / "policy.toml")}

    def serve(self, *, die_at=None, overrides="", **run_config):
        """Start a ServerApp; ``die_at`` is a stage and the round of its session."""
        self.runs += 1

        def app(message, context):
            kind, group = message.metadata.message_type, message.metadata.group_id
            if die_at is not None and (kind.split(".")[1], group) == die_at:
                raise Killed
            return self.app(message, context)

        grid = InProcessGrid(app, CLIENTS, node_config=self.node_config, run_id=self.runs)
        config = {"experiment": str(self.experiment), "overrides": overrides}
        config |= run_config or {"out": str(self.out)}
        context = Context(
            run_id=self.runs, node_id=1, node_config={}, state=RecordDict(), run_config=config
        )
        return serve(grid, context, self.entropy)

    @property
    def ledger(self):
        lines = (self.out / LEDGER).read_text().splitlines()
        return [json.loads(line) for line in lines][1:]


DEATHS = [(stage, "6") for stage in ("contribute", "unmask")]


@pytest.mark.slow
def test_a_killed_server_app_tells_its_logger_each_round_once(tmp_path, one_thread):
    if find_spec("tensorboard") is None:
        pytest.skip("the extra tensorboard is not installed")
    nodes = Nodes(tmp_path)
    with pytest.raises(Killed):
        nodes.serve(die_at=DEATHS[0], overrides="log=tensorboard")
    result = nodes.serve(resume=str(nodes.out))
    reader = [sys.executable, read_loggers.__file__, str(nodes.out)]
    told = json.loads(subprocess.run(reader, check=True, capture_output=True).stdout)["tensorboard"]
    assert told["test_accuracy"] == [
        [r.round, float(np.float32(r.metrics["test_accuracy"]))] for r in result.rounds
    ]
    # The ledger's figure counts what an outsider does not know: here a round was asked twice.
    assert (
        max(value for _, value in told["epsilon_release"]) >= result.rounds[-1].epsilon["release"]
    )
    assert not {"cohort", "survivors", "seconds"} & told.keys()


@pytest.mark.slow
@pytest.mark.parametrize("die_at", DEATHS, ids=lambda at: at[0])
@pytest.mark.parametrize("by", ["out", "resume"])
def test_a_killed_server_app_goes_on(tmp_path, one_thread, die_at, by):
    nodes = Nodes(tmp_path)
    with pytest.raises(Killed):
        nodes.serve(die_at=die_at)
    before = nodes.ledger
    result = nodes.serve(**{by: str(nodes.out)})
    assert [r["round"] for r in result.rounds] == [1, 2, 3]
    assert [r["status"] for r in result.rounds] == ["completed"] * 3
    assert result.rounds[2]["attempt"] == 1, "a new session with fresh noise"
    assert nodes.ledger[: len(before)] == before, "what was spent stays spent"
    assert [3, 1, "train", 0] in [line["key"] for line in nodes.ledger]


@pytest.mark.slow
def test_the_round_in_flight_is_charged_twice_where_its_noise_is_fresh(tmp_path, one_thread):
    folders = [tmp_path / name for name in ("killed", "whole")]
    for folder in folders:
        folder.mkdir()
    killed, whole = Nodes(folders[0], sampling="everyone"), Nodes(folders[1], sampling="everyone")
    with pytest.raises(Killed):
        killed.serve(die_at=("unmask", "6"))
    resumed, control = killed.serve(resume=str(killed.out)), whole.serve()
    for observer in ("sum", "release"):
        spent = [r.summary["epsilon"][observer] for r in (resumed, control)]
        assert spent[0]["value"] > spent[1]["value"]
        assert [figure["participations"] for figure in spent] == [4, 3]


@pytest.mark.slow
@pytest.mark.parametrize("die_at", [*DEATHS, ("advertise", "2")], ids=lambda at: at[0])
def test_with_noise_from_a_seed_the_model_is_that_of_a_whole_run(tmp_path, one_thread, die_at):
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    killed = Nodes(tmp_path / "killed", seeded=True)
    with pytest.raises(Killed):
        killed.serve(die_at=die_at)
    # Without a checkpoint it has to be said; what is drawn again is then the same release.
    early = die_at[1] == "2"
    resumed = killed.serve(resume=str(killed.out)) if early else killed.serve()
    whole = Nodes(tmp_path / "whole", seeded=True).serve()
    for name, value in whole.model.items():
        np.testing.assert_array_equal(resumed.model[name], value)
    assert resumed.summary["epsilon"] == whole.summary["epsilon"]


@pytest.mark.slow
def test_a_server_app_that_ends_says_what_is_kept_and_how_to_go_on(tmp_path, one_thread, caplog):
    nodes = Nodes(tmp_path)
    with pytest.raises(Killed):
        nodes.serve(die_at=("contribute", "6"))
    said = caplog.messages[-1]
    assert "2 of 3 rounds are over and kept in" in said
    assert said.endswith(f"""go on with: flwr run . --run-config 'resume="{nodes.out}"'""")


def test_fresh_noise_needs_a_checkpoint(tmp_path, one_thread, caplog):
    nodes = Nodes(tmp_path)
    with pytest.raises(Killed):
        nodes.serve(die_at=("contribute", "2"))
    assert "ended before the first round was over: start anew" in caplog.text
    with pytest.raises(ConfigError, match="fresh noise is not continued before its first check"):
        nodes.serve(resume=str(nodes.out))


def test_whoever_is_asked_once_is_not_asked_again(tmp_path, one_thread):
    nodes = Nodes(tmp_path, sampling="once", cohort=2)
    with pytest.raises(Killed):
        nodes.serve(die_at=("unmask", "4"), overrides="secagg.dropout=0.0")
    result = nodes.serve()
    assert [r["status"] for r in result.rounds] == ["completed", "abandoned", "completed"]
    assert "once is once" in result.rounds[1]["reason"]
    assert result.summary["epsilon"]["sum"]["participations"] == 1


@pytest.mark.slow
def test_what_a_folder_holds_is_what_is_resumed(tmp_path, one_thread, caplog):
    nodes = Nodes(tmp_path)
    nodes.serve(overrides="rounds=1")
    with pytest.raises(ConfigError, match=r"privacy\.noise_multiplier = 3\.0: the run in"):
        nodes.serve(overrides="privacy.noise_multiplier=3.0")
    with pytest.raises(ConfigError, match="give one of them"):
        nodes.serve(out=str(tmp_path / "other"), resume=str(nodes.out))
    with pytest.raises(ConfigError, match="holds no run"):
        nodes.serve(resume=str(tmp_path / "nowhere"))
    with held(RunFolder(nodes.out)), pytest.raises(ConfigError, match="still goes on"):
        nodes.serve()
    assert "planned" not in caplog.text
    more = nodes.serve(overrides="rounds=2 deployment.train_timeout=90.0")
    assert [r["round"] for r in more.rounds] == [1, 2]
    assert "rounds = 2: this run was planned for epsilon_release = " in caplog.text
