"""A client may be a new process at every stage, and decides everything once."""

import dataclasses

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zerosum.secagg import (
    AlreadyContributed,
    ClientParty,
    ConflictingMessage,
    IdealClientParty,
    LocalProtocolError,
    OutOfOrder,
    RemoteProtocolError,
    ServerMode,
    ServerParty,
    Session,
    StateLost,
    UnmaskRequest,
)
from zerosum.secagg.wire import bitmap_has, from_bitmap, to_bitmap

STAGES = ("advertise", "share", "contribute", "unmask")


@pytest.mark.parametrize("ideal", [False, True])
def test_a_session_whose_clients_restart_before_every_stage_gives_the_sum(lab, ideal):
    play = lab.play(5, ideal=ideal, as_bytes=True)
    kind = IdealClientParty if ideal else ClientParty
    record: dict[int, list[bytes]] = {index: [] for index in play.session.cohort}
    answer = play.answer

    def restarted(stage, index, message):
        step = answer(stage, index, message)
        record[index].extend(step.persist)
        data = play.clients[index].export()
        play.clients[index] = kind.restore(data, record=record[index])
        return step

    play.answer = restarted
    result = play.finish({play.session.cohort[1]: "contribute"})
    expected = lab.plain_sum(play.session, play.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)
    assert [len(lines) for lines in record.values()] == [4, 2, 4, 4, 4]


@pytest.mark.parametrize("stage", ["advertise", "share", "unmask"])
def test_a_restart_from_an_older_state_repeats_the_same_bytes(lab, stage):
    play = lab.play(4).until(stage)
    index = play.session.cohort[0]
    old = play.clients[index].export()
    step = play.answer(stage, index, play.messages[index])
    play.clients[index] = ClientParty.restore(old, record=step.persist)
    assert play.answer(stage, index, play.messages[index]) == step


def test_a_contribution_is_never_made_again_after_a_restart(lab):
    play = lab.play(4).until("contribute")
    index = play.session.cohort[0]
    client, message = play.clients[index], play.messages[index]
    before = client.export()
    step = client.contribute(message, play.vectors[index])
    for party in (
        client,
        ClientParty.restore(client.export(), record=step.persist),
        ClientParty.restore(before, record=step.persist),
        ClientParty.restore(before, record=[b"other line", *step.persist, *step.persist]),
    ):
        with pytest.raises(AlreadyContributed):
            party.contribute(message, play.vectors[index])
        with pytest.raises(AlreadyContributed):
            party.admit(message.to_bytes())


def test_admitting_a_message_decides_nothing(lab):
    play = lab.play(4).until("contribute")
    index = play.session.cohort[0]
    client, message = play.clients[index], play.messages[index]
    before = client.export()
    assert client.admit(message) == lab.REQUEST
    assert client.admit(message.to_bytes()) == lab.REQUEST
    assert client.export() == before


def test_other_adverts_after_a_restart_are_refused(lab):
    play = lab.play(5).until("share")
    index = play.session.cohort[0]
    before, adverts = play.clients[index].export(), play.messages[index]
    step = play.clients[index].share(adverts)
    restored = ClientParty.restore(before, record=step.persist)
    fewer = dataclasses.replace(
        adverts, present=to_bitmap(range(4), 5), entries=adverts.entries[: 4 * 96]
    )
    with pytest.raises(ConflictingMessage):
        restored.share(fewer)
    assert restored.share(adverts) == step


def test_another_u3_after_a_restart_is_refused_from_every_state(lab):
    play = lab.play(5).until("unmask")
    index = play.session.cohort[0]
    before, message = play.clients[index].export(), play.messages[index]
    step = play.clients[index].unmask(message)
    other = dataclasses.replace(message, survivors=to_bitmap({0, 1, 2, 3}, 5))
    for party in (
        play.clients[index],
        ClientParty.restore(before, record=step.persist),
        ClientParty.restore(play.clients[index].export()),
    ):
        with pytest.raises(ConflictingMessage):
            party.unmask(other)
        assert party.unmask(message.to_bytes()) == step


def test_a_fresh_party_does_not_take_up_a_session_that_was_begun(lab):
    session = lab.session(3)
    step = ClientParty(session, 10).advertise()
    with pytest.raises(StateLost):
        ClientParty(session, 10, record=step.persist)
    ClientParty(lab.session(3, attempt=1), 10, record=step.persist)


def test_the_record_holds_decisions_and_no_secrets(lab):
    play = lab.play(4).until("unmask")
    index = play.session.cohort[0]
    client = play.clients[index]
    secrets = client._own_secrets()
    hidden = (client._seed, secrets.self_seed, secrets.mask.private, secrets.channel.private)
    lines = client._decisions.lines() + client.unmask(play.messages[index]).persist
    assert len(lines) == 4
    for line in lines:
        assert line.startswith(f"zerosum/1 decision {play.session.digest.hex()} ".encode())
        assert not any(secret.hex().encode() in line for secret in hidden)


def test_secrets_die_at_unmask_and_at_wipe(lab):
    play = lab.play(3).until("unmask")
    a, b = play.session.cohort[:2]
    seeds = play.clients[a]._seed, play.clients[b]._seed
    play.clients[a].unmask(play.messages[a])
    assert seeds[0] not in play.clients[a].export()
    assert seeds[1] in play.clients[b].export()
    play.clients[b].wipe()
    with pytest.raises(LocalProtocolError):
        play.clients[b].export()
    with pytest.raises(OutOfOrder):
        play.clients[a].share(play.asked["share"][a])


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "foreign"])
def test_a_damaged_state_is_refused(lab, damage):
    data = bytearray(ClientParty(lab.session(3), 10).export())
    if damage == "flip":
        data[200] ^= 1
    damaged = {"truncate": data[:-1], "empty": b"", "foreign": b"x" * 300}.get(damage, data)
    with pytest.raises(LocalProtocolError, match="damaged"):
        ClientParty.restore(bytes(damaged))


def test_a_damaged_or_contradictory_record_is_refused(lab):
    session = lab.session(3)
    head = f"zerosum/1 decision {session.digest.hex()} ".encode()
    for lines in (
        [head + b"share"],
        [head + b"dance " + b"0" * 64],
        [head + b"share " + b"0" * 63],
        [head + b"share " + b"0" * 64, head + b"share " + b"1" * 64],
    ):
        with pytest.raises(LocalProtocolError, match="record"):
            ClientParty(session, 10, record=lines)


class LyingServer(RuleBasedStateMachine):
    """A server that says anything to a client that restarts: it decides once.

    The server holds everything that honest peers said, and asks one client for anything, in any
    order; the client may be restored from any state that it ever exported, always with its record.
    """

    size = 5

    def __init__(self):
        super().__init__()
        cohort = tuple(range(1, self.size + 1))
        self.session = Session(
            run_id=b"r", round=0, attempt=0, roster_version=0, cohort=cohort, threshold=2,
            min_survivors=2, ring_bits=16, vector_length=3, degree=self.size - 1,
            mode=ServerMode.SEMI_HONEST,
        )  # fmt: skip
        self.peers = {index: ClientParty(self.session, index) for index in cohort}
        self.party = self.peers[1]
        self.record, self.states = [], [self.party.export()]
        self.answers: dict[str, set[bytes]] = {stage: set() for stage in STAGES}
        self.released, self.vectors_sent = {}, 0
        self.adverts = {index: p.advertise() for index, p in self.peers.items()}
        self.keep("advertise", self.adverts[1])

    def keep(self, stage, step):
        self.record.extend(step.persist)
        self.answers[stage].add(step.send.to_bytes())
        self.states.append(self.party.export())
        return step

    def ask(self, stage, *arguments):
        try:
            return self.keep(stage, getattr(self.party, stage)(*arguments))
        except RemoteProtocolError:
            return None

    def routed(self, adverts_of, request):
        """Run an honest server over the adverts of some, and return the contribute message."""
        server = ServerParty(self.session)
        for index in adverts_of:
            server.receive(index, self.adverts[index].send)
        adverts = server.close()
        mine = self.ask("share", adverts[1])
        for index in adverts_of:
            if index != 1:
                peer = ClientParty.restore(self.peers[index].export())
                server.receive(index, peer.share(adverts[index]).send)
        if mine is None:
            return None
        server.receive(1, mine.send)
        return server.close(request)[1]

    @initialize()
    def honest_start(self):
        """Contribute once, so that most of the search is about what comes after."""
        self.share_and_contribute({2, 3, 4, 5}, b"a" * 32)

    @rule(
        extra=st.sampled_from([{2, 3, 4, 5}, {2, 3, 4}, {3, 4, 5}]),
        request=st.sampled_from([b"a" * 32, b"b" * 32]),
    )
    def share_and_contribute(self, extra, request):
        message = self.routed(sorted({1, *extra}), request)
        if message is not None:
            step = self.ask("contribute", message, np.zeros(3, np.int64))
            self.vectors_sent += step is not None

    @rule(gone=st.sampled_from([set(), {1}, {2}, {1, 3}, {0}]))
    def unmask(self, gone):
        survivors = to_bitmap({0, 1, 2, 3, 4} - gone, self.size)
        step = self.ask("unmask", UnmaskRequest(self.session.digest, survivors))
        if step is not None:
            for dealer in from_bitmap(step.send.dealers).tolist():
                kind = "b" if bitmap_has(survivors, dealer) else "s"
                self.released.setdefault(dealer, set()).add(kind)

    @rule(back=st.integers(1, 5))
    def restart(self, back):
        state = self.states[-min(back, len(self.states))]
        self.party = ClientParty.restore(state, record=self.record)

    @invariant()
    def nothing_is_decided_twice(self):
        assert all(len(answers) <= 1 for answers in self.answers.values())
        assert self.vectors_sent <= 1
        assert all(len(kinds) == 1 for kinds in self.released.values())


TestLyingServer = LyingServer.TestCase
TestLyingServer.settings = settings(max_examples=20, stateful_step_count=15)
