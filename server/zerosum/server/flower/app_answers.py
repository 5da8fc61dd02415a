"""Answers to an app's queries: composed first, charged ahead, summed, kept.

The ledger, the released sums and the answers are those of :mod:`zerosum.server.analytics`, in the
same files: what was paid for is on the disk before nodes are asked, and a sum before anything is
made of it. Without noise nothing is charged, and there is no ledger.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.flower.app_query import AppSumRequest
from zerosum.client.queries.declared_sums import DeclaredSum
from zerosum.client.queries.errors import QueryError
from zerosum.server.analytics.asks import QueryAbandoned
from zerosum.server.analytics.ledger import Part, QueryLedger
from zerosum.server.analytics.ledger_lines import QueryHeader
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.query_files import QUERY_LEDGER
from zerosum.server.analytics.query_folder import held_folder, is_query_folder
from zerosum.server.analytics.receipts import read_receipt
from zerosum.server.analytics.stored_answers import (
    AnswerEntry,
    StoredAnswers,
    StoredSum,
    released_sums,
)
from zerosum.server.flower.app_sums import CostedSums, SumTerms, budget_of, cost_of
from zerosum.server.privacy.ledger_file import LedgerMismatchError
from zerosum.server.private_sum.coordinator import ChargeKind, Coordinator, RoundAbandoned
from zerosum.server.runs.run_outcome import NODE_LOGS

log = logging.getLogger("flwr")

RequestOf = Callable[[CostedSums, int], AppSumRequest]
"""Makes the request of a round."""


@dataclass(frozen=True)
class AppAnswer:
    """The sums of one query, in the units of the app.

    Attributes
    ----------
    name : str
        Of the answer in the folder.
    sums : tuple of DeclaredSum
        What they are.
    values : tuple of ndarray
        Of each, shape (cells,), int64 or float64.
    std : mapping of str to float
        By name, the standard deviation of the noise in each number; 0 without noise.
    clients : int
        In the sum.
    stored : bool
        Whether it was asked before, and nothing was sent.
    """

    name: str
    sums: tuple[DeclaredSum, ...]
    values: tuple[NDArray[Any], ...]
    std: Mapping[str, float]
    clients: int
    stored: bool = False

    @property
    def drowned(self) -> bool:
        """Whether all numbers together are no more than their noise; free, of what is released.

        The mean square of n numbers of noise, in its deviations, is 1, with a deviation of
        sqrt((2 + kappa) / n) at an excess kurtosis kappa: 3, that of Laplace noise.
        """
        found = [
            v / self.std[s.name]
            for s, v in zip(self.sums, self.values, strict=True)
            if self.std[s.name]
        ]
        if not found:
            return False
        squares = np.concatenate(found) ** 2
        return bool(squares.mean() <= 1 + 3 * np.sqrt(5 / squares.size))


class AppAnswers:
    """Asks nodes for sums within one budget, and keeps all that was paid for.

    Parameters
    ----------
    folder : Path
        Of queries; locked until :meth:`close`.
    terms : SumTerms
        Of the noise and the budget.
    clients : int
        Of the roster.
    coordinator : Coordinator
        Of these clients.
    roster : bytes
        Digest of who they are; empty where nobody knows. Others have other data, whatever their
        indices: no answer that is stored is theirs.

    Raises
    ------
    QueryError
        If another process has the folder, or it cannot be used.
    LedgerMismatchError
        If the folder is of another budget.
    """

    def __init__(
        self,
        folder: Path,
        terms: SumTerms,
        clients: int,
        coordinator: Coordinator,
        roster: bytes = b"",
    ) -> None:
        self.terms, self.folder, self._coordinator = terms, folder, coordinator
        self._roster = roster
        self._open, self._closed = ExitStack(), False
        if is_query_folder(folder):
            raise QueryError(f"{folder} holds the queries of a plan: give another out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._open.enter_context(held_folder(folder))
            released = released_sums(folder)
            self._check_kind(bool(released))
            self._asked = max((number for number, _ in released), default=0)
            self.ledger = self._ledger(clients, released) if terms.model != "none" else None
            self.answers = StoredAnswers(folder)
        except OSError as error:
            self._open.close()
            raise QueryError(f"{folder} cannot be used: {error.strerror or error}") from None
        except BaseException:
            self._open.close()
            raise

    def close(self) -> None:
        """Let go of the folder: nothing more can be asked."""
        self._closed = True
        self._open.close()

    def ask(
        self, cohort: Sequence[int], costed: CostedSums, request_of: RequestOf, *, fresh: bool
    ) -> AppAnswer:
        """Answer a query, from what is stored or by a private sum that is charged ahead.

        Parameters
        ----------
        cohort : sequence of int
            Roster indices, ascending.
        costed : CostedSums
            What is summed.
        request_of : callable
            Makes the request of a round.
        fresh : bool
            Whether a new answer is paid for where one is stored.

        Returns
        -------
        AppAnswer
            Stored durably.

        Raises
        ------
        BudgetExceeded
            Before anything is sent, if the budget does not admit it.
        QueryAbandoned
            If too few clients were left; the ledger says what it cost.
        QueryError
            After :meth:`close`: another process may spend of the same budget now.
        """
        if self._closed:
            raise QueryError(f"{self.folder} is closed: make another PrivateQueries to ask more")
        key = _key(request_of(costed, 0), cohort, self._roster)
        complete = self.answers.complete(key)
        name = self.answers.name_for("query", key)
        if self.ledger is None:
            return self._summed(name, key, complete, cohort, costed, request_of)
        if complete and not fresh:
            charged = self.ledger.latest((key, complete - 1, 0))
            kept = None if charged is None else self.answers.sum(*charged.number)
            if kept is not None:
                return replace(self._answer(name, costed, len(cohort), kept), stored=True)
        charged = self.ledger.latest((key, complete, 0))
        kept = None if charged is None else self.answers.sum(*charged.number)
        if kept is not None:  # paid for, and not yet made an answer of
            return self._keep(name, key, complete, costed, len(cohort), kept)
        self._admit(name, costed, len(cohort))
        return self._summed(name, key, complete, cohort, costed, request_of)

    def _check_kind(self, released: bool) -> None:
        """Refuse exact sums beside a budget's: its ledger has no line for them."""
        budget, private = (self.folder / QUERY_LEDGER).is_file(), self.terms.model != "none"
        if budget and not private:
            raise QueryError(
                f"{self.folder} has a budget, and sums without noise have none: give another out"
            )
        if private and released and not budget:
            raise LedgerMismatchError(
                f"{self.folder} holds sums, and no line says that it was paid for them: they are "
                f"without noise, or {QUERY_LEDGER} is lost: restore that file, or give another out"
            )

    def _ledger(self, clients: int, released: set[tuple[int, int]]) -> QueryLedger:
        terms = self.terms
        header = QueryHeader(
            clients=clients,
            groups=1,
            protocol="pairwise",
            honest_fraction=terms.honest_fraction,
            budget={
                "observer": terms.observer,
                "unit": terms.unit,
                "adjacency": terms.adjacency,
                "epsilon": float(terms.budget or 0.0),
                "delta": float(terms.delta),
                "rule": terms.rule,
            },
        )
        ledger = QueryLedger(self.folder / QUERY_LEDGER, header)
        ledger.check_released(released)
        return ledger

    def _admit(self, name: str, costed: CostedSums, cohort: int) -> None:
        """Raise BudgetExceeded, with an epsilon that would fit, unless a sum fits its budget."""
        if self.ledger is None:
            return
        from zerosum.server.analytics.budget import BudgetExceeded, check

        terms, budget = self.terms, budget_of(self.terms)

        def receipt_at(epsilon: float) -> Any:
            other = cost_of(costed.declared, terms.model_copy(update={"epsilon": epsilon}), cohort)
            return read_receipt(other.receipts[budget.observer])

        new = read_receipt(costed.receipts[budget.observer])
        try:
            check(budget, self.ledger.receipts(budget.observer), new, receipt_at=receipt_at)
        except BudgetExceeded as error:
            self.answers.note_refused(name, str(error))
            raise

    def _summed(
        self,
        name: str,
        key: str,
        asked: int,
        cohort: Sequence[int],
        costed: CostedSums,
        request_of: RequestOf,
    ) -> AppAnswer:
        """Charge, open and keep a sum."""
        ledger = self.ledger
        self._asked = ledger.number(key) if ledger is not None else self._asked + 1
        request = request_of(costed, self._asked)
        groups = [tuple(cohort)]
        query = {
            "kind": "app",
            "message_type": request.question.message_type,
            "sums": [one.model_dump(mode="json") for one in costed.sums],
        }
        part = Part(key, asked, 0, 1, name, query, costed.receipts)
        charge = _nothing if ledger is None else ledger.charging(part, self._asked, 0, groups)
        try:
            opened = self._coordinator.private_sum(
                request, groups, round=self._asked, charge=charge
            )
        except RoundAbandoned as error:
            if ledger is not None:
                ledger.abandon(self._asked, 0, str(error))
            raise QueryAbandoned(
                f"no answer to {name}: {error}; a node whose reply does not hold what is declared "
                f"takes no part where there is no noise; the nodes' reasons are in {NODE_LOGS}"
            ) from None
        kept = StoredSum(self._asked, 0, opened.total, len(opened.survivors))
        self.answers.keep_sum(kept)
        return self._keep(name, key, asked, costed, len(cohort), kept)

    def _keep(
        self, name: str, key: str, asked: int, costed: CostedSums, cohort: int, kept: StoredSum
    ) -> AppAnswer:
        made = self._answer(name, costed, cohort, kept)
        names = [one.name for one in made.sums]
        listed = {n: v.tolist() for n, v in zip(names, made.values, strict=True)}
        rows = [
            {"value": n, "cell": i, "sum": number, "std": made.std[n]}
            for n, numbers in listed.items()
            for i, number in enumerate(numbers)
        ]
        values = {
            "kind": "app",
            "asked_epsilon": self.terms.epsilon,
            "values": listed,
            "std": dict(made.std),
            "clients": made.clients,
            "receipt": dict(costed.receipts),
        }
        self.answers.keep(AnswerEntry(name, key, asked, values, rows))
        return made

    def _answer(self, name: str, costed: CostedSums, cohort: int, kept: StoredSum) -> AppAnswer:
        """Return what a released sum says, which is free."""
        ends = np.cumsum([one.cells for one in costed.sums])[:-1]
        parts = np.split(kept.noisy, ends)
        std = _std(costed, cohort)
        return AppAnswer(
            name,
            costed.sums,
            tuple(one.values(part) for one, part in zip(costed.sums, parts, strict=True)),
            {one.name: std * one.step for one in costed.sums},
            kept.clients,
        )


def _nothing(kind: ChargeKind, group: int, clients: tuple[int, ...]) -> None:
    """Charge nothing: without noise there is no ledger."""


def _std(costed: CostedSums, cohort: int) -> float:
    """Return the deviation of the noise in a released coordinate, in integer units."""
    privacy = costed.privacy
    if privacy.law is None or privacy.scale is None:
        return 0.0
    return ReleasedNoise(privacy.law, privacy.scale, 1 / float(privacy.honest_part(cohort))).std


def _key(request: AppSumRequest, cohort: Sequence[int], roster: bytes) -> str:
    """Return the digest of what makes two queries the same: all but the round, and who is asked."""
    asked = f"{roster.hex()}\0{list(cohort)}\0".encode() + request.question.canonical()
    return hashlib.sha256(b"zerosum/1 app query\0" + asked).hexdigest()
