"""An analyst: one plan, one budget, a folder, and anything that opens private sums.

Simulated and deployed federations are asked through this alone; they differ by who opens the sums.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.server.analytics.answers import Answer
from zerosum.server.analytics.ask import PrivateSums, ask
from zerosum.server.analytics.asks import QueryAbandoned, QueryTerms
from zerosum.server.analytics.budget import BudgetExceeded, Spent, spend
from zerosum.server.analytics.costs import Costed, cost
from zerosum.server.analytics.drafts import Draft
from zerosum.server.analytics.ledger import QueryLedger
from zerosum.server.analytics.query_files import QUERY_LEDGER
from zerosum.server.analytics.query_folder import held_folder, write_plan
from zerosum.server.analytics.query_plan import PlanFile
from zerosum.server.analytics.query_setting import header_of
from zerosum.server.analytics.query_spending import QuerySpending, spending_of
from zerosum.server.analytics.stored_answers import StoredAnswers, released_sums
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.private_sum.sum_in_progress import SumPlan

log = logging.getLogger("zerosum.server")


class Analyst:
    """Who asks clients questions within one budget, and keeps all that was paid for.

    A context manager, for the folder is locked.

    Parameters
    ----------
    file : PlanFile
        Domains, budget and queries.
    terms : QueryTerms
        Of the plan and its clients.
    sums : PrivateSums
        A coordinator of these clients.
    folder : Path or None
        Where all of it is kept; None keeps it in memory.
    reproducible : bool
        Whether a sum done again draws the same noise: in a simulation.
    before : callable
        Called before every attempt at an answer.
    prepare : callable, optional
        Of a coordinator whose sums carry the keys and shares of the next one along.

    Raises
    ------
    QueryError
        If another process has the folder, or it cannot be used.
    LedgerMismatchError
        If the folder is of another budget.
    """

    def __init__(
        self,
        file: PlanFile,
        terms: QueryTerms,
        sums: PrivateSums,
        folder: Path | None,
        *,
        reproducible: bool,
        before: Callable[[], None] = lambda: None,
        prepare: Callable[[SumPlan], None] | None = None,
    ) -> None:
        self._file, self.terms, self.folder = file, terms, folder
        self._sums, self._reproducible, self._before = sums, reproducible, before
        self._prepare = prepare
        self._open, self._closed = ExitStack(), False
        if folder is not None:
            self._open.enter_context(held_folder(folder))
        try:
            path = None if folder is None else folder / QUERY_LEDGER
            self.ledger = QueryLedger(path, header_of(file, terms))
            if folder is not None:
                self.ledger.check_released(released_sums(folder))
            self.answers = StoredAnswers(folder)
        except OSError as error:
            self._open.close()
            raise QueryError(f"{folder} cannot be used: {error.strerror or error}") from None
        except BaseException:
            self._open.close()
            raise

    @property
    def schema(self) -> Schema:
        """The declared domains."""
        return self._file.domains

    @property
    def queries(self) -> tuple[Draft, ...]:
        """All that was asked, or will be."""
        return self._file.queries

    @property
    def budget(self) -> Spent:
        """What is spent of the budget, and what is left."""
        budget = self.terms.budget
        return spend(budget, self.ledger.receipts(budget.observer))

    @property
    def spending(self) -> QuerySpending:
        """What is spent, by which query, and what is left."""
        return spending_of(self.ledger)

    def __repr__(self) -> str:
        """Return one line: who is asked, what is spent, where it is kept."""
        spent, limit = self.budget, self.terms.budget.epsilon
        where = "in memory" if self.folder is None else f"folder={str(self.folder)!r}"
        return (
            f"{type(self).__name__}({self.terms.clients:,} clients, epsilon "
            f"{epsilon_text(spent.epsilon)} of {epsilon_text(limit)} spent, {where}"
            f"{', closed' if self._closed else ''})"
        )

    def cost(self, draft: Draft) -> Costed:
        """Return what a question would cost, and ask nothing."""
        return cost(draft.ask(self.schema), self.terms)

    def ask(self, draft: Draft, upcoming: Costed | None = None) -> Answer:
        """Answer a question, or return the stored answer to the same one.

        Parameters
        ----------
        draft : Draft
            As :func:`~zerosum.analytics.count` and its like make it.
        upcoming : Costed, optional
            A question of which nothing was charged, if it is asked next.

        Returns
        -------
        Answer
            With its standard error, intervals and epsilons.

        Raises
        ------
        QueryError
            If the question does not fit the schema or the budget.
        BudgetExceeded
            Before anything is sent, if too little is left.
        QueryAbandoned
            If too few clients were left in every attempt that the question has.
        """
        try:
            for _ in range(draft.attempts - 1):
                try:
                    return self._once(draft, upcoming)
                except QueryAbandoned as error:
                    log.warning("%s; asked again", error)
            return self._once(draft, upcoming)
        except BudgetExceeded as error:
            self.answers.note_refused(draft.ask(self.schema).label, str(error))
            raise

    def run(self, said: Callable[[Answer], None] = lambda answer: None) -> list[Answer]:
        """Answer every query of the plan, in order; those that are stored cost nothing.

        Parameters
        ----------
        said : callable
            Given each answer as it comes.

        Returns
        -------
        list of Answer
            One for each query.
        """
        answers = []
        for place, draft in enumerate(self._due()):
            answers.append(self.ask(draft, self._upcoming(place)))
            said(answers[-1])
        return answers

    def close(self) -> None:
        """Let go of the folder: nothing more can be asked."""
        self._closed = True
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _once(self, draft: Draft, upcoming: Costed | None) -> Answer:
        """Make one attempt at an answer."""
        self._before()
        return ask(
            self._sums,
            draft.ask(self.schema),
            self.ledger,
            self.answers,
            self.terms,
            reproducible=self._reproducible,
            # What is refused is not noted: a resumed folder would be refused for ever.
            admitted=partial(self._note, draft),
            prepare=self._prepare,
            upcoming=upcoming,
        )

    def _upcoming(self, place: int) -> Costed | None:
        """Return the question that is asked after one of the plan, if nothing of it was charged.

        None where nothing is prepared, or that question was begun or is asked anew: it is another
        attempt, or another answer, and its keys are asked for when it comes.
        """
        if self._prepare is None:
            return None
        asked = self.cost(self.queries[place]).key
        for draft in self.queries[place + 1 :]:
            costed = self.cost(draft)
            if draft.fresh or self.ledger.answers_begun(costed.key):
                if draft.fresh or not self.answers.complete(costed.key):
                    return None
            elif costed.key != asked:
                return costed
        return None

    def _note(self, draft: Draft) -> None:
        """Add a question to the folder's plan before it is asked: a resumed folder asks it, too."""
        noted = replace(draft, fresh=False)
        if self.terms.budget.rule == "plan" or noted in self._file.queries:
            return
        queries = (*self._file.queries, noted)
        self._file = replace(self._file, queries=queries)
        if self.folder is not None:
            write_plan(self.folder, self._file)

    def _due(self) -> Iterator[Draft]:
        """Yield the plan's queries, each fresh if an answer of it is still to be paid for.

        The same question twice has one answer, unless the plan says ``fresh``. An answer that was
        begun and not finished is finished.
        """
        wanted: Counter[str] = Counter()
        for draft in self.queries:
            key = self.cost(draft).key
            wanted[key] += draft.fresh or not wanted[key]
            complete = self.answers.complete(key)
            due = max(wanted[key], self.ledger.answers_begun(key)) > complete
            yield replace(draft, fresh=due)
