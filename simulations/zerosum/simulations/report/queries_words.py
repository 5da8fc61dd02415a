"""Write the sentences of a page of queries: observers, cautions, claims."""

import math

from zerosum.server.analytics.plan_terms import SECRET_SEED
from zerosum.server.privacy.observers import SEES, ObserverName, observer_who
from zerosum.server.privacy.rounding import epsilon_text, remainder_text
from zerosum.simulations.report.queries_record import QueryRecord
from zerosum.simulations.report.words import count, delta, meaning, weak_figures

__all__ = ["cautions", "claims", "count", "delta", "meaning", "observer"]
"""What the table of observers names of a module of words, and two words of a run's report."""

READERS = "for readers of answers and of this page, not of sums/ and queries.toml"
"""Beside epsilon_release: these hold every sum that was opened, and a simulation's seed."""

PRIOR = 0.4
"""Belief before the answers, in the example."""

_PRIOR_TEXT = f"{PRIOR:.2f}".removeprefix("0")

_RULES = {
    "plan": "all queries were fixed before the first answer, and are composed exactly: together "
    "they cost less than one by one",
    "sum": "pure epsilons add up, whatever is asked next and why",
    "renyi": "Renyi divergences add up at one order, which the budget alone fixes",
}


def observer(record: QueryRecord, name: ObserverName) -> tuple[str, str]:
    """Return who an observer of queries is, and what it sees.

    Parameters
    ----------
    record : QueryRecord
        Has the protocol.
    name : str
        One of ``OBSERVERS``.

    Returns
    -------
    tuple of str
        Who, and what it sees.
    """
    if name == "release":
        return "outsiders, who see the answers", "the answers, and how many clients are in each"
    return observer_who(name, record.protocol), SEES[name]


def cautions(record: QueryRecord) -> list[str]:
    """Return what a reader must know before believing a figure."""
    sentences = []
    if any(SECRET_SEED in bound.assumptions for bound in record.bounds.values()):
        sentences.append(
            "A simulation: its noise follows from the seed. Whoever knows the seed takes the noise "
            "off again, and no epsilon holds against them. A deployment draws it from the "
            "operating system."
        )
    if record.protocol == "ideal":
        sentences.append(
            'protocol = "ideal": no cryptography ran. The figures against an observer of sums hold '
            "only where someone trusted really computes the sum."
        )
    local = record.bounds.get("local")
    if local is not None and any(" is 0 with probability " in note for note in local.assumptions):
        sentences.append(
            "epsilon_local is of single contributions, as if masks were broken. It is finite, and "
            "still little protection: most shares of the noise are 0."
        )
    return sentences + weak_figures(record.bounds, unit_of(record))


def claims(record: QueryRecord) -> list[tuple[str, str]]:
    """Return what the figures say, and what they do not: pairs of a subject and a sentence."""
    unit, adjacency = unit_of(record), record.spending.budget.adjacency
    levels = sorted({f"{100 * each.level:g} %" for each in record.answers})
    return [
        ("Unit", _UNITS[unit]),
        ("Adjacency", _ADJACENCIES[adjacency].format(unit=unit)),
        (
            f"Intervals{', ' if levels else ''}{', '.join(levels)}",
            "speak of the noise alone: they are about the answer of the clients that answered, "
            "each on its own, and not about a wider population",
        ),
        ("Dropouts", "are not scaled up: an answer is about the clients in its sum"),
        ("Counts", "are unbiased, so that one of few records may be below zero"),
        ("Wrong data", "a client can send what it likes within its bounds: that is not prevented"),
    ]


def unit_of(record: QueryRecord) -> str:
    """Return what the figures protect."""
    return record.spending.budget.unit


_UNITS = {
    "record": "one record, whichever client holds it; nothing is claimed of a client, or of a "
    "person with several records",
    "client": "all records of a client; a person at several clients counts at each",
}

_ADJACENCIES = {
    "zero_out": "zero_out: one {unit} is there, or adds nothing; all others are known",
    "replace": "replace: one {unit} is there, or another in its place; all others are known",
}


def rule(record: QueryRecord) -> str:
    """Say how the costs of a budget's queries add up."""
    budget = record.spending.budget
    order = "" if budget.order is None else f": order {budget.order}"
    return f'rule = "{budget.rule}": {_RULES[budget.rule]}{order}.'


def spent(record: QueryRecord) -> str:
    """Say in one line what is spent of a budget and what is left."""
    told, limit = record.spending.spent, record.spending.spent.limit
    budget = record.spending.budget
    what = f"epsilon = {epsilon_text(budget.epsilon)} at delta = {delta(budget.delta)}"
    if budget.order is None:
        used = f"{epsilon_text(told.used)} of {epsilon_text(limit)} is spent"
        return f"{used}, {remainder_text(told.left)} is left: {what}, for one {budget.unit}."
    part = 100 * told.used / limit
    return f"{part:.1f} % is spent, {100 - part:.1f} % is left: {what}, for one {budget.unit}."


def posterior(epsilon: float, prior: float = PRIOR) -> tuple[float, float]:
    """Return what a belief can become by answers of a pure epsilon.

    By Bayes' rule its odds are multiplied by a ratio of two probabilities of the answers, which is
    between exp(-epsilon) and exp(epsilon).

    Parameters
    ----------
    epsilon : float
        Pure; infinite: nothing is said.
    prior : float
        Before the answers.

    Returns
    -------
    low, high : float
        Probabilities.
    """
    factor = math.exp(-epsilon)
    against = 1 - prior
    return prior * factor / (prior * factor + against), prior / (prior + against * factor)


def believed(epsilon: float) -> str:
    """Say what the belief of the example becomes."""
    low, high = map(_probability, posterior(epsilon))
    return f"prior {_PRIOR_TEXT} becomes between {low} and {high}"


def belief_of(record: QueryRecord) -> str:
    """Say whose belief the example is about."""
    unit, replaced = unit_of(record), record.spending.budget.adjacency == "replace"
    what = f"that one {unit} has some property" if replaced else f"that one {unit} is there at all"
    return (
        f"Somebody who knows everything else believes {what}, with a probability of {_PRIOR_TEXT}. "
        "Afterwards that is between these, whatever was answered. It holds against the observer of "
        "sums; pure epsilons alone can say it."
    )


def answered(record: QueryRecord) -> str:
    """Say how many clients the answers have in their sums."""
    if not record.answers:
        return f"{count(record.clients, 'client')} would be asked."
    numbers = [each.clients for each in record.answers]
    low, high = min(numbers), max(numbers)
    of = f"of {count(record.clients, 'client')} answered"
    return f"{low:,} {of} every query." if low == high else f"{low:,} to {high:,} {of} a query."


def beliefs(record: QueryRecord) -> list[tuple[str, float]]:
    """Return names of queries and their pure epsilon, all of them together first.

    Queries of one epsilon share a line. Where an epsilon is not pure there is none.
    """
    alike: dict[str, list[str]] = {}
    values: dict[str, float] = {}
    for name, epsilon in record.pure.items():
        if 0 < epsilon < math.inf:
            alike.setdefault(epsilon_text(epsilon), []).append(name)
            values[epsilon_text(epsilon)] = epsilon
    lines = [(_several(names), values[text]) for text, names in alike.items()]
    whole = math.fsum(record.pure.values())
    return [("all together", whole), *lines] if len(record.pure) > 1 and whole < math.inf else lines


def _several(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


_NAMED = 4
"""Queries of one epsilon that are named."""


def _probability(value: float) -> str:
    """Write a probability with three decimals, or as many as its first digit needs."""
    if value >= 0.9995:
        return "1"
    digits = max(3, -math.floor(math.log10(value))) if value > 0 else 3
    return f"{value:.{min(digits, 12)}f}".removeprefix("0")
