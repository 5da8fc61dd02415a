"""Queries as a person writes them, before a schema gives their words a meaning.

One notation for a table of ``[[queries]]``, for the options of ``zerosum query`` and for the
functions of ``zerosum.analytics``: a kind, its fields, a filter in words, and what it may cost.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from pydantic import ValidationError

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import KINDS, QUERY, Query
from zerosum.client.queries.schema import Schema
from zerosum.client.spec.complaints import first_complaint
from zerosum.server.analytics.asks import Ask, MechanismChoice, check_epsilon

_OWN: Final = ("epsilon", "name", "mechanism", "fresh", "attempts", "where")
"""Keys of a query that are not of its kind."""

_RESOLVED: Final = ("kind", "where", "weight")
"""Fields of a query that nobody writes as they are: they are chosen, or come of words."""


def _fields() -> dict[str, tuple[str, ...]]:
    """Return the fields of each kind of query, from its class."""
    found: dict[str, tuple[str, ...]] = {}
    for model in get_args(get_args(Query)[0]):
        fields = tuple(name for name in model.model_fields if name not in _RESOLVED)
        for kind in get_args(model.model_fields["kind"].annotation):
            found[kind] = fields
    return found


FIELDS: Final = _fields()
"""The fields of each kind of query that a person writes."""


@dataclass(frozen=True)
class Draft:
    """A query in words, with what it may cost.

    Attributes
    ----------
    kind : str
        As ``count``.
    epsilon : float
        What it may cost.
    fields : mapping
        Of its kind, in plain values: ``column``, ``columns``, ``q`` and the like.
    where : str or None
        A filter, as ``age >= 65 and sex = "Female"``.
    name : str
        Of the answer's file; empty: made of the query.
    mechanism : str
        "geometric", "skellam" or "auto".
    fresh : bool
        Whether a new answer is paid for where one is stored.
    attempts : int
        In a plan: how often its sums may be charged, if too few clients are left the first time.

    Raises
    ------
    QueryError
        If one of the latter is of another type, or out of range.
    """

    kind: str
    epsilon: float
    fields: Mapping[str, Any] = field(default_factory=dict)
    where: str | None = None
    name: str = ""
    mechanism: MechanismChoice = "auto"
    fresh: bool = False
    attempts: int = 1

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        for key, type_ in (("where", str), ("name", str), ("mechanism", str), ("fresh", bool)):
            value = getattr(self, key)
            if not isinstance(value, type_) and (key, value) != ("where", None):
                raise QueryError(f"{key} = {value!r}: write a {_TYPES[type_]}")
        attempts = self.attempts
        if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= 100:
            raise QueryError(f"attempts = {attempts!r}: write 1 to 100")

    @classmethod
    def read(cls, written: Mapping[str, Any], *, at: str = "") -> "Draft":
        """Read a table of ``[[queries]]``.

        Parameters
        ----------
        written : mapping
            As TOML has it.
        at : str
            Begins the message of what is wrong, as ``"plan.toml, query 2: "``.

        Returns
        -------
        Draft
            Not yet read with a schema.

        Raises
        ------
        QueryError
            If a key is unknown, missing, or of another type.
        """
        kind = str(written.get("kind"))
        if kind not in KINDS:
            hint = did_you_mean(kind, KINDS) or f": there are {', '.join(KINDS)}"
            raise QueryError(f"{at}kind = {written.get('kind')!r} is no kind of query{hint}")
        own = {key: written[key] for key in _OWN if key in written}
        fields = {k: v for k, v in written.items() if k not in own and k != "kind"}
        for key in fields:
            if key not in FIELDS[kind]:
                known = (*FIELDS[kind], *_OWN)
                hint = did_you_mean(key, known) or f": a {kind} has {', '.join(known)}"
                raise QueryError(f"{at}unknown key {key} = {fields[key]!r}{hint}")
        if "epsilon" not in own:
            raise QueryError(f"{at}epsilon is missing: write what it may cost, as epsilon = 0.1")
        try:
            return cls(kind, fields=fields, **own)
        except QueryError as error:
            raise QueryError(f"{at}{error}") from None

    def values(self) -> dict[str, Any]:
        """Return the table that :meth:`read` reads back, without what is a default."""
        default = Draft(self.kind, self.epsilon)
        own = {key: getattr(self, key) for key in _OWN}
        written = {k: v for k, v in own.items() if k == "epsilon" or v != getattr(default, k)}
        return {"kind": self.kind, **self.fields, **written}

    def ask(self, schema: Schema) -> Ask:
        """Return the question, with its words read by a schema.

        Parameters
        ----------
        schema : Schema
            The declared domains.

        Returns
        -------
        Ask
            Checked against them.

        Raises
        ------
        QueryError
            One line: what is wrong, and what is allowed.
        """
        where = None if self.where is None else parse(self.where, schema)
        values = {
            "kind": self.kind,
            "where": None if where is None else where.model_dump(mode="json"),
            **self.fields,
        }
        try:
            # From JSON, which has lists where a query has tuples.
            query = QUERY.validate_json(json.dumps(values))
        except (ValidationError, TypeError, ValueError) as error:
            raise QueryError(f"{self.kind}: {_first(error)}") from None
        query.check(schema)
        return Ask(query, self.epsilon, self.name, self.mechanism, self.fresh)


_TYPES: Final = {str: 'text, as "..."', bool: "true or false"}


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = first_complaint(error)
    return str(replace(first, path=first.path[1:]))  # without the kind of query, which is said
