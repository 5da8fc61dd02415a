"""Write what an ethics board reads: what is computed, who could learn what, what one risks."""

import math
from typing import TYPE_CHECKING, Final

from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.simulations.report.unprotected import is_own
from zerosum.simulations.report.words import count

if TYPE_CHECKING:
    from zerosum.simulations.report.board import BoardFacts

PRIOR: Final = 0.1
"""Belief that the first page starts from."""

SURE: Final = 0.95
"""Belief from which on a limit is called none to rely on."""

ALMOST: Final = 0.998
"""Belief above which a limit is written as nearly certain."""

PRIORS: Final = (0.01, 0.1, 0.5)
"""Beliefs that the table starts from."""

_WHO: Final[dict[str, dict[ObserverName, tuple[str, str]]]] = {
    "pairwise": {
        "release": ("Anybody who gets the models", "the models, not who took part"),
        "sum": ("The server, and each other client", "the sum of each round, and who took part"),
        "local": ("The server, if the masks were broken", "what each client sends, by itself"),
    },
    "ideal": {
        "release": ("Anybody who gets the models", "the models, not who took part"),
        "sum": ("Whoever forms the sums", "the sum of each round, and who took part"),
        "local": ("Whoever sees what one client sends", "what each client sends, by itself"),
    },
    "none": {
        "release": ("Anybody who gets the models", "the models, not who took part"),
        "sum": ("Somebody who sees the sums alone", "the sum of each round, and who took part"),
        "local": ("The server", "what each client sends, by itself: nothing is masked"),
    },
}


def posterior(prior: float, epsilon: float) -> float:
    """Return the belief that an observer can have at most afterwards.

    Odds grow by e^epsilon at most: p e^eps / (1 - p + p e^eps) (Kasiviswanathan and Smith 2014).
    With a delta that is what holds but with probability delta, in which the observer may be told
    outright: every pair of such distributions comes from randomised response of that epsilon which
    tells the truth with probability delta (Kairouz, Oh and Viswanath 2017, theorem 3.2).

    Parameters
    ----------
    prior : float
        Belief before, in (0, 1).
    epsilon : float
        At least 0; may be infinite.

    Returns
    -------
    float
        In [prior, 1].
    """
    if math.isinf(epsilon):
        return 1.0
    # Divided by e^epsilon, which may be beyond any float.
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


def percent_up(part: float) -> str:
    """Write a probability as a percentage, rounded up to a tenth."""
    tenths = math.ceil(round(part * 1000, 9))
    return "nearly 100 %" if part >= ALMOST else f"{tenths / 10:g} %"


def one_in(delta: float) -> str:
    """Write a small probability as one in so many, rounded towards the larger probability."""
    if delta < 1e-9:
        return "less than 1 in 1,000,000,000"
    return f"1 in {max(1, math.floor(1 / delta + 1e-6)):,}"


def unit(facts: "BoardFacts") -> str:
    """Return the word for what is protected."""
    return "record" if facts.experiment.privacy.unit == "example" else "client"


def whose(facts: "BoardFacts") -> str:
    """Return what an observer would like to know, to follow "the belief that"."""
    return (
        "a given record was used" if unit(facts) == "record" else "a given client's data were used"
    )


def unit_meant(facts: "BoardFacts") -> str:
    """Return what the unit is."""
    if unit(facts) == "record":
        return "A record is one row of a client's data: one patient, if each patient has one row."
    return "Protected is a client as a whole, with all its data: all patients of a site, together."


def state(facts: "BoardFacts") -> str:
    """Return how the run stands."""
    planned = count(facts.experiment.rounds, "round")
    if facts.state == "planned":
        return f"A plan of {planned}: nothing has been computed yet."
    if facts.state == "finished":
        return f"A run of {count(facts.rounds, 'round')}, finished."
    if facts.state == "ended early":
        return (
            f"Ended after {facts.rounds:,} of {planned}. When it ended tells of its models, so all "
            f"{facts.experiment.rounds:,} are counted."
        )
    return (
        f"Not finished: {facts.rounds:,} of {planned}. The risks below are those of all "
        f"{facts.experiment.rounds:,}."
    )


def what_is_computed(facts: "BoardFacts") -> list[str]:
    """Return what is computed, in sentences."""
    clients = "Several clients" if facts.population is None else count(facts.population, "client")
    size = "" if facts.dimension is None else f", {facts.dimension:,} numbers,"
    sentences = [
        f"{clients} (sites or devices that hold data) train one model{size} together. Records stay "
        "where they are. In each round the server sends the model out, and each client that is "
        "asked sends back how its records would change it."
    ]
    privacy = facts.experiment.privacy
    if privacy.sums_gradients and privacy.examples and privacy.lot:
        sentences.append(
            f"In a round each record is drawn by a secret coin: about {privacy.lot:,} of "
            f"{privacy.examples:,}."
            if privacy.example_rate < 1
            else f"All records, {privacy.examples:,} at most, take part in each round."
        )
    return [*sentences, _MASKS[facts.experiment.secagg.protocol], _noise(facts)]


_MASKS: Final = {
    "pairwise": "What a client sends is masked. The masks cancel when all are added, so the server "
    "can read the sum of the clients and no single one of them.",
    "ideal": "The sums were formed by a program that all trust. No masks were used: where there is "
    "no such program, the server would see what each client sends.",
    "none": "Nothing is masked: the server reads what each client sends.",
}


def _noise(facts: "BoardFacts") -> str:
    thing = unit(facts)
    return {
        "distributed": "Each client adds its part of a random disturbance (noise) first, so that a "
        f"sum does not tell whether one {thing} is in it.",
        "local": "Each client adds a random disturbance (noise) first, enough to hide what it "
        "holds by itself.",
        "central": "The server adds a random disturbance (noise) to each sum. It is trusted: it "
        "sees the sums before.",
        "none": "No random disturbance (noise) is added: nothing limits what sums and models tell "
        f"of one {thing}.",
    }[facts.experiment.privacy.model]


def observers(facts: "BoardFacts") -> list[dict[str, str]]:
    """Return the observers in the house's order: who, what it sees, and what it can come to."""
    return [_observer(facts, name) for name in OBSERVERS]


def observer_of(facts: "BoardFacts", name: ObserverName) -> str:
    """Return who an observer is, as the table of the first page calls it.

    Parameters
    ----------
    facts : BoardFacts
        Of the run.
    name : str
        Of the observer.

    Returns
    -------
    str
    """
    return _WHO[facts.experiment.secagg.protocol][name][0]


def _observer(facts: "BoardFacts", name: ObserverName) -> dict[str, str]:
    who, sees = _WHO[facts.experiment.secagg.protocol][name]
    bound = facts.bounds.get(name)
    row = {"name": name, "who": who, "sees": sees, "kind": "none", "width": "100"}
    if bound is None:
        return row | {"risk": "not recorded", "note": ""}
    if not bound.finite:
        return row | {"risk": "no limit", "note": "nothing can be promised here"}
    after = posterior(PRIOR, bound.value)
    weak = after >= SURE
    return row | {
        "risk": percent_up(after) if after >= ALMOST else f"at most {percent_up(after)}",
        "note": "nothing to rely on" if weak else "",
        "kind": "weak" if weak else "finite",
        "width": f"{100 * after:.1f}",
    }


def lead(facts: "BoardFacts") -> str:
    """Return the risk against whom the noise is meant for, in one sentence."""
    name = facts.experiment.privacy.epsilon_for
    bound = facts.bounds.get("release")
    if not facts.experiment.privacy.private or bound is None or not bound.finite:
        return f"Nothing limits how sure an observer can become that {whose(facts)}."
    sentence = (
        f"Whoever sees all models can raise a belief of {percent_up(PRIOR)} that {whose(facts)} to "
        f"{_to(bound)}."
    )
    other = facts.bounds.get("sum")
    if facts.experiment.secagg.protocol == "pairwise" and other is not None and other.finite:
        to = "as far" if _to(other) == _to(bound) else f"to {_to(other)}"
        sentence += f" The server, or another client, can raise it {to}."
    if name == "local":
        return _lead_local(facts, sentence)
    return sentence + (_of_server(facts) if facts.experiment.secagg.protocol == "none" else "")


def _of_server(facts: "BoardFacts") -> str:
    """Return what a server can come to that no masks keep from what each client sends."""
    bound = facts.bounds.get("local")
    if bound is None or not bound.finite:
        return " The server reads what each client sends: nothing limits how sure it can become."
    return f" The server, which reads what each client sends, can raise it to {_to(bound)}."


def _lead_local(facts: "BoardFacts", sentence: str) -> str:
    bound = facts.bounds.get("local")
    if bound is None or not bound.finite:
        return sentence
    belief = f"a belief of {percent_up(PRIOR)} that {whose(facts)}"
    return f"Whatever anybody sees, it can raise {belief} to {_to(bound)}."


def _to(bound: EpsilonBound) -> str:
    after = posterior(PRIOR, bound.value)
    if after >= SURE:
        return f"{percent_up(after)}, which is no protection to rely on"
    return f"at most {percent_up(after)}"


def exception(facts: "BoardFacts") -> str:
    """Return how often the promise may fail; empty where nothing is promised or it never does."""
    bounds = [b for b in facts.bounds.values() if b.finite and b.delta > 0]
    if not bounds:
        return ""
    delta = max(bound.delta for bound in bounds)
    units = facts.experiment.privacy.examples or facts.population
    sentence = (
        f"For each {unit(facts)} that may fail with a probability of {one_in(delta)}, and then "
        "nothing is promised for it"
    )
    if not units:
        return f"{sentence}."
    if delta * units >= 0.1:
        number = f"{delta * units:.2g}"
        return f"{sentence}. Of {units:,} that may be {number} on average, which is not little."
    # One of several events is at most as probable as all together, however they depend.
    return f"{sentence}; of all {units:,}, it fails for any with at most {one_in(delta * units)}."


def unprotected(facts: "BoardFacts") -> str:
    """Return how many records nothing protects."""
    if facts.public_records:
        verb, them = ("is", "it") if facts.public_records == 1 else ("are", "them")
        return (
            f"{count(facts.public_records, 'record')} {verb} public: the model is tested on "
            f"{them}. Nothing on these pages protects the people in {them}."
        )
    if is_own(facts.experiment.task) and facts.state == "unfinished":
        return (
            "How many records are public, as those that the model is tested on, stands on the page "
            "of the plan, and here when the run is over. Nothing protects these."
        )
    if is_own(facts.experiment.task):
        return (
            "How many records are public, as those that the model is tested on, is not recorded "
            "here. Nothing protects these."
        )
    if facts.experiment.data.path is not None:
        return (
            "The model is tested on records of the files that it was given. Unless these are "
            "published, nothing on these pages protects the people in them."
        )
    return (
        "The model is tested on a published collection of records. Nothing on these pages is "
        "about the people in it."
    )


def simulation(facts: "BoardFacts") -> str:
    """Say that noise of a simulation protects nobody; empty for a deployment without it."""
    if not facts.experiment.privacy.private:
        return ""
    if facts.state == "planned" or facts.simulated is None:
        return (
            "If this is run as a simulation, all records lie on one machine and the noise can be "
            "drawn again: that protects nobody. The limits are for a run across the clients."
        )
    if facts.simulated:
        again = (
            ", and its noise can be drawn again from a number that is written down (the seed)"
            if facts.seeded
            else ""
        )
        return (
            f"This was a simulation: all records lay on one machine{again}. It protects nobody. "
            "The limits are those of the same run across the clients."
        )
    return ""


def not_covered(facts: "BoardFacts") -> list[str]:
    """Return what none of the limits is about."""
    thing = unit(facts)
    several = (
        "People with several records, or in the data of several clients: they risk more, as if "
        "each of their records were another person's."
        if thing == "record"
        else "People whose records are with several clients: they risk more, as if each of them "
        "had another person's."
    )
    return [
        several,
        "What a model says of people like somebody: that smokers fall ill more often is learnt, "
        "and told, whether or not a given smoker took part.",
        "Other uses of the same records: the risks of several runs add up, also of this one "
        "changed and run again.",
        "That a client took part, when, and how long it took. Its own staff sees its own records.",
        "Stolen keys, mistakes in programs, and whoever has the machines of a client.",
        "Whether the model is right, or fair. A client that lies can spoil it.",
    ]


def usefulness(facts: "BoardFacts") -> str:
    """Return what came of it, or what is to be expected; empty where nothing is known."""
    if facts.hopeless:
        hopeless = (
            "The noise leaves little to learn: models with so much of it were measured to fail. "
            "Whether the risk is worth it has to be asked."
        )
        return f"{facts.outcome} {hopeless}".strip()
    return facts.outcome
