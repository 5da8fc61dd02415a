"""Define blocks, and how far one unit of privacy moves the sums of a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zerosum.client.queries.errors import QueryError

Unit = Literal["record", "client"]
Adjacency = Literal["zero_out", "replace"]


@dataclass(frozen=True)
class Block:
    """A part of a query's vector to which a record adds a bounded weight.

    Parameters
    ----------
    cells : int
        Its coordinates.
    weight : int
        Most that one record adds to all cells together: non-negative integers.
    """

    cells: int
    weight: int


def dimension(blocks: Sequence[Block]) -> int:
    """Return the length of a vector of these blocks."""
    return sum(block.cells for block in blocks)


def moves(
    blocks: Sequence[Block], *, unit: Unit, adjacency: Adjacency, cap: int | None
) -> tuple[int, ...]:
    """Return the one-coordinate moves whose composition bounds a query's privacy.

    Under `zero_out` a unit's weights are there or not: one move of the block's weight. Under
    `replace` the cells that rise and those that fall each move by at most the weight, under
    independent noise: two moves, or one where the block is a single cell
    (docs/design/analytics.md, "Accounting").

    Parameters
    ----------
    blocks : sequence of Block
    unit : {"record", "client"}
        Of privacy.
    adjacency : {"zero_out", "replace"}
    cap : int or None
        Most records that a client adds; needed under unit `client`.

    Returns
    -------
    tuple of int
        In integer units, each at least 1.

    Raises
    ------
    QueryError
        If a client's records have no cap.
    """
    records = 1
    if unit == "client":
        if cap is None or cap < 1:
            raise QueryError('unit = "client" needs cap, the most records a client adds: cap = 1')
        records = cap
    found: list[int] = []
    for block in blocks:
        twice = adjacency == "replace" and block.cells > 1
        found.extend([records * block.weight] * (2 if twice else 1))
    return tuple(found)
