"""One client's side of a round: a function a stage, from message to reply.

The functions are the same in deployment and simulation; what differs (where a party is kept
between messages, whose entropy, which data) is an
:class:`~zerosum.client.protocol.environment.Environment`. A refusal is an
exception; the caller turns it into a reply that says no more than that it was refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from flwr.app import Context, RecordDict

from zerosum.client.privacy.spending import Price
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.admission import (
    Declined,
    check_budget,
    check_guarantee,
    check_protocol,
    check_request,
    check_session,
    priced,
    roster_for,
)
from zerosum.client.protocol.client_vector import Compute, Future, Work, client_of
from zerosum.client.protocol.environment import Environment
from zerosum.client.protocol.own_log import log_contribution
from zerosum.client.request import Request
from zerosum.secagg import Client, Message, RemoteProtocolError, Session, Step

Pack = Callable[[Message], RecordDict]

# The clients of one process are proposed the same few sessions: each is read once.
_proposed = lru_cache(maxsize=4)(Session.from_bytes)


def advertise(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Open a session: check it against the policy and send this client's public keys.

    Parameters
    ----------
    environment : Environment
        What the client stands in.
    content : flwr.app.RecordDict
    context : flwr.app.Context

    Returns
    -------
    flwr.app.RecordDict
        Of the reply.

    Raises
    ------
    Declined
        If the policy takes no part in the session, or the budget is spent.
    """
    session = _proposed(flower_messages.bytes_field(content, "session"))
    roster = roster_for(session, environment.credentials(context))
    check_session(session, environment.policy, roster)
    store = environment.store(context)
    if roster is not None:
        store.admit_roster(roster.version, roster.digest)
    check_budget(store, environment.policy)
    # Only now, and before any key exists: a session that was declined leaves no mark, so that a
    # server cannot raise the mark with sessions that it never means to run.
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
    """Seal shares of this client's secrets for its neighbours.

    Parameters
    ----------
    environment, content, context
        As of :func:`advertise`.

    Returns
    -------
    flwr.app.RecordDict
        Of the reply.
    """
    message = flower_messages.bytes_field(content, "message")
    party = _party(environment, context, message)
    step = party.share(message)
    return _sent(environment, context, party, step)


def _packed(message: Message) -> RecordDict:
    return flower_messages.pack({"message": message.to_bytes()})


@dataclass(frozen=True)
class Contribution:
    """A contribution that this client has admitted and priced, with its vector on the way.

    Attributes
    ----------
    environment : Environment
        What the client stands in.
    context : flwr.app.Context
    party : Client
        Of the session, before its contribute stage.
    request : Request
        What is answered.
    message : bytes
        The protocol's own, as it came.
    price : Price or None
        What it costs the client, and one record of it; None where nobody asks.
    vector : Future
        What the client adds to the sum.
    """

    environment: Environment
    context: Context
    party: Client
    request: Request
    message: bytes
    price: Price | None
    vector: Future

    def send(self, pack: Pack = _packed) -> RecordDict:
        """Collect the vector, mask it, charge it and make it durable, in this order.

        The charge is written before the reply leaves: a crash in between loses a contribution that
        was paid for, and never sends one that was not.

        Parameters
        ----------
        pack : callable
            Makes the reply's content: of bytes, unless the server reads it in this process.

        Returns
        -------
        flwr.app.RecordDict
            Of the reply.

        Raises
        ------
        Declined
            If an engine could not compute the vector: this client drops out.
        """
        session = self.party.session
        # The message fits the ring and noise may not: what is opened is the sum's residue alone.
        step = self.party.contribute(self.message, session.ring.encode(self.vector.result()))
        store, run = self.environment.store(self.context), self.context.run_id
        store.count_contribution(self.price, session.run_id, str(run))
        if store.accounts:  # a simulated client has neither budget nor log of its own
            policy = self.environment.policy
            log_contribution(store.spending, policy, self.request, session.run_id, run)
        return _sent(self.environment, self.context, self.party, step, pack=pack)


def contribute(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Answer the request: train or evaluate, clip, noise, encode, mask.

    Parameters
    ----------
    environment, content, context
        As of :func:`advertise`.

    Returns
    -------
    flwr.app.RecordDict
        Of the reply.
    """
    return begin_contribution(environment, content, context, environment.compute).send()


def begin_contribution(
    environment: Environment, content: RecordDict, context: Context, compute: Compute
) -> Contribution:
    """Admit, check and price a request, and only then begin to compute the answer.

    The order is the same wherever clients run. Whatever may decline comes before ``compute``: a
    client that takes no part trains nothing, so that neither the time of its answer nor its log
    says anything of its records. The price is reckoned before as well. A budget that ends with
    this request would otherwise be found after the records were read.

    A simulation begins the contributions of a whole cohort before it collects the first, so that
    its engine trains clients in groups and on all cores.

    Parameters
    ----------
    environment, content, context
        As of :func:`advertise`.
    compute : callable
        Begins to compute the vector: the environment's own, or a simulation's engine.

    Returns
    -------
    Contribution
        To be sent when its vector is wanted.

    Raises
    ------
    Declined
        If the policy refuses the request, or the budget ends before it.
    """
    message = flower_messages.bytes_field(content, "message")
    party = _party(environment, context, message)
    store = environment.store(context)
    check_budget(store, environment.policy)
    request = environment.request(content)
    if party.admit(message) != request.digest:
        raise Declined("the request is not the one that the session's masks are bound to")
    work = Work(request, party.session)
    try:
        price = _price(environment, work, context)
    except (Declined, RemoteProtocolError):
        environment.forget(context, party)  # no other request of this session ends well
        raise
    client = client_of(request, environment.index(context), dict(context.node_config))
    vector = compute(work, client)
    return Contribution(environment, context, party, request, message, price, vector)


def _price(environment: Environment, work: Work, context: Context) -> Price | None:
    """Check a request against policy, session and roster, and return what answering it costs."""
    policy, store = environment.policy, environment.store(context)
    check_request(work.request, policy)
    protection = work.protection
    roster = roster_for(work.session, environment.credentials(context))
    colluders = check_guarantee(work.request, work.session, policy, roster)
    return priced(store, policy, work.request, protection, colluders)


def confirm(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Sign the set of survivors, and no other set after it.

    Parameters
    ----------
    environment, content, context
        As of :func:`advertise`.

    Returns
    -------
    flwr.app.RecordDict
        Of the reply.
    """
    message = flower_messages.bytes_field(content, "message")
    party = _party(environment, context, message)
    step = party.confirm(message)
    return _sent(environment, context, party, step)


def unmask(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Release one share for each neighbour, and end the session.

    Parameters
    ----------
    environment, content, context
        As of :func:`advertise`.

    Returns
    -------
    flwr.app.RecordDict
        Of the reply.
    """
    message = flower_messages.bytes_field(content, "message")
    party = _party(environment, context, message)
    step = party.unmask(message)
    return _sent(environment, context, party, step, last=True)


def _sent(
    environment: Environment,
    context: Context,
    party: Client,
    step: Step,
    *,
    last: bool = False,
    pack: Pack = _packed,
) -> RecordDict:
    """Make a step's decisions durable, keep the party or end it, and only then send."""
    # A crash before the record is a dropout, and one after it as well: the same message gets the
    # same answer or none. A reply that left before its record could be given twice, to two
    # different messages: both shares of one neighbour, or one vector under two sets of masks.
    environment.store(context).append(party.session.digest, step.persist)
    (environment.forget if last else environment.keep)(context, party)
    return pack(step.send)


def _party(environment: Environment, context: Context, message: bytes) -> Client:
    """Return the party of a message's session, whose protocol the policy still trusts.

    The policy admitted the session at advertise. Whatever else put a party where it is kept, a
    client whose policy lists masks alone never answers one that trusts the server.
    """
    party = environment.party(context, message)
    check_protocol(party.session, environment.policy)
    return party
