"""Errors that stand for replies: which of them time heals, and which Flower itself gives."""

import re
from typing import Final

from flwr.app import Error

from zerosum.client.protocol import flower_messages

_AWAY: Final = frozenset({3, 4, 5})
"""Flower's codes for a message, a reply or a node that is not there: nobody refused."""

_UNREGISTERED: Final = re.compile(r"No (\w+) function registered with name '(\w+)'")
TRAINING_LOOP: Final = (
    "a loop that trains is no query: a strategy trains in its place, as "
    "PrivateStrategy(FedAvg(), clip=1.0, noise_multiplier=2.0, delta=1e-3).start(grid, arrays)"
)
"""What is right for a ServerApp without a strategy, which PrivateQueries cannot serve."""

_DEFAULT: Final = "default"
"""Name that Flower gives a function without one."""


def heals(error: Error) -> bool:
    """Return whether an error may pass: a node is away or busy, and has refused nothing.

    Parameters
    ----------
    error : flwr.app.Error
        In place of a reply's content.

    Returns
    -------
    bool
        False of a refusal, and of an app that raised.
    """
    return error.code in _AWAY or flower_messages.BUSY in (error.reason or "")


def unregistered(reason: str | None) -> str | None:
    """Return what to do where Flower found no function for a message's type; else None.

    Flower looks for it before any mod has its turn: nothing of ours is there to answer.

    Parameters
    ----------
    reason : str or None
        Of an error.

    Returns
    -------
    str or None
        In one line.
    """
    found = _UNREGISTERED.search(reason or "")
    if found is None:
        return None
    category, name = found.groups()
    bare = name == _DEFAULT
    decorator = f"@app.{category}()" if bare else f'@app.{category}("{name}")'
    cure = f"add {decorator}"
    if bare:
        cure += (
            ", or write PrivateClientApp() of zerosum.client for ClientApp(mods=[private_mod]): it "
            "answers hello whatever its functions are called"
        )
    if bare and category == "query":
        cure += (
            ', or name one that it has, as PrivateQueries(..., message_type="query.count"); '
            f"{TRAINING_LOOP}"
        )
    sent = category if bare else f"{category}.{name}"
    return (
        f"the ClientApp has no {decorator}, and messages of type {sent!r} are refused by Flower "
        f"before private_mod sees them: {cure}"
    )
