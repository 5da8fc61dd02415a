"""Read a folder of queries for its page: answers, what was charged, and what has no answer."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.server.analytics.costs import Costed, cost
from zerosum.server.analytics.ledger import ChargedSum, QueryLedger
from zerosum.server.analytics.ledger_lines import read_query_header
from zerosum.server.analytics.plan_terms import terms_of
from zerosum.server.analytics.query_files import ANSWERS, QUERIES, QUERY_LEDGER, REFUSED
from zerosum.server.analytics.query_plan import PlanFile, read_plan
from zerosum.server.analytics.query_spending import QuerySpending, spending_of
from zerosum.server.analytics.released_answer import Axis, Reals
from zerosum.server.analytics.stored_answers import read_answers
from zerosum.server.config import ConfigError
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.simulations.report.queries_totals import pure_epsilon, total_bounds
from zerosum.simulations.report.words import count


@dataclass(frozen=True, eq=False)
class AnswerRecord:
    """One answer as its folder keeps it.

    Attributes
    ----------
    name, sentence : str
        Of the answer's file, and what it says.
    document : mapping
        As ``answers.json`` has it.
    tables : tuple of tuple of Axis
        Dimensions of the values: of one table, or of each of several.
    values, std, low, high : ndarray of float64, shape (cells,)
        Of all tables, one after another; NaN where there is no value.
    """

    name: str
    sentence: str
    document: Mapping[str, Any]
    tables: tuple[tuple[Axis, ...], ...]
    values: Reals
    std: Reals
    low: Reals
    high: Reals

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read one entry of ``answers.json``.

        Parameters
        ----------
        document : mapping
            In plain values.

        Returns
        -------
        AnswerRecord

        Raises
        ------
        ValueError
            If a key is missing, or a number of cells is wrong.
        """
        try:
            tables = tuple(
                tuple(Axis(str(a["column"]), tuple(map(str, a["labels"]))) for a in axes)
                for axes in document["tables"]
            )
            ends = document["interval"]
            numbers = [
                np.array(plain, dtype=np.float64).ravel()
                for plain in (document["values"], document["std"], ends["low"], ends["high"])
            ]
            made = cls(str(document["name"]), str(document["sentence"]), document, tables, *numbers)
            made.kind, made.clients, made.bounds, made.level, made.title  # noqa: B018  are they there
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"an answer without {error}") from None
        cells = sum(math.prod(len(a.labels) for a in axes) for axes in tables)
        if any(each.size != cells for each in numbers):
            raise ValueError(f"the answer {made.name} does not have its {cells} cells")
        if made.bounds.keys() != set(OBSERVERS):
            raise ValueError(f"the answer {made.name} does not have its epsilons")
        return made

    @property
    def title(self) -> str:
        """Its name; numbered where a fresh answer to the same question was paid for."""
        asked = int(self.document["asked"])
        return f"{self.name}, answer {asked + 1}" if asked else self.name

    @property
    def kind(self) -> str:
        """Of the query."""
        return str(self.document["query"]["kind"])

    @property
    def clients(self) -> int:
        """Contributions in the sum."""
        return int(self.document["clients"])

    @property
    def level(self) -> float:
        """Confidence of the intervals."""
        return float(self.document["interval"]["level"])

    @property
    def bounds(self) -> dict[ObserverName, EpsilonBound]:
        """What it cost, by observer."""
        return {name: _bound(one) for name, one in self.document["epsilon"].items()}

    def parts(self) -> Iterator[tuple[tuple[Axis, ...], slice]]:
        """Yield each table's dimensions, and where its cells are."""
        start = 0
        for axes in self.tables:
            end = start + math.prod(len(axis.labels) for axis in axes)
            yield axes, slice(start, end)
            start = end


@dataclass(frozen=True)
class Unanswered:
    """A query without an answer, and why.

    Attributes
    ----------
    name, why : str
        What is shown of it.
    """

    name: str
    why: str


@dataclass(frozen=True)
class QueryRecord:
    """All that a page of queries says.

    Attributes
    ----------
    name : str
        Of the folder.
    answers : tuple of AnswerRecord
        In the order in which they were made.
    clients : int
        That are asked every time.
    protocol : str
        "ideal" or "pairwise".
    bounds : mapping
        Of all sums together, by observer; empty before anything was charged.
    pure : mapping of str to float
        By name the pure epsilon of what a query cost against the observer of sums; inf: none.
    domains : Schema or None
        The declared domains, where they are known.
    spending : QuerySpending
        Of the budget.
    unanswered : tuple of Unanswered
        Given up, refused or not asked.
    """

    name: str
    answers: tuple[AnswerRecord, ...]
    clients: int
    protocol: str
    bounds: Mapping[ObserverName, EpsilonBound]
    pure: Mapping[str, float]
    domains: Schema | None
    spending: QuerySpending
    unanswered: tuple[Unanswered, ...]


def read_queries(folder: Path) -> QueryRecord:
    """Read a folder of queries; nothing is written.

    Parameters
    ----------
    folder : Path
        With a ledger of queries.

    Returns
    -------
    QueryRecord

    Raises
    ------
    ConfigError
        If the ledger, the answers or the plan are damaged.
    """
    path = folder / QUERY_LEDGER
    ledger = QueryLedger(path, read_query_header(path), read_only=True)
    answers = _answers(folder)
    plan = _plan(folder)
    spending = spending_of(ledger)
    asks = _by_ask(ledger)
    asked = _costed(plan, ledger.header.clients)
    told = {str(each.document["ask"]): each.bounds for each in answers}
    return QueryRecord(
        folder.resolve().name,
        answers,
        ledger.header.clients,
        ledger.header.protocol,
        total_bounds(ledger, spending.budget, asks, told, asked),
        {sums[-1].charge.name: pure_epsilon(spending.budget, sums) for sums in asks.values()},
        plan.domains if plan else None,
        spending,
        (*_given_up(asks, answers), *_refused(folder), *_waiting(asked, asks)),
    )


def _answers(folder: Path) -> tuple[AnswerRecord, ...]:
    documents = read_answers(folder)
    try:
        return tuple(map(AnswerRecord.read, documents))
    except ValueError as error:
        raise ConfigError(
            f"{folder / ANSWERS} is damaged ({error}): delete it, and zerosum query --resume "
            f"{folder} makes it again, for free"
        ) from None


def _plan(folder: Path) -> PlanFile | None:
    """Return the folder's plan; None where another program asked."""
    return read_plan(folder / QUERIES) if (folder / QUERIES).is_file() else None


def _by_ask(ledger: QueryLedger) -> dict[str, list[ChargedSum]]:
    found: dict[str, list[ChargedSum]] = {}
    for each in ledger.sums:
        found.setdefault(each.charge.ask, []).append(each)
    return found


def _bound(values: Mapping[str, Any]) -> EpsilonBound:
    value = values["value"]
    known = dict(values, value=math.inf if value is None else float(value))
    return EpsilonBound(**{**known, "assumptions": tuple(values["assumptions"])})


def _costed(plan: PlanFile | None, clients: int) -> dict[str, Costed]:
    """Return a plan's queries by their digests."""
    if plan is None:
        return {}
    try:
        terms = terms_of(plan, clients)
        found = [cost(draft.ask(plan.domains), terms) for draft in plan.queries]
    except QueryError as error:
        raise ConfigError(f"{QUERIES} is damaged: {error}") from None
    return {each.key: each for each in found}


def _given_up(
    asks: Mapping[str, Sequence[ChargedSum]], answers: Sequence[AnswerRecord]
) -> Iterator[Unanswered]:
    """Yield the queries that were charged and have no answer."""
    answered = {each.document["ask"] for each in answers}
    for ask, sums in asks.items():
        if ask in answered:
            continue
        name, last = sums[-1].charge.name, sums[-1]
        charged = count(sum(each.opened for each in sums), "sum")
        said = f"given up: {last.reason}" if last.abandoned else "begun, and not finished"
        yield Unanswered(name, f"{said}; {charged} charged")


def _refused(folder: Path) -> Iterator[Unanswered]:
    """Yield the queries that the budget refused, each once."""
    try:
        lines = (folder / REFUSED).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    seen = set()
    for line in lines:
        try:
            values = json.loads(line)
            one = Unanswered(str(values["name"]), f"refused by the budget: {values['why']}")
        except (ValueError, KeyError, TypeError):
            continue  # a line that a crash tore: nothing was charged
        if one not in seen:
            yield one
        seen.add(one)


def _waiting(
    asked: Mapping[str, Costed], asks: Mapping[str, Sequence[ChargedSum]]
) -> Iterator[Unanswered]:
    """Yield the plan's queries that were not asked yet."""
    for key, each in asked.items():
        if key not in asks:
            yield Unanswered(each.ask.label, f"not asked yet, at epsilon = {each.ask.epsilon:g}")
