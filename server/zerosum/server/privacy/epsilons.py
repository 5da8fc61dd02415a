"""Compute the epsilon against each observer from guarantees and participation.

Pure functions: :mod:`zerosum.server.privacy.run_ledger` counts,
:mod:`zerosum.server.privacy.calibration` plans. Every epsilon is one composition of events in a
:class:`~zerosum.server.privacy.accountant.Ledger`; mechanisms are known by their events alone.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from dp_accounting import DpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent

from zerosum.client.privacy.events import MaybeAbandonedDpEvent
from zerosum.client.privacy.mechanism import Drawn
from zerosum.server.privacy.accountant import Accounted, Ledger
from zerosum.server.privacy.assumptions import (
    MASKED,
    TRUSTED,
    dropout_note,
    example_notes,
    guarantee_notes,
    local_notes,
    not_constant,
    nothing_faced,
    release_notes,
)
from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.privacy.event_costs import Adjacency, doubled, for_replacement
from zerosum.server.privacy.guarantees import Guarantee, Participation, Sampling
from zerosum.server.privacy.observers import OBSERVERS, ObserverName

Charges = Iterable[tuple[DpEvent, float]]


_SAMPLER_PART = 1e-7
"""Part of delta that the samplers' distance hardly ever exceeds.

Epsilon is asked for at delta less this part first. If the slack turns out smaller, one composition
was enough, and epsilon moved in its seventh digit.
"""

_DRAWN: Mapping[Drawn, str] = {
    "table": "integer noise from a table",
    "exact": "integer noise from OpenDP's exact sampler",
    "float": "noise in floating point, whose distance from its law is not known",
}


@dataclass(frozen=True)
class EpsilonCurve:
    """An upper bound on epsilon as a function of delta, and what it was composed from.

    Attributes
    ----------
    at : callable
        Epsilon at a delta, with the accountant that found it.
    adjacency : {"add_remove", "replace", "zero_out"}
        What two neighbouring inputs differ in.
    participations : int
        Contributions, or releases, that were composed.
    assumptions : tuple of str
        What must hold for the bound to be true.
    """

    at: Callable[[float], Accounted]
    adjacency: Adjacency
    participations: int
    assumptions: tuple[str, ...]


@dataclass(frozen=True)
class DrawnNoise:
    """Distance of the drawn noise from the law that is accounted.

    Attributes
    ----------
    integers : float
        Noise integers drawn.
    tau : float
        Total-variation distance of each from its law; also bounds its log-ratio at every point.
    drawn : str
        How it is drawn, in words.
    """

    integers: float
    tau: float
    drawn: str

    @classmethod
    def of(cls, terms: tuple[Guarantee, ...], tally: Participation) -> "DrawnNoise":
        """Add up what all kinds of sums draw; the distance is the largest of any.

        Parameters
        ----------
        terms : tuple of Guarantee
            One for each kind of sum.
        tally : Participation
            Its ``draws`` are noise vectors of each kind.

        Returns
        -------
        DrawnNoise
            Of the whole run.
        """
        integers = sum(n * t.integers for n, t in zip(tally.draws, terms, strict=True))
        drawn = " and ".join(sorted({_DRAWN[t.drawn] for t in terms}))
        return cls(float(integers), max(t.tau for t in terms), drawn)


def local_curve(terms: tuple[Guarantee, ...], tally: Participation) -> EpsilonCurve:
    """Bound what one noised vector after another says about its client, or about one example.

    Parameters
    ----------
    terms : tuple of Guarantee
        One for each kind of sum.
    tally : Participation
        Who contributed how often.

    Returns
    -------
    EpsilonCurve
        Under replacement; under zero-out where examples are the unit.
    """
    by_example = _by_example(terms)
    events, largest = [], [max(1, n) for n in tally.largest]
    for t, n in zip(terms, largest, strict=True):
        event = t.contribution(n)
        if by_example:
            events.append(_of_example(t, event))
        else:
            events.append(for_replacement(event))
    # A client of sessions of several sizes n carries V/(f n) in each. The divergence of a share
    # grows faster than n, amplified or not: at most n / largest of that at the largest n.
    # So fractions of one event are composed, for which sampled events have Renyi divergences alone.
    # "rdp" also where the fractions happen to be whole: a figure must not fall from round to round.
    shares = terms[0].model == "distributed"
    alternatives = [
        [
            (event, size / n if shares else count)
            for event, n, (count, size) in zip(events, largest, client, strict=True)
        ]
        for client in tally.worst
    ]
    accountant: Literal["pld", "rdp"] = "rdp" if shares and by_example else "pld"
    notes = (*local_notes(terms), "composed over the contributions of the client that made most")
    adjacency: Adjacency = "zero_out" if by_example else "replace"
    notes = (*notes, *example_notes(terms))
    return _composed(adjacency, alternatives, tally.most, notes, accountant)


def sum_curve(
    terms: tuple[Guarantee, ...], tally: Participation, local: EpsilonCurve, *, masked: bool
) -> EpsilonCurve:
    """Bound what opened sums and the roster say about a client, or an example, to the server.

    Parameters
    ----------
    terms, tally
        As for :func:`local_curve`.
    local : EpsilonCurve
        From that function: it holds where nothing is masked.
    masked : bool
        Whether the server sees sums only.

    Returns
    -------
    EpsilonCurve
        Under zero-out, unless it is the local one.
    """
    if not masked:
        note = "no masking: the server sees each contribution, so this is epsilon_local"
        return _with_notes(local, note)
    if terms[0].model == "local":
        return _with_notes(local, "a sum of contributions is post-processing of epsilon_local")
    events = [
        _of_unit(terms, t, t.guaranteed(n)) for t, n in zip(terms, tally.smallest, strict=True)
    ]
    notes = (
        MASKED,
        *guarantee_notes(terms, tally),
        "composed over the contributions of the client that made most",
        *example_notes(terms),
    )
    return _composed("zero_out", _by_client(events, tally), tally.most, notes)


def release_curve(
    terms: tuple[Guarantee, ...], tally: Participation, local: EpsilonCurve, sampling: Sampling
) -> EpsilonCurve:
    """Bound what the sequence of released sums says to outsiders.

    Parameters
    ----------
    terms, tally
        As for :func:`local_curve`.
    local : EpsilonCurve
        From that function: it holds of released sums too.
    sampling : Sampling
        How cohorts were drawn, which outsiders do not know.

    Returns
    -------
    EpsilonCurve
        Amplified where the sampling allows it.
    """
    if terms[0].model == "local":
        return _with_notes(local, "released sums are post-processing of epsilon_local")
    notes = (*release_notes(terms), *example_notes(terms))
    events = [_of_unit(terms, t, t.released()) for t in terms]
    if sampling.kind == "poisson":
        return _sampled_release(events, tally, sampling, notes)
    if sampling.kind == "fixed" and _without_replacement(terms, sampling):
        drawn = [
            SampledWithoutReplacementDpEvent(sampling.population, sampling.cohort, event)
            for event in events
        ]
        notes += (
            f"cohorts are {sampling.cohort} of {sampling.population} clients, drawn without "
            "replacement and unknown to this observer; one client is replaced by another",
        )
        charges = [list(zip(drawn, map(float, tally.opened), strict=True))]
        return _composed("replace", charges, sum(tally.opened), notes)
    notes += (
        f'no amplification by cohorts: "{sampling.kind}" cohorts are accounted as known, over the '
        "contributions of the client that made most",
    )
    return _composed("zero_out", _by_client(events, tally), tally.most, notes)


def _sampled_release(
    events: list[DpEvent], tally: Participation, sampling: Sampling, notes: tuple[str, ...]
) -> EpsilonCurve:
    sampled = [
        MaybeAbandonedDpEvent(PoissonSampledDpEvent(sampling.q, event), sampling.p)
        for event in events
    ]
    notes += (
        f"cohorts are Poisson samples at q = {sampling.q:.6g} that this observer does not know, "
        "nor their sizes, survivors and dropouts, nor how often a client took part",
        dropout_note(sampling),
        f"a round is opened only because of one client with probability {sampling.p:.3g}",
    )
    charges = [list(zip(sampled, map(float, tally.opened), strict=True))]
    return _composed("zero_out", charges, sum(tally.opened), notes)


def bound_at(
    curve: EpsilonCurve, observer: ObserverName, delta: float, noise: DrawnNoise, unit: str
) -> EpsilonBound:
    """Evaluate a curve at delta less the samplers' slack.

    Parameters
    ----------
    curve : EpsilonCurve
        From one of the functions above.
    observer : str
        Against whom it holds.
    delta : float
        The delta that is reported.
    noise : DrawnNoise
        How many integers were drawn, and how far from their law.
    unit : str
        What the figure protects: "client" or "example".

    Returns
    -------
    EpsilonBound
        Infinite, with a reason, where no accountant finds a finite one.
    """
    accounted, slack, how = _with_slack(curve.at, delta, noise.integers * noise.tau)
    assumptions = (*curve.assumptions, noise.drawn + how)
    if accounted.slack:
        cost = f"{accounted.slack:.2g} of delta"
        cost += f" and {accounted.margin:.2g} of epsilon" if accounted.margin else ""
        assumptions += (
            f"accounted as the rounded Gaussian that the integer noise is close to, for {cost}",
        )
    finite = math.isfinite(accounted.value)
    return EpsilonBound(
        value=accounted.value,
        delta=delta,
        slack=slack + accounted.slack,
        adjacency=curve.adjacency,
        unit=unit,
        observer=observer,
        accountant=accounted.accountant,
        participations=curve.participations,
        assumptions=assumptions,
        reason=None if finite else "no finite epsilon holds at this delta",
    )


def all_figures(
    terms: Mapping[str, Guarantee],
    tally: Participation,
    sampling: Sampling,
    delta: float,
    *,
    masked: bool,
    observers: Collection[ObserverName] = OBSERVERS,
) -> dict[ObserverName, EpsilonBound]:
    """Compute the bound against every observer that is asked for.

    Parameters
    ----------
    terms : mapping of str to Guarantee
        The noise that each kind of private sum guarantees.
    tally : Participation
        Who was asked how often, and how many sums were opened.
    sampling : Sampling
        How cohorts were drawn.
    delta : float
        Of every bound.
    masked : bool
        Whether the server sees sums only.
    observers : collection of str
        Against whom.

    Returns
    -------
    dict of str to EpsilonBound
        By observer, in the order of ``observers``.

    Raises
    ------
    ValueError
        If ``terms`` mixes models of noise.
    """
    guarantees = tuple(terms.values())
    if len({t.model for t in guarantees}) != 1:
        raise ValueError("a run's private sums share one privacy model")
    unit = "example" if _by_example(guarantees) else "client"
    noise = DrawnNoise.of(guarantees, tally)
    local = local_curve(guarantees, tally)
    caveats = tuple(sorted({t.caveat for t in guarantees if t.caveat}))
    bounds = {}
    for observer in observers:
        refusal = _refusal(guarantees, tally, observer, masked=masked)
        if refusal is not None:
            adjacency, reason = refusal
            bound = no_bound(observer, delta, reason, unit=unit, adjacency=adjacency)
        else:
            curve = local
            if observer == "release":
                curve = release_curve(guarantees, tally, local, sampling)
            elif observer == "sum":
                curve = sum_curve(guarantees, tally, local, masked=masked)
            bound = bound_at(curve, observer, delta, noise, unit)
        bounds[observer] = replace(bound, assumptions=bound.assumptions + caveats)
    return bounds


def _refusal(
    terms: tuple[Guarantee, ...], tally: Participation, observer: ObserverName, *, masked: bool
) -> tuple[str | None, str] | None:
    """Return (adjacency, reason) where nothing can bound this observer; None where something does.

    These cases have no event to compose, so that no accountant could find them infinite.
    """
    if observer != "release" and terms[0].model == "central":
        return None, TRUSTED
    if observer == "release" and not _constant(terms):
        return "zero_out", not_constant(terms)
    if observer == "sum" and masked and (reason := nothing_faced(terms, tally)):
        return "zero_out", reason
    return None


def _constant(terms: tuple[Guarantee, ...]) -> bool:
    """Return whether a released sum's noise is the same whoever took part."""
    return all(t.topped_up or t.model != "distributed" for t in terms)


def _by_example(terms: tuple[Guarantee, ...]) -> bool:
    return any(t.example is not None for t in terms)


def _of_unit(terms: tuple[Guarantee, ...], t: Guarantee, event: DpEvent) -> DpEvent:
    """Return what a sum of this kind costs the unit of the run, client or example."""
    return _of_example(t, event) if _by_example(terms) else event


def _of_example(t: Guarantee, event: DpEvent) -> DpEvent:
    """Return what a sum costs one example; one that knows no examples changes by a whole vector."""
    if t.example is None:
        return doubled(event)
    if t.example.noise_multiplier is not None:
        return event
    return PoissonSampledDpEvent(t.example.q, event)


def _without_replacement(terms: tuple[Guarantee, ...], sampling: Sampling) -> bool:
    """Return whether cohorts of a fixed size amplify: Gaussian noise of a trusted server only."""
    known = 0 < sampling.cohort < sampling.population
    return known and terms[0].model == "central" and not _by_example(terms)


def _by_client(events: list[DpEvent], tally: Participation) -> list[list[tuple[DpEvent, float]]]:
    return [
        [(event, float(count)) for event, (count, _) in zip(events, client, strict=True)]
        for client in tally.worst
    ]


def _composed(
    adjacency: Adjacency,
    alternatives: Iterable[Charges],
    participations: int,
    notes: Iterable[str],
    accountant: Literal["pld", "rdp"] = "pld",
) -> EpsilonCurve:
    """Return the worst of several compositions: of clients that differ in what they gave."""
    ledgers = []
    for charges in alternatives:
        ledger = Ledger(adjacency, accountant)
        for event, count in charges:
            if count:
                ledger.compose(event, count)
        ledgers.append(ledger)

    @lru_cache(maxsize=16)
    def at(delta: float) -> Accounted:
        bounds = (ledger.accounted(delta) for ledger in ledgers)
        return max(bounds, key=lambda one: one.value, default=Accounted(0.0, "nothing composed"))

    return EpsilonCurve(at, adjacency, participations, tuple(notes))


AT_LESS = "; epsilon is computed at delta less the slack that its approximation takes"
"""Said where a part of delta pays for how far the drawn noise is from the law."""


def _with_slack(
    at: Callable[[float], Accounted], delta: float, distance: float
) -> tuple[Accounted, float, str]:
    """Return epsilon, slack and, in words, how the sampler's distance was accounted.

    Total variation costs (1 + e^epsilon) distance of delta. Where that is no longer small beside
    delta (epsilon above about 40), the bound on every probability's log-ratio is used: it costs
    2 distance of epsilon and a factor e^distance of delta.
    """
    if distance == 0:
        return at(delta), 0.0, ""
    # Mostly next to nothing is enough, and epsilon need not be asked for twice.
    accounted = at(delta * (1 - _SAMPLER_PART))
    slack = (1 + math.exp(min(600.0, accounted.value))) * distance
    if slack <= delta * _SAMPLER_PART:
        return accounted, slack, AT_LESS
    first = at(delta).value
    if first < 600:
        slack = 1.001 * (1 + math.exp(first)) * distance
        if slack < delta / 1000:
            accounted = at(delta - slack)
            if (1 + math.exp(min(600.0, accounted.value))) * distance <= slack:
                return accounted, slack, AT_LESS
    slack = -delta * math.expm1(-distance)
    accounted = at(delta - slack)
    accounted = replace(accounted, value=accounted.value + 2 * distance)
    return accounted, slack, ", by its pointwise log-ratio"


def _with_notes(curve: EpsilonCurve, *notes: str) -> EpsilonCurve:
    return replace(curve, assumptions=(*curve.assumptions, *notes))
