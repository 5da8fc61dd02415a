"""Write the second page for an ethics board: conditions to be ticked, figures, and their source."""

from typing import TYPE_CHECKING, Final

from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.simulations.report.board_words import (
    PRIORS,
    observer_of,
    one_in,
    percent_up,
    posterior,
    unit,
)
from zerosum.simulations.report.words import percent

if TYPE_CHECKING:
    from zerosum.simulations.report.board import BoardFacts

MOST_LETTERS = 150
"""Letters of a reason that are shown: a page has room for so many, and summary.json has all."""

SIGNATURES: Final = ("For the ethics board", "Data protection officer", "Responsible for the study")

SOURCES: Final = (
    "Kasiviswanathan and Smith 2014, On the semantics of differential privacy; Kairouz, Oh and "
    "Viswanath 2017, The composition theorem for differential privacy, theorem 3.2."
)


def conditions(facts: "BoardFacts") -> list[str]:
    """Return what must be true for the limits to hold, each to be ticked."""
    trusted = [*_code(facts), *_masking(facts)]
    if not facts.experiment.privacy.private:
        return [*trusted, *_people(facts), _CONSENT]
    return [*trusted, *_noise(facts), *_people(facts), *_fixed(facts), _CONSENT]


_CONSENT: Final = (
    "Those whose records are public, as the ones that the model is tested on, agreed to that."
)


def _code(facts: "BoardFacts") -> list[str]:
    """Return the main limit of a deployment: a node runs what it is sent."""
    if facts.simulated:
        return []
    return ["The programs that run at the clients are those that were reviewed."]


def _masking(facts: "BoardFacts") -> list[str]:
    secagg = facts.experiment.secagg
    if secagg.protocol == "none":
        return ["All clients agreed that the server reads what each of them sends."]
    if secagg.protocol == "ideal":
        return ["All clients trust whoever forms the sums to show nobody what a client sent."]
    colluding = (
        "No client shares what it knows with the server."
        if not secagg.corruption
        else f"At most {percent(secagg.corruption)} of the clients share what they know with the "
        "server."
    )
    honest = (
        "The list of the clients' keys is signed by somebody else than the server."
        if secagg.server == "malicious"
        else "The server follows the protocol."
    )
    return [colluding, honest]


def _noise(facts: "BoardFacts") -> list[str]:
    privacy = facts.experiment.privacy
    said = []
    if privacy.model == "distributed":
        adding = (
            "All"
            if privacy.honest_fraction == 1
            else f"At least {percent(privacy.honest_fraction)} of the"
        )
        said.append(f"{adding} clients asked in a round add their noise as agreed.")
    if privacy.model == "central":
        said.append("The server adds the noise before it shows anybody a sum.")
    said.append("The noise is drawn secretly by each machine, not from a number written down.")
    release = facts.bounds.get("release")
    if any("dropout" in note for note in (() if release is None else release.assumptions)):
        said.append(
            f"At most {percent(facts.experiment.secagg.dropout)} of the clients asked fail to "
            "answer, for reasons that have nothing to do with their records."
        )
    if facts.experiment.sampling.kind in ("poisson", "fixed"):
        said.append("Those who get the models do not learn how many clients took part, nor which.")
    return said


def _people(facts: "BoardFacts") -> list[str]:
    if unit(facts) == "client":
        return ["All records of a person are with one client."]
    said = ["Each record is of one person, who has no other, with any client."]
    if examples := facts.experiment.privacy.examples:
        said.append(f"The clients may tell that they have at most {examples:,} records together.")
    return said


def _fixed(facts: "BoardFacts") -> list[str]:
    return [
        "Rounds, noise and limits are those fixed before anybody looked at the records.",
        "Nothing else is computed from these records, or its risk is added.",
    ]


def figures(facts: "BoardFacts") -> list[list[str]]:
    """Return rows of who observes, epsilon, delta, and beliefs from :data:`PRIORS` on."""
    rows = []
    for name in OBSERVERS:
        bound = facts.bounds.get(name)
        if bound is None:
            continue
        value = epsilon_text(bound.value) if bound.finite else "none"
        beliefs = [percent_up(posterior(prior, bound.value)) for prior in PRIORS]
        delta = one_in(bound.delta) if bound.finite else "–"
        rows.append(
            [observer_of(facts, name), value, delta, *(beliefs if bound.finite else ["–"] * 3)]
        )
    return rows


def reasons(facts: "BoardFacts") -> list[str]:
    """Return why some observer has no limit, in the words of the accounting."""
    return [
        f"{observer_of(facts, name)}: {shortened(bound.reason or '', MOST_LETTERS)}"
        for name in OBSERVERS
        if (bound := facts.bounds.get(name)) is not None and not bound.finite
    ]


def meaning(facts: "BoardFacts") -> str:
    """Return the formula, and what delta makes of it."""
    if not any(bound.finite for bound in facts.bounds.values()):
        return ""
    return (
        "Epsilon bounds how much more likely anything an observer sees is with the "
        f"{unit(facts)} than without it: at most e^epsilon times, and delta more. A belief p "
        "becomes at most p e^epsilon / (1 - p + p e^epsilon). With delta above 0 this holds "
        "exactly so: the observer learns no more than from somebody who tells the truth outright "
        "with probability delta, and else gives an answer by which a belief moves so far at most."
    )


_COMPARED: Final = {
    "add_remove": "compared with leaving its data out",
    "zero_out": "compared with sending nothing but noise",
    "replace": "compared with any other data in its place",
}
"""What a figure compares a unit's presence with, by the adjacency of its bound."""


def setting(facts: "BoardFacts") -> str:
    """Return the settings that the figures follow from, in a line."""
    experiment = facts.experiment
    privacy, secagg = experiment.privacy, experiment.secagg
    parts = [f"unit of privacy: {unit(facts)}", f"noise: {privacy.model}"]
    if privacy.noise_multiplier:
        parts.append(f"noise multiplier {privacy.noise_multiplier:.4g}")
    adjacency = dict.fromkeys(b.adjacency for b in facts.bounds.values() if b.adjacency)
    parts += [_COMPARED[each] for each in adjacency]
    masks = {"pairwise": f"masks against a {secagg.server} server", "ideal": "a trusted sum",
             "none": "no masks"}  # fmt: skip
    return (
        "; ".join([*parts, masks[secagg.protocol], f"sampling: {experiment.sampling.kind}"]) + "."
    )


def shortened(text: str, letters: int) -> str:
    """Return a text of at most so many letters; one that was longer ends in dots.

    Parameters
    ----------
    text : str
    letters : int

    Returns
    -------
    str
    """
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
