"""The file of a federation's queries: data and domains, the budget, and what is asked.

``zerosum query PLAN`` reads one; the folder of queries keeps one, resolved, as ``queries.toml``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import tomli_w
from pydantic import Field, ValidationError

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.client.nearest_word import did_you_mean
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import Adjacency, Unit
from zerosum.client.queries.schema import (
    CategoryColumn,
    Column,
    IntegerColumn,
    NumberColumn,
    Schema,
)
from zerosum.client.request import MAX_RECORDS
from zerosum.client.spec import Fraction, PositiveInt, Spec
from zerosum.client.spec.complaints import first_complaint
from zerosum.client.spec.query_privacy import LEAST_HONEST_FRACTION
from zerosum.server.analytics.asks import Rule
from zerosum.server.analytics.drafts import Draft
from zerosum.server.spec import DeploymentSpec

DEFAULT_DELTA: Final = 1e-6


class BudgetSpec(Spec):
    """What all queries together may cost."""

    epsilon: Annotated[float, Field(gt=0)]
    """Against the observer, at delta."""
    delta: Annotated[float, Field(ge=0, lt=1)] = DEFAULT_DELTA
    """Below one over the population, unless `allow_large_delta`."""
    rule: Rule = "sum"
    """How costs add up, fixed when the budget is opened. `plan`: the file's queries, composed \
exactly. `sum`: epsilons add up, geometric noise alone. `renyi`: divergences at one order, for \
many queries."""
    observer: Literal["sum", "release"] = "sum"
    """Whom the budget is held against: the server and fellow clients, or outsiders who see \
answers."""
    unit: Unit = "record"
    """What is protected: one record, or all of a client's."""
    adjacency: Adjacency = "zero_out"
    """Whether the neighbour's part is nothing, or something else."""
    allow_large_delta: bool = False
    """Take a delta that would let one record be shown whole."""


class QueryPlan(Spec):
    """Everything but the schema and the queries, which have notations of their own."""

    data: str | None = None
    """CSV or Parquet file that a simulation deals to its clients."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Columns that are called otherwise in the file: `age = "AGE_YEARS"`."""
    clients: Annotated[int, Field(ge=2, lt=2**31)] | None = None
    """Clients of a simulation: rows are dealt to them by the seed. Of a deployment: its nodes."""
    by: str | None = None
    """Column of the file whose values are the clients, in place of `clients`."""
    seed: int = 0
    """Of rows, dropouts and noise: whoever knows it can take the noise off again."""
    protocol: Literal["ideal", "pairwise"] = "ideal"
    """`pairwise`: masked sums, as in a deployment. `ideal`: a trusted sum, the same answers."""
    server: Literal["malicious", "semi-honest"] = "malicious"
    """The server that masked sums withstand."""
    dropout: Fraction = 0.0
    """Part of the clients that vanish in a sum of the simulation."""
    corruption: Fraction = 0.0
    """Part of the roster that may collude with the server: as much as the nodes' policies say."""
    honest_fraction: Annotated[float, Field(ge=LEAST_HONEST_FRACTION, le=1)] = 0.8
    """Part of the clients whose noise makes the guarantee; the others' may be missing."""
    cap: PositiveInt | None = None
    """Under unit = "client": records of a client that count."""
    max_records: PositiveInt = MAX_RECORDS
    """Records of a client that count at most, a public bound."""
    records: PositiveInt | None = None
    """Records of all clients together, where that is public."""
    budget: BudgetSpec
    fingerprint: str | None = None
    """SHA-256 of the data, in a folder of queries."""
    deployment: DeploymentSpec | None = None
    """Roster, authority and time limits of deployed nodes, which hold their own tables."""


@dataclass(frozen=True)
class PlanFile:
    """A plan with its schema and queries.

    Attributes
    ----------
    plan : QueryPlan
        Settings.
    domains : Schema
        The declared domains.
    queries : tuple of Draft
        In order.
    """

    plan: QueryPlan
    domains: Schema
    queries: tuple[Draft, ...] = ()

    def changed(self, **settings: Any) -> "PlanFile":
        """Return it with other settings."""
        return replace(self, plan=self.plan.model_copy(update=settings))


def parse_plan(document: Mapping[str, Any], where: str) -> PlanFile:
    """Read a plan's tables.

    Parameters
    ----------
    document : mapping
        As TOML has it.
    where : str
        The file, for messages.

    Returns
    -------
    PlanFile
        Each query is in the schema's notation; none was read by it yet.

    Raises
    ------
    QueryError
        One line with the key, its value and what is allowed.
    """
    settings = {k: v for k, v in document.items() if k not in ("schema", "queries")}
    section = document.get("schema")
    if not isinstance(section, Mapping) or not section:
        raise QueryError(f"{where}: no column in a section [schema]; see zerosum schema DATA")
    written = document.get("queries", [])
    if not isinstance(written, list) or not all(isinstance(each, Mapping) for each in written):
        raise QueryError(f"{where}: queries are tables, each under [[queries]]")
    plan = plan_of(settings, f"{where}: ")
    drafts = tuple(
        Draft.read(each, at=f"{where}, query {number}: ") for number, each in enumerate(written, 1)
    )
    return PlanFile(plan=plan, domains=Schema.of(section), queries=drafts)


def plan_of(settings: Mapping[str, Any], where: str = "") -> QueryPlan:
    """Read the settings of a plan.

    Parameters
    ----------
    settings : mapping
        All but its schema and queries.
    where : str
        Begins the message of what is wrong.

    Returns
    -------
    QueryPlan
        With every default.

    Raises
    ------
    QueryError
        For the first thing that is wrong, naming its key.
    """
    try:
        return QueryPlan.model_validate(settings)
    except ValidationError as error:
        raise QueryError(f"{where}{_explained(error)}") from None


def read_plan(path: str | Path) -> PlanFile:
    """Read a plan from a TOML file.

    Parameters
    ----------
    path : str or Path
        With ``[budget]``, ``[schema]`` and ``[[queries]]``.

    Returns
    -------
    PlanFile
        As :func:`parse_plan`.

    Raises
    ------
    QueryError
        If it cannot be read, or something in it is wrong.
    """
    return parse_plan(read_document(path), str(path))


def read_document(path: str | Path) -> dict[str, Any]:
    """Read the tables of a TOML file.

    Parameters
    ----------
    path : str or Path
        Of the file.

    Returns
    -------
    dict
        Its tables.

    Raises
    ------
    QueryError
        If it cannot be read, or is not TOML.
    """
    try:
        return read_toml(path)
    except TomlError as error:
        raise QueryError(str(error)) from None


def plan_toml(file: PlanFile) -> str:
    """Write a plan as TOML that :func:`parse_plan` reads back to the same."""
    settings = file.plan.model_dump(mode="json", exclude_none=True)
    settings = {name: value for name, value in settings.items() if value != {}}
    # By hand: a TOML writer puts lists before tables, and the order of columns is the schema's.
    columns = file.domains.columns.items()
    schema = "".join(f"{_inline(name)} = {_inline(notation(column))}\n" for name, column in columns)
    text = f"{tomli_w.dumps(settings)}\n[schema]\n{schema}"
    for draft in file.queries:
        lines = (f"{_inline(key)} = {_inline(value)}\n" for key, value in draft.values().items())
        text += "\n[[queries]]\n" + "".join(lines)
    return text


def notation(column: Column) -> Any:
    """Return a domain as a ``[schema]`` section writes it."""
    if isinstance(column, CategoryColumn):
        return list(column.values)
    if isinstance(column, IntegerColumn | NumberColumn):
        bins = {} if column.bins is None else {"bins": column.bins}
        return {str(column.kind): [column.low, column.high], **bins}
    # A hyphen between two characters is a range; at the end it is a hyphen.
    letters = column.alphabet.replace("-", "") + "-" * ("-" in column.alphabet)
    return {"text": column.length, "alphabet": letters}


def _inline(value: object) -> str:
    """Return a value as TOML writes it in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _explained(error: ValidationError) -> str:
    first = first_complaint(error)
    path, key = first.path, first.key
    if first.kind == "extra_forbidden":
        sections: dict[str, type[Spec]] = {"budget": BudgetSpec, "deployment": DeploymentSpec}
        model = sections.get(path[0], QueryPlan) if len(path) > 1 else QueryPlan
        known = list(model.model_fields)
        hint = did_you_mean(path[-1], known) or f": there are {', '.join(known)}"
        return f"unknown key {key} = {first.value!r}{hint}"
    if first.kind == "missing":
        cure = " write [budget] with epsilon = 1.0" if path[0] == "budget" else " write it"
        return f"{key} is missing:{cure}"
    return str(first)
