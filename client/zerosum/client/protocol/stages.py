"""One client's side of a round: a function a stage, from message to reply.

The functions are the same in deployment and simulation; what differs (where a party is kept
between messages, whose entropy, which data) is an :class:`Environment`. A refusal is an
exception; the caller turns it into a reply that says no more than that it was refused.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from flwr.app import Context, RecordDict

from zerosum.client import renyi_filter
from zerosum.client.privacy.local_dp_noise import train_on_noise
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.decision_store import DecisionStore
from zerosum.client.protocol.node_keys import Credentials
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.protocol.protection import Protection, UnusableUpdateError, guarantee_holds
from zerosum.client.protocol.training_outcomes import ANSWER_FAILED, Notes, holds_anything
from zerosum.client.request import Request
from zerosum.client.spec import ClientPolicy
from zerosum.client.task import ClientInfo, Task, builtin_tasks
from zerosum.client.task_errors import FAILURES
from zerosum.secagg import (
    Client,
    LocalProtocolError,
    RemoteProtocolError,
    Roster,
    Session,
    Step,
)
from zerosum.secagg.graph.failure_bounds import colluders_in
from zerosum.secagg.randomness import derive_seed

log = logging.getLogger("zerosum.client")


class Declined(Exception):
    """This client does not take part; the message says why, in its own log."""


class Environment(Protocol):
    """What a client stands in: its state, policy, entropy and data."""

    entropy: Entropy

    @property
    def policy(self) -> ClientPolicy:
        """Return what this client insists on."""
        ...

    def index(self, context: Context) -> int:
        """Return this client's index in the roster."""
        ...

    def store(self, context: Context) -> DecisionStore:
        """Return the durable record of this client's decisions."""
        ...

    def credentials(self, context: Context) -> Credentials | None:
        """Return the signing key and roster that this client was given, if it was."""
        ...

    def open_party(self, context: Context, session: Session) -> Client:
        """Make the party of a new session that the policy admitted; of the session's protocol."""
        ...

    def party(self, context: Context, message: bytes) -> Client:
        """Return the party kept of a message's session; raise Declined where there is none."""
        ...

    def keep(self, context: Context, party: Client) -> None:
        """Keep a party until its session's next message."""
        ...

    def forget(self, context: Context, party: Client) -> None:
        """Forget a party: its session is over here."""
        ...

    def request(self, content: RecordDict) -> Request:
        """Read the request that a contribute message carries."""
        ...

    def task(self, request: Request, context: Context) -> Task:
        """Return the task that the request names."""
        ...

    def update(self, request: Request, task: Task, client: ClientInfo) -> np.ndarray:
        """Return the float answer to a request, before protection: shape (request.dimension,)."""
        ...

    def computed(self, session: Session, context: Context) -> np.ndarray | None:
        """Return the protected answer where it was computed ahead: simulations of many clients.

        Raises
        ------
        Declined
            If it was, and failed.
        """
        ...


def advertise(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Open a session: check it against the policy and send this client's public keys."""
    session = Session.from_bytes(flower_messages.bytes_field(content, "session"))
    roster = roster_for(session, environment.credentials(context))
    _check_session(session, environment.policy, roster)
    store = environment.store(context)
    if roster is not None:
        store.admit_roster(roster.version, roster.digest)
    _check_budget(store, environment.policy)
    store.raise_high_water(
        session.run_id,
        session.round,
        session.attempt,
        session.digest,
        environment.policy.openings,
    )
    party = environment.open_party(context, session)
    step = party.advertise()
    return _sent(environment, context, party, step)


def share(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Seal shares of this client's secrets for its neighbours."""
    message = flower_messages.bytes_field(content, "message")
    party = _party(environment, context, message)
    step = party.share(message)
    return _sent(environment, context, party, step)


def contribute(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Answer the request: train or evaluate, clip, noise, encode, mask."""
    message = flower_messages.bytes_field(content, "message")
    party = _party(environment, context, message)
    store = environment.store(context)
    _check_budget(store, environment.policy)
    request = environment.request(content)
    if party.admit(message) != request.digest:
        raise Declined("the request is not the one that the session's masks are bound to")
    try:
        protection, colluders = _agreed(environment, request, party.session, context)
        price = _price(store, environment.policy, request, protection, colluders)
    except (Declined, RemoteProtocolError):
        environment.forget(context, party)
        raise
    vector = environment.computed(party.session, context)
    if vector is None:
        vector = _protected(environment, request, protection, party.session, context)
    # The message fits the ring and noise may not: what is opened is the sum's residue alone.
    step = party.contribute(message, party.session.ring.encode(vector))
    store.count_contribution(price, party.session.run_id)
    return _sent(environment, context, party, step)


def _agreed(
    environment: Environment, request: Request, session: Session, context: Context
) -> tuple[Protection, int]:
    """Return the protection of a request that the policy takes part in, and how many collude.

    No other request ends well.
    """
    _check_request(request, environment.policy)
    protection = protection_for(request, session)
    roster = roster_for(session, environment.credentials(context))
    return protection, _check_guarantee(request, session, environment.policy, roster)


def confirm(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Sign the set of survivors; of one set only."""
    message = flower_messages.bytes_field(content, "message")
    party = _party(environment, context, message)
    step = party.confirm(message)
    return _sent(environment, context, party, step)


def unmask(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Release one share for each neighbour, and end the session."""
    message = flower_messages.bytes_field(content, "message")
    party = _party(environment, context, message)
    step = party.unmask(message)
    return _sent(environment, context, party, step, last=True)


def protection_for(request: Request, session: Session) -> Protection:
    """Build the protection that the request asks for and the session was opened for.

    Raises
    ------
    Declined
        If the two disagree: noise agreed before the first stage cannot be lowered later.
    """
    question = request.question
    protection = Protection.build(
        question.privacy,
        question.encoding,
        cohort=len(session.cohort),
        dimension=request.dimension,
        rotation_seed=derive_seed(question.seed, "rotation", session.round, session.attempt),
    )
    if question.noise_draw != session.noise_draw:
        raise Declined(
            f"the request's noise_draw = {question.noise_draw!r} is not the session's "
            f"{str(session.noise_draw)!r}"
        )
    if protection.bounds != session.bounds:
        raise Declined(
            "the request's privacy or encoding is not the session's, or the server's version "
            "counts cut coordinates otherwise than this client's: update the older one"
        )
    if (protection.ring_bits, protection.length) != (session.ring_bits, session.vector_length):
        raise Declined("the session's ring or length does not fit the request")
    return protection


def _sent(
    environment: Environment, context: Context, party: Client, step: Step, *, last: bool = False
) -> RecordDict:
    """Make a step's decisions durable, keep the party or end it, and only then send."""
    environment.store(context).append(party.session.digest, step.persist)
    (environment.forget if last else environment.keep)(context, party)
    return flower_messages.pack({"message": step.send.to_bytes()})


def roster_for(session: Session, credentials: Credentials | None) -> Roster | None:
    """Return the roster to judge a session by: none where it is bound to none, and nobody signs."""
    bound = session.signed or session.roster_digest
    return credentials.roster if credentials is not None and bound else None


def _check_session(session: Session, policy: ClientPolicy, roster: Roster | None) -> None:
    """Decline a session that this client's policy does not take part in."""
    _check_protocol(session, policy)
    if session.masked and session.signed and roster is None:
        raise Declined(
            "a session that withstands a malicious server needs this node's identity, roster and "
            "authority in its node config"
        )
    policy.for_sessions().admit(session, roster)
    if session.min_survivors < policy.min_cohort:
        raise Declined(
            f"a sum of {session.min_survivors} is below the policy's min_cohort = "
            f"{policy.min_cohort}"
        )


def _check_protocol(session: Session, policy: ClientPolicy) -> None:
    """Decline a session under a protocol that this client's policy does not trust the server by."""
    if session.protocol not in policy.protocols:
        raise Declined(
            f"protocol {str(session.protocol)!r} is not among this client's {policy.protocols}"
        )


def _party(environment: Environment, context: Context, message: bytes) -> Client:
    """Return the party of a message's session, whose protocol the policy still trusts.

    The policy admitted the session at advertise. Whatever else put a party where it is kept, a
    client whose policy lists masks alone never answers one that trusts the server.
    """
    party = environment.party(context, message)
    _check_protocol(party.session, environment.policy)
    return party


def _check_budget(store: DecisionStore, policy: ClientPolicy) -> None:
    own_budget = policy.max_contributions
    if store.contributions >= own_budget:
        raise Declined(f"the budget of max_contributions = {own_budget} is spent")


def _price(
    store: DecisionStore,
    policy: ClientPolicy,
    request: Request,
    protection: Protection,
    colluders: int,
) -> Sequence[float] | None:
    """Return what this contribution is going to cost; decline it where the budget ends before."""
    bounded = math.isfinite(policy.max_epsilon)
    if not (bounded or store.accounts) or not (bounded or request.question.privacy.private):
        return None
    from zerosum.client.protocol import own_budget

    price = own_budget.cost(request, protection, colluders)
    told = None if price is None else list(map(float, price))
    if bounded:
        _check_epsilon(store, policy.max_epsilon, policy.budget_delta, told)
    return told


def _check_epsilon(
    store: DecisionStore, most: float, delta: float, price: Sequence[float] | None
) -> None:
    """Decline a contribution with which the sum at the budget's one order passes its limit.

    The order is fixed with the first policy that has a max_epsilon, and never again: a sum at
    another order would be chosen after the fact. A later policy moves the limit at that order.
    """
    order = store.open_budget(renyi_filter.fixed_order(most, delta), most, delta)
    limit, spent = renyi_filter.divergence_limit(most, delta, order), store.spent
    if price is None or spent is None:
        whose = "this contribution" if price is None else "what this node sent before"
        cure = "" if price is None else f"; {UNBOUNDED_BEFORE}"
        raise Declined(
            f"nothing bounds the epsilon of {whose}, and the policy has a max_epsilon{cure}"
        )
    at = renyi_filter.ORDERS.index(order)
    total = price[at] + (spent[at] if spent else 0.0)
    if not total <= limit:
        found = total + renyi_filter.conversion(delta, order)
        raise Declined(
            f"with this contribution epsilon would be {found:.4g} at budget_delta = {delta:g} and "
            f"the budget's order {order}, above the policy's max_epsilon = {most:g}"
        )


UNBOUNDED_BEFORE = (
    "it was without noise, or an earlier version counted it against the server alone: set "
    "max_epsilon = inf, or let this node come back with an index, an identity and a state-dir that "
    "are new"
)


def _check_request(request: Request, policy: ClientPolicy) -> None:
    question, privacy = request.question, request.question.privacy
    if privacy.model not in policy.models:
        raise Declined(
            f"privacy model {privacy.model!r} is not among this client's {policy.models}"
        )
    if privacy.private and not policy.trusts(privacy.noise):
        raise Declined(
            f"mechanism {privacy.noise!r} is not among this client's {policy.mechanisms}"
        )
    if privacy.private and privacy.unit not in policy.units:
        raise Declined(f"privacy unit {privacy.unit!r} is not among this client's {policy.units}")
    if privacy.private and (privacy.noise_multiplier or 0.0) < policy.min_noise_multiplier:
        raise Declined(
            f"noise multiplier {privacy.noise_multiplier} is below the policy's "
            f"{policy.min_noise_multiplier}"
        )
    if privacy.noise_inside and policy.min_noise_multiplier > 0:
        _check_noise_inside(request, policy)
    if policy.max_clip is not None and (privacy.clip is None or privacy.clip > policy.max_clip):
        raise Declined(f"clip {privacy.clip} exceeds the policy's {policy.max_clip}")
    tasks = builtin_tasks() if policy.tasks == "built-in" else policy.tasks
    if tasks != "any" and question.task not in tasks:
        raise Declined(f"task {question.task!r} is not among this client's {tasks}")


def _check_noise_inside(request: Request, policy: ClientPolicy) -> None:
    """Decline local training whose steps together cost more than one vector may."""
    from zerosum.client.privacy import renyi_curves
    from zerosum.client.protocol import own_budget

    privacy, steps = request.question.privacy, request.question.training.steps or 1
    spent = own_budget.local_training(privacy.noise_multiplier or 0.0, privacy.example_rate, steps)
    least = policy.min_noise_multiplier
    most = own_budget.epsilon(renyi_curves.gaussian(least), policy.budget_delta)
    found = own_budget.epsilon(spent, policy.budget_delta)
    if not found <= most:
        raise Declined(
            f"{steps} steps at noise multiplier {privacy.noise_multiplier} come to epsilon "
            f"{found:.4g} at budget_delta = {policy.budget_delta:g}, and one vector at the "
            f"policy's min_noise_multiplier = {least} to {most:.4g}"
        )


def _check_guarantee(
    request: Request, session: Session, policy: ClientPolicy, roster: Roster | None
) -> int:
    """Decline a session that could open with less noise than it claims; return its colluders."""
    privacy, n = request.question.privacy, len(session.cohort)
    population = max(n, request.question.population if roster is None else len(roster))
    if roster is None:
        # Only now is it said how many clients there are, of whom some collude.
        try:
            policy.for_sessions().admit(session, population=population)
        except LocalProtocolError as error:  # the server's number, and not this client's mistake
            raise Declined(f"population = {population}: {error}") from None
    colluders = colluders_in(n, population, policy.corruption, session.mode, policy.security)
    if not privacy.private:
        return colluders
    if not guarantee_holds(privacy.honest_fraction, n, session.min_survivors, colluders):
        raise Declined(
            f"the session opens with {session.min_survivors} of {n} survivors, {colluders} of them "
            f"colluders: fewer than honest_fraction = {privacy.honest_fraction} promises"
        )
    return colluders


def _protected(
    environment: Environment,
    request: Request,
    protection: Protection,
    session: Session,
    context: Context,
) -> np.ndarray:
    client = client_of(request, environment.index(context), dict(context.node_config))

    def answer() -> np.ndarray:
        return environment.update(request, environment.task(request, context), client)

    return protected(request, protection, session, client.index, environment.entropy, answer)


def client_of(request: Request, index: int, node_config: Mapping[str, Any]) -> ClientInfo:
    """Return what a client's task is told of it."""
    question = request.question
    return ClientInfo(
        index=index, count=question.population, seed=question.seed, node_config=node_config
    )


def protected(
    request: Request,
    protection: Protection,
    session: Session,
    index: int,
    entropy: Entropy,
    answer: Callable[[], np.ndarray],
    notes: Notes | None = None,
) -> np.ndarray:
    """Return what one client adds to a sum: its answer in its envelope.

    Parameters
    ----------
    request, protection, session
        What is asked, how answers are protected, and for which session.
    index : int
        The client's index in the roster.
    entropy : Entropy
        Rounding and noise.
    answer : callable
        Returns the float answer. Under privacy a failure is a zero, with the noise.
    notes : Notes, optional
        Where a simulation notes failures; a deployment notes them nowhere but in its own log.

    Returns
    -------
    numpy.ndarray
        int64 or int32, shape (protection.length,).
    """
    question, notes = request.question, Notes() if notes is None else notes
    key = (session.round, session.attempt, index)
    noise = None
    if question.privacy.private and question.noise_draw == "per_client":
        noise = entropy.keystream("noise", *key)
    try:
        update = answer()
        if protection.noise_inside:
            protection.check_usable(update)
    except FAILURES as error:
        notes.fail(error)
        what = "its evaluation in round" if question.kind == "evaluate" else ANSWER_FAILED
        log.exception("client %d: %s %d failed", index, what, question.round)
        if not question.privacy.private:
            raise
        if not protection.noise_inside:
            return protection.zero(noise)
        # Zero alone would tell the server what a dropout does: the noise of all steps goes out.
        update = train_on_noise(
            request.model,
            question.training,
            question.privacy,
            entropy.keystream("noise", *key),
            question.population,
        )
    else:
        # By examples the trainer knows: noise inside an answer is not zero, whatever it learnt.
        weighted = question.kind == "train" and question.training.weighting == "examples"
        if question.kind != "train" or not question.privacy.by_example:
            notes.learnt = holds_anything(update, weighted=weighted)
    rounding = entropy.keystream("rounding", *key)
    whose = f"client {index}, round {question.round}"
    try:
        return protection.protect(
            update, rounding=rounding, noise=noise, whose=whose, unusable=notes.spoil
        )
    except UnusableUpdateError as error:
        notes.spoil(error)
        raise
