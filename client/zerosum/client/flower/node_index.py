"""A node's index in the roster, as its owner may have written it."""

from typing import Final

from flwr.app import UserConfig

from zerosum.client.protocol.admission import Declined

KEY: Final = "partition-id"

LIMIT: Final = 2**63
"""Indices are below it: records of Flower's messages hold signed integers of 64 bits."""

_MOST_DIGITS = 19
"""Of a number below the limit. Python refuses to read some thousands, in words of its own."""


def node_index(config: UserConfig) -> int:
    """Read which client a node is.

    Parameters
    ----------
    config : dict
        Of the node. A whole number, or its decimal digits: quotes in a shell come and go.

    Returns
    -------
    int
        From 0 on.

    Raises
    ------
    Declined
        If there is none, or it is no index.
    """
    value = config.get(KEY)
    index = value
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        index = int(value) if len(value) <= _MOST_DIGITS else LIMIT
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < LIMIT:
        found = f"= {value!r} is not a roster index" if KEY in config else "is missing"
        raise Declined(
            f"node config {KEY} {found}: start the node with its own whole number, from 0 on, as "
            f"in --node-config '{KEY}=0'"
        )
    return index
