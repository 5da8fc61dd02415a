"""A whole cohort at once: the stages of trusted sums, without a message a client.

Where nobody masks (protocol "ideal") a client's messages say no more than that it is there, and
its vector only counts in a sum. A simulation walks the same stages with the same server party,
faults and rules of ending, and takes the sum of many clients from its workers.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from zerosum.client.protocol import flower_messages
from zerosum.client.request import Request
from zerosum.secagg import IdealServerParty, Ring, Session
from zerosum.secagg.messages.all_messages import Contribution
from zerosum.secagg.messages.unmasked import Presence
from zerosum.secagg.session import DIGEST_BYTES
from zerosum.secagg.stages import Stage
from zerosum.server.private_sum.aggregate import Group
from zerosum.server.private_sum.transport import Traffic


class TrustedCohort(Protocol):
    """Cohort of a simulation that gives a trusted server its sum alone."""

    def answering(self, stage: str, clients: Sequence[int], round: int) -> Sequence[int]:
        """Return which of these clients answer at a stage.

        Parameters
        ----------
        stage : str
            Of the session.
        clients : sequence of int
            Who is asked.
        round : int
            Of the session.

        Returns
        -------
        sequence of int
            In order.
        """
        ...

    def total(
        self, request: Request, session: Session, clients: Sequence[int]
    ) -> tuple[Sequence[int], NDArray[np.int64]]:
        """Return who of these clients contributed, and the sum of their vectors.

        Parameters
        ----------
        request : Request
            What is asked.
        session : Session
            Whose sum it is.
        clients : sequence of int
            Who is asked.

        Returns
        -------
        tuple of sequence of int and numpy.ndarray
            The contributors, and int64, shape (session.vector_length,), not reduced to the ring.
        """
        ...


def take_stage(
    cohort: TrustedCohort,
    groups: Sequence[Group],
    stage: str,
    contents: Mapping[int, Mapping[int, RecordDict]],
    request: Request,
    round: int,
    traffic: Traffic,
) -> None:
    """Take a whole cohort's answers at a stage, as if each client had been sent its message.

    Parameters
    ----------
    cohort : TrustedCohort
        Answers for the clients.
    groups : sequence of Group
        Whose party is an ``IdealServerParty`` that keeps nothing.
    stage : str
        The stage of all of them.
    contents : mapping
        By group and client, what a message would have carried: for the count of bytes.
    request : Request
        What is asked at contribute.
    round : int
        The session's round: by it faults are drawn.
    traffic : Traffic
        Added to.
    """
    started = time.perf_counter()
    dropouts: list[int] = []
    for group in groups:
        asked = contents[group.number]
        answered = cohort.answering(stage, tuple(asked), round)
        if stage == Stage.CONTRIBUTE:
            answered, total = cohort.total(request, group.session, answered)
            if answered:
                # Messages fit the ring and noise may not: the residue is all that is released.
                _party(group).receive_sum(answered, group.session.ring.encode(total))
        else:
            _party(group).receive_presence(answered)
        if asked:  # each is sent the same
            _count(traffic.down, asked, flower_messages.size(next(iter(asked.values()))))
        _count(traffic.up, answered, _reply_bytes(group.session, stage))
        dropouts += sorted(set(asked) - set(answered))
    traffic.dropouts[stage] = tuple(dropouts)
    traffic.seconds[stage] = time.perf_counter() - started


def _party(group: Group) -> IdealServerParty:
    if not isinstance(group.party, IdealServerParty):
        raise TypeError("only a trusted server takes a cohort's sum")
    return group.party


def _count(bytes_of: dict[int, int], clients: Iterable[int], size: int) -> None:
    for index in clients:
        bytes_of[index] = bytes_of.get(index, 0) + size


def _reply_bytes(session: Session, stage: str) -> int:
    """Return the bytes of one client's answer at a stage."""
    if stage == Stage.CONTRIBUTE:
        return _contribution_bytes(session.ring_bits, session.vector_length)
    return Presence(session.digest, session.cohort[0], session.stages.index(stage)).wire_bytes


@lru_cache(maxsize=16)
def _contribution_bytes(ring_bits: int, length: int) -> int:
    digest, ring = bytes(DIGEST_BYTES), Ring(ring_bits)
    return Contribution(digest, 0, digest, ring.zeros(length), ring_bits).wire_bytes
