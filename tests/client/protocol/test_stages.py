"""A strict policy answers no session that trusts the server, however its party came to be kept."""

import pytest
from flwr.app import ConfigRecord, Context, RecordDict, UserConfig
from policies import LEAST_TOML, policy_of
from proposed_sessions import N, Node, session

from zerosum.client.flower.client_app import IDEAL, DeployedEnvironment, SimulatedNode
from zerosum.client.flower.private_mod import AppEnvironment
from zerosum.client.flower.simulated_node import OPEN_POLICY
from zerosum.client.protocol import flower_messages, stages
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.decision_store import MemoryStore
from zerosum.secagg import (
    IdealClientParty,
    ProtocolRefused,
)
from zerosum.secagg.messages.unmasked import Roll
from zerosum.secagg.wire import to_bitmap


class Played(SimulatedNode):
    """A node that Flower's simulation plays, with a policy of its own."""

    def __init__(self, context, policy):
        self.policy = policy

    def store(self, context):
        return MemoryStore()


def kept_ideal(session, context):
    """Leave a party that trusts the server in a context's state, as a simulated node does."""
    party = IdealClientParty(session, 0)
    party.advertise()
    context.state[IDEAL] = ConfigRecord({"state": party.export()})
    everybody = Roll(session.digest, to_bitmap(range(N), N))
    return flower_messages.pack({"message": everybody.to_bytes()})


def test_a_strict_policy_answers_no_session_that_trusts_the_server_from_a_kept_state():
    trusting = session(protocol="ideal")
    for policy, answers in ((OPEN_POLICY, True), (policy_of(), False)):
        context = Context(run_id=1, node_id=1, node_config={"partition-id": 0, "num-partitions": N},
                          state=RecordDict(), run_config={})  # fmt: skip
        message = kept_ideal(trusting, context)
        node = Played(context, policy)
        if answers:
            assert flower_messages.bytes_field(stages.share(node, message, context), "message")
            continue
        with pytest.raises(ProtocolRefused, match=r"protocol is ideal; .* takes pairwise"):
            stages.share(node, message, context)


@pytest.mark.parametrize("environment", [DeployedEnvironment, AppEnvironment])
def test_a_deployed_node_ignores_a_kept_party_that_trusts_the_server(environment, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(LEAST_TOML + 'protocols = ["pairwise", "ideal", "none"]\n')
    config: UserConfig = {
        "partition-id": 0,
        "state-dir": str(tmp_path / "state"),
        "policy": str(policy),
    }
    context = Context(run_id=1, node_id=1, node_config=config, state=RecordDict(), run_config={})
    message = kept_ideal(session(protocol="ideal"), context)
    more = () if environment is DeployedEnvironment else (None, None)
    node = environment(context, *more)
    assert node.policy.protocols == ["pairwise"]
    with pytest.raises(Declined, match="no such session is open here"):
        stages.share(node, message, context)


@pytest.mark.parametrize("stage", ["share", "contribute", "confirm", "unmask"])
def test_a_live_party_that_trusts_the_server_is_asked_nothing_under_a_strict_policy(stage):
    class Live(Node):
        def party(self, context, message):
            return IdealClientParty(session(protocol="ideal"), 0)

    with pytest.raises(Declined, match="protocol 'ideal' is not among this client's"):
        getattr(stages, stage)(Live(), flower_messages.pack({"message": b"m"}), None)
