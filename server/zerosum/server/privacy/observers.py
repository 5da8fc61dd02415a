"""The three observers of a run, in one order and under one name each, wherever they are shown.

The order is by what an observer sees, least first: outsiders see models, the server sees sums, a
server without masks sees single contributions. Terminal, report, plan and budget all read this
table, so that an epsilon is never set beside somebody else's description.
"""

from collections.abc import Mapping
from typing import Final, Literal, get_args

ObserverName = Literal["release", "sum", "local"]

OBSERVERS: Final[tuple[ObserverName, ...]] = get_args(ObserverName)

SEES: Final[Mapping[ObserverName, str]] = {
    "release": "the released models, nothing of cohorts, rosters or survivors",
    "sum": "each round's sum, and who was in it",
    "local": "each contribution of one client, by itself",
}
"""What each observer sees, under any protocol."""

_WHO: Final[Mapping[str, Mapping[ObserverName, str]]] = {
    "pairwise": {
        "release": "outsiders, who see the models",
        "sum": "the server and fellow clients, while masks hold",
        "local": "the server, masks broken",
    },
    "ideal": {
        "release": "outsiders, who see the models",
        "sum": "whoever gets the trusted sum: no masks in this simulation",
        "local": "whoever sees one contribution",
    },
    "none": {
        "release": "outsiders, who see the models",
        "sum": "someone who sees sums alone, as the server of this run does not",
        "local": "the server, which sees each contribution: no masks",
    },
}
"""Who the observer is under a value of ``secagg.protocol``."""


def observer_who(observer: ObserverName, protocol: str) -> str:
    """Return who an observer is under ``secagg.protocol``.

    Parameters
    ----------
    observer : str
        One of ``OBSERVERS``.
    protocol : str
        "pairwise", "ideal" or "none".

    Returns
    -------
    str
        Without an article of its own, to stand in a table.
    """
    return _WHO[protocol][observer]


def observer_title(observer: ObserverName, protocol: str) -> str:
    """Return the heading of an observer's epsilon: the name of the figure, and who it is.

    Parameters
    ----------
    observer, protocol : str
        As for :func:`observer_who`.

    Returns
    -------
    str
        As "epsilon_release (outsiders, who see the models)".
    """
    return f"epsilon_{observer} ({observer_who(observer, protocol)})"
