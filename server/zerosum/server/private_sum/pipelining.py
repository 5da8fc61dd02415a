"""Let the next sum's keys and shares travel with the messages of the sum before.

A steady round then costs two exchanges instead of four, or three instead of five against a
malicious server. Sums know nothing of it: this is a transport around another, which puts two
messages into one and takes the two answers apart.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from flwr.app import RecordDict

from zerosum.client.protocol import flower_messages
from zerosum.secagg.stages import Stage
from zerosum.server.private_sum.sum_in_progress import PrivateSum, SumPlan
from zerosum.server.private_sum.transport import Exchange, Outgoing

log = logging.getLogger("zerosum.server")


class PipelinedExchange:
    """Exchange whose messages also carry a stage of the next sum.

    Only advertise and share ride along: they depend on nothing that the sum before decides. From
    contribute on a request is bound to the model, which that sum is going to change. They ride
    with contribute and later stages, when the sum in front can lose no more keys and shares.

    Parameters
    ----------
    exchange : Exchange
        Carries the messages.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._prepared: dict[tuple[int, int], PrivateSum] = {}

    def prepare(self, following: PrivateSum) -> None:
        """Let a sum's first stages ride on the messages of the sum before it.

        Parameters
        ----------
        following : PrivateSum
            Of which nobody has been asked anything.

        Raises
        ------
        ValueError
            If another sum was prepared under its number.
        """
        before = self._prepared.setdefault(_number(following.plan), following)
        _check_same(before.plan, following.plan)

    def begin(self, plan: SumPlan) -> PrivateSum | None:
        """Return a prepared sum at the stage that it has reached, and stop carrying it.

        Parameters
        ----------
        plan : SumPlan
            Of the sum that is asked for.

        Returns
        -------
        PrivateSum or None
            None if it was not prepared.

        Raises
        ------
        ValueError
            If another sum was prepared under its number.
        """
        prepared = self._prepared.pop(_number(plan), None)
        if prepared is not None:
            _check_same(prepared.plan, plan)
        # Clients raised their mark when they were asked for this one's keys: an older session is
        # stale to them, and is never asked for.
        for number in [number for number in self._prepared if number < _number(plan)]:
            log.debug("round %d was prepared and is not asked for", number[0])
            del self._prepared[number]
        return prepared

    def address(self, stage: str, round: int, content: RecordDict) -> Outgoing:
        """Address a message of the sum in front.

        Parameters
        ----------
        stage : str
            Of the sum in front.
        round : int
            Of its session.
        content : flwr.app.RecordDict
            As it is sent.

        Returns
        -------
        Outgoing
            For any client.
        """
        return self._exchange.address(stage, round, content)

    def ask(
        self,
        outgoing: Mapping[int, Outgoing],
        refused: Callable[[int], None] = lambda index: None,
    ) -> Iterator[tuple[int, RecordDict]]:
        """Send messages, add those of the next sum to them, and yield the replies to the former.

        An exchange goes to the clients of both sums. A client of one of them gets that message
        alone.

        Parameters
        ----------
        outgoing : mapping of int to Outgoing
            By client, all of one stage.
        refused : callable
            Told of each client that answers with an error, or leaves this part out.

        Yields
        ------
        tuple of int and flwr.app.RecordDict
            A client and its answer to the message.
        """
        following = self._due(outgoing)
        if following is None:
            yield from self._exchange.ask(outgoing, refused)
            return
        stage, round = following.stage, following.plan.round
        riding = {i: self.address(stage, round, sent) for i, sent in following.send().items()}

        def refuse(index: int) -> None:
            if index in outgoing:
                refused(index)
            if index in riding:
                following.note_refusal(index)

        together = {i: _joined(outgoing.get(i), riding.get(i)) for i in {**outgoing, **riding}}
        for index, reply in self._exchange.ask(together, refuse):
            main, piggybacked = _parts(reply, index in outgoing, index in riding)
            if piggybacked is not None:
                following.receive(index, piggybacked)
            elif index in riding:
                following.note_refusal(index)
            if main is not None:
                yield index, main
            elif index in outgoing:
                refused(index)
        following.note_missing()

    def _due(self, outgoing: Mapping[int, Outgoing]) -> PrivateSum | None:
        """Return the next sum if it is at a stage that may ride on these messages."""
        alone = any(message.stage in flower_messages.PIGGYBACKED for message in outgoing.values())
        if alone or not self._prepared:
            return None
        following = self._prepared[min(self._prepared)]
        if following.stage == Stage.ADVERTISE and following.exchanged:
            following.close()
        waiting = following.stage in flower_messages.PIGGYBACKED and not following.exchanged
        return following if waiting else None


def _number(plan: SumPlan) -> tuple[int, int]:
    return plan.round, plan.attempt


def _check_same(prepared: SumPlan, plan: SumPlan) -> None:
    if prepared != plan:
        raise ValueError(f"another sum than this was prepared as round {plan.round}")


def _joined(main: Outgoing | None, riding: Outgoing | None) -> Outgoing:
    """Join two messages to one client, and wait for the longer of their times."""
    if main is None or riding is None:
        only = main or riding
        if only is None:
            raise ValueError("a client is sent one of two messages, or both")
        return only
    content = flower_messages.joined(main.content, riding.content, riding.stage, riding.round)
    if main.seconds is None or riding.seconds is None:
        return replace(main, content=content)
    return replace(main, content=content, seconds=max(main.seconds, riding.seconds))


def _parts(
    reply: RecordDict, to_main: bool, to_riding: bool
) -> tuple[RecordDict | None, RecordDict | None]:
    """Split a reply into the parts of two stages; a refused part is missing in it."""
    if not (to_main and to_riding):
        return (reply, None) if to_main else (None, reply)
    return (
        flower_messages.main_part(reply) if flower_messages.RECORD in reply else None,
        flower_messages.piggyback(reply) if flower_messages.PIGGYBACK in reply else None,
    )
