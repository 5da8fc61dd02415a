"""Ask a question: compose first, charge ahead, sum, and keep the answer.

A question is answered by one private sum, `words` by several. What it costs is composed with all
that was spent before anything is sent. Each sum is charged on the disk before clients are asked,
and kept on the disk before anything is made of it: a crash leaves a sum that is paid for or one
that was never opened, and the same call goes on from there.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from zerosum.client.queries import oracles
from zerosum.client.queries.moves import moves
from zerosum.client.queries.query import Query
from zerosum.client.request import QueryQuestion, QueryRequest
from zerosum.client.spec.query_privacy import QueryPrivacy
from zerosum.server.analytics.answers import Answer, answer
from zerosum.server.analytics.asks import Ask, QueryTerms
from zerosum.server.analytics.ledger import Part, QueryLedger
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.prefixes import survivors
from zerosum.server.analytics.receipts import read_receipt, receipt_values
from zerosum.server.analytics.stored_answers import AnswerEntry, StoredAnswers, StoredSum
from zerosum.server.private_sum.coordinator import Charge, RoundAbandoned
from zerosum.server.privacy.observers import ObserverName

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from zerosum.server.private_sum.aggregate import Aggregate

log = logging.getLogger("zerosum.server")


class PrivateSums(Protocol):
    """Anything that opens private sums, as :class:`~.private_sum.coordinator.Coordinator`."""

    def private_sum(
        self,
        request: QueryRequest,
        groups: Sequence[Sequence[int]],
        *,
        round: int,
        attempt: int = 0,
        charge: Charge = ...,
    ) -> "Aggregate":
        """Ask a cohort a question and open the sum of the answers."""
        ...


class QueryAbandoned(Exception):
    """No answer: too few clients were left, or a sum that honest clients cannot have was refused."""


@dataclass(frozen=True)
class Costed:
    """A question with its noise and its receipts, as it will be sent.

    Attributes
    ----------
    ask : Ask
        As it was asked.
    terms : QueryTerms
        Of its budget.
    query : Query
        Resolved: as it goes on the wire.
    privacy : QueryPrivacy
        Law and scale.
    sums : int
        Private sums that answer it.
    receipts : mapping
        Of each sum, by observer, in plain values; None where nothing bounds it.
    """

    ask: Ask
    terms: QueryTerms
    query: Query
    privacy: QueryPrivacy
    sums: int
    receipts: Mapping[ObserverName, dict[str, Any] | None]

    @cached_property
    def key(self) -> str:
        """Digest of what makes two questions the same: all but round, seed and name."""
        asked = self.question(0, seed=0).canonical()
        return hashlib.sha256(b"zerosum/1 query\0" + asked).hexdigest()

    @property
    def noise(self) -> ReleasedNoise:
        """The law of the noise in each released sum."""
        if self.privacy.noise_inside:
            raise ValueError("a report of the local model is random itself: its sum has no noise")
        ratio = 1 / float(_honest_part(self.privacy, self.terms))
        return ReleasedNoise(self.privacy.law, self.privacy.scale, ratio)

    def question(self, round: int, *, seed: int | None = None) -> QueryQuestion:
        """Return the question of a sum.

        Parameters
        ----------
        round : int
            Of the sum.
        seed : int, optional
            Default: the terms'.

        Returns
        -------
        QueryQuestion
            As it is sent.
        """
        terms = self.terms
        return QueryQuestion(
            round=round,
            seed=terms.seed if seed is None else seed,
            population=terms.clients,
            domains=_domains(self.query, terms.schema),
            query=self.query,
            privacy=self.privacy,
            max_records=terms.max_records,
            noise_draw=terms.noise_draw,
        )

    def event(self, observer: ObserverName) -> "DpEvent":
        """Return the receipt of one of its sums against an observer."""
        return read_receipt(self.receipts[observer])

    def part(self, asked: int, number: int, name: str) -> Part:
        """Return one of its sums, as the ledger has it.

        Parameters
        ----------
        asked : int
            Which paid answer.
        number : int
            Which of its sums, from 0.
        name : str
            Of the answer.

        Returns
        -------
        Part
            To be charged.
        """
        query = self.query.model_dump(mode="json")
        return Part(self.key, asked, number, self.sums, name, query, self.receipts)


def cost(ask: Ask, terms: QueryTerms) -> Costed:
    """Resolve a question: its weight, its oracle, its law and scale of noise, and its receipts.

    Nothing here depends on data: the choice follows from the query's shape and the terms.

    Parameters
    ----------
    ask : Ask
        What is asked.
    terms : QueryTerms
        Of the budget.

    Returns
    -------
    Costed
        Fixed wholly: it can be charged and sent.

    Raises
    ------
    QueryError
        If the query does not fit the schema, the unit or the budget.
    """
    ask.query.check(terms.schema)
    if ask.query.kind == "oracle":
        return _local(ask, terms)
    query = _weighted(ask, terms)
    blocks = query.blocks(terms.schema, b"")
    budget, sums = terms.budget, query.rounds(terms.schema)
    one = moves(blocks, unit=budget.unit, adjacency=budget.adjacency, cap=terms.cap)
    # All rounds of `words` are calibrated as one: their receipts are fixed beforehand, and only
    # what they ask adapts. Geometric noise comes out as epsilon / T a round.
    noise = calibrate(
        one * sums,
        epsilon=ask.epsilon,
        delta=budget.delta,
        mechanism=ask.mechanism,
        pure_only=budget.rule == "sum",
    )
    privacy = QueryPrivacy(
        law=noise.law,
        scale=noise.scale,
        unit=budget.unit,
        adjacency=budget.adjacency,
        cap=terms.cap,
        honest_fraction=terms.honest_fraction,
    )
    return Costed(ask, terms, query, privacy, sums, _receipts(privacy, terms, one))


def ask(
    sums: PrivateSums,
    question: Ask,
    ledger: QueryLedger,
    answers: StoredAnswers,
    terms: QueryTerms,
    *,
    groups: Sequence[Sequence[int]] | None = None,
    reproducible: bool,
) -> Answer:
    """Answer a question, from what is stored or by private sums that are charged ahead.

    The same question again returns the stored answer, for free, unless it is ``fresh``. A call
    that a crash ended goes on where it was: sums that were kept are not asked for again. One that
    was charged and not kept is done again under the same numbers where the noise is reproducible,
    which is the same release, and as a new attempt that is charged where it is not.

    Parameters
    ----------
    sums : PrivateSums
        A coordinator.
    question : Ask
        What is asked.
    ledger : QueryLedger
        Written ahead.
    answers : StoredAnswers
        What was answered before.
    terms : QueryTerms
        Of the budget.
    groups : sequence of sequence of int, optional
        Roster indices, one sequence a session. Default: all clients are one.
    reproducible : bool
        Whether a sum done again draws the same noise: in a simulation.

    Returns
    -------
    Answer
        Stored durably.

    Raises
    ------
    QueryError
        If the question does not fit schema, unit or budget.
    BudgetExceeded
        Before anything is sent, if the budget does not admit it.
    QueryAbandoned
        If a sum was given up; the budget says what it cost. Asked again, it is another attempt.
    """
    costed = cost(question, terms)
    complete = answers.complete(costed.key)
    if complete and not question.fresh:
        return _answer(costed, _kept(costed, complete - 1, ledger, answers))
    asked = complete  # one that was begun and has no answer is gone on with
    name = answers.name_for(question.label, costed.key)
    admit(costed, asked, ledger, answers, reproducible=reproducible)
    cohort = groups or [range(terms.clients)]
    kept: list[StoredSum] = []
    for number in range(costed.sums):
        payload = b"" if not kept else _next_payload(costed, kept)
        if payload is None:  # no prefix was left: the rounds that remain are not needed
            break
        part = costed.part(asked, number, name)
        kept.append(
            _sum(sums, costed, part, payload, ledger, answers, cohort, reproducible=reproducible)
        )
    made = _answer(costed, kept)
    answers.keep(_entry(costed, asked, name, made))
    return made


def admit(
    costed: Costed,
    asked: int,
    ledger: QueryLedger,
    answers: StoredAnswers,
    *,
    reproducible: bool,
) -> None:
    """Check that the budget admits all sums of an answer that are not paid for yet.

    Parameters
    ----------
    costed : Costed
        What is asked.
    asked : int
        Which paid answer to it.
    ledger, answers
        What was charged and kept.
    reproducible : bool
        As for :func:`ask`.

    Raises
    ------
    BudgetExceeded
        With what is left, and the epsilon at which it would fit.
    """
    due = 0
    for number in range(costed.sums):
        charged = ledger.latest((costed.key, asked, number))
        number_kept = charged is not None and answers.sum(*charged.number) is not None
        again = charged is not None and reproducible and not charged.abandoned and charged.opened
        due += not (number_kept or again)
    if due == 0:
        return
    observer = costed.terms.budget.observer
    receipts = [costed.event(observer)] * due
    if costed.terms.budget.rule == "plan":
        ledger.check_planned(costed.key, due)
    check(costed.terms.budget, ledger.receipts(observer), receipts)


def _sum(
    sums: PrivateSums,
    costed: Costed,
    part: Part,
    payload: bytes,
    ledger: QueryLedger,
    answers: StoredAnswers,
    groups: Sequence[Sequence[int]],
    *,
    reproducible: bool,
) -> StoredSum:
    """Return a sum that was kept, or charge, open and keep one."""
    charged = ledger.latest(part.place)
    round, attempt = ledger.last_round + 1, 0
    if charged is not None and not charged.abandoned:
        kept = answers.sum(*charged.number)
        if kept is not None:
            return kept
        round, attempt = charged.number
        attempt += not reproducible
    request = QueryRequest(costed.question(round), payload)
    charge = ledger.charging(part, round, attempt, groups)
    try:
        opened = sums.private_sum(request, groups, round=round, attempt=attempt, charge=charge)
    except RoundAbandoned as error:
        ledger.abandon(round, attempt, str(error))
        raise QueryAbandoned(f"{part.name}: {error}") from None
    kept = StoredSum(round, attempt, _integers(opened.total), len(opened.survivors), payload)
    answers.keep_sum(kept)
    return kept


def _integers(total: np.ndarray) -> np.ndarray:
    """Return a decoded sum as the integers that it is."""
    if np.abs(total).max(initial=0.0) >= 2.0**53:
        raise ValueError("a coordinate of the sum is beyond 2^53, where float64 has gaps")
    return np.rint(total).astype(np.int64)
