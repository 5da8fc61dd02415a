"""Clients decide once, against a hostile server and network, however often they restart.

The attacker holds every message that was ever said, makes new ones from them, and asks any client
for anything, in any order; a client may be restored from any state that it ever exported, always
with its record. The honest server listens too, and what it hears must never break it.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zerosum.secagg import (
    ClientParty,
    ConfirmRequest,
    RemoteProtocolError,
    ServerMode,
    ServerParty,
    Session,
    UnmaskRequest,
    request_digest,
)
from zerosum.secagg.crypto.identity import IdentityKey, Roster
from zerosum.secagg.messages.all_messages import SIGNATURE_BYTES, survivors_statement
from zerosum.secagg.wire import bitmap_has, from_bitmap, to_bitmap

REQUESTS = [request_digest(b"one"), request_digest(b"other")]
SIZE = 7


class Hostile(RuleBasedStateMachine):
    """A session of seven honest clients in the hands of an attacker."""

    mode = ServerMode.MALICIOUS
    degree = SIZE - 1

    def __init__(self):
        super().__init__()
        cohort = tuple(range(1, SIZE + 1))
        keys = {index: IdentityKey(bytes([index]) * 32) for index in cohort}
        roster = Roster(0, {index: key.public for index, key in keys.items()})
        signed = self.mode is ServerMode.MALICIOUS
        sparse = self.degree < SIZE - 1
        self.session = Session(
            run_id=b"r", round=0, attempt=0, roster_version=0, cohort=cohort, threshold=2,
            min_survivors=2, ring_bits=16, vector_length=3, degree=self.degree, mode=self.mode,
            roster_digest=roster.digest if signed else b"",
            graph_seed=b"g" * 32 if sparse and not signed else b"",
        )  # fmt: skip
        self.given: dict[int, dict[str, Any]] = {
            i: {"identity": keys[i], "roster": roster} if signed else {} for i in cohort
        }
        self.keys, self.server = keys, ServerParty(self.session, roster=roster if signed else None)
        self.record: dict[int, list[bytes]] = {index: [] for index in cohort}
        self.states: dict[int, list[Any]] = {index: [] for index in cohort}
        # What was said to the clients, by stage; what each client answered, by stage.
        self.asked: dict[str, list[Any]] = {stage: [] for stage in self.session.stages}
        self.answers: dict[tuple[int, str], set[bytes]] = {
            (i, stage): set() for i in cohort for stage in self.session.stages
        }
        self.released = {}
        self.signatures = {}
        self.parties = {i: ClientParty(self.session, i, **self.given[i]) for i in cohort}

    def ask(self, index, stage, message):
        """Put a message to a client; keep all that comes of it."""
        if message is not None:
            self.asked[stage].append(message)
        party = self.parties[index]
        arguments: tuple[Any, ...] = () if stage == "advertise" else (message,)
        arguments += (np.arange(3),) if stage == "contribute" else ()
        try:
            step = getattr(party, stage)(*arguments)
        except RemoteProtocolError:
            return None
        self.record[index].extend(step.persist)
        self.states[index].append(party.export())
        self.answers[index, stage].add(step.send.to_bytes())
        if stage == "confirm":
            self.signatures.setdefault(message.survivors, {})[index] = step.send.signature
        if stage == "unmask":
            self.note(index, message, step.send)
        return step.send

    def note(self, index, message, said):
        if self.mode is ServerMode.MALICIOUS:
            assert index in self.signatures.get(message.survivors, {}), "not what it signed"
        for dealer in from_bitmap(said.dealers).tolist():
            kind = "self" if bitmap_has(message.survivors, dealer) else "mask"
            self.released.setdefault((index, dealer), set()).add(kind)

    @initialize()
    def honest_start(self):
        """Contribute, so that most of the search is about what comes after."""
        messages: Any = dict.fromkeys(self.session.cohort)
        for stage in ("advertise", "share", "contribute"):
            for index in list(messages):
                self.server.receive(index, self.ask(index, stage, messages[index]))
            messages = self.server.close(REQUESTS[0] if stage == "share" else None)
        self.honest = dict(messages)

    clients = st.integers(1, SIZE)
    sets = st.sets(st.integers(0, SIZE - 1), max_size=2).map(lambda gone: set(range(SIZE)) - gone)

    @rule(index=clients, survivors=sets)
    def ask_to_sign(self, index, survivors):
        if self.mode is ServerMode.MALICIOUS:
            bitmap = to_bitmap(survivors, SIZE)
            self.ask(index, "confirm", ConfirmRequest(self.session.digest, bitmap))

    @rule(among=st.sets(clients, min_size=3), survivors=sets)
    def have_a_set_signed(self, among, survivors):
        for index in among:
            self.ask_to_sign(index, survivors)

    @rule(index=clients, own=sets, others=sets)
    def show_one_client_another_set(self, index, own, others):
        """Let one sign its own set and the rest theirs, and ask it to open the rest's."""
        self.ask_to_sign(index, own)
        self.have_a_set_signed(set(range(1, SIZE + 1)) - {index}, others)
        self.ask_to_unmask(index, others, False)

    @rule(index=clients, survivors=sets, mixed=st.booleans())
    def ask_to_unmask(self, index, survivors, mixed):
        bitmap = to_bitmap(survivors, SIZE)
        if self.mode is not ServerMode.MALICIOUS:
            self.ask(index, "unmask", UnmaskRequest(self.session.digest, bitmap))
            return
        known = dict(self.signatures.get(bitmap, {}))
        if mixed:
            # Signatures of other sets, and one's own under the names of others.
            for others in self.signatures.values():
                known = {**others, **known}
        signers = to_bitmap([i - 1 for i in known], SIZE)
        signatures = b"".join(known[i] for i in sorted(known))
        self.ask(index, "unmask", UnmaskRequest(self.session.digest, bitmap, signers, signatures))

    @rule(index=clients)
    def forge_signatures(self, index):
        """Sign with the client's own key in the names of all."""
        if self.mode is ServerMode.MALICIOUS:
            bitmap = to_bitmap(range(SIZE), SIZE)
            statement = survivors_statement(self.session.digest, REQUESTS[0], bitmap)
            forged = self.keys[index].sign(statement) * SIZE
            assert len(forged) == SIGNATURE_BYTES * SIZE
            known = self.signatures.get(bitmap, {})
            said = self.ask(
                index, "unmask", UnmaskRequest(self.session.digest, bitmap, bitmap, forged)
            )
            assert said is None or len(known) > 2

    @rule(index=clients, request=st.sampled_from(REQUESTS), gone=st.sampled_from([None, 1, 3]))
    def ask_to_contribute(self, index, request, gone):
        asked = next(m for m in self.asked["contribute"] if m.recipient == index)
        sharers = set(range(SIZE)) - ({gone} - {index - 1})
        message = dataclasses.replace(asked, request=request, sharers=to_bitmap(sharers, SIZE))
        if self.degree == SIZE - 1:
            dealers = [p for p in range(SIZE) if p != index - 1]
            envelopes = (asked.sealed[at : at + 88] for at in range(0, len(asked.sealed), 88))
            kept = [e for p, e in zip(dealers, envelopes, strict=True) if p in sharers]
            message = dataclasses.replace(message, sealed=b"".join(kept))
        self.ask(index, "contribute", message)

    @rule(index=clients, stage=st.sampled_from(["share", "contribute", "confirm", "unmask"]),
          data=st.data())  # fmt: skip
    def replay(self, index, stage, data):
        """Say again, to anybody, what was said to somebody."""
        if self.asked.get(stage):
            self.ask(index, stage, data.draw(st.sampled_from(self.asked[stage])))

    @rule(index=clients)
    def ask_to_advertise(self, index):
        self.ask(index, "advertise", None)

    @rule(index=clients, back=st.integers(1, 6))
    def restart(self, index, back):
        states = self.states[index]
        state = states[-min(back, len(states))]
        self.parties[index] = ClientParty.restore(
            state, record=self.record[index], **self.given[index]
        )

    @rule(index=clients, sender=clients, stage=st.integers(0, 4))
    def let_the_server_hear(self, index, sender, stage):
        """Deliver what a client said, in its own or another's name."""
        stages = self.session.stages
        said = sorted(self.answers[index, stages[min(stage, len(stages) - 1)]])
        for message in said:
            before = repr(sorted(self.server._answered))
            try:
                self.server.receive(sender, message)
            except RemoteProtocolError:
                assert repr(sorted(self.server._answered)) == before
            else:
                assert sender == index

    @invariant()
    def nothing_is_decided_twice(self):
        assert all(len(said) <= 1 for said in self.answers.values())
        assert all(len(kinds) == 1 for kinds in self.released.values())
        signed = [index for signers in self.signatures.values() for index in signers]
        assert len(signed) == len(set(signed))


class HostileSparse(Hostile):
    """The same where clients draw their neighbours."""

    degree = 4


class LyingSemiHonest(Hostile):
    """The same without signatures: still nobody decides twice."""

    mode = ServerMode.SEMI_HONEST


class LyingSemiHonestSparse(Hostile):
    """The same without signatures on a sparse graph."""

    mode = ServerMode.SEMI_HONEST
    degree = 4


_SETTINGS = settings(max_examples=15, stateful_step_count=25)

TestHostile = Hostile.TestCase
TestHostile.settings = _SETTINGS
TestHostileSparse = pytest.mark.slow(HostileSparse.TestCase)
TestHostileSparse.settings = _SETTINGS
TestLyingSemiHonest = LyingSemiHonest.TestCase
TestLyingSemiHonest.settings = _SETTINGS
TestLyingSemiHonestSparse = pytest.mark.slow(LyingSemiHonestSparse.TestCase)
TestLyingSemiHonestSparse.settings = _SETTINGS
