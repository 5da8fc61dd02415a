"""What a ServerApp or its strategy sends: the same records to all, to each node once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict

from zerosum.client.flower.app_request import only_arrays
from zerosum.client.flower.request_digest import rebuilt, records_digest
from zerosum.server.config import ConfigError


def integers_of(arrays: ArrayRecord) -> dict[str, np.dtype[Any]]:
    """Return the arrays that hold integers or truths, by name, each with its dtype."""
    dtypes = {name: array.numpy().dtype for name, array in arrays.items()}
    return {name: dtype for name, dtype in dtypes.items() if dtype.kind in "iub"}


def common_records(
    messages: Sequence[Message], integers: Mapping[str, np.dtype[Any]]
) -> RecordDict:
    """Return what all clients are sent, with integers as integers.

    Parameters
    ----------
    messages : sequence of flwr.app.Message
        The strategy's, of one call.
    integers : mapping of str to numpy.dtype
        Arrays that began as integers: a strategy's average makes floats of them.

    Returns
    -------
    flwr.app.RecordDict
        Of the first message.

    Raises
    ------
    ConfigError
        If messages differ, or hold what no private sum can be asked about.
    """
    first = messages[0].content
    check_alike(messages, "strategy")
    try:
        arrays = only_arrays(first)
    except ValueError as error:
        raise ConfigError(f"the strategy's message: {error}") from None
    name = next(iter(first.array_records))
    return RecordDict({**first, name: with_integers(arrays, integers)})


def check_alike(messages: Sequence[Message], sender: str) -> None:
    """Refuse messages whose records differ.

    Parameters
    ----------
    messages : sequence of flwr.app.Message
        Of one call.
    sender : str
        Whose they are, for the message.

    Raises
    ------
    ConfigError
        If they do, or hold what no digest knows.
    """
    contents = {id(message.content): message.content for message in messages}
    try:
        digests = {records_digest(rebuilt(content)) for content in contents.values()}
    except ValueError as error:
        raise ConfigError(f"the {sender}'s message: {error}") from None
    if len(digests) > 1:
        raise ConfigError(
            f"the {sender} sends its nodes different messages: a private sum asks everybody the "
            "same, in the same order"
        )


def cohort_of(
    messages: Sequence[Message], by_index: Mapping[int, int], sender: str
) -> tuple[int, ...]:
    """Return who is asked, by index.

    Parameters
    ----------
    messages : sequence of flwr.app.Message
        Of one call.
    by_index : mapping of int to int
        Nodes that take part, by client.
    sender : str
        Whose messages they are, for the message.

    Returns
    -------
    tuple of int
        Roster indices, ascending.

    Raises
    ------
    ConfigError
        If a node is asked twice, or takes no part.
    """
    index_of = {node: index for index, node in by_index.items()}
    nodes = [message.metadata.dst_node_id for message in messages]
    unknown = [node for node in nodes if node not in index_of]
    if unknown or len(set(nodes)) < len(nodes):
        raise ConfigError(
            f"the {sender} asks nodes {unknown or nodes}: each that grid.get_node_ids() names at "
            "most once"
        )
    return tuple(sorted(index_of[node] for node in nodes))


def with_integers(arrays: ArrayRecord, integers: Mapping[str, np.dtype[Any]]) -> ArrayRecord:
    """Return arrays in which those that began as integers are integers again.

    Parameters
    ----------
    arrays : flwr.app.ArrayRecord
        Of a strategy, whose average makes floats of all.
    integers : mapping of str to numpy.dtype
        As :func:`integers_of` returned them.

    Returns
    -------
    flwr.app.ArrayRecord
        The same, if none changed.
    """
    kept = {
        name: Array(np.asarray(np.rint(arrays[name].numpy()), dtype=dtype))
        for name, dtype in integers.items()
        if name in arrays and arrays[name].numpy().dtype != dtype
    }
    return ArrayRecord({**arrays, **kept}) if kept else arrays
