"""What a question costs: its noise and its receipts, fixed before anything is sent.

Nothing here depends on data: weight, oracle, law and scale follow from the query's shape, the
schema and the terms of the budget.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from zerosum.client.privacy.counts import guaranteed_fraction
from zerosum.client.queries import oracles
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import moves
from zerosum.client.queries.query import Moments, Oracle, Query
from zerosum.client.queries.schema import Schema
from zerosum.client.request import QueryQuestion
from zerosum.client.spec.complaints import first_complaint
from zerosum.client.spec.query_privacy import LEAST_SCALE, MOST_LOCAL_EPSILON, QueryPrivacy
from zerosum.server.analytics.asks import Ask, MechanismChoice, QueryTerms
from zerosum.server.analytics.calibrate import Noise, calibrate, moments_weight
from zerosum.server.analytics.ledger import Part
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.receipts import read_receipt, receipt_values
from zerosum.server.privacy.observers import ObserverName

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from zerosum.server.analytics.budget import Budget


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

    def __repr__(self) -> str:
        """Return one line: its terms and receipts are a page."""
        bounds = {name: receipt for name, receipt in self.receipts.items() if receipt is not None}
        asked = f"{self.ask.query.kind}, epsilon={self.ask.epsilon:g}"
        return f"Costed({asked}, receipts={bounds!r:.300})"

    @cached_property
    def key(self) -> str:
        """Digest of what makes two questions the same: all but round, seed and name."""
        asked = self.question(0, seed=0).canonical()
        return hashlib.sha256(b"zerosum/1 query\0" + asked).hexdigest()

    @property
    def noise(self) -> ReleasedNoise:
        """The law of the noise in each released sum."""
        law = self.privacy.law
        if law == "randomized-response":
            raise ValueError("a report of the local model is random itself: its sum has no noise")
        ratio = 1 / float(_honest_part(self.privacy, self.terms))
        return ReleasedNoise(law, self.privacy.scale, ratio)

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

    def whole(self, observer: ObserverName, sums: int | None = None) -> "DpEvent":
        """Return the receipt of several of its sums.

        Parameters
        ----------
        observer : str
            Against whom.
        sums : int, optional
            How many. Default: all.

        Returns
        -------
        DpEvent
            Their composition.
        """
        import dp_accounting

        count = self.sums if sums is None else sums
        event = self.event(observer)
        return event if count == 1 else dp_accounting.SelfComposedDpEvent(event, count)

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
    if isinstance(ask.query, Oracle):
        return _local(ask, ask.query, terms)
    query = _weighted(ask, terms)
    blocks = query.blocks(terms.schema, b"")
    budget, sums = terms.budget, query.rounds(terms.schema)
    one = moves(blocks, unit=budget.unit, adjacency=budget.adjacency, cap=terms.cap)
    try:
        noise, receipts = shared_noise(
            one,
            sums,
            epsilon=ask.epsilon,
            mechanism=ask.mechanism,
            budget=budget,
            cohort=terms.smallest_cohort,
            honest_fraction=terms.honest_fraction,
        )
    except ValueError as error:
        raise QueryError(f"{query.kind}: {error}") from None
    privacy = _carried(
        query,
        law=noise.law,
        scale=noise.scale,
        unit=budget.unit,
        adjacency=budget.adjacency,
        cap=terms.cap,
        honest_fraction=terms.honest_fraction,
    )
    return Costed(ask, terms, query, privacy, sums, receipts)


def shared_noise(
    moves: tuple[int, ...],
    sums: int,
    *,
    epsilon: float,
    mechanism: MechanismChoice,
    budget: "Budget",
    cohort: int,
    honest_fraction: float,
) -> tuple[Noise, dict[ObserverName, dict[str, Any] | None]]:
    """Return the noise of which clients draw shares, and what each of so many sums costs.

    All of them are calibrated as one: the rounds of `words` have receipts that are fixed
    beforehand, and only what they ask adapts. Geometric noise comes out as epsilon / T a round.

    Parameters
    ----------
    moves : tuple of int
        Of one sum, for the budget's unit and adjacency.
    sums : int
        That answer one question.
    epsilon : float
        Of all of them.
    mechanism : {"auto", "geometric", "skellam"}
        The law, or the better one.
    budget : Budget
        Its delta and rule.
    cohort : int
        Clients of the smallest session.
    honest_fraction : float
        Part of them whose shares are guaranteed.

    Returns
    -------
    Noise and dict
        The latter by observer, in plain values.

    Raises
    ------
    ValueError
        As of :func:`~.calibrate.calibrate`.
    """
    noise = calibrate(
        moves * sums,
        epsilon=epsilon,
        delta=budget.delta,
        mechanism=mechanism,
        pure_only=budget.rule == "sum",
    )
    # A fellow client knows its own share of Skellam noise: what it faces is what is calibrated.
    # Shares of geometric noise are divided by an f under which it faces all of it.
    faced = _faced(noise, cohort, honest_fraction)
    noise = replace(noise, scale=noise.scale / math.sqrt(faced))
    ratio = 1 / float(guaranteed_fraction(noise.law, honest_fraction, cohort))
    # One share of its own has no receipt: below a whole law the noise is not log-concave.
    return noise, {
        "sum": receipt_values(noise.receipt(moves, faced)),
        "release": receipt_values(noise.receipt(moves, ratio)),
        "local": None,
    }


def _weighted(ask: Ask, terms: QueryTerms) -> Query:
    """Return the query with the weight of its moments, chosen by public figures alone."""
    query = ask.query
    if not isinstance(query, Moments):
        return query
    try:
        weight = moments_weight(terms.most_records, ask.epsilon)
    except ValueError as error:
        raise QueryError(f"{query.kind}: {error}") from None
    return query.model_copy(update={"weight": weight})


def _local(ask: Ask, query: Oracle, terms: QueryTerms) -> Costed:
    """Resolve a query of the local model: each client sends one randomised report."""
    budget = terms.budget
    if (budget.unit, budget.adjacency, terms.cap) != ("client", "replace", 1):
        raise QueryError(
            f"oracle: a client sends one report, so it is for a budget of unit = "
            f'"client", adjacency = "replace" and cap = 1, and this one has {budget.unit!r}, '
            f"{budget.adjacency!r} and {terms.cap}"
        )
    if not LEAST_SCALE <= ask.epsilon <= MOST_LOCAL_EPSILON:
        raise QueryError(
            f"oracle: epsilon = {ask.epsilon:g}: a report has one from {LEAST_SCALE:g} to "
            f"{MOST_LOCAL_EPSILON:g}"
        )
    if query.oracle == "auto":
        size = query.size(terms.schema)
        query = query.model_copy(update={"oracle": oracles.choose(size, ask.epsilon)})
    privacy = _carried(
        query,
        model="local",
        law="randomized-response",
        scale=ask.epsilon,
        unit="client",
        adjacency="replace",
        cap=1,
        honest_fraction=terms.honest_fraction,
    )
    import dp_accounting

    # It dominates any mechanism of pure epsilon (Kairouz, Oh, Viswanath 2015).
    event = dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.exp(ask.epsilon)), 2)
    values = receipt_values(event)
    return Costed(
        ask, terms, query, privacy, 1, {"sum": values, "release": values, "local": values}
    )


def _carried(query: Query, **noise: Any) -> QueryPrivacy:
    """Return the noise as a request carries it; refuse what none can."""
    try:
        return QueryPrivacy(**noise)
    except ValidationError as error:
        name = "epsilon" if noise["law"] == "randomized-response" else "scale of its noise"
        reason = first_complaint(error).reason
        raise QueryError(f"{query.kind}: {name} = {noise['scale']:g}: {reason}") from None


def _faced(noise: Noise, n: int, honest_fraction: float) -> float:
    """Return the part of the guaranteed noise that a fellow client faces, at most 1."""
    if noise.law == "geometric":
        return 1.0
    return min(1.0, (n - 1) / (n * honest_fraction))


def _honest_part(privacy: QueryPrivacy, terms: QueryTerms) -> Fraction:
    """Return f in the smallest session: by it shares are divided."""
    return privacy.honest_part(terms.smallest_cohort)


def _domains(query: Query, schema: Schema) -> Schema:
    """Return the domains that a query reads; a count without a filter reads none, and has one.

    By name: two files with the same columns in another order ask the same question.
    """
    names = sorted(query.reads) or sorted(schema.columns)[:1]
    return Schema(columns={name: schema.column(name) for name in names})
