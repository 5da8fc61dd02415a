"""The Flower ClientApp: one handler a stage, and what a deployed client stands in.

Loaded as ``zerosum.client.flower:app``. Importing it imports neither torch nor dp_accounting:
a SuperNode starts a fresh process for each message, and only the contribute stage trains.
"""

import logging
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from pydantic import ValidationError

from zerosum.client import stages, wire
from zerosum.client.entropy import Entropy, SystemEntropy
from zerosum.client.provisioning import ProvisioningError, read_identity, read_roster
from zerosum.client.request import Request
from zerosum.client.spec import ClientPolicy
from zerosum.client.stages import Declined, Environment
from zerosum.client.store import (
    DecisionStore,
    FileStore,
    MemoryStore,
    OldRosterError,
    StaleSession,
)
from zerosum.client.task import ClientInfo, Task, resolve_task
from zerosum.secagg import (
    Client,
    ClientParty,
    IdentityKey,
    RemoteProtocolError,
    Roster,
    Session,
)

log = logging.getLogger("zerosum.client")

Stage = Callable[[Environment, RecordDict, Context], RecordDict]

PARTY = "zerosum.party"

_REFUSALS = (Declined, ProvisioningError, OldRosterError, StaleSession, RemoteProtocolError)


def build_app(environment: Callable[[Context], Environment]) -> ClientApp:
    """Return a ClientApp whose handlers run the stages in the environment of each context."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        index = environment(context).index(context)
        return Message(wire.pack({"index": index}), reply_to=message)

    def register(stage: Stage, decorate: Callable[..., object]) -> None:
        def handler(message: Message, context: Context) -> Message:
            content = answer(stage, environment(context), message.content, context)
            return Message(content, reply_to=message)

        decorate(handler)

    register(stages.advertise, app.query("advertise"))
    register(stages.share, app.query("share"))
    register(stages.contribute, app.train("contribute"))
    register(stages.confirm, app.query("confirm"))
    register(stages.unmask, app.query("unmask"))
    return app


def answer(
    stage: Stage, environment: Environment, content: RecordDict, context: Context
) -> RecordDict:
    """Run a stage; what goes wrong is logged here, and the server learns only that it did.

    Raises
    ------
    Declined
        For any refusal or failure, without its cause: a traceback may quote private data.
    """
    try:
        return stage(environment, content, context)
    except Exception as error:
        who = context.node_config.get("partition-id", "without an index")
        if isinstance(error, _REFUSALS):
            log.warning("client %s declined to %s: %s", who, stage.__name__, error)
        else:
            log.exception("client %s failed to %s", who, stage.__name__)
        raise Declined(
            f"no answer to {stage.__name__}: the reason is in this client's log"
        ) from None


class DeployedEnvironment:
    """A client on its own node, configured by its node config alone.

    Node config keys: ``partition-id`` (index in the roster), ``num-partitions``, ``state-dir``
    (durable decisions; without it they last as long as the SuperNode's memory), ``policy`` (a
    TOML file of ClientPolicy keys), ``data-path`` (replaces the request's ``data.path``). Against
    a malicious server also ``identity`` (file of this node's signing key), ``roster`` (file of the
    signed roster) and ``authority`` (public key of who signed it, 64 hexadecimal digits).
    """

    entropy: Entropy = SystemEntropy()

    def __init__(self, context: Context) -> None:
        self.policy = _read_policy(str(context.node_config.get("policy", "")))
        self._roster: Roster | None = None

    def index(self, context: Context) -> int:
        """Return ``partition-id``; raises Declined where the node has none."""
        value = context.node_config.get("partition-id")
        if not isinstance(value, int) or value < 0:
            raise Declined(f"node config partition-id = {value!r} is not a roster index")
        return value

    def store(self, context: Context) -> DecisionStore:
        """Return the store under ``state-dir``."""
        folder = context.node_config.get("state-dir")
        if folder is None:
            return _process_store(context.run_id, context.node_id)
        return FileStore(Path(str(folder)))

    def roster(self, context: Context) -> Roster | None:
        """Read the roster from the node's own file, once a message; None where it has none."""
        path = context.node_config.get("roster")
        if path is not None and self._roster is None:
            authority = str(context.node_config.get("authority", ""))
            self._roster = read_roster(str(path), authority)
        return self._roster

    def open_party(self, context: Context, session: Session, protocol: str) -> Client:
        """Make a party of the real protocol, whatever name the server used for it."""
        return ClientParty(
            session,
            self.index(context),
            identity=_identity(context),
            roster=self.roster(context),
        )

    def party(self, context: Context) -> Client:
        """Restore the party from the context's state and the decisions from the store."""
        if PARTY not in context.state.config_records:
            raise Declined("no session is open here: this client restarted or was never asked")
        data = context.state.config_records[PARTY]["state"]
        if not isinstance(data, bytes):
            raise Declined("the state kept for this session is unreadable")
        identity, roster = _identity(context), self.roster(context)
        party = ClientParty.restore(data, identity=identity, roster=roster)
        record = self.store(context).lines(party.session.digest)
        return ClientParty.restore(data, identity=identity, roster=roster, record=record)

    def keep(self, context: Context, party: Client | None) -> None:
        """Export the party into the context's state, or delete it from there."""
        if party is None:
            context.state.config_records.pop(PARTY, None)
        else:
            context.state[PARTY] = ConfigRecord({"state": party.export()})

    def request(self, content: RecordDict) -> Request:
        """Read the request from the message."""
        return Request.from_bytes(wire.bytes_field(content, "request"), wire.model_bytes(content))

    def task(self, request: Request, context: Context) -> Task:
        """Resolve the task, with this node's own data path."""
        question = request.question
        path = context.node_config.get("data-path")
        data = question.data if path is None else question.data.model_copy(update={"path": path})
        return resolve_task(question.task, data, question.model, question.seed)

    def update(self, request: Request, task: Task, client: ClientInfo) -> np.ndarray:
        """Train or evaluate with a trainer made for this one message."""
        from zerosum.client.answer import Answerer

        return Answerer(task).update(request, client, self.entropy)


def _identity(context: Context) -> IdentityKey | None:
    path = context.node_config.get("identity")
    return None if path is None else read_identity(str(path))


@cache
def _process_store(run_id: int, node_id: int) -> DecisionStore:
    log.warning("node config has no state-dir: decisions of this client do not outlive its process")
    return MemoryStore()


def _read_policy(path: str) -> ClientPolicy:
    if not path:
        return ClientPolicy()
    try:
        return ClientPolicy.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise Declined(f"the policy {path} cannot be used: {error}") from None


app = build_app(DeployedEnvironment)
