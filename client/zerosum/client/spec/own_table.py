"""Define ``[table]``: the file that a node answers queries from."""

from typing import Annotated

from pydantic import Field

from zerosum.client.spec.section import Spec


class OwnTable(Spec):
    """The node's table, in a file of its own."""

    path: Annotated[str, Field(min_length=1)]
    """CSV with a header line in UTF-8, or Parquet where it ends in `.parquet`; from the folder of \
the file that says so, where it is relative."""
    rename: dict[str, str] = Field(default_factory=dict)
    """The file's names of columns by the schema's, where they differ."""
