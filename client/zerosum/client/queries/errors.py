"""Define the error of a query that cannot be asked or answered."""

from zerosum.client.user_error import UserError


class QueryError(UserError, ValueError):
    """A query, schema or table is refused: one line that names the key, the value and the cure."""
