"""One private sum on its way: its sessions, side by side, from stage to stage.

No transport and no time: what goes to clients is read here, and what comes from them is put in.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from flwr.app import ArrayRecord, RecordDict

from zerosum.client.protocol import flower_messages
from zerosum.client.request import CountEncoding, Request
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.client.spec.sum_privacy import CountPrivacy
from zerosum.secagg import (
    ReconstructionFailed,
    RemoteProtocolError,
    ServerParty,
    TooFewSurvivors,
)
from zerosum.secagg.messages.all_messages import Message as SecAggMessage
from zerosum.secagg.parties.interface import SumResult
from zerosum.secagg.stages import End, Stage
from zerosum.server.private_sum.aggregate import Group
from zerosum.server.private_sum.transport import Traffic

log = logging.getLogger("zerosum.server")

_MOST_PAIRS = 10
"""Pairs in a line of the log: one liar in a large cohort is in hundreds."""


@dataclass(frozen=True)
class Shape:
    """Parts of a request that its session must know before the request exists.

    Attributes
    ----------
    privacy, encoding
        How answers are protected.
    dimension : int
        Length of an answer.
    seed : int
        The experiment's: rotations follow from it.
    noise_draw : str
        Who draws the noise.
    """

    privacy: PrivacySpec | CountPrivacy
    encoding: EncodingSpec | CountEncoding
    dimension: int
    seed: int
    noise_draw: Literal["per_client", "summed"]

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the shape of a request, which says nothing of its model."""
        question = request.question
        return cls(
            question.privacy,
            request.encoding,
            request.dimension,
            question.seed,
            question.noise_draw,
        )


@dataclass(frozen=True)
class SumPlan:
    """The plan of a private sum, fixed before its first stage.

    Attributes
    ----------
    groups : tuple of tuple of int
        Roster indices, ascending; disjoint. A cohort that is one session is one group.
    round, attempt : int
        Number of the session, never used before in this run.
    shape : Shape
        Of the request that will be made.

    Raises
    ------
    ValueError
        If a client is in two groups.
    """

    groups: tuple[tuple[int, ...], ...]
    round: int
    attempt: int
    shape: Shape

    def __post_init__(self) -> None:
        seen: set[int] = set()
        for cohort in self.groups:
            if twice := seen & set(cohort):
                raise ValueError(f"client {min(twice)} is in two groups of one private sum")
            seen.update(cohort)


class PrivateSum:
    """The sessions of one private sum, all at the same stage.

    Parameters
    ----------
    plan : SumPlan
    groups : sequence of Group
        Those that could be opened.
    failures : sequence of str
        Why the others could not.
    """

    def __init__(
        self,
        plan: SumPlan,
        groups: Sequence[Group],
        failures: Sequence[str],
    ) -> None:
        self.plan = plan
        self.groups = list(groups)
        self.traffic = Traffic()
        self._unopened = list(failures)
        self._stages = groups[0].session.stages if groups else ()
        self._phase = 0
        self._answered: set[int] | None = None
        self._group_of: dict[int, Group] = {}
        self.contents: dict[int, dict[int, RecordDict]] = {
            group.number: _opening(group) for group in groups
        }

    @property
    def stage(self) -> str:
        """Stage of all sessions; empty when the sum is over, or every group failed."""
        over = self._phase == len(self._stages) or not self.walking
        return "" if over else self._stages[self._phase]

    @property
    def walking(self) -> list[Group]:
        """Groups that have not failed."""
        return [group for group in self.groups if not group.failure]

    @property
    def failures(self) -> list[str]:
        """Return the reasons why groups failed, or were never opened."""
        return self._unopened + [group.failure for group in self.groups if group.failure]

    @property
    def exchanged(self) -> bool:
        """Return whether the messages of the stage were sent, so that it can be closed."""
        return self._answered is not None

    def send(self) -> dict[int, RecordDict]:
        """Return what each client is sent at this stage, and count it."""
        self._answered = set()
        down, contents = self.traffic.down, self.contents
        self._group_of = {i: group for group in self.walking for i in contents[group.number]}
        sent = {i: contents[group.number][i] for i, group in self._group_of.items()}
        for index, content in sent.items():
            down[index] = down.get(index, 0) + flower_messages.size(content)
        return sent

    def receive(self, index: int, reply: RecordDict) -> None:
        """Take a client's answer; an unreadable one makes the client a dropout of the stage."""
        group, message = self._group_of[index], _message(reply)
        try:
            group.party.receive(index, message)
        except RemoteProtocolError as error:
            log.warning("client %d is dropped at %s: %s", index, self.stage, error)
            return
        if self.stage == Stage.CONTRIBUTE and group.session.masked and not self.traffic.sample[1]:
            self.traffic.sample = group.number, _bytes(message)
        self.traffic.up[index] = self.traffic.up.get(index, 0) + flower_messages.size(reply)
        if self._answered is not None:
            self._answered.add(index)

    def note_refusal(self, index: int) -> None:
        """Count a client that answers this stage with a refusal."""
        refused = self.traffic.refused
        refused[self.stage] = refused.get(self.stage, 0) + 1

    def note_missing(self) -> None:
        """Record the clients that did not answer at this stage; later answers are ignored."""
        answered = self._answered or set()
        gone = tuple(index for index in self._group_of if index not in answered)
        self.traffic.dropouts[self.stage] = gone

    def close(self, request: Request | None = None) -> None:
        """End the stage; a group with too few clients left fails, and the others go on.

        Parameters
        ----------
        request : Request, optional
            What is asked at contribute: required at share.
        """
        stage = self.stage
        model = None
        if stage == Stage.SHARE and request is not None:
            model = flower_messages.payload_record(request.payload, dtype=request.payload_dtype)
        for group in self.walking:
            self.contents[group.number] = _close(group, stage, request, model, self.traffic)
        self._phase += 1
        self._answered = None


def _opening(group: Group) -> dict[int, RecordDict]:
    content = flower_messages.pack({"session": group.session.to_bytes()})
    return dict.fromkeys(group.session.cohort, content)


def _close(
    group: Group,
    stage: str,
    request: Request | None,
    model: ArrayRecord | None,
    traffic: Traffic,
) -> dict[int, RecordDict]:
    """End a group's stage; return what goes to its clients next, nothing if the group failed."""
    asked = request if stage == Stage.SHARE else None
    try:
        messages = group.party.close(None if asked is None else asked.digest)
    except (TooFewSurvivors, ReconstructionFailed) as error:
        group.failure = str(error)
        if isinstance(error, ReconstructionFailed):
            _note_lies(error, traffic)
        return {}
    if group.party.stage is End.DONE:
        _note_lies(group.party.result, traffic)
    if stage == Stage.ADVERTISE and isinstance(group.party, ServerParty) and group.party.crowders:
        log.warning(
            "clients %s chose the same neighbours more often than chance allows, which makes "
            "those work more; they stay in the sum: have their operators asked, or their keys "
            "taken out of the roster",
            group.party.crowders,
        )
    extra: dict[str, flower_messages.Value] = {} if asked is None else {"request": asked.header}
    return _packed(messages, extra, model)


def _note_lies(found: SumResult | ReconstructionFailed, traffic: Traffic) -> None:
    if found.wrong_shares:
        log.warning(
            "wrong shares, given by the holder or dealt by the dealer, as (dealer, holder): %s",
            _some_pairs(found.wrong_shares),
        )
    if found.liars:
        log.warning("clients proved to have lied: %s", ", ".join(map(str, found.liars)))
    traffic.wrong_shares.extend(found.wrong_shares)
    traffic.liars.extend(found.liars)


def _some_pairs(pairs: Sequence[tuple[int, int]]) -> str:
    first = ", ".join(map(str, pairs[:_MOST_PAIRS]))
    return first if len(pairs) <= _MOST_PAIRS else f"{first} and {len(pairs) - _MOST_PAIRS} more"


def _message(reply: RecordDict) -> bytes | SecAggMessage:
    """Return the message of a reply; empty bytes, which every party rejects, if it has none."""
    try:
        return flower_messages.protocol_message(reply)
    except ValueError:
        return b""


def _bytes(message: bytes | SecAggMessage) -> bytes:
    return message if isinstance(message, bytes) else message.to_bytes()


def _packed(
    messages: Mapping[int, SecAggMessage],
    extra: dict[str, flower_messages.Value],
    model: ArrayRecord | None,
) -> dict[int, RecordDict]:
    """Pack each client's message, and a broadcast only once."""
    packed: dict[int, RecordDict] = {}
    last: SecAggMessage | None = None
    for index, message in messages.items():
        if message is not last:
            last, content = (
                message,
                flower_messages.pack({"message": message.to_bytes(), **extra}, model),
            )
        packed[index] = content
    return packed
