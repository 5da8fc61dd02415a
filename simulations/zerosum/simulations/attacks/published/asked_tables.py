"""Ask clients with tables for noisy answers, as an analyst does: real questions, masks and ledger.

A question without noise cannot be asked. Where a protection has none, it is asked with the least
noise that there is, of epsilon 128: each draw of it is 0 but for a chance of 2^-180.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from annotated_types import Gt
from pydantic import FiniteFloat
from pydantic.dataclasses import dataclass as checked_dataclass

from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.client.request import MAX_RECORDS
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.analytics.query_plan import PlanFile, plan_of
from zerosum.server.privacy.accountant import Ledger
from zerosum.simulations.attacks.harness.interface import CHECKED, Defense, NotApplicable
from zerosum.simulations.attacks.harness.to_specs import DELTA, check_played
from zerosum.simulations.queries.clients import Clients, TableEnvironment
from zerosum.simulations.queries.federation import Federation
from zerosum.simulations.queries.tables import dealt_of

LEAST_NOISE = 128.0
"""Epsilon of the least noise that is drawn, of scale 1/128."""

HONEST_FRACTION = 0.8
"""f: a released answer carries 1/f of the noise that is guaranteed."""

_NO_LIMIT = 2.0**40
"""Epsilon of a budget that refuses nothing here."""


@checked_dataclass(frozen=True, config=CHECKED)
class QueryDefense(Defense):
    """Protection of the answers to queries: geometric noise in shares, and the analyst's budget.

    Not more fields of :class:`Defense`: every cell's coins are seeded by all of its protection's
    fields.

    Attributes
    ----------
    epsilon : float
        Of each question, pure, by the noise that is guaranteed.
    limit : float or None
        Epsilon of the analyst's budget, to which those of all questions add up; None: any.
    fresh : bool
        Whether a question that was asked before is paid for and answered anew, or has its stored
        answer.
    """

    epsilon: Annotated[FiniteFloat, Gt(0)] = LEAST_NOISE
    limit: Annotated[FiniteFloat, Gt(0)] | None = None
    fresh: bool = True


PLAIN = QueryDefense("plain")
"""No masks, and no noise to speak of."""

MASKED = QueryDefense("masked", masking="double")
"""Masks alone."""


def noised(epsilon: float, *, limit: float | None = None, fresh: bool = True) -> QueryDefense:
    """Return masks and geometric noise in shares.

    Parameters
    ----------
    epsilon : float
        Of each question.
    limit : float or None
        Of all questions.
    fresh : bool
        Whether a question that was asked before is answered anew.

    Returns
    -------
    QueryDefense
        Named after them.
    """
    name = f"masked + geometric, epsilon {epsilon:g} each"
    if not fresh:
        name = f"{name}, stored answers"
    if limit is not None:
        name = f"{name}, budget {limit:g}"
    return QueryDefense(
        name, masking="double", noise="distributed", epsilon=epsilon, limit=limit, fresh=fresh
    )


def federation(
    columns: Mapping[str, np.ndarray],
    domains: Mapping[str, object],
    protection: Defense,
    *,
    clients: int,
    seed: int,
    max_records: int = MAX_RECORDS,
    environment: Clients = TableEnvironment,
) -> Federation:
    """Return clients that hold the rows of a table, to be asked; all is kept in memory.

    Parameters
    ----------
    columns : mapping of str to ndarray
        Of equal length: rows are dealt to the clients by the seed.
    domains : mapping
        As a ``[schema]`` section has them.
    protection : Defense
        A :class:`QueryDefense`.
    clients : int
        That take part.
    seed : int
        Of rows and noise.
    max_records : int
        Records of a client that count at most.
    environment : callable
        Makes the clients: by default they are honest.

    Returns
    -------
    Federation
        Its budget adds pure epsilons up.

    Raises
    ------
    NotApplicable
        If the protection is none of queries, or has what these clients leave out.
    """
    asked = checked(protection)
    schema = Schema.of(domains)
    # Each protection has its own stream of noise: with a shared one their columns would repeat the
    # same errors, and look alike by chance.
    coins = int(numpy_generator(seed, f"queries {asked.name}").integers(2**31))
    plan = plan_of(
        {
            "clients": clients,
            "seed": coins,
            "protocol": "pairwise" if asked.masked else "ideal",
            "server": "malicious" if asked.confirm else "semi-honest",
            "honest_fraction": HONEST_FRACTION,
            "max_records": max_records,
            "budget": {
                "epsilon": _NO_LIMIT if asked.limit is None else asked.limit,
                "delta": DELTA,
                "rule": "sum",
            },
        }
    )
    dealt = dealt_of(Table.of(columns, schema), plan, schema)
    return Federation(PlanFile(plan=plan, domains=schema), dealt, None, environment=environment)


def checked(protection: Defense) -> QueryDefense:
    """Return a protection as one of queries.

    Parameters
    ----------
    protection : Defense
        Of a cell.

    Returns
    -------
    QueryDefense
        The same.

    Raises
    ------
    NotApplicable
        If it is none, or has what these clients leave out.
    """
    if not isinstance(protection, QueryDefense):
        raise NotApplicable("clients with tables answer queries: give a QueryDefense")
    check_played(protection, ("masking", "noise", "confirm", "epsilon", "limit", "fresh"))
    if (protection.noise == "none") != (protection.epsilon == LEAST_NOISE):
        raise NotApplicable('noise "none" is epsilon 128, and noise of any other is "distributed"')
    if protection.noise not in ("none", "distributed"):
        raise NotApplicable(f'queries have "distributed" noise, not {protection.noise!r}')
    return protection


def released(asked: Federation) -> Ledger:
    """Compose what the answers of a federation carry, for whoever sees the answers alone."""
    ledger = Ledger(asked.terms.budget.adjacency)
    for receipt in asked.ledger.receipts("release"):
        ledger.compose(receipt)
    return ledger
