"""The phase tables are complete, and parties accept what they say, where they say it."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from zerosum.secagg import (
    ClientParty,
    DuplicateMessage,
    IdealClientParty,
    RemoteProtocolError,
    ServerMode,
    Session,
    Stage,
)
from zerosum.secagg.messages import all_messages, unmasked
from zerosum.secagg.stages import (
    MASKED_PHASES,
    OPENING,
    TRUSTED_PHASES,
    End,
    MessageCode,
    Phase,
    Repeat,
    phase_table,
)

TABLES = {
    f"{mode}, {'masked' if tables is MASKED_PHASES else 'trusted'}": tables[mode]
    for tables in (MASKED_PHASES, TRUSTED_PHASES)
    for mode in ServerMode
}
EVERY_TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
EVERY_SESSION = pytest.mark.parametrize("ideal", [False, True], ids=["masked", "trusted"])
EVERY_MODE = pytest.mark.parametrize("mode", list(ServerMode))


def with_row(table: Mapping[Stage, Phase], stage: Stage, **changes: Any) -> list[Phase]:
    """The rows of a table, one of them changed."""
    return [dataclasses.replace(p, **(changes if p.stage is stage else {})) for p in table.values()]


@EVERY_TABLE
def test_a_table_names_every_stage_once_from_advertise_to_done(table) -> None:
    assert list(table) == [stage for stage in Stage if stage in table]
    assert [phase.then for phase in table.values()] == [*list(table)[1:], End.DONE]
    assert table[Stage.ADVERTISE].reads is None


@EVERY_TABLE
@pytest.mark.parametrize("stage", list(Stage))
def test_a_table_without_a_row_is_refused(table, stage: Stage) -> None:
    rows = [phase for phase in table.values() if phase.stage is not stage]
    if stage in table:
        with pytest.raises(ValueError, match=r"the next is|the first row|until unmask"):
            phase_table(*rows)
    else:
        assert phase_table(*rows) == table


@EVERY_TABLE
@pytest.mark.parametrize("place", range(3))
def test_a_table_with_two_rows_exchanged_or_doubled_is_refused(table, place: int) -> None:
    rows = list(table.values())
    exchanged = [*rows[:place], rows[place + 1], rows[place], *rows[place + 2 :]]
    for wrong in (exchanged, [*rows[:place], rows[place], *rows[place:]]):
        with pytest.raises(ValueError, match="doubled or out of order"):
            phase_table(*wrong)


@pytest.mark.parametrize(
    ("stage", "changes", "message"),
    [
        (Stage.SHARE, {"then": Stage.UNMASK}, "after share comes unmask, but the next is contrib"),
        (Stage.UNMASK, {"then": Stage.CONFIRM}, "the next is done"),
        (Stage.SHARE, {"reads": None}, "only advertise reads nothing"),
        (Stage.ADVERTISE, {"reads": MessageCode.ADVERTS}, "only advertise reads nothing"),
        (Stage.CONFIRM, {"until": Stage.SHARE}, "cannot be repeated until share"),
        (Stage.SHARE, {"until": End.FAILED}, "cannot be repeated until failed"),
        (Stage.SHARE, {"repeat": Repeat.NEVER}, "repeated never, or until a later stage"),
        (Stage.SHARE, {"until": Stage.SHARE}, "repeated never, or until a later stage"),
    ],
)
def test_a_row_that_contradicts_the_others_or_itself_is_refused(stage, changes, message) -> None:
    rows = with_row(MASKED_PHASES[ServerMode.MALICIOUS], stage, **changes)
    with pytest.raises(ValueError, match=message):
        phase_table(*rows)


def test_server_modes_differ_in_the_confirm_stage_alone() -> None:
    for tables in (MASKED_PHASES, TRUSTED_PHASES):
        malicious, semi_honest = tables[ServerMode.MALICIOUS], tables[ServerMode.SEMI_HONEST]
        assert set(malicious) - set(semi_honest) == {Stage.CONFIRM}
        for stage, phase in semi_honest.items():
            then = malicious[stage].then
            assert phase == dataclasses.replace(
                malicious[stage], then=Stage.UNMASK if then is Stage.CONFIRM else then
            )


def test_protocols_differ_in_what_is_said_alone() -> None:
    for mode in ServerMode:
        for stage, phase in MASKED_PHASES[mode].items():
            trusted = TRUSTED_PHASES[mode][stage]
            assert dataclasses.replace(trusted, reads=phase.reads, sends=phase.sends) == phase


@EVERY_TABLE
def test_opening_stages_are_those_before_the_vector(table) -> None:
    order = list(table)
    assert tuple(order[: order.index(Stage.CONTRIBUTE)]) == OPENING


def test_every_message_type_is_read_or_sent_somewhere() -> None:
    rows = [phase for table in TABLES.values() for phase in table.values()]
    assert {p.reads for p in rows} | {p.sends for p in rows} == {None, *MessageCode}
    classes = [*vars(all_messages).values(), *vars(unmasked).values()]
    codes = {kind.code: kind for kind in classes if hasattr(kind, "code")}
    assert set(codes) == set(MessageCode)


def answer(client: Any, stage: Stage, message: Any, vector: Any) -> bytes:
    """Return a client's answer to a message at a stage."""
    arguments = () if stage is Stage.ADVERTISE and message is None else (message,)
    arguments += (vector,) if stage is Stage.CONTRIBUTE else ()
    if stage is Stage.ADVERTISE and message is not None:
        raise RemoteProtocolError("advertise reads nothing")
    if message is None and stage is not Stage.ADVERTISE:
        raise RemoteProtocolError(f"{stage} reads a message")
    sent: bytes = getattr(client, stage)(*arguments).send.to_bytes()
    return sent


class Played:
    """A whole session, and what one of its clients was before each stage."""

    def __init__(self, lab: Any, mode: ServerMode, ideal: bool) -> None:
        self.lab, self.ideal = lab, ideal
        self.plain = lab.session(3, mode=mode)
        play = self.again()
        self.session: Session = play.session
        self.index = self.session.cohort[1]
        self.states: dict[Stage | End, bytes] = {}
        while play.server.stage is not End.DONE:
            self.states[play.server.stage] = play.clients[self.index].export()
            play.stage()
            play.close()
        self.states[End.DONE] = play.clients[self.index].export()
        self.asked = {stage: play.asked[stage][self.index] for stage in self.session.stages}
        self.sent = {stage: play.sent[stage][self.index] for stage in self.session.stages}
        self.vector = play.vectors[self.index]

    def again(self) -> Any:
        """The same session from its beginning: every party says what it said."""
        return self.lab.Play(self.plain, ideal=self.ideal, seeded=True)

    def client(self, now: Stage | End) -> Any:
        """The client as it was before a stage, in a new process."""
        kind = IdealClientParty if self.ideal else ClientParty
        credentials = {} if self.ideal else self.lab.credentials(self.session, self.index)
        return kind.restore(self.states[now], **credentials)

    def messages(self) -> Iterator[tuple[Stage, Any]]:
        """Return all messages to or by the client, with their stages."""
        yield from self.asked.items()
        yield from self.sent.items()

    def answered(self) -> set[tuple[Stage | End, Stage, Any]]:
        """Where the client is, the stage asked for and the type of message, where it answers."""
        found = set()
        for now in self.states:
            for stage in Stage:
                for _, message in self.messages():
                    try:
                        said = answer(self.client(now), stage, message, self.vector)
                    except RemoteProtocolError:
                        continue
                    assert said == self.sent[stage].to_bytes()
                    found.add((now, stage, None if message is None else message.code))
        return found


def answered_by(table: Mapping[Stage, Phase]) -> set[tuple[Stage | End, Stage, Any]]:
    """Return a client's answers by a table."""
    order: list[Stage | End] = [*table, End.DONE]
    return {
        (now, phase.stage, phase.reads)
        for phase in table.values()
        for now in order[order.index(phase.stage) : order.index(phase.until) + 1]
    }


@EVERY_SESSION
@EVERY_MODE
def test_a_client_answers_exactly_what_the_table_says(lab, mode, ideal: bool) -> None:
    played = Played(lab, mode, ideal)
    answered, table = played.answered(), played.session.phases
    assert answered == answered_by(table)
    # Controls: a table that differs in one row says something else than the client does.
    for stage, changes in (
        (Stage.SHARE, {"until": Stage.CONTRIBUTE}),
        (Stage.CONTRIBUTE, {"repeat": Repeat.SAME_MESSAGE, "until": Stage.UNMASK}),
        (Stage.UNMASK, {"reads": MessageCode.ADVERT}),
    ):
        assert answered != answered_by(phase_table(*with_row(table, stage, **changes)))


@EVERY_SESSION
@EVERY_MODE
def test_a_server_takes_exactly_what_the_table_says_once(lab, mode, ideal: bool) -> None:
    played = Played(lab, mode, ideal)
    for now in (*played.session.stages, End.DONE):
        server = played.again().until(now).server
        for stage, message in played.messages():
            if message is None or (stage is now and message is played.sent[stage]):
                continue
            with pytest.raises(RemoteProtocolError):
                server.receive(played.index, message)
        if isinstance(now, Stage):
            message = played.sent[now]
            assert message.code is played.session.phases[now].sends
            server.receive(played.index, message)
            with pytest.raises(DuplicateMessage):
                server.receive(played.index, message)


@EVERY_SESSION
@EVERY_MODE
def test_a_server_sends_what_clients_read_next(lab, mode, ideal: bool) -> None:
    played = Played(lab, mode, ideal)
    for stage, phase in played.session.phases.items():
        message = played.asked[stage]
        assert (None if message is None else message.code) is phase.reads


@EVERY_SESSION
def test_parties_follow_the_table_and_not_their_own_order(lab, monkeypatch, ideal: bool) -> None:
    """Control: with a table whose share stage reads another message, nobody gets beyond it."""
    tables = TRUSTED_PHASES if ideal else MASKED_PHASES
    other = phase_table(
        *with_row(tables[ServerMode.MALICIOUS], Stage.SHARE, reads=MessageCode.CONFIRM_REQUEST)
    )
    play = lab.Play(lab.session(3, mode=ServerMode.MALICIOUS), ideal=ideal).until(Stage.SHARE)
    monkeypatch.setattr(Session, "phases", other)
    with pytest.raises(RemoteProtocolError, match="share does not read"):
        play.stage()
