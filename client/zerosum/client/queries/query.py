"""Define the queries: what a federation may be asked, as data."""

from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field, TypeAdapter, field_validator

from zerosum.client.queries import words
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import Block, dimension
from zerosum.client.queries.predicate import Predicate, check_predicate, columns_of, is_small
from zerosum.client.queries.predicate_tree import MOST_DEPTH, MOST_LEAVES
from zerosum.client.queries.schema import (
    CategoryColumn,
    IntegerColumn,
    NumberColumn,
    Schema,
    TextColumn,
)
from zerosum.client.spec.query_policy import QueryKind
from zerosum.client.spec.section import Spec

MOST_COLUMNS = 4
"""Columns of one cross-tabulation."""

MAX_CELLS = 1 << 20
"""Longest vector of a query, unless a policy says otherwise."""

LEVELS = 3
"""Levels of the quantile tree below its root."""

FAN_OUT = 16
"""Children of a node of the quantile tree."""

LEAVES = FAN_OUT**LEVELS
"""Leaves of the quantile tree: 4,096."""

LEAST_WEIGHT, MOST_WEIGHT = 1 << 6, 1 << 30
"""Bounds of the weight K that Bernstein cells are multiplied by: below the least, rounding shows
whatever the noise; sums of more than the most do not fit into a ring of 64 bits."""

LEAST_RANGE = 1e-30
"""Least distance of a column's bounds for a variance: its square is no 0 in float64, as that of
MOST_NUMBER is not infinite."""

Columns = Annotated[tuple[str, ...], Field(max_length=MOST_COLUMNS)]
OracleKind = Literal["rr", "k-rr", "oue", "olh", "hadamard"]


class _Base(Spec):
    """What all queries have."""

    where: Predicate | None = None
    """Rows that count; all of them where it is left out."""

    @field_validator("where")
    @classmethod
    def _is_small(cls, where: Predicate | None) -> Predicate | None:
        if where is not None and not is_small(where):
            raise ValueError(
                f"a filter has at most {MOST_DEPTH} levels and {MOST_LEAVES} comparisons"
            )
        return where

    @property
    def asked(self) -> tuple[str, ...]:
        """The columns that the query counts, apart from its filter's."""
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """All columns that the query reads, its filter's too, each once."""
        filtered = () if self.where is None else columns_of(self.where)
        return tuple(dict.fromkeys((*self.asked, *filtered)))

    def blocks(self, schema: Schema, payload: bytes = b"") -> tuple[Block, ...]:
        """Return the blocks of the query's vector.

        Parameters
        ----------
        schema : Schema
        payload : bytes
            Of `words` alone: the surviving prefixes, newline-joined UTF-8; empty in round one.

        Returns
        -------
        tuple of Block

        Raises
        ------
        QueryError
            If the query does not fit the schema, or is not resolved.
        """
        return self._blocks(schema, payload)

    def rounds(self, schema: Schema) -> int:
        """Return the number of private sums that answer the query."""
        self.check(schema)
        return 1

    def check(self, schema: Schema, *, payload: bytes = b"", max_cells: int = MAX_CELLS) -> None:
        """Refuse a query that does not fit the schema.

        Both sides call it: the analyst before anything is sent, a client before it reads a row.
        A `weight` or oracle that is still to be resolved passes; `blocks` and `encode` refuse it.

        Parameters
        ----------
        schema : Schema
        payload : bytes
            As in `blocks`.
        max_cells : int
            Longest vector allowed.

        Raises
        ------
        QueryError
            One line with the key, its value and the cure.
        """
        if self.where is not None:
            check_predicate(self.where, schema)
        self._check(schema)
        if payload and not isinstance(self, Words):
            raise QueryError("a payload of prefixes belongs to words alone")
        cells = self._most_cells(schema, payload)
        if cells > max_cells:
            raise QueryError(
                f"{self._name} has {cells:,} cells and max_cells is {max_cells:,}: "
                "ask of fewer columns, or of smaller domains"
            )

    @property
    def _name(self) -> str:
        return str(self.kind)  # type: ignore[attr-defined]

    def _check(self, schema: Schema) -> None:
        """Refuse what is wrong with this kind."""

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        raise NotImplementedError

    def _cells(self, schema: Schema, payload: bytes) -> int:
        return dimension(self._blocks(schema, payload))

    def _most_cells(self, schema: Schema, payload: bytes) -> int:
        """Return the cells of this round or, where it is the first of several, of the largest."""
        return self._cells(schema, payload)


class Count(_Base):
    """The number of records."""

    kind: Literal["count"] = "count"

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        """Return one cell of weight 1."""
        return (Block(1, 1),)


class Histogram(_Base):
    """The number of records in each cell of up to four columns' product.

    The cells are in row-major order of `asked`: the last column varies fastest.
    """

    kind: Literal["histogram"] = "histogram"
    columns: Annotated[Columns, Field(min_length=1)]
    by: Columns = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """The columns, then those they are split by."""
        return (*self.columns, *self.by)

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        """Return one block: the product of the domains."""
        return (Block(_product(schema, self.asked), 1),)

    def _check(self, schema: Schema) -> None:
        _check_product(schema, self.asked, self._name)


class Moments(_Base):
    """The mean, sum or variance of a column, from its Bernstein cells.

    With u = (x - low)/(high - low) the cells of order o are C(o, j) u^j (1-u)^(o-j), times
    `weight`, rounded to integers that sum to it.
    """

    kind: Literal["mean", "sum", "variance"]
    column: str
    weight: int | None = None
    """K, a power of two; left out until it is calibrated."""

    @property
    def order(self) -> int:
        """Degree of the polynomials: 2 for a variance."""
        return 2 if self.kind == "variance" else 1

    @property
    def asked(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        """Return one block of `order` + 1 cells."""
        if self.weight is None:
            raise QueryError(f"{self.kind}: weight is not resolved; calibrate it first")
        return (Block(self.order + 1, self.weight),)

    def _check(self, schema: Schema) -> None:
        column = _check_ranged(schema, self.column, self._name)
        if self.kind == "variance" and column.high - column.low < LEAST_RANGE:
            raise QueryError(
                f'variance: column "{self.column}" is narrower than {LEAST_RANGE:g}: write it in a '
                "smaller unit"
            )
        weight = self.weight
        if weight is not None and (
            not LEAST_WEIGHT <= weight <= MOST_WEIGHT or weight & (weight - 1)
        ):
            raise QueryError(
                f"{self.kind}: weight = {weight} is no power of two from "
                f"{LEAST_WEIGHT} to {MOST_WEIGHT}"
            )

    def _cells(self, schema: Schema, payload: bytes) -> int:
        return self.order + 1


class Quantile(_Base):
    """Quantiles of a column, from a tree of 4,096 leaves."""

    kind: Literal["quantile"] = "quantile"
    column: str
    q: Annotated[tuple[float, ...], Field(min_length=1, max_length=1024)]

    @property
    def asked(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        """Return one block a level, from 16 cells to the leaves."""
        return tuple(Block(FAN_OUT**level, 1) for level in range(1, LEVELS + 1))

    def _check(self, schema: Schema) -> None:
        _check_ranged(schema, self.column, self._name)
        for q in self.q:
            if not 0 < q < 1:
                raise QueryError(f"quantile: q = {q:g} is not strictly between 0 and 1")


class Bayes(_Base):
    """A naive Bayes classifier: each feature tabulated with the label."""

    kind: Literal["bayes"] = "bayes"
    label: str
    features: Annotated[tuple[str, ...], Field(min_length=1, max_length=1024)]

    @property
    def asked(self) -> tuple[str, ...]:
        """The label, then the features."""
        return (self.label, *self.features)

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        """Return one block a feature: label x feature, the feature varying fastest."""
        return tuple(Block(_product(schema, (self.label, f)), 1) for f in self.features)

    def _check(self, schema: Schema) -> None:
        if len(set(self.asked)) < len(self.asked):
            raise QueryError(f"bayes: a column is named twice in {', '.join(self.asked)}")
        for name in self.asked:
            _check_product(schema, (name,), self._name)


class Words(_Base):
    """The most frequent texts of a column, prefix by prefix: two characters a round."""

    kind: Literal["words"] = "words"
    column: str
    top: Annotated[int, Field(ge=1)] = 50
    """Words in the answer."""
    max_prefixes: Annotated[int, Field(ge=1)] = 400
    """Most prefixes that survive a round."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def rounds(self, schema: Schema) -> int:
        """Return the number of private sums: half the column's length, rounded up."""
        return words.rounds(self.text(schema))

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        """Return one block: a cell a candidate."""
        return (Block(self._cells(schema, payload), 1),)

    def _check(self, schema: Schema) -> None:
        self.text(schema)

    def _cells(self, schema: Schema, payload: bytes) -> int:
        column = self.text(schema)
        prefixes = words.prefixes(column, payload, self.max_prefixes)
        return words.candidate_count(column, prefixes)

    def _most_cells(self, schema: Schema, payload: bytes) -> int:
        # Refused in the first round, for a later one would be refused after the first is paid.
        first, column = self._cells(schema, payload), self.text(schema)
        if payload or words.rounds(column) == 1:
            return first
        later = min(first, self.max_prefixes) * len(words.continuations(column, words.STEP))
        return max(first, later)

    def text(self, schema: Schema) -> TextColumn:
        """Return the column's domain.

        Parameters
        ----------
        schema : Schema

        Returns
        -------
        TextColumn

        Raises
        ------
        QueryError
            If the column is no text.
        """
        column = schema.column(self.column)
        if not isinstance(column, TextColumn):
            raise QueryError(
                f'words: column "{self.column}" is of kind {column.kind}, not text: '
                "ask for its histogram"
            )
        return column


class Marginals(_Base):
    """Several cross-tabulations at once: a block a clique."""

    kind: Literal["marginals"] = "marginals"
    cliques: Annotated[
        tuple[Annotated[Columns, Field(min_length=1)], ...], Field(min_length=1, max_length=4096)
    ]

    @property
    def asked(self) -> tuple[str, ...]:
        """The columns of all cliques, each once."""
        return tuple(dict.fromkeys(name for clique in self.cliques for name in clique))

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        """Return one block a clique: the product of its domains, the last varying fastest."""
        return tuple(Block(_product(schema, clique), 1) for clique in self.cliques)

    def _check(self, schema: Schema) -> None:
        for clique in self.cliques:
            _check_product(schema, clique, self._name)
        sets = [frozenset(clique) for clique in self.cliques]
        if len(set(sets)) < len(sets):
            raise QueryError("marginals: a clique is named twice; it would be paid for twice")


class Oracle(_Base):
    """A histogram by local randomisation: each client sends one report of one record.

    The domain is that of the column and `(other)`, which stands for no value.
    """

    kind: Literal["oracle"] = "oracle"
    column: str
    oracle: Literal["auto"] | OracleKind = "auto"

    @property
    def asked(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def size(self, schema: Schema) -> int:
        """Return k, the values that a report may be of: `(other)` is the last."""
        column = schema.column(self.column)
        return column.cells + (not isinstance(column, CategoryColumn))

    def _blocks(self, schema: Schema, payload: bytes) -> tuple[Block, ...]:
        """Return one block of k cells; a report adds 0 or 1 to each of them."""
        k = self.size(schema)
        return (Block(k, k),)

    def _check(self, schema: Schema) -> None:
        _check_product(schema, (self.column,), self._name)
        k = self.size(schema)
        if self.oracle == "rr" and k != 2:
            raise QueryError(
                f'oracle = "rr" is for two values and "{self.column}" has {k} with (other): '
                'write oracle = "k-rr"'
            )


Query: TypeAlias = Annotated[
    Count | Histogram | Moments | Quantile | Bayes | Words | Marginals | Oracle,
    Field(discriminator="kind"),
]
"""Any query; what is sent has `weight` and `oracle` resolved."""

QUERY: TypeAdapter[Query] = TypeAdapter(Query)
"""Reads a query from data: `QUERY.validate_json`."""

KINDS: tuple[str, ...] = get_args(QueryKind)
"""Names of all kinds of query."""


def _product(schema: Schema, names: tuple[str, ...]) -> int:
    cells = 1
    for name in names:
        try:
            cells *= schema.column(name).cells
        except QueryError as error:
            if name in schema.columns:
                raise QueryError(f'column "{name}": {error}') from None
            raise
    return cells


def _check_product(schema: Schema, names: tuple[str, ...], kind: str) -> None:
    if len(names) > MOST_COLUMNS:
        raise QueryError(f"{kind}: {len(names)} columns at once; at most {MOST_COLUMNS}")
    if len(set(names)) < len(names):
        raise QueryError(f"{kind}: a column is named twice in {', '.join(names)}")
    _product(schema, names)


def _check_ranged(schema: Schema, name: str, kind: str) -> IntegerColumn | NumberColumn:
    column = schema.column(name)
    if not isinstance(column, IntegerColumn | NumberColumn):
        raise QueryError(
            f'{kind}: column "{name}" is of kind {column.kind}, not integer or number: '
            "ask for its histogram"
        )
    return column
