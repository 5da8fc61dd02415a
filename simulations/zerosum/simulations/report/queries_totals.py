"""Add up what all sums of a folder of queries cost against each observer."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from zerosum.server.analytics.answer_epsilons import epsilons
from zerosum.server.analytics.budget import Budget, spend
from zerosum.server.analytics.costs import Costed
from zerosum.server.analytics.ledger import ChargedSum, QueryLedger
from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.privacy.observers import ObserverName

Bounds = Mapping[ObserverName, EpsilonBound]


def pure_epsilon(budget: Budget, sums: Sequence[ChargedSum]) -> float:
    """Return what sums cost at delta = 0 against the observer of sums.

    Parameters
    ----------
    budget : Budget
        Whose adjacency they are of.
    sums : sequence of ChargedSum
        Those that were never opened cost nothing.

    Returns
    -------
    float
        Infinite where one of them has no pure epsilon.
    """
    events = [each.receipt("sum") for each in sums if each.opened]
    return spend(replace(budget, rule="sum", observer="sum"), events).used


def total_bounds(
    ledger: QueryLedger,
    budget: Budget,
    asks: Mapping[str, Sequence[ChargedSum]],
    told: Mapping[str, Bounds],
    asked: Mapping[str, Costed],
) -> dict[ObserverName, EpsilonBound]:
    """Return the figures of all sums together, by the budget's rule.

    One answer was fixed before it was asked, whatever the rule: it is composed exactly.

    Parameters
    ----------
    ledger : QueryLedger
        All sums that were charged.
    budget : Budget
        Of the ledger.
    asks : mapping of str to sequence of ChargedSum
        The same sums by the digest of their question.
    told : mapping of str to mapping
        By digest, the figures of each answer.
    asked : mapping of str to Costed
        By digest, the queries of the plan.

    Returns
    -------
    dict
        By observer; empty before anything was charged.
    """
    if not ledger.sums:
        return {}
    paid = {(each.charge.ask, each.charge.asked) for each in ledger.sums}
    alone = len(paid) == 1 and not any(each.abandoned for each in ledger.sums)
    fixed = budget.rule == "plan" or alone
    found: dict[ObserverName, EpsilonBound] = {}
    names: tuple[ObserverName, ...] = ("release", "sum")
    for name in names:
        own = replace(budget, observer=name, rule="plan" if fixed else budget.rule)
        receipts = ledger.receipts(name)
        value = spend(own, receipts).epsilon
        if not math.isfinite(value):
            found[name] = no_bound(name, budget.delta, "no pure epsilon", unit=budget.unit)
            continue
        notes = _assumed(told.values(), name) or ("every client adds its share of the noise",)
        found[name] = EpsilonBound(
            value=value,
            delta=0.0 if own.rule == "sum" else budget.delta,
            slack=0.0,
            adjacency=budget.adjacency,
            unit=budget.unit,
            observer=name,
            accountant=_ACCOUNTANTS[own.rule],
            participations=len(receipts),
            assumptions=notes,
        )
    return found | {"local": _local(ledger, budget, asks, told, asked)}


_ACCOUNTANTS = {"plan": "pld", "sum": "sum of pure epsilons", "renyi": "Renyi, one order"}


def _assumed(told: Iterable[Bounds], name: ObserverName) -> tuple[str, ...]:
    """Return what must hold, each once; notes that differ in their last figure have its range."""
    figures: dict[str, list[str]] = {}
    for note in (note for each in told for note in each[name].assumptions):
        said = _FIGURE.fullmatch(note)
        words, number = (note, "") if said is None else said.groups()
        figures.setdefault(words, []).append(number)
    return tuple(
        f"{words} {' to '.join(dict.fromkeys([min(numbers, key=float), max(numbers, key=float)]))}"
        if numbers[0]
        else words
        for words, numbers in figures.items()
    )


_FIGURE = re.compile(r"(.*\D) (\d+\.?\d*(?:e-?\d+)?)")


def _local(
    ledger: QueryLedger,
    budget: Budget,
    asks: Mapping[str, Sequence[ChargedSum]],
    told: Mapping[str, Bounds],
    asked: Mapping[str, Costed],
) -> EpsilonBound:
    """Add up what single contributions tell by themselves: of all that were sent, opened or not."""
    value, deltas, accountants = 0.0, 0.0, []
    for ask, sums in asks.items():
        one = told[ask]["local"] if ask in told else None
        if one is None and ask in asked:
            one = epsilons(asked[ask])["local"]
        if one is None or not one.finite or not one.participations:
            reason = f"of what was sent for {sums[-1].charge.name} no figure is known"
            return no_bound("local", budget.delta, reason, unit=budget.unit, adjacency="replace")
        pure = all(each.charge.receipts.get("local") for each in sums) or one.accountant == "pure"
        value += one.value / one.participations * len(sums)
        deltas += 0.0 if pure else one.delta * len(sums)
        accountants.append("pure" if pure else one.accountant or "")
    return EpsilonBound(
        value=value,
        delta=deltas,
        slack=0.0,
        adjacency="replace",
        unit=budget.unit,
        observer="local",
        accountant=" + ".join(dict.fromkeys(accountants)),
        participations=len(ledger.sums),
        assumptions=_assumed(told.values(), "local") or ("each contribution carries its share",),
    )
