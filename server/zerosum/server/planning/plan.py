"""Plan a run: its epsilons, noise, graph and traffic, from the settings alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.survivors import CohortTooSmallError
from zerosum.client.spec import MEANINGFUL_EPSILON
from zerosum.client.spec.schedule import schedule_text
from zerosum.secagg import Session
from zerosum.secagg.messages.all_messages import (
    KEY_BYTES,
    SEALED_BYTES,
    SHARE_BYTES,
    SIGNATURE_BYTES,
    Advert,
    Confirmation,
    Contribution,
    Shares,
    UnmaskShares,
    neighbours_bytes,
)
from zerosum.secagg.session import DIGEST_BYTES
from zerosum.secagg.stages import ServerMode
from zerosum.server.planning.nearest_setting import Nearest
from zerosum.server.planning.signal import noise_of, whole_run
from zerosum.server.privacy.calibration import (
    TYPICAL,
    planned_cohort,
    planned_figures,
    planned_participations,
    planned_run,
)
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import OBSERVERS, ObserverName, observer_who
from zerosum.server.privacy.protections import ACCEPTED_WRAP, planned_protections
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.private_sum.thresholds import Thresholds
from zerosum.server.runs.displays import panel
from zerosum.server.runs.records import bounds_document
from zerosum.server.runs.result_display import bound_in_words
from zerosum.server.sampling import expected_cohort, group_sizes
from zerosum.server.spec import Experiment


@dataclass(frozen=True, repr=False)
class Outlook:
    """A planned run in numbers; a notebook shows it as a table.

    Attributes
    ----------
    values : dict
        What ``zerosum plan --json`` writes.
    epsilon : mapping of str to EpsilonBound
        By observer, with every planned round opened and the unluckiest client; empty without noise.
    warnings : tuple of str
        What is wrong with the setting; ``hopeless`` is one of them.
    hopeless : str
        Why little or nothing can be learnt; empty where something can.
    nearest : tuple of Nearest
        The nearest settings that are not hopeless, where this one is and they were asked for.
    experiment : Experiment or None
        As it would run, its noise resolved.
    """

    values: dict[str, Any]
    epsilon: Mapping[ObserverName, EpsilonBound]
    warnings: tuple[str, ...]
    hopeless: str = ""
    nearest: tuple[Nearest, ...] = ()
    experiment: Experiment | None = None

    def __repr__(self) -> str:
        """Return one line: all figures are a page."""
        values = self.values
        finite = [o for o in OBSERVERS if o in self.epsilon and self.epsilon[o].finite]
        parts = [repr(values["name"]), f"{values['rounds']} rounds"]
        parts += [f"{values['population']:,} clients", f"{values['dimension']:,} parameters"]
        parts += [f"epsilon_{o}={epsilon_text(self.epsilon[o].value)}" for o in finite]
        parts += [f"warnings: {len(self.warnings)}"] if self.warnings else []
        return f"Outlook({', '.join(parts)})"

    def _repr_html_(self) -> str:
        values = self.values
        rows = [
            (key.replace("_", " "), f"{values[key]:,}", "")
            for key in ("population", "dimension", "rounds", "cohort")
        ]
        rows += [
            (f"epsilon, {observer}", bound_in_words(bound), f"each {bound.unit}, against {whom}")
            for observer in OBSERVERS
            if (bound := self.epsilon.get(observer)) is not None
            for whom in [observer_who(observer, values["protocol"])]
        ]
        rows += [("WARNING", warning, "") for warning in self.warnings]
        rows += [("not hopeless", near.line, near.says) for near in self.nearest]
        return panel(f"{values['name']}, planned", rows)


def outlook(experiment: Experiment, *, population: int, dimension: int) -> Outlook:
    """Return everything that follows from a checked experiment whose noise is resolved.

    Parameters
    ----------
    experiment : Experiment
        From :func:`zerosum.server.planning.preflight.prepare`.
    population, dimension : int
        Clients; trainable parameters.

    Returns
    -------
    Outlook
        With the warnings that follow.
    """
    expected = expected_cohort(experiment, population)
    group = max(2, group_sizes(expected, experiment.secagg.groups)[0])
    protection = planned_protections(experiment, population, dimension)["train"]
    privacy, sampling, secagg = experiment.privacy, experiment.sampling, experiment.secagg
    planned = planned_cohort(sampling, population, experiment.rounds, secagg.groups)
    largest = planned_protections(experiment, population, dimension, planned)
    values: dict[str, Any] = {
        "name": experiment.name,
        "model": privacy.model,
        "protocol": secagg.protocol,
        "server": secagg.server,
        "population": population,
        "dimension": dimension,
        "rounds": experiment.rounds,
        "sampling": sampling.kind,
        "cohort": expected,
        "groups": secagg.groups,
        "clip": privacy.clip,
        "noise_multiplier": privacy.noise_multiplier,
        "unit": privacy.unit,
        "units": privacy.examples or population,
        "honest_fraction": privacy.honest_fraction,
        "delta": privacy.delta,
        "participations": _participations(experiment, population, expected),
        "graph": _graph(experiment, population, group),
        "ring_bits": protection.ring_bits,
        "wrap_probability_log2": max(p.log2_wrap_probability for p in largest.values()),
        "vector_length": protection.length,
        "bytes_up_per_client": bytes_up(experiment, population, group, protection),
        "learning_rates": _learning_rates(experiment),
        "noise": None,
        "whole_run": None,
        "epsilon": None,
        "epsilon_typical": None,
    }
    bounds: Mapping[ObserverName, EpsilonBound] = {}
    hopeless = ""
    if privacy.private:
        noise = noise_of(experiment, protection, expected, dimension)
        values["noise"] = noise.document()
        whole = whole_run(noise, experiment.rounds, privacy)
        values["whole_run"] = {"direction": whole.direction, "noise": whole.noise}
        hopeless = whole.why_hopeless
        run = planned_run(experiment, population, dimension)
        bounds = planned_figures(privacy, run)
        typical = planned_figures(privacy, replace(run, surprise=TYPICAL))
        values["epsilon"] = bounds_document(bounds)
        values["epsilon_typical"] = {
            name: bound["value"] for name, bound in bounds_document(typical).items()
        }
    return Outlook(
        values, bounds, tuple(_warnings(values, bounds, hopeless)), hopeless, (), experiment
    )


def bytes_up(
    experiment: Experiment, population: int, cohort: int, protection: Protection
) -> int | None:
    """Return the bytes that a client sends in a round without dropouts; None if none can be run.

    Under "ideal" and "none" that is the contribution alone.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    population, cohort : int
        Clients of the roster; of a session.
    protection : Protection
        Of the session: length of its vector, bits of its ring.

    Returns
    -------
    int or None
        Without what the transport adds.
    """
    session = planned_session(experiment, population, cohort, protection)
    if session is None:
        return None
    digest, signed = session.digest, SIGNATURE_BYTES if session.signed else 0
    places = bytes(-(-session.size // 8))
    # Of any length, in the memory of one element.
    vector = np.broadcast_to(np.zeros(1, dtype=session.ring.dtype), protection.length)
    contribution = Contribution(digest, 0, bytes(DIGEST_BYTES), vector, session.ring_bits)
    if experiment.secagg.protocol != "pairwise":
        return contribution.wire_bytes
    keys = (bytes(KEY_BYTES), bytes(KEY_BYTES), bytes(DIGEST_BYTES))
    advert = Advert(digest, 0, *keys, bytes(neighbours_bytes(session)), bytes(signed))
    shares = Shares(digest, 0, places, bytes(SEALED_BYTES * session.degree))
    unmasked = UnmaskShares(digest, 0, places, bytes(SHARE_BYTES * session.degree))
    sent = [advert, shares, contribution, unmasked]
    if session.signed:
        sent.append(Confirmation(digest, 0, bytes(SIGNATURE_BYTES)))
    return sum(message.wire_bytes for message in sent)


def planned_session(
    experiment: Experiment, population: int, cohort: int, protection: Protection
) -> Session | None:
    """Return the session of a planned run's sum, without its run and its roster.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    population, cohort : int
        Clients of the roster; of the session.
    protection : Protection
        Of the sum: length of its vector, bits of its ring.

    Returns
    -------
    Session or None
        None where no number of survivors would be safe.
    """
    secagg = experiment.secagg
    try:
        limits = Thresholds.of(cohort, roster=population, secagg=secagg, privacy=experiment.privacy)
    except CohortTooSmallError:
        return None
    mode = ServerMode(secagg.server)
    permuted = mode is ServerMode.SEMI_HONEST and limits.degree < cohort - 1
    return Session(
        run_id=bytes(16),
        round=0,
        attempt=0,
        roster_version=0,
        roster_digest=bytes(DIGEST_BYTES),
        cohort=tuple(range(cohort)),
        threshold=limits.threshold,
        min_survivors=limits.min_survivors,
        ring_bits=protection.ring_bits,
        vector_length=protection.length,
        degree=limits.degree,
        graph_seed=bytes(32) if permuted else b"",
        mode=mode,
    )


def _learning_rates(experiment: Experiment) -> dict[str, str]:
    """Return in words what the rates of clients and server do, where they change."""
    whose = {"training": "clients", "server": "server"}
    return {
        whose[section]: f"{spec.lr:g}, {schedule_text(spec)}"
        for section, spec in experiment.scheduled.items()
    }


def _participations(experiment: Experiment, population: int, expected: int) -> dict[str, Any]:
    sampling, rounds = experiment.sampling, experiment.rounds
    mean = {"everyone": float(rounds), "once": 1.0}
    return {
        "mean": mean.get(sampling.kind, rounds * expected / population),
        "worst_typical": planned_participations(sampling, population, rounds, TYPICAL),
        "worst_planned": planned_participations(sampling, population, rounds),
    }


def _graph(experiment: Experiment, population: int, cohort: int) -> dict[str, Any]:
    try:
        limits = Thresholds.of(
            cohort, roster=population, secagg=experiment.secagg, privacy=experiment.privacy
        )
    except CohortTooSmallError as error:
        return {"clients": cohort, "refused": str(error)}
    return {
        "clients": cohort,
        "degree": limits.degree,
        "complete": limits.degree == cohort - 1,
        "threshold": limits.threshold,
        "min_survivors": limits.min_survivors,
        "colluders": limits.colluders,
    }


def _warnings(
    values: dict[str, Any], bounds: Mapping[ObserverName, EpsilonBound], hopeless: str
) -> list[str]:
    warnings = []
    if "refused" in values["graph"]:
        warnings.append(f"no round can be opened: {values['graph']['refused']}")
    if values["wrap_probability_log2"] > ACCEPTED_WRAP:
        warnings.append(
            f"a sum wraps with probability up to 2^{values['wrap_probability_log2']:.0f}: "
            "leave encoding.ring_bits out, or raise it"
        )
    if not bounds:
        return [*warnings, 'privacy.model = "none": nobody is protected by noise']
    if values["delta"] * values["units"] >= 1:
        warnings.append(
            f"delta = {values['delta']:g} is not below 1/population = {1 / values['units']:.3g}: "
            f"exposing one {values['unit']} whole would count as private"
        )
    if hopeless:
        warnings.append(hopeless)
    meant = _meant_to_protect(values)
    return warnings + [w for name in OBSERVERS if name in meant and (w := _weakness(bounds[name]))]


def _meant_to_protect(values: dict[str, Any]) -> set[ObserverName]:
    """Return the observers whom the noise of this privacy model is chosen against."""
    meant: set[ObserverName] = {"release"}
    if values["model"] != "central":
        meant.add("sum" if values["model"] == "distributed" else "local")
    if values["protocol"] == "none":
        meant.add("local")
    return meant


def _weakness(bound: EpsilonBound) -> str:
    """Return what is wrong with an epsilon that is meant to protect; empty if nothing is."""
    if not bound.finite:
        return f"epsilon_{bound.observer} is infinite: {bound.reason}"
    if bound.value > MEANINGFUL_EPSILON:
        return (
            f"epsilon_{bound.observer} = {epsilon_text(bound.value)} is above "
            f"{MEANINGFUL_EPSILON:g}: it promises nothing that a person could rely on"
        )
    return ""
