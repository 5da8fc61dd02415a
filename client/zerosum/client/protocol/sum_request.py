"""A request for sums of an app's values: integers of declared size, as a query's cells are."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from zerosum.client.queries.declared_sums import SumQuestion, dimension_of, moves_of
from zerosum.client.queries.moves import Adjacency
from zerosum.client.request import CountEncoding, Request


@dataclass(frozen=True)
class SumRequest(Request):
    """A question about an app's values.

    Parameters
    ----------
    question : SumQuestion
        What is summed, and how it is protected.
    payload : bytes
        Empty.
    """

    question: SumQuestion
    payload_dtype: ClassVar[str] = "uint8"

    @property
    def dimension(self) -> int:
        """Numbers of all sums."""
        return dimension_of(self.question.sums)

    @cached_property
    def encoding(self) -> CountEncoding:
        """The largest coordinate in integer units, and a unit's moves."""
        sums, privacy = self.question.sums, self.question.privacy
        return CountEncoding(
            max(one.bound for one in sums),
            moves_of(sums, privacy.adjacency),
            signed=any(one.kind == "reals" for one in sums),
        )

    def replaced(self) -> tuple[int, ...]:
        """Return the moves of a unit that is replaced by another."""
        adjacency: Adjacency = "replace"
        return moves_of(self.question.sums, adjacency)
