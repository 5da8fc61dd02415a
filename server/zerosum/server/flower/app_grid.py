"""Two grids around Flower's: one carries stages to wrapped apps, a strategy talks to the other."""

from collections.abc import Callable, Collection, Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from zerosum.client.flower.app_request import enveloped
from zerosum.client.flower.flower_internals import Run
from zerosum.client.protocol import flower_messages

Answered = Callable[[list[Message]], Iterable[Message]]
"""Answers a strategy's messages with what came of a private sum."""


class _Around(Grid):
    """A grid that passes everything on to another."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are connected."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have come."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for their replies."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class AppGrid(_Around):
    """Carries the stages of a private sum as messages of the one type that an app answers.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The transport.
    message_type : str
        "train", "evaluate", or one of these with an action.
    """

    def __init__(self, grid: Grid, message_type: str) -> None:
        super().__init__(grid)
        self._message_type = message_type
        self._records = RecordDict()

    def carry(self, records: RecordDict, message_type: str) -> None:
        """Send these records with every request from now on, and all by this type.

        Parameters
        ----------
        records : flwr.app.RecordDict
            The strategy's.
        message_type : str
            Chooses the app's function.
        """
        self._records, self._message_type = records, message_type

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages in their envelopes."""
        return self._grid.push_messages([self._enveloped(message) for message in messages])

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages in their envelopes and wait for their replies.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
            Of a stage.
        timeout : float, optional
            Seconds.

        Returns
        -------
        iterable of flwr.app.Message
            Replies.
        """
        return self._grid.send_and_receive(map(self._enveloped, messages), timeout=timeout)

    def _enveloped(self, message: Message) -> Message:
        asks = message.content.config_records[flower_messages.RECORD].get("request") is not None
        records = self._records if asks else RecordDict()
        content = enveloped(message.content, message.metadata.message_type, records)
        return Message(
            content,
            message.metadata.dst_node_id,
            self._message_type,
            ttl=message.metadata.ttl,
            group_id=message.metadata.group_id,
        )


class StrategyGrid(_Around):
    """A grid for a strategy: private sums answer its messages.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Says which nodes are connected; nothing else is asked of it.
    nodes : collection of int
        The nodes of the roster: a strategy knows of no others.
    answered : callable
        Answers all messages of one call.
    """

    def __init__(self, grid: Grid, nodes: Collection[int], answered: Answered) -> None:
        super().__init__(grid)
        self._nodes, self._answered = nodes, answered

    def get_node_ids(self) -> Iterable[int]:
        """Return the connected nodes of the roster."""
        return [node for node in self._grid.get_node_ids() if node in self._nodes]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Run the private sum that these messages ask for, and return its reply: one, or none.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
            Of one round of the strategy.
        timeout : float, optional
            Not read: the deployment's own times hold.

        Returns
        -------
        iterable of flwr.app.Message
            The reply of one client whose model is the mean.
        """
        return self._answered(list(messages))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: a message alone is no private sum.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
            Of a strategy that sends some by itself.

        Returns
        -------
        iterable of str
            Never.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError(
            "under PrivateStrategy messages are sent by send_and_receive, all of a round at once: "
            "what push_messages sends would be answered in plain"
        )

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return nothing: nothing was pushed."""
        return []
