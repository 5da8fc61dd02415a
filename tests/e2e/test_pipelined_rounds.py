"""Rounds that overlap: the same model as one after another, in two or three exchanges each."""

import itertools
import json

import numpy as np
import pytest
from policies import LEAST_TOML
from strategy_apps import wrong_shares_of

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.noise_source import Entropy, SeededEntropy
from zerosum.secagg import ClientParty
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.run_folder import LEDGER, METRICS, RunFolder
from zerosum.server.spec import FaultSpec
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations import api, load_experiment
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import InProcessGrid, nodes

SEED = 3
BASE = {
    "name": "pipelined",
    "task": "digits",
    "seed": SEED,
    "rounds": 4,
    "data": {"clients": 10, "limit": 400},
    "model": {"name": "linear"},
    "training": {"epochs": 1},
    "sampling": {"kind": "fixed", "cohort": 8},
    "privacy": {"model": "none", "clip": 4.0},
    "secagg": {"dropout": 0.25, "server": "semi-honest"},
}
NOISE = ["privacy.model=distributed", "privacy.clip=1.0", "privacy.delta=0.05"]
NOISE += ["privacy.honest_fraction=0.6", "privacy.noise_multiplier=1.0"]
MALICIOUS = ["secagg.server=malicious"]


class Seeded(DeployedEnvironment):
    """A deployed client whose noise can be drawn again: for comparing."""

    entropy: Entropy = SeededEntropy(SEED)


class CountingGrid(InProcessGrid):
    """Counts how often messages go out."""

    pushes = 0

    def push_messages(self, messages):
        self.pushes += 1
        return super().push_messages(messages)


class Deployment:
    """Deployed clients in this process, with their folders."""

    def __init__(self, folder, make_keys, settings=(), faults=None, app=None):
        self.planned = api.plan(load_experiment(BASE, settings))
        experiment = self.planned.experiment
        folder.mkdir()
        policy = folder / "policy.toml"
        policy.write_text(
            'models = ["none", "distributed"]\nservers = ["malicious", "semi-honest"]\n'
            + LEAST_TOML
        )
        count = self.planned.population
        signed = experiment.secagg.server == "malicious"
        keys = make_keys(folder / "keys", count) if signed else None
        self.grid = CountingGrid(
            app or build_app(Seeded),
            count,
            faults=faults,
            node_config=lambda index: {
                "state-dir": str(folder / "state" / str(index)),
                "policy": str(policy),
                **(keys.node_config(index) if keys else {}),
            },
        )
        self.nodes = Nodes(nodes(count), keys.roster if keys else None)
        self.folder = RunFolder.create(folder / "run", experiment)

    def run(self, *, pipeline, entropy=None, run_id=b"run"):
        entropy = entropy or SeededEntropy(SEED)
        planned, experiment = self.planned, self.planned.experiment
        coordinator = Coordinator(
            self.grid,
            self.nodes,
            experiment.secagg,
            run_id=run_id,
            entropy=entropy,
            pipeline=pipeline,
        )
        training = FederatedTraining(
            experiment, planned.task, planned.population, coordinator, entropy, self.folder
        )
        return training.run()


STEADY = {"semi-honest": 2, "malicious": 3}
STAGES = ("advertise", "share", "contribute", "confirm", "unmask")
FAULTS = {
    "nobody vanishes": FaultSpec(),
    "a few everywhere": FaultSpec(**dict.fromkeys(STAGES, 0.04)),
    "too many": FaultSpec(**dict.fromkeys(STAGES, 0.12)),
    **{f"some at {stage}": FaultSpec(**{stage: 0.2}) for stage in STAGES},
}
QUICK = list(FAULTS)[:3]


def cases():
    for who in FAULTS:
        for server in STEADY:
            marks = () if who in QUICK else (pytest.mark.slow,)
            if (who, server) != ("some at confirm", "semi-honest"):
                yield pytest.param(server, who, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("server", "who"), list(cases()))
def test_pipelined_or_not_the_model_is_the_same(tmp_path, one_thread, make_keys, server, who):
    settings = [*NOISE, f"secagg.server={server}"]
    results = {}
    for pipeline in (False, True):
        faults = FaultPlan(FAULTS[who], seed=SEED)
        deployment = Deployment(tmp_path / str(pipeline), make_keys, settings, faults)
        results[pipeline] = deployment.run(pipeline=pipeline)
    plain, piped = results[False], results[True]
    for name, value in plain.model.items():
        np.testing.assert_array_equal(piped.model[name], value)
    same: tuple[str, ...] = ("cohort", "survivors", "status", "dropouts", "epsilon")
    same += ("bytes_up_per_client", "bytes_down_per_client")
    assert [[r[key] for key in same] for r in piped.rounds] == [
        [r[key] for key in same] for r in plain.rounds
    ]
    exchanged = [sum(r["exchanges"] for r in result.rounds) for result in (plain, piped)]
    assert exchanged[1] < exchanged[0]
    assert (sum(plain.summary["dropouts"].values()) > 0) == (who != "nobody vanishes")
    if who == "too many":  # an aborted round leaves the next one valid
        statuses = [r["status"] for r in piped.rounds]
        assert ("abandoned", "completed") in itertools.pairwise(statuses)


@pytest.mark.slow
@pytest.mark.parametrize("server", STEADY)
def test_a_steady_round_takes_two_exchanges_or_three(tmp_path, one_thread, make_keys, server):
    deployment = Deployment(tmp_path / "a", make_keys, [f"secagg.server={server}"])
    rounds = deployment.run(pipeline=True).rounds
    steady = STEADY[server]
    assert [r["exchanges"] for r in rounds] == [steady + 2, steady, steady, steady]
    assert deployment.grid.pushes == 2 + 4 * steady, "every exchange is counted"
    control = Deployment(tmp_path / "b", make_keys, [f"secagg.server={server}"])
    assert [r["exchanges"] for r in control.run(pipeline=False).rounds] == [steady + 2] * 4


@pytest.mark.slow
def test_evaluations_are_pipelined_too(tmp_path, one_thread, make_keys):
    settings = ["evaluation.federated_every=2", *MALICIOUS]
    deployment = Deployment(tmp_path / "a", make_keys, settings)
    result = deployment.run(pipeline=True)
    assert result.rounds[1]["federated_status"] == "completed"
    # Four rounds and two evaluations, of three exchanges each, and two before the first.
    assert deployment.grid.pushes == 2 + 6 * 3
    control = Deployment(tmp_path / "b", make_keys, settings).run(pipeline=False)
    assert result.rounds[1]["federated_loss"] == control.rounds[1]["federated_loss"]


@pytest.mark.slow
def test_a_clip_that_adapts_is_waited_for(tmp_path, one_thread, make_keys):
    settings = [*NOISE, "privacy.clipping=adaptive"]
    results = {}
    for pipeline in (False, True):
        deployment = Deployment(tmp_path / str(pipeline), make_keys, settings)
        results[pipeline] = deployment.run(pipeline=pipeline)
    assert [r["exchanges"] for r in results[True].rounds] == [4, 4, 4, 4]
    for name, value in results[False].model.items():
        np.testing.assert_array_equal(results[True].model[name], value)


def lines_of(deployment, name):
    return [json.loads(line) for line in (deployment.folder.path / name).read_text().splitlines()]


@pytest.mark.slow
def test_what_was_prepared_and_not_asked_for_costs_nothing(
    tmp_path, one_thread, make_keys, monkeypatch
):
    """Killed while round 3 is prepared: its clients gave keys and shares, and no vectors."""
    deployment = Deployment(tmp_path / "run", make_keys, NOISE)

    class Killed(Exception):
        pass

    def die(message):
        if (message.metadata.message_type, message.metadata.group_id) == ("train.contribute", "6"):
            raise Killed
        return False

    monkeypatch.setattr(deployment.grid, "_is_lost", die)
    with pytest.raises(Killed):
        deployment.run(pipeline=True)
    charged = [line["key"] for line in lines_of(deployment, LEDGER) if line["type"] == "sum"]
    assert [key[0] for key in charged] == [1, 2]
    assert [r["round"] for r in lines_of(deployment, METRICS)] == [1, 2]


@pytest.mark.slow
def test_a_liar_is_left_out_of_the_first_cohort_that_was_not_drawn_yet(
    tmp_path, make_keys, monkeypatch
):
    liar = 3
    monkeypatch.setattr(ClientParty, "unmask", wrong_shares_of(liar))
    everyone = ["sampling.kind=everyone", "sampling.cohort=none"]
    deployment = Deployment(tmp_path / "some", make_keys, everyone)
    lines = deployment.run(pipeline=True).rounds
    assert [line["cohort"] for line in lines] == [10, 10, 9, 9]
    assert [line.get("liars") for line in lines] == [[liar], [liar], None, None]
    assert [line.get("left_out") for line in lines] == [None, None, 1, 1]
    assert all(line["status"] == "completed" for line in lines)
