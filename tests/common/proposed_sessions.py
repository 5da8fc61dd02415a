"""Sessions and requests that a server may propose, and a client with a policy to judge them."""

import numpy as np
from policies import policy_of

from zerosum.client.protocol import admission
from zerosum.client.protocol.decision_store import MemoryStore
from zerosum.client.protocol.node_keys import Credentials
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    SecAggSpec,
    TrainSpec,
)
from zerosum.secagg import (
    ClientParty,
    IdentityKey,
    Roster,
    Session,
)
from zerosum.secagg.graph.parameters import graph_parameters

N = 600


KEYS = [IdentityKey.generate() for _ in range(N)]


ROSTER = Roster(3, {index: key.public for index, key in enumerate(KEYS)})


class Node:
    """One client that was given a key and a roster, or was not."""

    entropy = SystemEntropy()

    def __init__(self, given=True, **policy):
        self.policy = policy_of(**policy)
        self.given = Credentials(KEYS[0], ROSTER) if given else None
        self.decisions, self.kept = MemoryStore(), None

    def index(self, context):
        return 0

    def store(self, context):
        return self.decisions

    def credentials(self, context):
        return self.given

    def open_party(self, context, session):
        roster = admission.roster_for(session, self.given)
        identity = None if self.given is None else self.given.identity
        return ClientParty(session, 0, identity=identity, roster=roster)

    def keep(self, context, party):
        self.kept = party

    def compute(self, work, client):
        raise AssertionError("no request is admitted here")


def session(server="malicious", bound=True, n=N, **changes):
    graph = graph_parameters(n, 0.05, 0.02, server, N, security=SecAggSpec().security)
    values = {
        "run_id": b"run",
        "round": 1,
        "attempt": 0,
        "roster_version": ROSTER.version if bound else 0,
        "roster_digest": ROSTER.digest if bound else b"",
        "cohort": tuple(range(n)),
        "threshold": graph.threshold,
        "degree": graph.degree,
        "min_survivors": n - graph.dropped,
        "ring_bits": 20,
        "vector_length": 5,
        "mode": server,
        "graph_seed": bytes(32) if server == "semi-honest" and not graph.complete else b"",
    }
    return Session(**(values | changes))


def asked(population, kind="train", steps=None, **privacy):
    question = ModelQuestion(
        kind=kind, round=1, seed=0, population=population, task="digits", data=DataSpec(),
        model=ModelSpec(), training=TrainSpec(steps=steps), privacy=PrivacySpec(**privacy),
        encoding=EncodingSpec(range=0.5), noise_draw="per_client", max_loss=1.0,
    )  # fmt: skip
    return ModelRequest(question, model_payload(np.zeros(5, dtype=np.float32)))
