"""A client takes part in what its own policy accepts, whatever the server proposes."""

import dataclasses
from typing import Any

import pytest

from zerosum.secagg import (
    BoundsRefused,
    ClientParty,
    CohortTooSmall,
    HighWater,
    IdealClientParty,
    LocalProtocolError,
    MinSurvivorsTooLow,
    OldRoster,
    Policy,
    PolicyRefusal,
    Protocol,
    ProtocolRefused,
    ServerMode,
    ServerModeRefused,
    StaleSession,
    UnsafeGraph,
    VectorTooLong,
)
from zerosum.secagg.graph.parameters import graph_parameters

MALICIOUS, SEMI_HONEST = ServerMode.MALICIOUS, ServerMode.SEMI_HONEST
POLICY = Policy(
    corruption=0.1,
    smallest_cohort=10,
    longest_vector=100,
    min_survivors=0.5,
    accepts=lambda bounds: bounds == b"bounds",
)


def good_session(lab, **changes):
    values = {"mode": MALICIOUS, "threshold": 13, "min_survivors": 10}
    return lab.session(changes.pop("n", 20), **{**values, **changes})


def test_a_session_that_a_policy_accepts_is_begun(lab):
    trusting = dataclasses.replace(POLICY, protocols=frozenset({Protocol.PAIRWISE, Protocol.IDEAL}))
    for kind, protocol in ((ClientParty, "pairwise"), (IdealClientParty, "ideal")):
        session = good_session(lab, protocol=protocol)
        index = session.cohort[0]
        party = kind(session, index, policy=trusting, **lab.credentials(session, index))
        assert party.stage == "advertise"


@pytest.mark.parametrize("protocol", ["ideal", "none"])
def test_a_policy_of_masks_alone_begins_and_restores_no_session_that_trusts_the_server(
    lab, protocol
):
    session = good_session(lab, protocol=protocol)
    index = session.cohort[0]
    with pytest.raises(ProtocolRefused, match=f"protocol is {protocol}; .* takes pairwise"):
        IdealClientParty(session, index, policy=POLICY)
    kept = IdealClientParty(session, index).export()
    assert IdealClientParty.restore(kept).stage == "advertise"
    with pytest.raises(ProtocolRefused):
        IdealClientParty.restore(kept, policy=POLICY)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"mode": SEMI_HONEST}, ServerModeRefused),
        ({"n": 9, "threshold": 7, "min_survivors": 5}, CohortTooSmall),
        ({"vector_length": 101}, VectorTooLong),
        ({"min_survivors": 9}, MinSurvivorsTooLow),
        ({"bounds": b"other"}, BoundsRefused),
        ({"threshold": 10}, UnsafeGraph),
        ({"degree": 8, "threshold": 6}, UnsafeGraph),
    ],
)
def test_each_condition_is_refused_by_name(lab, changes, error):
    session = good_session(lab, **changes)
    index = session.cohort[0]
    given = lab.credentials(session, index)
    with pytest.raises(error) as caught:
        ClientParty(session, index, policy=POLICY, **given)
    assert isinstance(caught.value, PolicyRefusal)
    with pytest.raises(error):
        POLICY.admit(session)


def test_a_malicious_server_cannot_ask_for_the_semi_honest_protocol(lab):
    session = good_session(lab, mode=SEMI_HONEST)
    index = session.cohort[0]
    with pytest.raises(ServerModeRefused, match="takes malicious"):
        ClientParty(
            session,
            index,
            policy=POLICY,
            identity=lab.identity(index),
            roster=lab.roster(session.cohort),
        )
    both = dataclasses.replace(POLICY, server_modes=frozenset(ServerMode))
    ClientParty(session, index, policy=both)


def test_colluders_are_counted_in_the_roster_and_not_in_the_cohort(lab):
    cohort = tuple(range(20))
    roster = lab.roster(cohort, more=0)
    crowd = {index: lab.identity(index).public for index in range(200)}
    large = dataclasses.replace(roster, entries=crowd)
    session = good_session(lab, cohort=cohort, roster_digest=roster.digest)
    POLICY.admit(session, roster)
    bound = dataclasses.replace(session, roster_digest=large.digest)
    with pytest.raises(UnsafeGraph):
        POLICY.admit(bound, large)
    with pytest.raises(OldRoster):
        POLICY.admit(bound, dataclasses.replace(large, version=8))


def test_recommended_parameters_are_accepted(lab):
    for mode in ServerMode:
        chosen = graph_parameters(n=60, dropout=0.05, corruption=0.05, server=mode)
        graph = {"degree": chosen.degree, "threshold": chosen.threshold}
        session = lab.session(60, mode=mode, min_survivors=57, **graph)
        policy = Policy(
            corruption=0.05, smallest_cohort=2, dropout=0.05, server_modes=frozenset({mode})
        )
        policy.admit(session)
        # One share fewer is not safe: the recommendation is the least that is.
        graph["threshold"] -= 1
        with pytest.raises(UnsafeGraph):
            policy.admit(lab.session(60, mode=mode, min_survivors=57, **graph))


def test_a_public_sparse_graph_is_judged_by_the_dropouts_that_the_session_allows(lab):
    """A policy that assumes no dropouts does not admit a session that opens after many."""
    chosen = graph_parameters(n=60, dropout=0.05, corruption=0.05, server="semi-honest")
    modes = frozenset({ServerMode.SEMI_HONEST})
    policy = Policy(corruption=0.05, smallest_cohort=2, server_modes=modes)
    graph = {"degree": chosen.degree, "threshold": chosen.threshold}
    policy.admit(lab.session(60, mode=ServerMode.SEMI_HONEST, min_survivors=57, **graph))
    with pytest.raises(UnsafeGraph, match="connectivity"):
        policy.admit(lab.session(60, mode=ServerMode.SEMI_HONEST, min_survivors=30, **graph))


@pytest.mark.parametrize(
    "change",
    [
        {"corruption": 1.1},
        {"dropout": -0.1},
        {"min_survivors": 2},
        {"security": 0.0},
        {"smallest_cohort": 1},
        {"server_modes": frozenset()},
    ],
)
def test_policy_values_out_of_range_are_refused(change):
    least: dict[str, Any] = {"corruption": 0.1, "smallest_cohort": 2}
    with pytest.raises(LocalProtocolError):
        Policy(**{**least, **change})


@pytest.mark.parametrize("missing", ["corruption", "smallest_cohort"])
def test_corruption_and_smallest_cohort_have_no_default(missing):
    given: dict[str, Any] = {"corruption": 0.0, "smallest_cohort": 2}
    Policy(**given)
    del given[missing]
    with pytest.raises(TypeError, match=missing):
        Policy(**given)


def test_sessions_of_a_run_begin_in_ascending_order(lab):
    record: list[bytes] = []

    def rise(round_, attempt, run_id=b"a run"):
        session = lab.session(3, round=round_, attempt=attempt, run_id=run_id)
        record.extend(HighWater(record).rise(session))

    rise(3, 0)
    rise(3, 1)
    rise(0, 0, b"another run")
    rise(10, 0)
    for stale in ((10, 0), (3, 1), (3, 2), (9, 99), (0, 0)):
        with pytest.raises(StaleSession):
            rise(*stale)
    with pytest.raises(StaleSession):
        rise(0, 0, b"another run")
    rise(10, 1)
    assert len(record) == 5


def test_marks_and_decisions_share_a_record(lab):
    session = lab.session(3)
    party = ClientParty(session, 10)
    lines = [*HighWater().rise(session), *party.advertise().persist]
    ClientParty.restore(party.export(), record=lines)
    with pytest.raises(StaleSession):
        HighWater(lines).rise(session)
    HighWater(lines).rise(lab.session(3, round=2))


def test_a_torn_mark_is_refused():
    head = b"zerosum/1 high-water "
    for line in (head, head + b"ab 1 2", head + b"a" * 64 + b" 1", head + b"a" * 64 + b" 1 -2"):
        with pytest.raises(LocalProtocolError, match="damaged"):
            HighWater([line])
