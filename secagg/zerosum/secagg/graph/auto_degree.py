"""The graph of ``secagg.degree = "auto"``: the smallest safe one that chance seldom ends."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from zerosum.secagg.errors import NoFeasibleGraph
from zerosum.secagg.graph.failure_bounds import SECURITY
from zerosum.secagg.graph.parameters import GraphParameters, graph_parameters, server_mode
from zerosum.secagg.stages import ServerMode

# From so many clients on the complete graph costs too much whatever else speaks for it.
LARGE = 500

# Below so many clients ``auto`` takes the complete graph. A sparse one costs half or less at any
# size, but is made for floor(dropout x n) dropouts, and more may come by chance. Where each client
# drops out at the assumed rate of 0.1, sparse sessions of 50, 80, 100 and 200 end without a sum at
# most once in 9, 60, 300 and 5,000 times, where the complete graph does so in none of 100,000. A
# semi-honest server's sparse graph is connected for floor(dropout x n) dropouts and no more, so
# that nearly every other session ends: it waits until the complete graph costs too much.
COMPLETE_BELOW: Final[Mapping[ServerMode, int]] = MappingProxyType(
    {ServerMode.MALICIOUS: 80, ServerMode.SEMI_HONEST: LARGE}
)

# The least dropout that a sparse graph below LARGE is made for. Made for none, 100 clients have 8
# neighbours whose 8 shares are all needed: one that lies, or vanishes, ends the session. Made for
# 0.1 they have 26 to 31, and as many liars as are assumed are located and named.
LEAST_DROPOUT = 0.1


def auto_parameters(
    n: int,
    dropout: float,
    corruption: float,
    server: str = "malicious",
    roster: int | None = None,
    *,
    security: float = SECURITY,
) -> GraphParameters:
    """Return the graph of ``secagg.degree = "auto"``: the smallest safe one that is robust.

    Parameters
    ----------
    n : int
    dropout, corruption : float
    server : str
    roster : int, optional
    security : float
        All as for :func:`graph_parameters`.

    Returns
    -------
    GraphParameters
        Complete below the server's ``COMPLETE_BELOW``, and where no sparse graph can do. Below
        ``LARGE`` a sparse one stands at least ``LEAST_DROPOUT``.

    Raises
    ------
    NoFeasibleGraph, LocalProtocolError
        As :func:`graph_parameters`.
    """
    of = partial(
        graph_parameters, n, corruption=corruption, server=server, roster=roster, security=security
    )
    if n >= LARGE:
        return of(dropout)
    if n >= COMPLETE_BELOW[server_mode(server)]:
        try:
            sparse = of(max(dropout, LEAST_DROPOUT))
        except NoFeasibleGraph:
            return of(dropout, complete_below=LARGE)
        if not sparse.complete:
            return sparse
    return of(dropout, complete_below=LARGE)
