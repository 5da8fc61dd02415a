"""The Flower ClientApp: one handler a stage, and what a deployed client stands in.

Loaded as ``zerosum.client.flower.client_app:app``, by a SuperNode and by Flower's simulation
runtime alike. Importing it imports neither torch nor dp_accounting: a SuperNode starts a fresh
process for each message, and only the contribute stage trains.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from zerosum.client.files.private_files import OpenToOthersError
from zerosum.client.flower.node_index import node_index
from zerosum.client.flower.node_policy import NodeFile, PolicyError, read_node_file
from zerosum.client.flower.refusals import log_refusal
from zerosum.client.flower.simulated_node import (
    OPEN_POLICY,
    ContextStore,
    is_simulated,
    simulated_credentials,
)
from zerosum.client.nearest_word import did_you_mean
from zerosum.client.protocol import flower_messages, stages
from zerosum.client.protocol.admission import Declined, roster_for
from zerosum.client.protocol.client_vector import Future, Work
from zerosum.client.protocol.decision_store import (
    BusyStoreError,
    DamagedStoreError,
    DecisionStore,
    UnusableStoreError,
)
from zerosum.client.protocol.environment import Environment, compute_here
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.node_keys import (
    Credentials,
    ProvisioningError,
    read_identity,
    read_roster,
)
from zerosum.client.protocol.noise_source import Entropy, SeededEntropy, SystemEntropy
from zerosum.client.protocol.open_sessions import find_party, forget_party, keep_party
from zerosum.client.protocol.own_log import show_log
from zerosum.client.protocol.row_secret import row_secret
from zerosum.client.queries.table import Table
from zerosum.client.request import (
    ModelRequest,
    QueryQuestion,
    QueryRequest,
    Request,
    about_model,
)
from zerosum.client.session_limits import TooManyOpeningsError
from zerosum.client.spec import ClientPolicy, DataSpec, ModelSpec
from zerosum.client.task import ClientInfo, Task, TaskError, resolve_task
from zerosum.client.task_errors import FAILURES
from zerosum.secagg import Client, ClientParty, IdealClientParty, RemoteProtocolError, Session
from zerosum.secagg.messages.all_messages import session_of
from zerosum.secagg.messages.exported_state import ClientState

if TYPE_CHECKING:
    from zerosum.client.training.compute import LocalComputation

log = logging.getLogger("zerosum.client")

Stage = Callable[[Environment, RecordDict, Context], RecordDict]

IDEAL = "zerosum.ideal"
"""Where a simulated node keeps its one party of the ideal protocol."""
_CREDENTIALS = ("identity", "roster", "authority")
_KEYS = frozenset(
    {
        "partition-id",
        "num-partitions",
        "state-dir",
        "policy",
        "data-path",
        "hold-out",  # by the tasks that `zerosum new` writes
        "server-paths",
        "device",
        *_CREDENTIALS,
    }
)
"""What is read of a node's config; apps of ``zerosum new`` read ``hold-out``, a task may more."""

_REFUSALS = (
    Declined,
    BusyStoreError,
    DamagedStoreError,
    OpenToOthersError,
    PolicyError,
    ProvisioningError,
    RemoteProtocolError,
    TooManyOpeningsError,
    UnusableStoreError,
)


EnvironmentOf = Callable[[Context], Environment]


def build_app(environment: EnvironmentOf) -> ClientApp:
    """Return a ClientApp whose handlers run the stages in the environment of each context."""
    app = ClientApp()

    def register(stage: Stage, decorate: Callable[..., object]) -> None:
        def handler(message: Message, context: Context) -> Message:
            content = answer_parts(stage, environment, message.content, context)
            return Message(content, reply_to=message)

        decorate(handler)

    register(_hello, app.query("hello"))
    for name, message_type in flower_messages.STAGE_TYPES.items():
        decorate = app.train if message_type.startswith("train.") else app.query
        register(getattr(stages, name), decorate(str(name)))
    return app


def _hello(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Answer with this client's index, once it has all that it needs."""
    environment.check_ready()
    return flower_messages.pack({"index": environment.index(context)})


def answer_parts(
    stage: Stage, environment: EnvironmentOf, content: RecordDict, context: Context
) -> RecordDict:
    """Answer a message's stage, and the piggybacked stage of the next session if there is one.

    Each is answered by itself: what is refused is missing in the reply.

    Parameters
    ----------
    stage : callable
        Of the message's type.
    environment : callable
        Makes the environment of a context.
    content : flwr.app.RecordDict
        Of the message, with one stage or two.
    context : flwr.app.Context

    Returns
    -------
    flwr.app.RecordDict
        Of the reply.

    Raises
    ------
    Declined
        If nothing of the message is answered.
    """
    name = flower_messages.piggyback_stage(content)
    if name is None:
        return answer(stage, environment, content, context)
    main = piggybacked = None
    try:
        main = answer(stage, environment, content, context)
    except Declined as error:
        declined = error
    try:
        piggybacked = answer(
            _PIGGYBACKED.get(name, _unknown),
            environment,
            flower_messages.piggyback(content),
            context,
        )
    except Declined:
        if main is None:
            raise declined from None
    return flower_messages.joined(main, piggybacked)


def _unknown(environment: Environment, content: RecordDict, context: Context) -> RecordDict:
    """Decline a piggybacked stage other than advertise and share."""
    raise Declined("only keys and shares of the next session ride along with a message")


_PIGGYBACKED: dict[str, Stage] = {
    name: getattr(stages, name) for name in flower_messages.PIGGYBACKED
}


def answer(
    stage: Stage, environment: EnvironmentOf, content: RecordDict, context: Context
) -> RecordDict:
    """Run a stage, log what goes wrong here, and tell the server only that it did.

    The client's record is held alone from first to last: a message that arrives twice at once is
    answered once, and the others wait for it, at most as long as the policy says.

    Parameters
    ----------
    stage : callable
        Of the message's type.
    environment : callable
        Makes the environment of a context.
    content : flwr.app.RecordDict
        Of one stage.
    context : flwr.app.Context

    Returns
    -------
    flwr.app.RecordDict
        Of the reply.

    Raises
    ------
    Declined
        For any refusal or failure, without its cause: a traceback may quote private data.
    """
    with answering(stage.__name__.strip("_"), environment, context) as here:
        return stage(here, content, context)


@contextmanager
def answering(name: str, environment: EnvironmentOf, context: Context) -> Iterator[Environment]:
    """Lock a client's record for one message, and convert every failure into Declined.

    Parameters
    ----------
    name : str
        The stage, for the log.
    environment : callable
        Makes the environment of a context.
    context : flwr.app.Context

    Yields
    ------
    Environment
        Of the client that answers.

    Raises
    ------
    Declined
        For any refusal or failure, without its cause: a traceback may quote private data.
    """
    try:
        here = environment(context)
        with here.store(context).exclusive(here.policy.longest_wait):
            yield here
    except FAILURES as error:
        who = context.node_config.get("partition-id", "without an index")
        if isinstance(error, _REFUSALS):
            log_refusal(context.state, context.run_id, who, name, error)
        else:
            log.exception("run %d: client %s failed to %s", context.run_id, who, name)
        raise Declined(f"no answer to {name}: {_told(error, context)}") from None


def _told(error: BaseException, context: Context) -> str:
    """Return what a server is told of a refusal or a failure: nothing of its cause.

    Where one process plays the server and its nodes there is nobody to keep the cause from.
    """
    if is_simulated(context):
        return f"{type(error).__name__}: {error}"
    busy = isinstance(error, BusyStoreError)
    return flower_messages.BUSY if busy else flower_messages.OWN_LOG


class DeployedEnvironment:
    """Environment of a client on its own node, configured by its node config alone.

    Node config keys: ``partition-id`` (index in the roster), ``num-partitions``, ``state-dir``
    (folder of durable decisions, required: each message has a process of its own), ``policy`` (a
    TOML file of ClientPolicy keys, required), ``data-path`` (replaces the request's ``data.path``:
    a built-in task takes it for the whole collection, and trains on this index's part),
    ``server-paths`` (true: without ``data-path`` the request's own is read), ``device`` (where to
    train: ``cpu``, ``cuda`` or ``cuda:N``). Against a malicious server also ``identity`` (file of
    this node's signing key), ``roster`` (file of the signed roster) and ``authority`` (public key
    of who signed it, 64 hexadecimal digits).
    """

    entropy: Entropy = SystemEntropy()
    warns_of_any_key: ClassVar[bool] = True
    """Whether a key that is like none of ours is worth a word; other people's apps have their own.
    """

    def __init__(self, context: Context) -> None:
        show_log()
        _warn(frozenset(context.node_config), self.warns_of_any_key)
        self._run = context.run_id
        self._config = context.node_config
        self._credentials: Credentials | None = None

    @cached_property
    def _own(self) -> NodeFile:
        return read_node_file(str(self._config.get("policy", "")))

    @cached_property
    def policy(self) -> ClientPolicy:
        """Read the policy, once a message; raises PolicyError where the node has none."""
        policy = self._own.policy
        # A session that trusts the server shows it this node's vector, or leaves it the noise.
        masked = [name for name in policy.protocols if name == "pairwise"]
        return policy.model_copy(update={"protocols": masked})

    def index(self, context: Context) -> int:
        """Return ``partition-id``; raises Declined where the node has none."""
        return node_index(context.node_config)

    def store(self, context: Context) -> DecisionStore:
        """Return the store under ``state-dir``; raises Declined where the node has none."""
        folder = str(context.node_config.get("state-dir", ""))
        if not folder or "\0" in folder:
            raise Declined(
                f"node config state-dir is missing, or {folder!r} names no folder: without one of "
                "its own a node forgets with each message what it must never do twice"
            )
        return FileStore(Path(folder))

    def credentials(self, context: Context) -> Credentials | None:
        """Read key and roster from the node's own files, once a message; None where it has none."""
        given = {name: context.node_config.get(name) for name in _CREDENTIALS}
        if self._credentials is None and any(value is not None for value in given.values()):
            missing = [name for name, value in given.items() if value is None]
            if missing:
                raise ProvisioningError(
                    f"node config {' and '.join(missing)}: missing beside the others of "
                    f"{', '.join(_CREDENTIALS)}; give all three or none"
                )
            identity = read_identity(str(given["identity"]))
            roster = read_roster(str(given["roster"]), str(given["authority"]))
            self._credentials = Credentials.of(identity, roster, self.index(context))
        return self._credentials

    def open_party(self, context: Context, session: Session) -> Client:
        """Make a masking party; one of another protocol is never made here."""
        credentials = self.credentials(context)
        return ClientParty(
            session,
            self.index(context),
            identity=None if credentials is None else credentials.identity,
            roster=roster_for(session, credentials),
            record=self.store(context).lines(session.digest),
        )

    def party(self, context: Context, message: bytes) -> Client:
        """Restore the party from the context's state and the decisions from the store."""
        data = find_party(context.state, session_of(message), self.policy.session_timeout)
        if data is None:
            raise Declined("no such session is open here: this client restarted or was never asked")
        session = ClientState.from_bytes(data).session
        store, credentials = self.store(context), self.credentials(context)
        if store.is_over(session.run_id, session.round):
            forget_party(context.state, session.digest)
            raise Declined(f"the session of round {session.round} is over here")
        return ClientParty.restore(
            data,
            identity=None if credentials is None else credentials.identity,
            roster=roster_for(session, credentials),
            record=store.lines(session.digest),
        )

    def keep(self, context: Context, party: Client) -> None:
        """Export the party into the context's state."""
        keep_party(context.state, party, self.policy.session_timeout)

    def forget(self, context: Context, party: Client) -> None:
        """Delete the party from the context's state."""
        forget_party(context.state, party.session.digest)

    def request(self, content: RecordDict) -> Request:
        """Read the request; decline what this node cannot compute, or the server chose for it."""
        request = _request(content)
        if isinstance(request, QueryRequest):
            if self._own.table is None:
                raise Declined("no query is answered: this node has no [table] beside its policy")
            return request
        data, config = about_model(request).question.data, self._config
        _check_training(request, str(config.get("device", "cpu")))
        if data.name is not None:
            raise Declined(f"data.name = {data.name!r}: a node fetches nothing from a hub")
        if data.path is None or "data-path" in config or config.get("server-paths") is True:
            return request
        raise Declined(
            f"data.path = {data.path!r} is the server's: name this node's own in its node config, "
            "as data-path, or write server-paths=true there"
        )

    def task(self, request: ModelRequest, client: ClientInfo) -> Task:
        """Resolve the task with this node's own data path."""
        question = request.question
        path = client.node_config.get("data-path", question.data.path)
        data = question.data.model_copy(update={"path": path, "cache": None})
        from zerosum.client.training.seeded_task import seeded_resolution

        with seeded_resolution(question.seed):
            return resolve_task(question.task, data, question.model, question.seed)

    def update(self, request: ModelRequest, task: Task, client: ClientInfo) -> np.ndarray:
        """Train or evaluate with a trainer made for this message alone."""
        from zerosum.client.training.compute import LocalComputation
        from zerosum.client.training.devices import missing, repeatable

        device = str(client.node_config.get("device", "cpu"))
        reason = missing(device)
        if reason is not None:
            log.warning("node config device = %r: %s; the CPU is used", device, reason)
            device = "cpu"
        kind = "auto" if device == "cpu" else "general"  # alone, a client fills no group
        with repeatable(device):
            computation = LocalComputation(task, device=device, trainer=kind)
            update = computation.update(request, client, self.entropy)
        if computation.records is not None:
            question = request.question
            log.info(
                "run %d, round %d: %d records read to %s, of data-path %s",
                self._run,
                question.round,
                computation.records,
                question.kind,
                client.node_config.get("data-path", question.data.path),
            )
        return update

    def check_ready(self) -> None:
        """Check that the table has the columns of the policy, where queries are answered."""
        self._own.check_table()

    def table(self, question: QueryQuestion, client: ClientInfo) -> Table:
        """Read the columns that a query reads from the node's own file."""
        return self._own.read_table(question)

    def row_secret(self, client: ClientInfo) -> bytes:
        """Read the secret under ``state-dir``, or make it."""
        return row_secret(Path(str(self._config["state-dir"])))

    def compute(self, work: Work, client: ClientInfo) -> Future:
        """Compute the vector in this process, when it is collected."""
        return compute_here(self, work, client)


def _request(content: RecordDict) -> Request:
    """Read a request; decline what is none, or is written otherwise than its reader writes it."""
    try:
        return Request.from_bytes(
            flower_messages.bytes_field(content, "request"), flower_messages.payload_of(content)
        )
    except ValueError as error:
        raise Declined(str(error)) from None


def _check_training(request: Request, device: str) -> None:
    """Decline before any record is read what this node's processor or its torch does not have.

    In another precision it would train otherwise; without the optimizer not at all, which under
    privacy would be zero and noise in every round.
    """
    question = about_model(request).question
    training = question.training
    if question.kind != "train" or (training.precision, training.optimizer) == ("float32", "SGD"):
        return
    from zerosum.client.training.optimizers import check_optimizer
    from zerosum.client.training.precision import missing_bf16, refuse_bf16

    try:
        refuse_bf16(training, missing_bf16(device))
        check_optimizer(training)
    except TaskError as error:
        raise Declined(str(error)) from None


@lru_cache(maxsize=16)
def _warn(keys: frozenset[str], any_key: bool) -> None:
    """Say, once a process, which keys nothing of ours reads, and the nearest that is read."""
    for key in sorted(keys - _KEYS):
        hint = did_you_mean(key, _KEYS)
        if hint or any_key:
            log.warning("node config %s is read by nothing but perhaps the task%s", key, hint)


NO_TABLE = (
    "a node of Flower's simulation runtime has no table: ask a federation of zerosum.analytics"
)


class SimulatedNode(DeployedEnvironment):
    """A client of Flower's simulation runtime, whose actors answer for one node after another.

    As in every simulation it takes part in anything, and its noise and rounding follow from the
    experiment's seed; decisions and state are kept in the context, which passes from actor to
    actor.
    """

    def __init__(self, context: Context) -> None:
        self.policy = OPEN_POLICY

    def check_ready(self) -> None:
        """Do nothing: it has nothing of its own."""

    def store(self, context: Context) -> DecisionStore:
        """Return the decisions in the context's state."""
        return ContextStore(context.state)

    def credentials(self, context: Context) -> Credentials:
        """Return key and roster, which follow from the run's id."""
        return simulated_credentials(context)

    def open_party(self, context: Context, session: Session) -> Client:
        """Make a party of the protocol that the session runs."""
        if session.masked:
            return super().open_party(context, session)
        return IdealClientParty(session, self.index(context))

    def party(self, context: Context, message: bytes) -> Client:
        """Restore the party, of whichever protocol, from the context's state."""
        record = context.state.config_records.get(IDEAL)
        data = None if record is None else record.get("state")
        if isinstance(data, bytes):
            return IdealClientParty.restore(data, policy=self.policy.for_sessions())
        return super().party(context, message)

    def keep(self, context: Context, party: Client) -> None:
        """Export the party into the context's state."""
        if isinstance(party, IdealClientParty):
            context.state[IDEAL] = ConfigRecord({"state": party.export()})
        else:
            super().keep(context, party)

    def forget(self, context: Context, party: Client) -> None:
        """Delete the party from the context's state."""
        context.state.config_records.pop(IDEAL, None)
        super().forget(context, party)

    def request(self, content: RecordDict) -> Request:
        """Read the request, by whose seed noise and rounding are drawn."""
        request = _request(content)
        if isinstance(request, QueryRequest):
            raise Declined(NO_TABLE)
        self.entropy = SeededEntropy(request.question.seed)
        return request

    def task(self, request: ModelRequest, client: ClientInfo) -> Task:
        """Return the task, resolved once an actor."""
        return _answering(*_task_of(request))[0]

    def update(self, request: ModelRequest, task: Task, client: ClientInfo) -> np.ndarray:
        """Train or evaluate with the one trainer of this actor."""
        return _answering(*_task_of(request))[1].update(request, client, self.entropy)


def _task_of(request: ModelRequest) -> tuple[str, bytes, bytes, int]:
    question = request.question
    return question.task, question.data.canonical(), question.model.canonical(), question.seed


@lru_cache(maxsize=1)
def _answering(name: str, data: bytes, model: bytes, seed: int) -> "tuple[Task, LocalComputation]":
    from zerosum.client.training.compute import LocalComputation
    from zerosum.client.training.seeded_task import seeded_resolution
    from zerosum.client.training.threads import use_one_thread

    use_one_thread()  # as in every simulation: sums of floats depend on it
    specs = DataSpec.from_canonical(data), ModelSpec.from_canonical(model)
    with seeded_resolution(seed):
        task = resolve_task(name, *specs, seed)
    return task, LocalComputation(task)


def environment_of(context: Context) -> Environment:
    """Return what a client stands in: its own node, or one that Flower's simulation plays."""
    return SimulatedNode(context) if is_simulated(context) else DeployedEnvironment(context)


app = build_app(environment_of)
