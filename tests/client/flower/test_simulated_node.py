"""A node that Flower simulates is told by its process, and by nothing that anybody sends."""

import pickle
import sys
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Context, RecordDict, UserConfig

from zerosum.client.flower import simulated_node
from zerosum.client.flower.client_app import DeployedEnvironment, SimulatedNode, environment_of
from zerosum.client.flower.node_policy import PolicyError
from zerosum.client.flower.simulated_node import (
    ContextStore,
    simulated_credentials,
    simulated_roster,
)
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.secagg import StaleSession

BARE: UserConfig = {"partition-id": 1, "num-partitions": 3}
FLOWERS_ACTORS, ACTOR = "flwr.simulation.ray_transport.ray_actor", "ClientAppActor"


def context(run_config=None, **node_config):
    return Context(
        run_id=7,
        node_id=1,
        node_config=node_config or BARE,
        state=RecordDict(),
        run_config=run_config or {},
    )


@pytest.fixture
def process(monkeypatch):
    """Return a function that makes this process look like another."""

    def process(ray=True, initialized=True, actor="a1", flower=True, of=(FLOWERS_ACTORS, ACTOR)):
        made = SimpleNamespace(module_name=of[0], class_name=of[1])
        here = SimpleNamespace(
            get_actor_id=lambda: actor,
            current_actor=SimpleNamespace(_ray_actor_creation_function_descriptor=made),
        )
        stand_in = SimpleNamespace(
            is_initialized=lambda: initialized, get_runtime_context=lambda: here
        )
        for name, there, module in (("ray", ray, stand_in), (FLOWERS_ACTORS, flower, object())):
            if there:
                monkeypatch.setitem(sys.modules, name, module)
            else:
                monkeypatch.delitem(sys.modules, name, raising=False)

    return process


def test_an_actor_of_flowers_simulation_plays_nodes(process):
    process()
    assert isinstance(environment_of(context()), SimulatedNode)


@pytest.mark.parametrize(
    "looks",
    [
        {"ray": False},
        {"initialized": False},
        {"actor": None},
        {"flower": False},
        {"of": ("somebody.elses", ACTOR)},
        {"of": (FLOWERS_ACTORS, "Other")},
        {"of": (None, None)},
    ],
    ids=[
        "no ray",
        "ray not started",
        "a driver of ray",
        "an actor without Flower",
        "an actor of somebody else",
        "another actor of Flower's",
        "an actor that Ray does not name",
    ],
)
def test_no_other_process_does(process, looks):
    process(**looks)
    assert type(environment_of(context())) is DeployedEnvironment


@pytest.mark.parametrize("key", ["state-dir", "policy", "identity", "data-path"])
def test_a_node_with_anything_of_its_own_is_a_node_wherever_it_runs(process, key):
    process()
    assert simulated_node.is_simulated(context())
    assert not simulated_node.is_simulated(context(**BARE, **{key: "x"}))


def test_nothing_that_a_server_sends_makes_a_deployed_client_a_simulated_one():
    told = context({"simulation": True, "state-dir": "x", "policy": "x", "engine": "ray"})
    told.state[simulated_node.DECISIONS] = ConfigRecord({"contributions": 0})
    environment = environment_of(told)
    assert type(environment) is DeployedEnvironment
    assert isinstance(environment.entropy, SystemEntropy)
    with pytest.raises(PolicyError, match="node config policy is missing"):
        _ = environment.policy
    with pytest.raises(Declined, match="state-dir is missing"):
        environment.store(told)


def passed_on(state):
    """Return the state as the next actor has it."""
    return pickle.loads(pickle.dumps(state))  # noqa: S301


def test_decisions_pass_from_actor_to_actor():
    state = RecordDict()
    store = ContextStore(state)
    store.raise_high_water(b"run", 2, 0)
    store.append(b"first", (b"one",))
    store.append(b"first", (b"two",))
    store.count_contribution()
    store = ContextStore(passed_on(state))
    assert store.lines(b"first") == (b"one", b"two")
    assert store.contributions == 1
    for stale in ((1, 5), (2, 0)):
        with pytest.raises(StaleSession):
            store.raise_high_water(b"run", *stale)
    store.raise_high_water(b"run", 2, 1)
    store.append(b"second", (b"three",))
    assert store.lines(b"first") == ()
    assert store.lines(b"second") == (b"three",)


def test_another_run_of_the_same_server_has_numbers_of_its_own():
    store = ContextStore(passed_on(RecordDict()))
    store.raise_high_water(b"one", 5, 0)
    store.raise_high_water(b"two", 1, 0)
    assert not store.is_over(b"two", 1)
    with pytest.raises(StaleSession):
        store.raise_high_water(b"two", 1, 0)


def test_keys_follow_from_the_run_and_are_those_of_its_roster():
    mine = simulated_credentials(context())
    assert mine.roster == simulated_roster(7, 3)
    assert mine.roster.entries[1] == mine.identity.public
    assert simulated_roster(8, 3) != simulated_roster(7, 3)
