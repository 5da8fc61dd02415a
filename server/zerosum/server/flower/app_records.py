"""The records that a strategy sends its clients: the same to all, with a model among them."""

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
    others = {id(message.content): message.content for message in messages}
    try:
        digests = {records_digest(rebuilt(content)) for content in others.values()}
        arrays = only_arrays(first)
    except ValueError as error:
        raise ConfigError(f"the strategy's message: {error}") from None
    if len(digests) > 1:
        raise ConfigError(
            "the strategy sends its clients different messages: a private sum asks everybody "
            "the same, in the same order"
        )
    name = next(iter(first.array_records))
    return RecordDict({**first, name: with_integers(arrays, integers)})


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
