"""Compare a planned run with a node's policy, key by key: what would be refused, and the cure.

The judge is the node's own code (:mod:`zerosum.client.protocol.admission`), on the session and the
request that the server would send. Each key is judged alone, under a policy whose other keys allow
everything: the first refusal would hide the rest.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, get_args

import numpy as np
import tomli_w

from zerosum.client import renyi_filter
from zerosum.client.privacy.mechanism import Divergences
from zerosum.client.protocol import own_budget
from zerosum.client.protocol.admission import check_guarantee, check_request, check_session
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.refusal import Declined
from zerosum.client.request import Kind, ModelRequest
from zerosum.client.spec import ClientPolicy
from zerosum.client.spec.privacy import PrivacyModel
from zerosum.secagg import IdentityKey, PolicyRefusal, Roster, ServerMode, Session
from zerosum.secagg.graph.failure_bounds import colluders_in
from zerosum.server.planning.plan import planned_session
from zerosum.server.privacy.protections import planned_protections, question_of
from zerosum.server.spec import Experiment

_ALLOWING: Final[Mapping[str, Any]] = {
    "models": list(get_args(PrivacyModel)),
    "mechanisms": "any",
    "units": ["client", "example"],
    "min_noise_multiplier": 0.0,
    "max_clip": None,
    "corruption": 0.0,
    "min_cohort": 2,
    "servers": ["malicious", "semi-honest"],
    "tasks": "any",
    "max_vector_length": 1 << 62,
    "max_openings_per_run": 1,
    "max_openings_per_day": 1,
}
"""Values that refuse nothing, of the keys that a session or a request is judged by."""

MOST_TENTHS: Final = 10_000
"""Tenths of an epsilon up to which one is looked for."""


@dataclass(frozen=True)
class PlannedRun:
    """A run that a node would be asked for.

    Attributes
    ----------
    experiment : Experiment
        From :func:`zerosum.server.planning.preflight.prepare`: its noise is resolved.
    population, dimension : int
        Nodes, all of them in the roster; trainable parameters.
    asked : Experiment
        As it was written, before its noise was resolved.
    """

    experiment: Experiment
    population: int
    dimension: int
    asked: Experiment

    @cached_property
    def protections(self) -> dict[Kind, Protection]:
        """The protection of each kind of private sum."""
        found = planned_protections(self.experiment, self.population, self.dimension)
        return {kind: found[kind] for kind in get_args(Kind) if kind in found}

    def request(self, kind: Kind) -> ModelRequest:
        """Return what a round asks, without the model's values."""
        question = question_of(self.experiment, 1, self.population, kind, noise_draw="per_client")
        return ModelRequest(question, b"")

    @property
    def times(self) -> dict[Kind, int]:
        """How often a node is asked for each kind of sum: once, where not every round asks all."""
        if self.experiment.sampling.kind != "everyone":
            return dict.fromkeys(self.protections, 1)
        rounds, every = self.experiment.rounds, self.experiment.evaluation.federated_every
        times: dict[Kind, int] = {"train": rounds, "evaluate": rounds // every if every else 0}
        return {kind: times.get(kind, 1) for kind in self.protections}


@dataclass(frozen=True)
class Refusal:
    """One key of a policy by which a node refuses a planned run, or a part of it.

    Attributes
    ----------
    key : str
        Of the policy.
    value : object
        That the policy has.
    why : str
        What is refused.
    cure : str
        What to change, on either side.
    """

    key: str
    value: object
    why: str
    cure: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{_written(self.key, self.value)} refuses it: {self.why}; {self.cure}"


def refusals(run: PlannedRun, policy: ClientPolicy) -> list[Refusal]:
    """Return the keys of a node's policy that would refuse a planned run, or some of its rounds.

    Parameters
    ----------
    run : PlannedRun
        Whose rounds ask all nodes, or the budgets are judged by one round.
    policy : ClientPolicy
        The node's.

    Returns
    -------
    list of Refusal
        In the order in which a node judges; empty where it answers every round.
    """
    roster = _any_roster(run.population)
    found: dict[str, Refusal] = {}
    for kind, protection in run.protections.items():
        session = _session(run, protection, roster)
        if session is None:  # no round can be opened, as the plan says
            return []
        for refusal in _of_kind(run, kind, session, policy, roster):
            found.setdefault(refusal.key, refusal)
    for refusal in _of_budgets(run, policy):
        found.setdefault(refusal.key, refusal)
    return list(found.values())


def _any_roster(size: int) -> Roster:
    """Return a roster of so many nodes: a session is judged by its size alone."""
    return Roster(1, {index: IdentityKey.generate().public for index in range(size)})


def _session(run: PlannedRun, protection: Protection, roster: Roster) -> Session | None:
    session = planned_session(run.experiment, run.population, protection.cohort, protection)
    if session is None:
        return None
    return replace(session, roster_version=roster.version, roster_digest=roster.digest)


def _of_kind(
    run: PlannedRun, kind: Kind, session: Session, policy: ClientPolicy, roster: Roster
) -> Iterator[Refusal]:
    """Yield what refuses one kind of sum, whatever was spent."""
    request = run.request(kind)
    if _judged(request, session, policy.model_copy(update=dict(_ALLOWING)), roster):
        return  # by no key of the policy: the server refuses such a run itself
    for key in _ALLOWING:
        alone = policy.model_copy(update={n: v for n, v in _ALLOWING.items() if n != key})
        if refused := _judged(request, session, alone, roster):
            value = getattr(policy, key)
            yield Refusal(key, value, *_explained(key, value, run, request, session, refused))


def _judged(request: ModelRequest, session: Session, policy: ClientPolicy, roster: Roster) -> str:
    """Return why a node declines, as its log would have it; empty where it does not."""
    try:
        check_request(request, policy)
        check_session(session, policy, roster)
        check_guarantee(request, session, policy, roster)
    except (Declined, PolicyRefusal) as refused:
        return str(refused)
    return ""


def _explained(
    key: str, value: Any, run: PlannedRun, request: ModelRequest, session: Session, refused: str
) -> tuple[str, str]:
    """Return why a key refuses a sum, and what to change on either side."""
    privacy = request.question.privacy
    if key == "min_noise_multiplier" and not privacy.noise_inside:
        return _too_little_noise(run, value, privacy.noise_multiplier or 0.0)
    known = value if isinstance(value, list) else []
    listed = ", ".join(known)
    fits: dict[str, object] = {
        "models": [*known, privacy.model],
        "mechanisms": [*known, privacy.noise],
        "units": [*known, privacy.unit],
        "max_clip": privacy.clip,
        "min_cohort": session.min_survivors,
        "servers": [*known, str(session.mode)],
        "tasks": [*known, request.question.task],
        "max_vector_length": session.vector_length,
    }
    run_side = {
        "models": f"set privacy.model to one of {listed}",
        "units": f"set privacy.unit to one of {listed}",
        "max_clip": f"set privacy.clip = {value}",
        "corruption": f"set secagg.corruption = {value}, or take more nodes",
        "min_cohort": f"take more nodes, of whom {value} are in every sum",
        "min_noise_multiplier": "raise privacy.noise_multiplier, or take fewer steps",
        "max_openings_per_run": f"set secagg.openings = {value}",
        "max_openings_per_day": f"set secagg.openings = {value}",
    }
    policy_side = f"write {_written(key, fits[key])} there" if fits.get(key) is not None else ""
    return refused, ", or ".join(filter(None, [run_side.get(key, ""), policy_side]))


def _too_little_noise(run: PlannedRun, least: float, has: float) -> tuple[str, str]:
    """Return why the noise is too little, in the keys that it follows from, and the cure."""
    why = f"the run's noise multiplier is {has:.4g}"
    keep = f"set privacy.noise_multiplier = {least}"
    if (epsilon := run.asked.privacy.epsilon) is not None:
        why = f"{_rounds(run)} at epsilon {epsilon:g} need a noise multiplier of only {has:.4g}"
        keep += " in place of the epsilon, which then is smaller"
    return why, f"{keep}, or write {_written('min_noise_multiplier', _rounded_down(has))} there"


def _of_budgets(run: PlannedRun, policy: ClientPolicy) -> Iterator[Refusal]:
    """Yield which limits a new node would reach before the run ends."""
    total = sum(run.times.values())
    for key in ("max_contributions", "max_openings_per_run", "max_openings_per_day"):
        if total > (limit := getattr(policy, key)):
            yield Refusal(
                key,
                limit,
                f"{_rounds(run)} ask each node {total} times",
                f"lower rounds, or write {_written(key, total)} there",
            )
    if not math.isfinite(policy.max_epsilon):
        return
    if policy.budget_rule == "sum":
        why = "no pure epsilon bounds what training sends"
        yield Refusal("budget_rule", "sum", why, 'write budget_rule = "renyi" there')
        return
    spent, delta = own_cost(run, policy), policy.budget_delta
    least = math.inf if spent is None else least_max_epsilon(spent, delta)
    wider = f"write {_written('max_epsilon', least)} there"
    if spent is None:
        why = "nothing bounds the epsilon of what the run asks for"
        yield Refusal("max_epsilon", policy.max_epsilon, why, f"add noise, or {wider}")
    elif (part := _admitted_part(spent, policy.max_epsilon, delta)) < 1:
        done = math.floor(part * run.experiment.rounds)
        why = (
            f"{_rounds(run)} cost {least:g} by a node's own count, at budget_delta = {delta:g}; "
            f"it answers {done}"
        )
        yield Refusal("max_epsilon", policy.max_epsilon, why, f"lower rounds, or {wider}")


def own_cost(run: PlannedRun, policy: ClientPolicy) -> Divergences | None:
    """Return what a whole run costs a node by its own count, of the unit that its policy bounds.

    Parameters
    ----------
    run : PlannedRun
    policy : ClientPolicy
        The node's: who may collude, and whose the budget is.

    Returns
    -------
    numpy.ndarray or None
        float64, shape (511,), at :data:`~zerosum.client.renyi_filter.ORDERS`; None where nothing
        bounds it.
    """
    spent: Divergences = np.zeros(len(renyi_filter.ORDERS))
    for kind, protection in run.protections.items():
        size = protection.cohort
        mode = ServerMode(run.experiment.secagg.server)
        colluders = colluders_in(size, run.population, policy.corruption, mode, policy.security)
        price = own_budget.price(run.request(kind), protection, colluders)
        if (row := price.of_unit(policy.budget_unit).row) is None:
            return None
        spent += run.times[kind] * np.asarray(row)
    return spent


def least_max_epsilon(spent: Divergences, delta: float) -> float:
    """Return the least ``max_epsilon``, to a tenth, that admits a cost; inf where none does.

    Parameters
    ----------
    spent : numpy.ndarray
        float64, shape (511,): Renyi divergences.
    delta : float
        ``budget_delta``.

    Returns
    -------
    float
        The Renyi order is the one that the limit itself fixes.
    """
    tenths = (number / 10 for number in range(1, MOST_TENTHS))
    return next((e for e in tenths if _admitted_part(spent, e, delta) >= 1), math.inf)


def _admitted_part(spent: Divergences, max_epsilon: float, delta: float) -> float:
    """Return which part of a cost a new budget admits, at the order that it fixes."""
    try:
        order = renyi_filter.fixed_order(max_epsilon, delta)
    except ValueError:
        return 0.0
    at = float(spent[renyi_filter.ORDERS.index(order)])
    return renyi_filter.divergence_limit(max_epsilon, delta, order) / at if at else math.inf


def _rounds(run: PlannedRun) -> str:
    rounds = run.experiment.rounds
    return f"{rounds} round{'s' * (rounds != 1)}"


def _rounded_down(noise: float) -> float:
    return math.floor(noise * 100) / 100


def _written(key: str, value: object) -> str:
    """Return a line of a policy, as TOML."""
    if value is None:
        return f"{key} (absent)"
    if isinstance(value, list):
        return f"{key} = {json.dumps(value, ensure_ascii=False)}"
    return tomli_w.dumps({key: value}).strip()
