"""What a client refuses of the sessions that a server may propose, by its own policy."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, RecordDict
from policies import LEAST_TOML, policy_of

from zerosum.client.flower.client_app import IDEAL, DeployedEnvironment, SimulatedNode
from zerosum.client.flower.private_mod import AppEnvironment
from zerosum.client.flower.simulated_node import OPEN_POLICY
from zerosum.client.protocol import flower_messages, own_budget, stages
from zerosum.client.protocol.decision_store import FileStore, MemoryStore
from zerosum.client.protocol.node_keys import Credentials
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.stages import Declined
from zerosum.client.request import Question, Request
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
    IdealClientParty,
    IdentityKey,
    ProtocolRefused,
    RemoteProtocolError,
    Roster,
    Session,
    UnsafeGraph,
    WrongRoster,
)
from zerosum.secagg.graph.parameters import graph_parameters
from zerosum.secagg.messages.unmasked import Roll
from zerosum.secagg.randomness import derive_seed
from zerosum.secagg.wire import to_bitmap
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.spec import SamplingSpec

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
        roster = stages.roster_for(session, self.given)
        identity = None if self.given is None else self.given.identity
        return ClientParty(session, 0, identity=identity, roster=roster)

    def keep(self, context, party):
        self.kept = party


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


def advertise(node, proposed):
    content = flower_messages.pack({"session": proposed.to_bytes()})
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    return stages.advertise(node, content, context)


SERVERS = ["malicious", "semi-honest"]


@pytest.mark.parametrize(
    ("server", "given"), [("malicious", True), ("semi-honest", True), ("semi-honest", False)]
)
def test_a_sparse_session_at_the_assumed_corruption_is_joined(server, given):
    bound = server == "malicious"
    node = Node(given, corruption=0.02, servers=[server])
    assert flower_messages.bytes_field(advertise(node, session(server, bound)), "message")


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


def test_a_cohort_below_the_policys_is_refused_before_it_is_asked_anything():
    with pytest.raises(RemoteProtocolError, match=f"cohort has {N} clients; .* {N + 1}"):
        advertise(Node(min_cohort=N + 1), session())
    assert advertise(Node(min_cohort=session().min_survivors), session())


@pytest.mark.parametrize("protocol", ["ideal", "none"])
def test_no_other_protocol_is_joined(protocol):
    node = Node()
    with pytest.raises(Declined, match=f"protocol '{protocol}' is not among .*'pairwise'"):
        advertise(node, session(protocol=protocol))
    assert node.kept is None


def asked(population, kind="train", steps=None, **privacy):
    question = Question(
        kind=kind, round=1, seed=0, population=population, task="digits", data=DataSpec(),
        model=ModelSpec(), training=TrainSpec(steps=steps), privacy=PrivacySpec(**privacy),
        encoding=EncodingSpec(range=0.5), noise_draw="per_client", max_loss=1.0,
    )  # fmt: skip
    return Request(question, np.zeros(5, dtype=np.float32))


def guarantee(proposed, policy, request, roster):
    stages._check_guarantee(request, proposed, policy_of(**policy), roster)


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


@pytest.mark.parametrize("population", [1 << 24, 10**18, 10**400], ids=["2^24", "10^18", "10^400"])
def test_a_population_that_would_fill_a_nodes_memory_is_declined_at_once(population):
    proposed = session(
        "semi-honest", bound=False, n=60, degree=59, threshold=40, min_survivors=58, graph_seed=b""
    )
    policy = {"corruption": 0.1, "servers": ["semi-honest"]}
    request = asked(60, model="none")
    request = Request(request.question.model_copy(update={"population": population}), request.model)
    with pytest.raises(Declined, match="at most 16777215 are reckoned with"):
        guarantee(proposed, policy, request, None)
    guarantee(proposed, policy | {"corruption": 0.0}, request, None)  # nobody to reckon with


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
    stages._check_request(request, policy_of(tasks="any", **policy))


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
    policy = policy_of(tasks="any", models=["none"], mechanisms=[])
    stages._check_request(asked(60, model="none"), policy)


def local_steps(z, steps, lot, **policy):
    privacy = {"unit": "example", "examples": 40, "lot": lot, "noise_multiplier": z}
    request = asked(60, steps=steps, **LOCAL, **privacy)
    stages._check_request(request, policy_of(**policy))


def test_noise_inside_training_is_judged_by_what_all_steps_cost():
    """A million steps on all examples at z = 0.5 are one contribution, and protect nothing."""
    with pytest.raises(Declined, match="1000000 steps at noise multiplier"):
        local_steps(0.5, 1_000_000, 40)
    local_steps(0.5, 1, 40)
    with pytest.raises(Declined, match="2 steps"):
        local_steps(0.5, 2, 40)
    local_steps(1.0, 100, 4)
    local_steps(0.5, 1_000_000, 40, min_noise_multiplier=0.0)


COHORT = 60


def price(store, request, colluders=0, **policy):
    session_seed = bytes(32)
    protection = Protection.build(
        request.question.privacy, request.question.encoding, cohort=COHORT, dimension=5,
        rotation_seed=session_seed,
    )  # fmt: skip
    return stages._price(store, policy_of(**policy), request, protection, colluders)


def contributed(folder, request, **policy):
    """Contribute until the policy declines, each time in a process of its own; say how often."""
    for count in range(100):
        try:
            cost = price(FileStore(folder), request, **policy)
        except Declined as declined:
            return count, str(declined)
        FileStore(folder).count_contribution(cost)
    return 100, ""


def test_a_client_stops_before_its_epsilon_is_spent_across_runs(tmp_path):
    request = asked(COHORT, noise_multiplier=2.0)
    count, said = contributed(tmp_path / "a", request, max_epsilon=8.0)
    assert count == 9  # 7.9 by now; once more is 8.5
    assert "above the policy's max_epsilon = 8" in said
    # What was counted without a bound is known when there is one, in whatever run.
    for _ in range(count):
        FileStore(tmp_path / "b").count_contribution(price(FileStore(tmp_path / "b"), request))
    assert contributed(tmp_path / "b", request, max_epsilon=8.0)[0] == 0
    assert contributed(tmp_path / "b", request, max_epsilon=12.0)[0] > 0


@pytest.mark.parametrize("name", OF_MECHANISM)
def test_its_figure_is_no_less_than_the_runs_own_and_hardly_more(name, tmp_path):
    request = asked(COHORT, noise_multiplier=3.0, **OF_MECHANISM[name])
    privacy = request.question.privacy
    cost = price(FileStore(tmp_path), request)
    mine = own_budget.epsilon(5 * np.array(cost), 1e-5)
    protection = Protection.build(
        privacy, request.question.encoding, cohort=COHORT, dimension=5, rotation_seed=bytes(32)
    )
    ledger = RunLedger(
        None, privacy=privacy, secagg=SecAggSpec(), sampling=SamplingSpec(kind="everyone"),
        population=COHORT, protections={"train": protection},
    )  # fmt: skip
    for number in range(5):
        key = (number, 0, "train", 0)
        ledger.charge_contributions(key, range(COHORT), cohort=COHORT)
        ledger.charge_sum(key)
    theirs = ledger.figures(1e-5)["sum"].value
    assert 0.9999 * theirs <= mine <= 1.25 * theirs


def test_examples_that_a_client_draws_itself_are_cheaper_and_an_evaluation_dearer(tmp_path):
    store = FileStore(tmp_path)
    examples = {"unit": "example", "examples": 1000, "noise_multiplier": 2.0}
    whole, half, tenth = (
        np.array(price(store, asked(COHORT, **examples, lot=lot))) for lot in (1000, 500, 100)
    )
    assert (tenth < half).all()
    assert (half < whole).all()
    evaluated = np.array(price(store, asked(COHORT, "evaluate", noise_multiplier=2.0)))
    trained = np.array(price(store, asked(COHORT, noise_multiplier=2.0)))
    assert evaluated[:50] == pytest.approx(4 * trained[:50], rel=0.01)


def test_what_has_no_bound_is_declined_where_there_is_a_budget(tmp_path):
    plain = {"models": ["none", "central", "distributed"], "max_epsilon": 5.0}
    for unbounded in (asked(COHORT, model="none"), asked(COHORT, model="central")):
        with pytest.raises(Declined, match="nothing bounds the epsilon of this"):
            price(FileStore(tmp_path), unbounded, **plain)
        assert price(FileStore(tmp_path), unbounded) is None
    FileStore(tmp_path).count_contribution(None)
    with pytest.raises(Declined, match="of what this node sent before"):
        price(FileStore(tmp_path), asked(COHORT), **plain)


def test_contributions_end_by_default():
    store = MemoryStore()
    for _ in range(1000):
        stages._check_budget(store, policy_of())
        store.count_contribution()
    with pytest.raises(Declined, match="max_contributions = 1000"):
        stages._check_budget(store, policy_of())


@pytest.mark.parametrize(("corruption", "colluders"), [(0.0, 0), (0.0001, 0), (0.02, 12)])
def test_the_price_knows_whether_a_fellow_client_colludes(corruption, colluders):
    policy, proposed = policy_of(corruption=corruption), session(min_survivors=N)
    request = asked(N, noise_multiplier=2.0)
    assert stages._check_guarantee(request, proposed, policy, ROSTER) == colluders


# --- what trusts the server, whichever way it comes ----------------------------------------------


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
def test_a_node_of_its_own_finds_no_such_party_at_all(environment, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(LEAST_TOML + 'protocols = ["pairwise", "ideal", "none"]\n')
    config = {"partition-id": 0, "state-dir": str(tmp_path / "state"), "policy": str(policy)}
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


def test_a_request_that_leaves_the_noise_to_others_than_its_session_says_is_declined():
    """Noise that a server adds is missing where it is not trusted with the vectors."""
    private = {"model": "distributed", "noise_multiplier": 1.0, "clip": 0.5}
    request = asked(N, **private)
    built = Protection.build(
        request.question.privacy, request.question.encoding, cohort=N, dimension=5,
        rotation_seed=derive_seed(0, "rotation", 1, 0),
    )  # fmt: skip
    fitting = {"bounds": built.bounds, "ring_bits": built.ring_bits, "vector_length": built.length}
    masked = session(**fitting)
    assert stages.protection_for(request, masked).private
    question = request.question.model_copy(update={"noise_draw": "summed"})
    with pytest.raises(Declined, match="noise_draw = 'summed' is not the session's 'per_client'"):
        stages.protection_for(Request(question, request.model), masked)
