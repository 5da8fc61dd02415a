"""What an analyst asks, and what all asks of one budget have in common."""

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.query import Query
from zerosum.client.queries.schema import Schema
from zerosum.client.request import MAX_RECORDS
from zerosum.client.spec.query_privacy import LEAST_HONEST_FRACTION

if TYPE_CHECKING:  # whose accountant takes a second to import
    from zerosum.server.analytics.budget import Budget

MechanismChoice = Literal["auto", "geometric", "skellam"]
"""Law of the noise, or the one with less of it."""

Rule = Literal["plan", "sum", "renyi"]
"""How the costs of a budget add up."""

DEFAULT_HONEST_FRACTION: Final = 0.8
"""f: the part of the clients whose noise makes the guarantee."""

LONGEST_NAME: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Names are of files: answers/NAME.csv."""


class QueryAbandoned(Exception):
    """No answer: too few clients were left, or their sum is none that honest ones can have."""


@dataclass(frozen=True)
class Ask:
    """One question of an analyst, with what it may cost.

    Attributes
    ----------
    query : Query
        What is asked.
    epsilon : float
        What the answer may cost at most, against the budget's observer.
    name : str
        Of the answer's file; empty: made of the query.
    mechanism : str
        "geometric", "skellam", or "auto" for the one with less noise.
    fresh : bool
        Whether a new answer is paid for where one is stored.

    Raises
    ------
    QueryError
        If epsilon is no positive number, or the name no name of a file.
    """

    query: Query
    epsilon: float
    name: str = ""
    mechanism: MechanismChoice = "auto"
    fresh: bool = False

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.name and not is_name(self.name):
            raise QueryError(
                f"name = {self.name!r}: it names a file, so at most {LONGEST_NAME} letters, "
                "digits, '_', '-' and \".\" that begin with a letter or digit"
            )

    @property
    def label(self) -> str:
        """Its name, or one made of the query's kind and columns."""
        return self.name or default_name(self.query)


def is_name(name: object) -> bool:
    """Return whether a value is the name of an answer: of a file in its folder, and no path."""
    return isinstance(name, str) and len(name) <= LONGEST_NAME and bool(_NAME.fullmatch(name))


def check_epsilon(epsilon: object) -> None:
    """Refuse an epsilon that is no positive finite number.

    Parameters
    ----------
    epsilon : object
        As it was written.

    Raises
    ------
    QueryError
        If it is none.
    """
    number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not (number and 0 < epsilon < math.inf):  # type: ignore[operator]
        raise QueryError(
            f"epsilon = {epsilon!r}: a query costs a positive number, as epsilon = 0.1"
        )


def default_name(query: Query) -> str:
    """Return a name for a query's answer, as "histogram-age"."""
    words = [query.kind, *(re.sub(r"[^A-Za-z0-9_.]+", "_", each) for each in query.asked)]
    return "-".join(word for word in words if word)[:60].rstrip("-.")


@dataclass(frozen=True)
class QueryTerms:
    """What all queries of one budget have in common.

    Attributes
    ----------
    schema : Schema
        The declared domains.
    budget : Budget
        Observer, unit, adjacency, epsilon, delta and rule.
    clients : int
        Clients of the roster: all are asked every time.
    cap : int or None
        Records of a client that count, where the unit is the client.
    max_records : int
        Records of a client that count at most: it bounds a sum's coordinates.
    records : int or None
        Records of all clients together, where that is public: delta and the moments' weight are
        held against it.
    honest_fraction : float
        Part of the clients whose shares make the guaranteed noise.
    seed : int
        Of a simulation's noise.
    noise_draw : str
        Who draws the noise: "per_client", or "summed" where a simulation draws it once.
    groups : int
        Sessions that a sum is divided into.
    allow_large_delta : bool
        Whether a delta that would let one record be shown whole is taken all the same.
    assumed : tuple of str
        What must hold for every epsilon beside what its observer sees: of a simulation, its seed.

    Raises
    ------
    QueryError
        If they do not go together.
    """

    schema: Schema
    budget: "Budget"
    clients: int
    cap: int | None = None
    max_records: int = MAX_RECORDS
    records: int | None = None
    honest_fraction: float = DEFAULT_HONEST_FRACTION
    seed: int = 0
    noise_draw: Literal["per_client", "summed"] = "per_client"
    groups: int = 1
    allow_large_delta: bool = False
    assumed: tuple[str, ...] = ()
    population: int = field(init=False)
    """Of the budget's unit, as declared: delta is held against it."""

    def __post_init__(self) -> None:
        if self.clients < 2:
            raise QueryError(f"clients = {self.clients}: a sum of fewer than 2 hides nothing")
        if self.budget.unit == "client" and self.cap is None:
            raise QueryError(
                'cap is missing: where unit = "client" write cap = m, the records of a client that '
                "count"
            )
        if self.budget.unit == "record" and self.cap is not None:
            raise QueryError(
                f'cap = {self.cap} is for unit = "client", and it is "record": take it out'
            )
        for name, value in (("cap", self.cap), ("records", self.records)):
            if value is not None and value < 1:
                raise QueryError(f"{name} = {value}: write a positive number")
        if self.max_records < 1:
            raise QueryError(f"max_records = {self.max_records}: write a positive number")
        if not LEAST_HONEST_FRACTION <= self.honest_fraction <= 1:
            raise QueryError(
                f"honest_fraction = {self.honest_fraction:g}: a part of the clients from "
                f"{LEAST_HONEST_FRACTION:g} to 1"
            )
        by_record = self.budget.unit == "record" and self.records is not None
        object.__setattr__(self, "population", self.records if by_record else self.clients)
        if not self.allow_large_delta and self.budget.delta * self.population >= 1:
            of = "records" if by_record else "clients"
            raise QueryError(
                f"delta = {self.budget.delta:g} is not below 1/{of} = {1 / self.population:g}, so "
                "that one of them could be shown whole: lower it, or allow_large_delta = true"
            )

    @property
    def smallest_cohort(self) -> int:
        """Clients of the smallest session."""
        return self.clients // self.groups

    @property
    def most_records(self) -> int:
        """Records that can be in a sum: public, never counted."""
        each = self.max_records if self.cap is None else self.cap
        return self.clients * each if self.records is None else self.records
