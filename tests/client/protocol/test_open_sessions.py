"""Two sessions wait side by side in a node's state; secrets of older ones are forgotten."""

import pytest
from flwr.app import Context, Message, RecordDict, UserConfig
from policies import LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol import flower_messages, open_sessions, stages
from zerosum.client.protocol.admission import Declined
from zerosum.secagg import ClientParty, ServerMode, Session
from zerosum.secagg.messages.all_messages import ConfirmRequest

DAY = 86_400.0


def session(round, attempt=0, run=b"run"):
    return Session(
        run_id=run,
        round=round,
        attempt=attempt,
        roster_version=0,
        cohort=(0, 1, 2),
        threshold=2,
        min_survivors=3,
        ring_bits=20,
        vector_length=4,
        degree=2,
        mode=ServerMode.SEMI_HONEST,
    )


def opened(state, *args, **kwargs):
    proposed = session(*args, **kwargs)
    open_sessions.keep_party(state, ClientParty(proposed, 0))
    return proposed


def kept(state, *sessions):
    return [open_sessions.find_party(state, each.digest, DAY) is not None for each in sessions]


def test_two_rounds_are_open_at_once_and_no_third():
    state = RecordDict()
    one, two, three = opened(state, 2), opened(state, 4), opened(state, 6)
    assert kept(state, one, two, three) == [False, True, True]


def test_an_evaluation_between_two_rounds_counts_as_one():
    state = RecordDict()
    train, evaluation = opened(state, 2), opened(state, 3)
    assert kept(state, train, evaluation) == [True, True]
    after = opened(state, 4)
    assert kept(state, train, evaluation, after) == [False, True, True]


def test_secrets_of_a_session_die_two_rounds_later():
    state = RecordDict()
    old, new = opened(state, 2), opened(state, 6)
    assert kept(state, old, new) == [False, True]


def test_another_run_or_attempt_ends_what_was_open():
    state = RecordDict()
    old, new = opened(state, 2), opened(state, 4, run=b"other")
    assert kept(state, old, new) == [False, True]
    again = opened(state, 4, attempt=1, run=b"other")
    assert kept(state, new, again) == [False, True]


def test_an_abandoned_session_is_forgotten_after_its_timeout(monkeypatch):
    state, now = RecordDict(), [1000.0]
    monkeypatch.setattr(open_sessions.time, "time", lambda: now[0])
    proposed = opened(state, 2)
    now[0] += 59
    open_sessions.keep_party(
        state, ClientParty(proposed, 0)
    )  # a later stage does not begin it anew
    assert open_sessions.find_party(state, proposed.digest, 60)
    now[0] += 2
    assert open_sessions.find_party(state, proposed.digest, 60) is None
    assert not state, "and what it held is gone"


def test_a_party_is_forgotten_by_its_own_name():
    state = RecordDict()
    one, two = opened(state, 2), opened(state, 4)
    open_sessions.forget_party(state, one.digest)
    open_sessions.forget_party(state, one.digest)
    assert kept(state, one, two) == [False, True]


def test_the_state_that_is_kept_is_small():
    state = RecordDict()
    opened(state, 2)
    (record,) = state.config_records.values()
    assert sum(len(v) if isinstance(v, bytes) else 8 for v in record.values()) < 1000


class Node:
    """One deployed client with its folder, and messages of two sessions for it."""

    def __init__(self, folder):
        policy = folder / "policy.toml"
        policy.write_text('servers = ["semi-honest"]\n' + LEAST_TOML)
        config: UserConfig = {
            "partition-id": 0,
            "state-dir": str(folder / "state"),
            "policy": str(policy),
        }
        self.context = Context(
            run_id=1, node_id=1, node_config=config, state=RecordDict(), run_config={}
        )
        self.app = build_app(DeployedEnvironment)

    def opening(self, round):
        return flower_messages.pack({"session": session(round).to_bytes()})

    def ask(self, kind, content):
        return self.app(Message(content, 1, kind), self.context).content


@pytest.fixture
def node(tmp_path, monkeypatch):
    from zerosum.simulations.engine.grid import InProcessGrid

    InProcessGrid(build_app(DeployedEnvironment), 1)  # tells Flower whose process this is
    return Node(tmp_path)


def test_a_piggybacked_stage_is_answered_beside_the_main_stage(node):
    content = flower_messages.joined(node.opening(2), node.opening(4), "advertise", 4)
    reply = node.ask("query.advertise", content)
    assert flower_messages.bytes_field(reply, "message")
    assert flower_messages.bytes_field(flower_messages.piggyback(reply), "message")
    assert kept(node.context.state, session(2), session(4)) == [True, True]


def test_refusing_one_part_does_not_lose_the_other(node):
    node.ask("query.advertise", node.opening(2))
    stale = flower_messages.joined(node.opening(2), node.opening(4), "advertise", 4)
    reply = node.ask("query.advertise", stale)
    assert flower_messages.RECORD not in reply
    assert flower_messages.bytes_field(flower_messages.piggyback(reply), "message")
    rubbish = flower_messages.joined(
        node.opening(6), flower_messages.pack({"session": b"?"}), "advertise", 8
    )
    reply = node.ask("query.advertise", rubbish)
    assert flower_messages.PIGGYBACK not in reply
    assert flower_messages.bytes_field(reply, "message")
    with pytest.raises(Declined):
        node.ask(
            "query.advertise",
            flower_messages.joined(node.opening(6), node.opening(6), "advertise", 6),
        )


@pytest.mark.parametrize("stage", ["contribute", "confirm", "unmask", "hello", ""])
def test_nothing_but_keys_and_shares_rides_along(node, stage, caplog):
    content = flower_messages.joined(node.opening(2), node.opening(4), "advertise", 4)
    content[flower_messages.PIGGYBACK]["stage"] = stage
    reply = node.ask("query.advertise", content)
    assert flower_messages.PIGGYBACK not in reply
    assert flower_messages.bytes_field(reply, "message")
    assert "only keys and shares" in caplog.text


def test_a_request_that_the_policy_refuses_ends_its_session(node, monkeypatch):
    proposed = session(2)
    environment = DeployedEnvironment(node.context)

    class Admitting(ClientParty):
        def admit(self, message):
            return b"asked"

    class Asked:
        digest = b"asked"

    open_sessions.keep_party(node.context.state, ClientParty(proposed, 0))
    monkeypatch.setattr(environment, "party", lambda *args: Admitting(proposed, 0), raising=False)
    monkeypatch.setattr(environment, "request", lambda content: Asked(), raising=False)

    def refuse(request, policy):
        raise Declined("not for this client")

    monkeypatch.setattr(stages, "check_request", refuse)
    with pytest.raises(Declined, match="not for this client"):
        stages.contribute(environment, flower_messages.pack({"message": b"x"}), node.context)
    assert kept(node.context.state, proposed) == [False]


def test_a_session_that_the_record_knows_is_not_begun_again(node, tmp_path, caplog):
    """Counters from a copy forget that the round was opened; the session's own lines do not."""
    counters = tmp_path / "state" / "counters.json"
    node.ask("query.advertise", node.opening(2))
    copy = counters.read_bytes()
    node.ask("query.advertise", node.opening(4))
    counters.write_bytes(copy)
    node.context.state = RecordDict()
    with pytest.raises(Declined):
        node.ask("query.advertise", node.opening(4))
    assert "begun with another seed" in caplog.text


def test_any_lookup_forgets_every_expired_party(monkeypatch):
    state, now = RecordDict(), [1000.0]
    monkeypatch.setattr(open_sessions.time, "time", lambda: now[0])
    old, new = opened(state, 2), session(4)
    now[0] += 61
    open_sessions.keep_party(state, ClientParty(new, 0), 60)
    assert len(state) == 1
    now[0] += 61
    assert open_sessions.find_party(state, old.digest, 60) is None
    assert not state


def test_a_state_that_comes_back_is_not_gone_on_from(node, caplog):
    """Flower keeps the state of whichever message ends last: an old one may return."""
    node.ask("query.advertise", node.opening(2))
    before = node.context.state.config_records[open_sessions.PREFIX + session(2).digest.hex()]
    node.ask("query.advertise", node.opening(6))
    node.context.state[open_sessions.PREFIX + session(2).digest.hex()] = before
    message = ConfirmRequest(session(2).digest, b"\x07").to_bytes()
    with pytest.raises(Declined):
        node.ask("query.share", flower_messages.pack({"message": message}))
    assert "is over here" in caplog.text
    assert kept(node.context.state, session(2), session(6)) == [False, True]
