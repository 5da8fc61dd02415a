"""State in words what must hold for an epsilon to be true, and why one is refused."""

from zerosum.server.privacy.dropout_rate import MISSED_RATE
from zerosum.server.privacy.guarantees import Guarantee, Participation, Sampling

APART = (
    "no item of a client's data set is made of several records or hangs on those read before it, "
    "and what models and losses carry from one example to the next lies in the model or the task, "
    "not in globals or files"
)

MASKED = "masking is in force: the server sees sums and the roster only"

TRUSTED = (
    'privacy.model = "central": the server is trusted with what clients send, noise is added once '
    "to what it releases"
)


def dropout_note(sampling: Sampling) -> str:
    """Write the dropout rate that a release is charged at."""
    if not sampling.observed:
        return f"dropout at most {sampling.dropout:g} a client, independent of data"
    return (
        f"dropout at most {sampling.dropout:g} a client, independent of data and of each other: "
        f"with confidence 1 - {MISSED_RATE:g}, by what was observed, which was more than assumed"
    )


def not_constant(terms: tuple[Guarantee, ...]) -> str:
    """Write why epsilon_release is refused where the noise of a sum tells who took part."""
    lengths = ", ".join(str(t.length) for t in terms)
    return (
        "privacy.top_up = false: the variance of a sum then tells how many took part "
        f"(over {lengths} coordinates), which no released-sums figure covers"
    )


def guarantee_notes(terms: tuple[Guarantee, ...], tally: Participation) -> tuple[str, ...]:
    """Write what part of the guaranteed noise a fellow client faces.

    Parameters
    ----------
    terms : tuple of Guarantee
        One for each kind of sum.
    tally : Participation
        With the smallest cohort of each.

    Returns
    -------
    tuple of str
        Assumptions of epsilon_sum.
    """
    faced = [(t.faced(n), n) for t, n in zip(terms, tally.smallest, strict=True)]
    if all(part == 1 for part, _ in faced):
        return ("charged is the guaranteed noise V, whoever dropped out",)
    return tuple(
        f"a fellow client knows the share that it drew, and pools it with nobody: charged are "
        f"{float(part):.4g} V, what it faces in the smallest cohort, of {n}"
        for part, n in sorted(set(faced))
        if part < 1
    )


def nothing_faced(terms: tuple[Guarantee, ...], tally: Participation) -> str:
    """Return why a fellow client faces no noise at all; empty if it faces some.

    Parameters
    ----------
    terms, tally
        As for :func:`guarantee_notes`.

    Returns
    -------
    str
        A reason that ends with what to do.
    """
    for t, n in zip(terms, tally.smallest, strict=True):
        if t.faced(n) <= 0:
            return (
                f"a fellow client of a cohort of {n} knows its own share of the noise, and no "
                "other is guaranteed: raise privacy.honest_fraction or the cohort"
                + ("" if t.topped_up else ", or set privacy.top_up = true")
            )
    return ""


def local_notes(terms: tuple[Guarantee, ...]) -> tuple[str, ...]:
    """Write how much noise one contribution carries."""
    if terms[0].model == "distributed":
        return ("each contribution carries one client's share of the noise, V/(f n)",)
    return ("each contribution carries the full noise",)


def example_notes(terms: tuple[Guarantee, ...]) -> tuple[str, ...]:
    """Write how examples are drawn, and that none hangs on another."""
    drawn = tuple(
        f"each client draws each of its examples with probability {t.example.q:.6g}, "
        + ("by coins that nobody else knows" if t.example.steps == 1 else
           f"in each of {t.example.steps} steps, by coins that nobody else knows")
        for t in terms
        if t.example is not None
    )  # fmt: skip
    return (*drawn, APART) if drawn else ()


def release_notes(terms: tuple[Guarantee, ...]) -> tuple[str, ...]:
    """Write who adds the noise of a release."""
    if terms[0].model == "central":
        return ("a trusted server adds the noise to what it releases",)
    notes: tuple[str, ...]
    notes = ("every contributing client adds its share; the server tops up to V/f",)
    if (groups := max(t.groups for t in terms)) > 1:
        notes += (
            f"a release adds {groups} groups, failed ones included: its noise is {groups} V/f",
        )
    return notes
