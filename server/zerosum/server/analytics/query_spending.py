"""What a budget of queries has spent: in all, by which query, and what is left."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zerosum.server.analytics.budget import Budget, Spent, spend
from zerosum.server.analytics.ledger import ChargedSum, QueryLedger
from zerosum.server.analytics.ledger_lines import QueryHeader, read_query_header
from zerosum.server.analytics.query_files import QUERY_LEDGER
from zerosum.server.analytics.stored_answers import released_sums
from zerosum.server.privacy.rounding import epsilon_text, remainder_text
from zerosum.server.runs.displays import grid

MOST_SHOWN = 20
"""Queries of a table in a notebook."""


@dataclass(frozen=True)
class QueryCost:
    """What one question has cost.

    Attributes
    ----------
    name : str
        Of its answer.
    query : dict
        In plain values.
    sums : int
        That were opened.
    abandoned : int
        Of all that were begun, those that were given up.
    used : float
        In the measure of the budget's rule, as if it were alone.
    """

    name: str
    query: dict[str, Any]
    sums: int
    abandoned: int
    used: float


@dataclass(frozen=True)
class QuerySpending:
    """What a ledger of queries says.

    Attributes
    ----------
    budget : Budget
        As it was opened.
    clients : int
        That are asked.
    spent : Spent
        Of all opened sums.
    queries : tuple of QueryCost
        In the order in which they were asked.
    """

    budget: Budget
    clients: int
    spent: Spent
    queries: tuple[QueryCost, ...]

    def __repr__(self) -> str:
        """Return one line: the queries of a day are a page."""
        spent, limit = epsilon_text(self.spent.epsilon), epsilon_text(self.budget.epsilon)
        return f"QuerySpending(epsilon {spent} of {limit} spent, queries: {len(self.queries)})"

    def _repr_html_(self) -> str:
        rows = [
            {
                "query": cost.name,
                "sums": f"{cost.sums:,}",
                "abandoned": f"{cost.abandoned:,}",
                "used, alone": f"{cost.used:.3g}",
            }
            for cost in self.queries[-MOST_SHOWN:]
        ]
        left = f"; the last {MOST_SHOWN} are shown" if len(self.queries) > MOST_SHOWN else ""
        spent, limit = epsilon_text(self.spent.epsilon), epsilon_text(self.budget.epsilon)
        return grid(f"Epsilon {spent} of {limit} spent", rows, f"{self.clients:,} clients{left}")

    @property
    def measure(self) -> str:
        """What ``used`` and ``limit`` are."""
        order = self.budget.order
        return "epsilon" if order is None else f"Renyi divergence at order {order}"

    def document(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "kind": "queries",
            "clients": self.clients,
            **asdict(self.budget),
            "order": self.budget.order,
            "spent": self.spent.epsilon,
            "used": self.spent.used,
            "limit": self.spent.limit,
            "left": self.spent.left,
            "queries": [asdict(each) for each in self.queries],
        }

    def sentence(self) -> str:
        """Say what is spent and left, in one line."""
        spent, budget = self.spent, self.budget
        kind = f"one {budget.unit}, against the observer {budget.observer}, delta {budget.delta:g}"
        if budget.order is None:
            left = f"{remainder_text(spent.left)} is left"
        else:
            part = 100 * spent.used / spent.limit
            left = f"{part:.1f} % of it by the rule renyi"
        of = f"{epsilon_text(spent.epsilon)} of {epsilon_text(budget.epsilon)}"
        return f"epsilon {of} is spent, {left} ({kind})"


def spending_of(ledger: QueryLedger) -> QuerySpending:
    """Return what a ledger of queries says.

    Parameters
    ----------
    ledger : QueryLedger
        Open, or read alone.

    Returns
    -------
    QuerySpending
        So far.
    """
    budget = budget_of(ledger.header)
    by_ask: dict[str, list[ChargedSum]] = {}
    for each in ledger.sums:
        by_ask.setdefault(each.charge.ask, []).append(each)
    queries = tuple(_cost(budget, sums) for sums in by_ask.values())
    spent = spend(budget, ledger.receipts(budget.observer))
    return QuerySpending(budget, ledger.header.clients, spent, queries)


def read_spending_of(folder: Path) -> QuerySpending:
    """Read what a folder of queries has spent; nothing is written.

    Parameters
    ----------
    folder : Path
        With a ``queries.jsonl``.

    Returns
    -------
    QuerySpending
        So far.

    Raises
    ------
    LedgerMismatchError
        If the ledger is missing or damaged.
    """
    path, released = folder / QUERY_LEDGER, released_sums(folder)
    ledger = QueryLedger(path, read_query_header(path), read_only=True)
    ledger.check_released(released)
    return spending_of(ledger)


def budget_of(header: QueryHeader) -> Budget:
    """Return the budget that a ledger was opened with."""
    values: dict[str, Any] = dict(header.budget)
    return Budget(**values)


def _cost(budget: Budget, sums: Sequence[ChargedSum]) -> QueryCost:
    charged = [each for each in sums if each.opened or budget.observer == "local"]
    events = [each.receipt(budget.observer) for each in charged]
    return QueryCost(
        name=sums[-1].charge.name,
        query=sums[0].charge.query,
        sums=len(charged),
        abandoned=sum(each.abandoned for each in sums),
        used=spend(budget, events).used,
    )
