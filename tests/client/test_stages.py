"""What a client refuses of the sessions that a server may propose, by its own policy."""

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from zerosum.client import stages, wire
from zerosum.client.entropy import SystemEntropy
from zerosum.client.provisioning import Credentials
from zerosum.client.request import Question, Request
from zerosum.client.spec import (
    ClientPolicy,
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    TrainSpec,
)
from zerosum.client.stages import Declined
from zerosum.client.store import MemoryStore
from zerosum.secagg import (
    ClientParty,
    IdentityKey,
    RemoteProtocolError,
    Roster,
    Session,
    UnsafeGraph,
    WrongRoster,
)
from zerosum.secagg.parameters import parameters

N = 600
KEYS = [IdentityKey.generate() for _ in range(N)]
ROSTER = Roster(3, {index: key.public for index, key in enumerate(KEYS)})


class Node:
    """One client that was given a key and a roster, or was not."""

    entropy = SystemEntropy()

    def __init__(self, given=True, **policy):
        self.policy = ClientPolicy(**policy)
        self.given = Credentials(KEYS[0], ROSTER) if given else None
        self.decisions, self.kept = MemoryStore(), None

    def index(self, context):
        return 0

    def store(self, context):
        return self.decisions

    def credentials(self, context):
        return self.given

    def open_party(self, context, session, protocol):
        roster = stages.roster_for(session, self.given)
        identity = None if self.given is None else self.given.identity
        return ClientParty(session, 0, identity=identity, roster=roster)

    def keep(self, context, party):
        self.kept = party


def session(server="malicious", bound=True, n=N, **changes):
    graph = parameters(n, 0.05, 0.02, server, N)
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


def advertise(node, proposed, protocol="pairwise"):
    content = wire.pack({"session": proposed.to_bytes(), "protocol": protocol})
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    return stages.advertise(node, content, context)


SERVERS = ["malicious", "semi-honest"]


@pytest.mark.parametrize(
    ("server", "given"), [("malicious", True), ("semi-honest", True), ("semi-honest", False)]
)
def test_a_sparse_session_at_the_assumed_corruption_is_joined(server, given):
    bound = server == "malicious"
    node = Node(given, corruption=0.02, servers=[server])
    assert wire.bytes_field(advertise(node, session(server, bound)), "message")


def test_without_a_key_no_signed_session_is_joined():
    with pytest.raises(Declined, match="identity, roster and authority"):
        advertise(Node(given=False), session())


def test_a_semi_honest_session_may_be_bound_to_the_roster_too():
    node = Node(servers=["semi-honest"])
    assert advertise(node, session("semi-honest", bound=True))
    with pytest.raises(WrongRoster):
        advertise(node, session("semi-honest", bound=True, roster_digest=b"x" * 32, round=2))


@pytest.mark.parametrize("server", SERVERS)
def test_more_corruption_than_the_session_stands_is_refused(server):
    node = Node(corruption=0.2, servers=[server])
    with pytest.raises(UnsafeGraph):
        advertise(node, session(server))


@pytest.mark.parametrize(
    ("change", "policy", "why"),
    [
        ({"roster_version": 2}, {}, "roster version 2, not 3"),
        ({"roster_digest": b"x" * 32}, {}, "another roster"),
        ({"vector_length": 6}, {"max_vector_length": 5}, "6 coordinates"),
        ({"min_survivors": 10}, {"min_cohort": 11}, "min_cohort"),
    ],
)
def test_a_session_beyond_the_policy_is_refused_and_leaves_no_trace(change, policy, why):
    node = Node(**policy)
    with pytest.raises((Declined, RemoteProtocolError), match=why):
        advertise(node, session(**change))
    assert node.kept is None
    assert advertise(node, session())  # the same round: the high-water mark was not raised


@pytest.mark.parametrize("protocol", ["ideal", "none", "PAIRWISE"])
def test_no_other_protocol_is_joined(protocol):
    with pytest.raises(Declined, match="protocol"):
        advertise(Node(), session(), protocol)


def asked(population, **privacy):
    question = Question(
        kind="train", round=1, seed=0, population=population, task="digits", data=DataSpec(),
        model=ModelSpec(), training=TrainSpec(), privacy=PrivacySpec(**privacy),
        encoding=EncodingSpec(), noise_draw="per_client", max_loss=1.0,
    )  # fmt: skip
    return Request(question, np.zeros(5, dtype=np.float32))


def guarantee(proposed, policy, request, roster):
    stages._check_guarantee(request, proposed, ClientPolicy(**policy), roster)


def test_colluders_of_the_whole_roster_count_against_the_promised_noise():
    """All of the roster's colluders may be in one cohort of 60: 12 of 600 at two percent."""
    private = asked(60, noise_multiplier=1.0, honest_fraction=0.8)
    small = session(n=60, min_survivors=58, degree=59, threshold=45)
    policy = {"corruption": 0.02}
    with pytest.raises(Declined, match="12 of them colluders"):
        guarantee(small, policy, private, ROSTER)
    guarantee(session(n=60, min_survivors=60, degree=59, threshold=45), policy, private, ROSTER)
    # Were the request's own population believed, one of sixty would be all.
    guarantee(small, policy | {"servers": SERVERS}, private, None)


def test_the_population_that_a_request_claims_is_judged_where_there_is_no_roster():
    proposed = session(
        "semi-honest", bound=False, n=60, degree=59, threshold=8, min_survivors=58, graph_seed=b""
    )
    policy = {"corruption": 0.1, "servers": ["semi-honest"]}
    guarantee(proposed, policy, asked(60, model="none"), None)
    with pytest.raises(UnsafeGraph):
        guarantee(proposed, policy, asked(600, model="none"), None)


LOCAL = {"model": "local"}
OF_MECHANISM = {
    "skellam": {},
    "discrete-gaussian": {"mechanism": "discrete-gaussian"},
    "binned-gaussian": LOCAL,
    "discrete-laplace": LOCAL | {"mechanism": "discrete-laplace"},
    "privunit": LOCAL | {"mechanism": "privunit"},
}


def requested(policy, **privacy):
    request = asked(60, noise_multiplier=1.0, **privacy)
    stages._check_request(request, ClientPolicy(tasks="any", **policy))


@pytest.mark.parametrize("name", OF_MECHANISM)
def test_a_client_adds_no_noise_that_its_policy_does_not_name(name):
    requested({"mechanisms": [name]}, **OF_MECHANISM[name])
    others = [other for other in OF_MECHANISM if other != name]
    with pytest.raises(Declined, match=f"mechanism '{name}'"):
        requested({"mechanisms": others}, **OF_MECHANISM[name])


def test_by_default_all_mechanisms_are_trusted_but_the_one_that_is_not_proved():
    for name, privacy in OF_MECHANISM.items():
        if name != "privunit":
            requested({}, **privacy)
    requested({}, clipping="adaptive")
    requested({}, **LOCAL, unit="example", examples=40, lot=20)
    with pytest.raises(Declined, match="privunit"):
        requested({}, **OF_MECHANISM["privunit"])


def test_where_no_noise_is_promised_no_mechanism_is_asked_for():
    policy = ClientPolicy(tasks="any", models=["none"], mechanisms=[])
    stages._check_request(asked(60, model="none"), policy)
