"""Define the error of a query that cannot be asked or answered."""


class QueryError(ValueError):
    """A query, schema or table is refused: one line that names the key, the value and the cure."""
