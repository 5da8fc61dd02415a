"""Define ``[policy.app_queries]``: which sums of an app's own values a node answers."""

from typing import Annotated, Literal

from pydantic import Field

from zerosum.client.spec.section import PositiveInt, Spec


class AppQueryPolicy(Spec):
    """Sums of what a Flower app's `query` function returns; without this section none is answered.

    What is computed is the app that stands there, as in training: columns and kinds of query are
    not known here.
    """

    units: Annotated[list[Literal["record", "client"]], Field(min_length=1)] = ["client"]
    """Units of privacy that this node is content with. `client`: it clips all that it sends to \
what the request declares. `record`: what one record changes is what the request declares, on the \
word of whoever wrote the app, and nobody can check it."""
    max_epsilon_per_query: Annotated[float, Field(gt=0, allow_inf_nan=True)]
    """Largest epsilon of one private sum, for the unit and adjacency that it names, at \
`budget_delta` where it is not pure. `inf`: no limit but `max_epsilon`."""
    max_cells: PositiveInt = 1 << 20
    """Most numbers of one private sum."""
    adjacency: Annotated[list[Literal["zero_out", "replace"]], Field(min_length=1)] = [
        "zero_out",
        "replace",
    ]
    """Adjacencies that this node is content with: one unit adds nothing, or is another."""
