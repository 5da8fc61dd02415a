"""Define ``[policy.queries]``: which queries of its table a node answers."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from zerosum.client.spec.section import PositiveInt, Spec

QueryKind = Literal[
    "count",
    "histogram",
    "mean",
    "sum",
    "variance",
    "quantile",
    "bayes",
    "words",
    "marginals",
    "oracle",
]

ALL_KINDS: list[QueryKind] = list(get_args(QueryKind))


class QueryPolicy(Spec):
    """Queries that this node answers; without this section it answers none."""

    columns: Annotated[list[str], Field(min_length=1)] | Literal["any"]
    """Columns of the table that a query may read, in its filter too. `any`: all of them."""
    kinds: Annotated[list[QueryKind], Field(min_length=1)] = ALL_KINDS
    """Kinds of query that are answered."""
    units: Annotated[list[Literal["record", "client"]], Field(min_length=1)] = ["record"]
    """Units of privacy that this node is content with. Where `record` is among them, \
`max_epsilon` is that of one record, and what protects the client as a whole, training too, is \
charged at its cost for one record, which can turn its vector into any other; else `max_epsilon` \
is the client's."""
    max_epsilon_per_query: Annotated[float, Field(gt=0, allow_inf_nan=True)]
    """Largest epsilon of one private sum, for the unit and adjacency that it names, at \
`budget_delta` where it is not pure. A query of `words` takes several sums. `inf`: no limit but \
`max_epsilon`."""
    max_cells: PositiveInt = 1 << 20
    """Most cells of one private sum."""
    max_records: PositiveInt = 1 << 20
    """Most records of this node that one private sum may count."""
    adjacency: Annotated[list[Literal["zero_out", "replace"]], Field(min_length=1)] = [
        "zero_out",
        "replace",
    ]
    """Adjacencies that this node is content with: one unit adds nothing, or is another."""
