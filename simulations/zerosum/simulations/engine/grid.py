"""An in-process Flower Grid: the same apps and messages, without a network in between."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.serverapp import Grid

from zerosum.client.flower.flower_internals import (
    Run,
    adopt_server_identity,
    empty_run,
    set_message_id,
)
from zerosum.client.protocol import flower_messages
from zerosum.simulations.engine.faults import FaultPlan

FIRST_NODE = 1_000
"""Node id of client 0: node ids are not roster indices, in a simulation neither."""

CLIENT_APP_RAISED = 2
"""Flower's error code for a ClientApp that raised."""

HandleMany = Callable[[Sequence[Message], Sequence[Context]], list[Message]]

App = Callable[[Message, Context], Message]
"""A ClientApp, or what stands in for one."""


def answered(app: App, message: Message, context: Context) -> Message:
    """Return an app's reply, or Flower's error reply if the app raised.

    Parameters
    ----------
    app : callable
        Handles the message.
    message : flwr.app.Message
    context : flwr.app.Context
        Of its client.

    Returns
    -------
    flwr.app.Message
        With content, or with an error.
    """
    try:
        return app(message, context)
    except Exception as error:
        return refusal(message, error)


def refusal(message: Message, error: Exception) -> Message:
    """Return Flower's error reply for an app that raised.

    Parameters
    ----------
    message : flwr.app.Message
        That is not answered.
    error : Exception
        Whose text the server sees.

    Returns
    -------
    flwr.app.Message
        With an error.
    """
    return Message(Error(CLIENT_APP_RAISED, str(error)), reply_to=message)


class NumberedNodes(Mapping[int, int]):
    """Mapping of client index to node id that stores only the number of clients."""

    def __init__(self, population: int) -> None:
        self._indices = range(population)

    def __getitem__(self, index: int) -> int:
        """Return a client's node id."""
        if index not in self._indices:
            raise KeyError(index)
        return FIRST_NODE + index

    def __iter__(self) -> Iterator[int]:
        """Go through the client indices."""
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


def nodes(population: int) -> Mapping[int, int]:
    """Return the node id of every client index."""
    return NumberedNodes(population)


class InProcessGrid(Grid):
    """Grid that delivers messages to a ClientApp in this process, and drops those that faults say.

    Parameters
    ----------
    app : flwr.clientapp.ClientApp, or like one
        What every client runs. If it has ``handle_many(messages, contexts)``, a whole cohort is
        handed to it at once.
    population : int
        Number of clients.
    faults : FaultPlan, optional
        Who vanishes when.
    run_id : int
        Enters contexts and messages.
    run_config : dict, optional
        Copied into every context.
    node_config : callable, optional
        Returns the further node config of a client index.
    """

    def __init__(
        self,
        app: App,
        population: int,
        *,
        faults: FaultPlan | None = None,
        run_id: int = 1,
        run_config: UserConfig | None = None,
        node_config: Callable[[int], UserConfig] = lambda index: {},
    ) -> None:
        self._app = app
        self._population = population
        self._faults = faults
        self._run_config = run_config or {}
        self._run = empty_run(run_id, self._run_config)
        self._node_config = node_config
        self._states: dict[int, RecordDict] = {}
        self._replies: dict[str, Message] = {}
        self._numbers = itertools.count(1)
        adopt_server_identity(self._run.run_id)

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._run = run
        adopt_server_identity(self._run.run_id)

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message, as Flower's own (deprecated) method does.

        Parameters
        ----------
        content, message_type, dst_node_id, group_id, ttl
            As of any grid.

        Returns
        -------
        flwr.app.Message
            Not yet sent.
        """
        return Message(
            content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id, ttl=ttl
        )

    def get_node_ids(self) -> Iterable[int]:
        """Return every client's node id."""
        return range(FIRST_NODE, FIRST_NODE + self._population)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver messages now; their replies wait to be pulled."""
        sent = list(messages)
        for message in sent:
            set_message_id(message, f"m{next(self._numbers)}")
        for reply in self._deliver(sent):
            self._replies[reply.metadata.reply_to_message_id] = reply
        return [message.metadata.message_id for message in sent]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages, each once."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Deliver messages and return all replies; a vanished client's is missing.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
            To any clients.
        timeout : float, optional
            Not read: replies are there when this returns.

        Returns
        -------
        iterable of flwr.app.Message
            In the order of their messages.
        """
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, messages: list[Message]) -> list[Message]:
        reached = [m for m in messages if not self._is_lost(m)]
        contexts = [self._context(m.metadata.dst_node_id) for m in reached]
        handle_many: HandleMany = getattr(self._app, "handle_many", self._one_by_one)
        replies = handle_many(reached, contexts)
        for message, context in zip(reached, contexts, strict=True):
            if len(context.state):
                self._states[message.metadata.dst_node_id] = context.state
            else:
                self._states.pop(message.metadata.dst_node_id, None)
        return replies

    def _one_by_one(
        self, messages: Sequence[Message], contexts: Sequence[Context]
    ) -> list[Message]:
        pairs = zip(messages, contexts, strict=True)
        return [answered(self._app, message, context) for message, context in pairs]

    def _is_lost(self, message: Message) -> bool:
        """Drop the parts of a message that its client never gets; return whether all are."""
        metadata, content = message.metadata, message.content
        lost = self._vanishes(metadata.group_id, metadata.dst_node_id, metadata.message_type)
        stage = flower_messages.piggyback_stage(content)
        if stage is None:
            return lost
        round = str(flower_messages.int_field(flower_messages.piggyback(content), "round"))
        piggyback_lost = self._vanishes(
            round, metadata.dst_node_id, flower_messages.STAGE_TYPES[stage]
        )
        delivered = {
            name: record
            for name, record in content.items()
            if not (piggyback_lost if name == flower_messages.PIGGYBACK else lost)
        }
        message.content = RecordDict(delivered)
        return lost and piggyback_lost

    def _vanishes(self, round: str, node: int, message_type: str) -> bool:
        if self._faults is None or not round.isdecimal():
            return False
        return self._faults.vanishes(int(round), node - FIRST_NODE, message_type)

    def _context(self, node_id: int) -> Context:
        index = node_id - FIRST_NODE
        return Context(
            run_id=self._run.run_id,
            node_id=node_id,
            node_config={
                "partition-id": index,
                "num-partitions": self._population,
                **self._node_config(index),
            },
            state=self._states.get(node_id, RecordDict()),
            run_config=dict(self._run_config),
        )
