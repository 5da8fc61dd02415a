"""Ask a question: compose first, charge ahead, sum, and keep the answer.

A question is answered by one private sum, `words` by several. What it costs is composed with all
that was spent before anything is sent. Each sum is charged on the disk before clients are asked,
and kept on the disk before anything is made of it: a crash leaves a sum that is paid for or one
that was never opened, and the same call goes on from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from zerosum.client.request import QueryRequest
from zerosum.server.analytics import prefixes
from zerosum.server.analytics.answer_epsilons import epsilons
from zerosum.server.analytics.answers import Answer, answer
from zerosum.server.analytics.asks import Ask, QueryAbandoned, QueryTerms
from zerosum.server.analytics.budget import check
from zerosum.server.analytics.costs import Costed, cost
from zerosum.server.analytics.ledger import Part, QueryLedger
from zerosum.server.analytics.query_files import QUERY_LEDGER, SUMS
from zerosum.server.analytics.stored_answers import AnswerEntry, StoredAnswers, StoredSum
from zerosum.server.config import ConfigError
from zerosum.server.private_sum.coordinator import Charge, RoundAbandoned
from zerosum.server.private_sum.sum_in_progress import Shape, SumPlan

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from zerosum.server.private_sum.aggregate import Aggregate


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
        """Ask a cohort a question and open the sum of the answers.

        Parameters
        ----------
        request, groups, round, attempt, charge
            As for :meth:`~.private_sum.coordinator.Coordinator.private_sum`.

        Returns
        -------
        Aggregate
            Of the groups that could be opened.
        """
        ...


def ask(
    sums: PrivateSums,
    question: Ask,
    ledger: QueryLedger,
    answers: StoredAnswers,
    terms: QueryTerms,
    *,
    reproducible: bool,
    groups: Sequence[Sequence[int]] | None = None,
    admitted: Callable[[], None] = lambda: None,
    prepare: Callable[[SumPlan], None] | None = None,
    upcoming: Costed | None = None,
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
    reproducible : bool
        Whether a sum done again draws the same noise: in a simulation.
    groups : sequence of sequence of int, optional
        Roster indices, one sequence a session. Default: all clients are one.
    admitted : callable
        Called when the budget admits the question, before anything is charged or sent.
    prepare : callable, optional
        As :meth:`~.private_sum.coordinator.Coordinator.prepare`.
    upcoming : Costed, optional
        The question after this one, of which nothing was charged: its keys and shares are prepared.

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
    admitted()
    cohort = groups or [range(terms.clients)]

    def prepared() -> None:
        if prepare is not None and upcoming is not None:
            prepare(_sum_plan(upcoming, ledger.reserve(upcoming.key), cohort))

    kept: list[StoredSum] = []
    for number in range(costed.sums):
        payload = b"" if not kept else _next_payload(costed, kept)
        if payload is None:  # no prefix was left: the rounds that remain are not needed
            break
        kept.append(
            _sum(
                sums,
                costed,
                costed.part(asked, number, name),
                payload,
                ledger,
                answers,
                cohort,
                reproducible=reproducible,
                # What the rounds of `words` ask follows from the one before.
                before=prepared if number == costed.sums - 1 else lambda: None,
            )
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
    kept: list[StoredSum] = []
    for number in range(costed.sums):
        if number and len(kept) == number and _next_payload(costed, kept) is None:
            break  # no prefix was left: the rounds that remain are never asked for
        charged = ledger.latest((costed.key, asked, number))
        opened = None if charged is None else answers.sum(*charged.number)
        if opened is not None:
            kept.append(opened)
            continue
        again = charged is not None and reproducible and not charged.abandoned and charged.opened
        due += not again
    if due == 0:
        return
    observer = costed.terms.budget.observer
    if costed.terms.budget.rule == "plan":
        ledger.check_planned(costed.key, due)
    check_fits(costed, ledger.receipts(observer), due, planned=ledger.planned(observer))


def check_fits(
    costed: Costed,
    spent: "Sequence[DpEvent]",
    sums: int | None = None,
    *,
    planned: "Sequence[DpEvent] | None" = None,
) -> None:
    """Raise BudgetExceeded, with an epsilon that would fit, unless a question fits its budget.

    Parameters
    ----------
    costed : Costed
        What is asked.
    spent : sequence of DpEvent
        Receipts of all sums that were opened before.
    sums : int, optional
        Sums that are not paid for yet. Default: all.
    planned : sequence of DpEvent, optional
        Under the rule "plan" all receipts that it fixed.
    """
    budget = costed.terms.budget

    def receipt_at(epsilon: float) -> "DpEvent":
        other = replace(costed.ask, epsilon=epsilon)
        return cost(other, costed.terms).whole(budget.observer)

    new = costed.whole(budget.observer, sums)
    check(budget, spent, new, planned=planned, receipt_at=receipt_at)


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
    before: Callable[[], None],
) -> StoredSum:
    """Return a sum that was kept, or charge, open and keep one."""
    charged = ledger.latest(part.place)
    if charged is None or charged.abandoned:
        round, attempt = ledger.number(part.ask), 0
    else:
        kept = answers.sum(*charged.number)
        if kept is not None:
            return kept
        round, attempt = charged.number
        attempt += not reproducible
    request = QueryRequest(costed.question(round), payload)
    charge = ledger.charging(part, round, attempt, groups)
    before()
    try:
        opened = sums.private_sum(request, groups, round=round, attempt=attempt, charge=charge)
    except RoundAbandoned as error:
        ledger.abandon(round, attempt, str(error))
        raise QueryAbandoned(f"{part.name}: {error}") from None
    kept = StoredSum(round, attempt, opened.total, len(opened.survivors), payload)
    answers.keep_sum(kept)
    return kept


def _sum_plan(costed: Costed, round: int, groups: Sequence[Sequence[int]]) -> SumPlan:
    """Return what must be known of a question's first sum before it is asked for."""
    request = QueryRequest(costed.question(round), b"")
    return SumPlan(tuple(map(tuple, groups)), round, 0, Shape.of(request))


def _kept(
    costed: Costed, asked: int, ledger: QueryLedger, answers: StoredAnswers
) -> list[StoredSum]:
    """Return the sums of an answer that is complete."""
    kept: list[StoredSum] = []
    for number in range(costed.sums):
        if kept and _next_payload(costed, kept) is None:  # no round continued it
            break
        charged = ledger.latest((costed.key, asked, number))
        opened = None if charged is None else answers.sum(*charged.number)
        if opened is None:
            raise ConfigError(
                f"the stored answer to {costed.ask.label} has lost sum {number + 1} of "
                f"{costed.sums} that it was made of: restore {SUMS}/ and {QUERY_LEDGER}, or start "
                "a new folder"
            )
        kept.append(opened)
    return kept


def _next_payload(costed: Costed, kept: Sequence[StoredSum]) -> bytes | None:
    """Return the prefixes that the next round continues; None where none is left."""
    last = kept[-1]
    question = costed.question(last.round)
    left = prefixes.survivors(question, last.noisy, costed.noise, last.payload)
    return prefixes.payload_of(left) if left else None


def _answer(costed: Costed, kept: Sequence[StoredSum]) -> Answer:
    """Make the answer of its sums, which is free, with what they cost."""
    last = kept[-1]
    noise = None if costed.privacy.noise_inside else costed.noise
    made = answer(costed.question(last.round), last.noisy, noise, last.clients, last.payload)
    receipt = {"sums": costed.sums} | {str(name): one for name, one in costed.receipts.items()}
    return replace(made, epsilon=epsilons(costed), receipt=receipt)


def _entry(costed: Costed, asked: int, name: str, made: Answer) -> AnswerEntry:
    values = {"asked_epsilon": costed.ask.epsilon, **made.to_json()}
    return AnswerEntry(name, costed.key, asked, values, made.rows())
