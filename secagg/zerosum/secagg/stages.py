"""The phase tables: what is read, sent and repeated at each stage, and what comes next.

Everything that knows a stage reads it here: both roles of every protocol, the durable record,
Flower's message types, faults, timeouts and the report.
"""

import dataclasses
import enum
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


class ServerMode(enum.StrEnum):
    """The trust in the server."""

    SEMI_HONEST = "semi-honest"
    MALICIOUS = "malicious"


class Stage(enum.StrEnum):
    """A stage of a session, in the order in which stages come. Values stand in records."""

    ADVERTISE = "advertise"
    SHARE = "share"
    CONTRIBUTE = "contribute"
    CONFIRM = "confirm"
    UNMASK = "unmask"


class End(enum.StrEnum):
    """The end of a session: its sum is open, or there will be none."""

    DONE = "done"
    FAILED = "failed"


class MessageCode(enum.IntEnum):
    """The type of a message: one byte of its head on the wire."""

    ADVERT = 1
    ADVERTS = 2
    SHARES = 3
    CONTRIBUTE_REQUEST = 4
    CONTRIBUTION = 5
    UNMASK_REQUEST = 6
    UNMASK_SHARES = 7
    PRESENCE = 8
    ROLL = 9
    COHORT_QUESTION = 10
    CONFIRM_REQUEST = 11
    CONFIRMATION = 12


class Repeat(enum.Enum):
    """The second messages that a client answers at a stage, with its first answer's bytes."""

    NEVER = "none"
    SAME_MESSAGE = "the same message"
    SAME_SURVIVORS = "a message with the same U3"


@dataclass(frozen=True)
class Phase:
    """One row of a phase table.

    Attributes
    ----------
    stage : Stage
    reads : MessageCode or None
        What a client reads, and the server sends on closing the stage before. None at the first
        stage: the invitation is the session itself.
    sends : MessageCode
        What a client answers. The server takes it once from each client: a second one is a
        ``DuplicateMessage``, whatever it holds.
    then : Stage or End
        What follows, at both roles.
    repeat : Repeat
        Which second message a client answers.
    until : Stage or End
        The client's last stage at which it does.
    """

    stage: Stage
    reads: MessageCode | None
    sends: MessageCode
    then: Stage | End
    repeat: Repeat
    until: Stage | End


PhaseTable = Mapping[Stage, Phase]


def phase_table(*phases: Phase) -> PhaseTable:
    """Return the phases by stage, in order, after checking that they make a session.

    Parameters
    ----------
    *phases : Phase
        Rows in the order of their stages.

    Returns
    -------
    mapping of Stage to Phase
        Read-only.

    Raises
    ------
    ValueError
        If a row is missing, doubled or out of order, or its columns contradict each other.
    """
    stages: list[Stage | End] = [phase.stage for phase in phases]
    if stages != [stage for stage in Stage if stage in stages]:
        raise ValueError(f"the rows are doubled or out of order: {', '.join(stages)}")
    if stages[:1] != [Stage.ADVERTISE]:
        raise ValueError("the first row is not advertise: nothing is known of any client before")
    for phase, following in itertools.zip_longest(phases, [*stages[1:], End.DONE]):
        if phase.then != following:
            raise ValueError(f"after {phase.stage} comes {phase.then}, but the next is {following}")
        if (phase.reads is None) != (phase.stage is Stage.ADVERTISE):
            raise ValueError(f"{phase.stage} reads {phase.reads}: only advertise reads nothing")
        order = [*stages, End.DONE]
        if phase.until not in order or order.index(phase.until) < order.index(phase.stage):
            raise ValueError(f"{phase.stage} cannot be repeated until {phase.until}")
        if (phase.repeat is Repeat.NEVER) != (phase.until is phase.stage):
            raise ValueError(f"{phase.stage} is repeated never, or until a later stage")
    return MappingProxyType({phase.stage: phase for phase in phases})


# Why these stages stand in this order
# ------------------------------------
# A vector x leaves its client under masks that cancel in the sum. Clients vanish at any moment, so
# the others must be able to remove the masks of those who do. A liar could then remove masks too.
# Each stage answers one of these two facts, and none can move.
#
# advertise: masks are agreed in pairs, so every client needs its neighbours' public keys before
#   anything else. The commitment to the self mask's seed b_u goes out now, before anybody can
#   profit from a false one: a seed recovered at the end is checked against it. Against a lying
#   server each client also draws its neighbours now; a server that saw keys first, and drew for
#   it, would surround a victim with colluders.
# share: a client that vanished after masking, but before its secrets were dealt, would spoil the
#   sum of all others for good. So secrets are dealt first, sealed, since they go through the
#   server. Who dealt is U2. Exactly the pairs inside U2 mask, so U2 is fixed before anybody does:
#   until then a client with too few neighbours simply drops out, from then on the sum needs it.
# contribute: the first stage that reads data or knows the request, so that the two before can
#   ride along with the messages of the session before (OPENING). Its answer is made once and never
#   again: two answers under the same masks differ by the difference of their vectors, so that the
#   noise of one would no longer cover the other.
# confirm: U3, those who contributed, decides which secret of a client is released: b_u of one in
#   U3, the mask key of one outside. Each alone hides x; both together unmask it. The server alone
#   knows U3, so a lying one could name two, and collect each secret from another half. Therefore
#   clients sign U3 before any secret leaves, and release theirs only to a U3 that t neighbours
#   signed. It cannot come earlier, for want of U3, nor later: a share cannot be taken back. A
#   semi-honest server names one U3 to all, so that its sessions save this exchange.
# unmask: secrets leave here alone, so this is last, and afterwards a client has none.
#
# Why a message may come twice: replies are lost. A client that answered a repetition with fresh
#   keys or a second signature would itself hand the server two views. So each answer is a function
#   of the stored seed and the message: the same message gets the same bytes, another one is a
#   ConflictingMessage. At unmask the same U3 is enough: signatures around it may differ, and
#   shares depend on U3 alone. Repetition ends when unmask is answered, since the seed dies then;
#   the answer of unmask itself is kept, as its loss may cost the sum.
#
# A server repeats nothing: it sends when it closes a stage, and a late client is a dropout.

_ADVERTISE, _SHARE, _CONTRIBUTE, _CONFIRM, _UNMASK = Stage
_NEVER, _SAME, _U3 = Repeat  # nothing, the same message, a message with the same U3
_M = MessageCode

# fmt: off
_MALICIOUS = phase_table(
    #     at           a client reads         and sends         then         answers again, until
    Phase(_ADVERTISE,  None,                  _M.ADVERT,        _SHARE,      _SAME,  _UNMASK),
    Phase(_SHARE,      _M.ADVERTS,            _M.SHARES,        _CONTRIBUTE, _SAME,  _UNMASK),
    Phase(_CONTRIBUTE, _M.CONTRIBUTE_REQUEST, _M.CONTRIBUTION,  _CONFIRM,    _NEVER, _CONTRIBUTE),
    Phase(_CONFIRM,    _M.CONFIRM_REQUEST,    _M.CONFIRMATION,  _UNMASK,     _SAME,  _UNMASK),
    Phase(_UNMASK,     _M.UNMASK_REQUEST,     _M.UNMASK_SHARES, End.DONE,    _U3,    End.DONE),
)
_SEMI_HONEST = phase_table(
    Phase(_ADVERTISE,  None,                  _M.ADVERT,        _SHARE,      _SAME,  _UNMASK),
    Phase(_SHARE,      _M.ADVERTS,            _M.SHARES,        _CONTRIBUTE, _SAME,  _UNMASK),
    Phase(_CONTRIBUTE, _M.CONTRIBUTE_REQUEST, _M.CONTRIBUTION,  _UNMASK,     _NEVER, _CONTRIBUTE),
    Phase(_UNMASK,     _M.UNMASK_REQUEST,     _M.UNMASK_SHARES, End.DONE,    _U3,    End.DONE),
)
# fmt: on

# A trusted server needs no keys, shares or signatures. The rows stay, so that dropouts, faults
# and rules of ending are the same in all protocols; only what the messages hold goes.
_UNMASKED = {
    _M.ADVERT: _M.PRESENCE,
    _M.ADVERTS: _M.ROLL,
    _M.SHARES: _M.PRESENCE,
    _M.CONTRIBUTE_REQUEST: _M.COHORT_QUESTION,
    _M.CONFIRMATION: _M.PRESENCE,
    _M.UNMASK_SHARES: _M.PRESENCE,
}


def _unmasked(table: PhaseTable) -> PhaseTable:
    """Return a table with the messages of a session whose server is trusted."""
    return phase_table(
        *(
            dataclasses.replace(
                phase,
                reads=None if phase.reads is None else _UNMASKED.get(phase.reads, phase.reads),
                sends=_UNMASKED.get(phase.sends, phase.sends),
            )
            for phase in table.values()
        )
    )


MASKED_PHASES: Final[Mapping[ServerMode, PhaseTable]] = MappingProxyType(
    {ServerMode.MALICIOUS: _MALICIOUS, ServerMode.SEMI_HONEST: _SEMI_HONEST}
)
"""The phase table of each server mode, where vectors are masked."""

TRUSTED_PHASES: Final[Mapping[ServerMode, PhaseTable]] = MappingProxyType(
    {mode: _unmasked(table) for mode, table in MASKED_PHASES.items()}
)
"""The same, where the server is trusted with the vectors."""

OPENING: Final = (Stage.ADVERTISE, Stage.SHARE)
"""Stages before any vector is masked: they may ride along with messages of the session before,
and a client without enough live neighbours is still no more than a dropout."""
