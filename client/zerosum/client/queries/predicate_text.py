"""Read the text of a predicate."""

from zerosum.client.queries.predicate_tree import Predicate
from zerosum.client.queries.schema import Schema


def parse(text: str, schema: Schema) -> Predicate:
    """Read a predicate."""
    raise NotImplementedError
