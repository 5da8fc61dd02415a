"""Sessions and requests that a client's policy refuses."""

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from narrowed import present
from policies import policy_of
from proposed_sessions import ROSTER, N, Node, asked, session

from zerosum.client.privacy.spending import Price
from zerosum.client.protocol import admission, flower_messages, own_budget, stages
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.decision_store import MemoryStore
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.protection import Protection
from zerosum.client.request import ModelRequest
from zerosum.client.spec import (
    SecAggSpec,
)
from zerosum.secagg import (
    RemoteProtocolError,
    UnsafeGraph,
    WrongRoster,
)
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.spec import SamplingSpec


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


def guarantee(proposed, policy, request, roster):
    admission.check_guarantee(request, proposed, policy_of(**policy), roster)


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
    request = ModelRequest(
        request.question.model_copy(update={"population": population}), request.payload
    )
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
    admission.check_request(request, policy_of(tasks="any", **policy))


@pytest.mark.parametrize("name", OF_MECHANISM)
def test_a_client_adds_no_noise_that_its_policy_does_not_name(name):
    requested({"mechanisms": [name]}, **OF_MECHANISM[name])
    others = [other for other in OF_MECHANISM if other != name]
    with pytest.raises(Declined, match=f"mechanism '{name}'"):
        requested({"mechanisms": others}, **OF_MECHANISM[name])


def test_default_policy_trusts_every_proved_mechanism():
    for name, privacy in OF_MECHANISM.items():
        if name != "privunit":
            requested({}, **privacy)
    requested({}, clipping="adaptive")
    requested({}, **LOCAL, unit="example", examples=40, lot=20)
    with pytest.raises(Declined, match="privunit"):
        requested({}, **OF_MECHANISM["privunit"])


def test_where_no_noise_is_promised_no_mechanism_is_asked_for():
    policy = policy_of(tasks="any", models=["none"], mechanisms=[])
    admission.check_request(asked(60, model="none"), policy)


def local_steps(z, steps, lot, **policy):
    privacy = {"unit": "example", "examples": 40, "lot": lot, "noise_multiplier": z}
    request = asked(60, steps=steps, **LOCAL, **privacy)
    admission.check_request(request, policy_of(**policy))


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
    return admission.priced(store, policy_of(**policy), request, protection, colluders)


def client_row(store, request):
    return np.array(present(price(store, request)).client.row)


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
def test_a_clients_epsilon_is_at_least_the_runs_and_hardly_more(name, tmp_path):
    request = asked(COHORT, noise_multiplier=3.0, **OF_MECHANISM[name])
    privacy = request.question.privacy
    cost = present(price(FileStore(tmp_path), request)).client.row
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
        client_row(store, asked(COHORT, **examples, lot=lot)) for lot in (1000, 500, 100)
    )
    assert (tenth < half).all()
    assert (half < whole).all()
    evaluated = client_row(store, asked(COHORT, "evaluate", noise_multiplier=2.0))
    trained = client_row(store, asked(COHORT, noise_multiplier=2.0))
    assert evaluated[:50] == pytest.approx(4 * trained[:50], rel=0.01)


def test_an_unbounded_contribution_is_declined_under_a_budget(tmp_path):
    plain = {"models": ["none", "central", "distributed"], "max_epsilon": 5.0}
    for unbounded in (asked(COHORT, model="none"), asked(COHORT, model="central")):
        with pytest.raises(Declined, match="nothing bounds the epsilon of this"):
            price(FileStore(tmp_path), unbounded, **plain)
        assert price(FileStore(tmp_path), unbounded) in (None, Price())
    FileStore(tmp_path).count_contribution(None)
    with pytest.raises(Declined, match="of what this node sent before"):
        price(FileStore(tmp_path), asked(COHORT), **plain)


def test_contributions_end_by_default():
    store = MemoryStore()
    for _ in range(1000):
        admission.check_budget(store, policy_of())
        store.count_contribution()
    with pytest.raises(Declined, match="max_contributions = 1000"):
        admission.check_budget(store, policy_of())


@pytest.mark.parametrize(("corruption", "colluders"), [(0.0, 0), (0.0001, 0), (0.02, 12)])
def test_the_price_knows_whether_a_fellow_client_colludes(corruption, colluders):
    policy, proposed = policy_of(corruption=corruption), session(min_survivors=N)
    request = asked(N, noise_multiplier=2.0)
    assert admission.check_guarantee(request, proposed, policy, ROSTER) == colluders
