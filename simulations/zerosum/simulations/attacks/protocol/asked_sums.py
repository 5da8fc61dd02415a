"""Play sums over deployed nodes, each of which a lying server asks something else.

Nodes have keys, rosters, policies and records in files, and withstand a malicious server. Before a
client contributes, the attack chooses what that client is asked. The lie is as good as can be: its
digest is computed for the client that gets it, and the server passes the answer off as one to the
common request. Only the binding of masks to the request remains as a defense.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from zerosum.client.flower.app_request import AppRequest, enveloped, stage_type
from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.flower.request_digest import rebuilt, records_digest
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.noise_source import SeededEntropy, SystemEntropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    SecAggSpec,
    TrainSpec,
)
from zerosum.client.task import ClientInfo, resolve_task
from zerosum.client.training.compute import LocalComputation
from zerosum.client.training.initial_model import initial_vector
from zerosum.secagg import (
    ContributeRequest,
    Contribution,
    Session,
    decode,
)
from zerosum.secagg.randomness import numpy_generator
from zerosum.secagg.session import request_digest
from zerosum.secagg.stages import Stage
from zerosum.server.flower.app_grid import AppGrid
from zerosum.server.private_sum.coordinator import Coordinator, Nodes, RoundAbandoned
from zerosum.simulations.attacks.harness.interface import Defense, NotApplicable, Scene, View
from zerosum.simulations.attacks.harness.to_specs import UNCLIPPED_RANGE, check_played
from zerosum.simulations.attacks.protocol.asked_nodes import CLASSES, PIXELS, app_of, provisioned
from zerosum.simulations.attacks.protocol.unbound import (
    LaxRequest,
    UnboundNode,
    sorted_digest,
)
from zerosum.simulations.attacks.protocol.updates import drawn, first_steps
from zerosum.simulations.engine.grid import App, InProcessGrid, nodes

Read = Literal["arrays", "settings", "group id", "numbers"]

SAID: Mapping[Read, str] = {
    "arrays": "an app that reads arrays by place",
    "settings": "an app that reads settings by place",
    "group id": "an app whose learning rate falls with the group id",
    "numbers": "an evaluation by max_loss",
}

_NO_NOISE = 1e-8
"""Multiplier of a trusted server's noise, which rounds to none: a server that lies adds none."""


@dataclass(frozen=True)
class ContributeFields:
    """Hold what a server writes into one client's request to contribute.

    Attributes
    ----------
    arrays : tuple of (str, ndarray)
        The app's arrays, float32, in order.
    settings : tuple of (str, float)
        The app's config, in order.
    group_id : str
        In the message's metadata.
    max_loss : str
        In the request, as JSON.
    """

    arrays: tuple[tuple[str, np.ndarray], ...]
    settings: tuple[tuple[str, float], ...]
    group_id: str
    max_loss: str

    def records(self) -> RecordDict:
        """Return the records of an app's message."""
        arrays = ArrayRecord({name: Array(value) for name, value in self.arrays})
        return RecordDict({"arrays": arrays, "config": ConfigRecord(dict(self.settings))})


@dataclass(frozen=True)
class AskedView(View):
    """Hold the sums that a lying server opened; ``stopped`` says why others were not.

    Attributes
    ----------
    totals : ndarray or None
        float64, shape (trials, d): the opened sums; zeros where one was abandoned. None where all
        were.
    """

    totals: np.ndarray | None = None


@dataclass(frozen=True)
class AskedSumsSetting:
    """Open sums in each of which the server wants one client's answer.

    An attack with a method ``ask(honest, wanted) -> ContributeFields`` lies: it chooses what a
    client is asked in place of ``honest``; ``wanted`` is true of the victim alone.

    Attributes
    ----------
    read : str
        The part of a message that decides what the clients compute.
    clients, trials : int
        Clients in each cohort; sums, each with other records, keys and victim.
    records : int
        Of each client, 8x8 digits: its update is a step of a linear model on them.
    """

    read: Read
    clients: int = 5
    trials: int = 3
    records: int = 20

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"{self.clients} nodes, {SAID[self.read]}"

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Play the sums; see :class:`~.interface.Setting`."""
        check_played(protection, ("masking", "bits", "request_hash"))
        if protection.masking != "double":
            raise NotApplicable("nodes take part in masked sessions alone")
        played = [self._trial(attack, protection, seed, trial) for trial in range(self.trials)]
        opened = [total for total, _, _, _ in played]
        truth = np.stack([wanted for _, wanted, _, _ in played])
        why = dict.fromkeys(reason for _, _, _, reason in played if reason)
        totals = None
        if any(total is not None for total in opened):
            totals = np.stack([np.zeros(truth.shape[1]) if t is None else t for t in opened])
        view = AskedView(attack.threat, protection, "; ".join(why), totals)
        steps = np.array([step for _, _, step, _ in played])
        return Scene(view, {"updates": truth, "steps": steps}, math.inf)

    def _trial(
        self, attack: Any, protection: Defense, seed: int, trial: int
    ) -> tuple[np.ndarray | None, np.ndarray, float, str]:
        """Return a sum or None, the victim's answer, the step of a coordinate, and why not."""
        rng = numpy_generator(seed, "asked sums", trial)
        kind = TaskSum if self.read == "numbers" else AppSum
        with TemporaryDirectory() as folder:
            play = kind(self, protection.bits, protection.request_hash, rng, Path(folder))
            try:
                total = play.opened(getattr(attack, "ask", lambda honest, wanted: honest))
            except RoundAbandoned as error:
                return None, play.wanted, play.step, str(error)
        return total, play.wanted, play.step, ""


Ask = Callable[[ContributeFields, bool], ContributeFields]


class AskedSum(ABC):
    """Run one sum with real nodes, a real coordinator, and a liar between them.

    Parameters
    ----------
    setting : AskedSumsSetting
    bits : int
        Of a coordinate.
    bound : bool
        Whether masks are bound to the request as this library's are, or as the controls'.
    rng : numpy.random.Generator
        Draws the victim and all records.
    folder : Path
        Of all nodes' files.
    """

    honest: ContributeFields
    wanted: np.ndarray
    step: float
    request: ModelRequest

    def __init__(
        self,
        setting: AskedSumsSetting,
        bits: int,
        bound: bool,
        rng: np.random.Generator,
        folder: Path,
    ) -> None:
        self._clients, self._bound, self._bits = setting.clients, bound, bits
        self._victim = int(rng.integers(setting.clients))
        self._session: Session | None = None
        self._ask: Ask = lambda honest, wanted: honest
        self._given = provisioned(folder, setting.clients)
        self._begin(setting, rng)
        question = self.request.question
        self.step = Protection.build(
            question.privacy,
            question.encoding,
            cohort=setting.clients,
            dimension=self.request.dimension,
            rotation_seed=bytes(32),
        ).encoding.step

    @abstractmethod
    def _begin(self, setting: AskedSumsSetting, rng: np.random.Generator) -> None:
        """Draw records, and build the app, the request and the victim's true answer."""

    def opened(self, ask: Ask) -> np.ndarray:
        """Open the sum.

        Parameters
        ----------
        ask : callable
            Chooses what each client is asked.

        Returns
        -------
        ndarray of float64
            Shape (d,).

        Raises
        ------
        RoundAbandoned
            If no sum was opened.
        """
        self._ask = ask
        # The common request is the one of all but the victim: their masks are bound to it.
        request = self._read(ask(self.honest, False))
        roster, config = self._given
        grid = InProcessGrid(self._between, self._clients, node_config=config)
        coordinator = Coordinator(
            self._around(grid, request),
            Nodes(nodes(self._clients), roster),
            SecAggSpec(protocol="pairwise", server="malicious", dropout=0.2),
            run_id=b"asked sums",
            entropy=SystemEntropy(),
        )
        cohort = tuple(range(self._clients))
        return coordinator.private_sum(request, [cohort], round=1).total

    def _around(self, grid: InProcessGrid, request: ModelRequest) -> Grid:
        return grid

    def _between(self, message: Message, context: Context) -> Message:
        """Deliver a message; at contribute, ask what the attack chose."""
        stage = self._stage(message)
        if stage == flower_messages.STAGE_TYPES[Stage.ADVERTISE]:
            self._session = Session.from_bytes(
                flower_messages.bytes_field(message.content, "session")
            )
        if stage != flower_messages.STAGE_TYPES[Stage.CONTRIBUTE] or self._session is None:
            return self._app(message, context)
        wanted = context.node_config["partition-id"] == self._victim
        return self._lied_to(message, context, self._ask(self.honest, wanted), self._session)

    def _lied_to(
        self, message: Message, context: Context, asked: ContributeFields, session: Session
    ) -> Message:
        """Ask a client something else, and pass its answer off as one to the real request."""
        request, content = self._read(asked), self._beside(asked)
        real = decode(
            flower_messages.bytes_field(message.content, "message"), ContributeRequest, session
        )
        body = replace(real, request=request.digest).to_bytes()
        content[flower_messages.RECORD] = ConfigRecord({"message": body, "request": request.header})
        lie = _with_content(message, content)
        lie.metadata.group_id = asked.group_id
        reply = self._app(lie, context)
        answer = decode(
            flower_messages.bytes_field(reply.content, "message"), Contribution, session
        )
        passed = replace(answer, request=real.request).to_bytes()
        return _with_content(reply, flower_messages.pack({"message": passed}))

    @abstractmethod
    def _read(self, asked: ContributeFields) -> ModelRequest:
        """Return the request with these fields, and the digest that its readers compute."""

    @abstractmethod
    def _beside(self, asked: ContributeFields) -> RecordDict:
        """Return the records that travel with a request: an app's, or a model."""

    def _stage(self, message: Message) -> str | None:
        return message.metadata.message_type

    _app: App


class AppSum(AskedSum):
    """Sum what an ordinary app trains, behind the mod."""

    def _begin(self, setting: AskedSumsSetting, rng: np.random.Generator) -> None:
        state = copy.deepcopy(rng)
        inputs, targets = drawn(setting.clients, setting.records, rng)
        update = first_steps(setting.clients, setting.records, state)[self._victim]
        self.wanted = np.concatenate([np.zeros(2 * PIXELS), update])
        # Nothing is trained while inputs are multiplied by the second array, of zeros, or while the
        # first setting, zero, is read as the learning rate. The lie for the victim exchanges them.
        arrays = [("norm.0", np.ones(PIXELS)), ("norm.1", np.zeros(PIXELS))]
        settings = [("weight-decay", 0.0), ("lr", 1.0)]
        if setting.read != "arrays":
            arrays.reverse()
        if setting.read != "settings":
            settings.reverse()
        arrays.append(("weight", np.zeros((CLASSES, PIXELS))))
        values = tuple((name, value.astype(np.float32)) for name, value in arrays)
        self.honest = ContributeFields(values, tuple(settings), "0", "1.0")
        self._app = app_of(inputs, targets, bound=self._bound)
        encoding = EncodingSpec(bits=self._bits, range=UNCLIPPED_RANGE)
        privacy = PrivacySpec(model="none", clip=None)
        self._request = AppRequest.of(
            question_of("train", setting.clients, privacy, encoding),
            self.honest.records(),
            message_type="train",
            run_config={},
            weight_key="num-examples",
            metrics={},
        )
        self.request = self._request

    def _read(self, asked: ContributeFields) -> AppRequest:
        records = rebuilt(asked.records())
        content = (records_digest if self._bound else sorted_digest)(records).hex()
        question = self._request.question.model_copy(update={"content": content})
        return AppRequest(question, b"", records)

    def _around(self, grid: InProcessGrid, request: ModelRequest) -> Grid:
        around = AppGrid(grid, "train")
        if isinstance(request, AppRequest):
            around.carry(request.records, "train")
        return around

    def _stage(self, message: Message) -> str | None:
        return stage_type(message.content)

    def _beside(self, asked: ContributeFields) -> RecordDict:
        return enveloped(
            flower_messages.pack({}), flower_messages.STAGE_TYPES[Stage.CONTRIBUTE], asked.records()
        )


class TaskSum(AskedSum):
    """Sum evaluations of this library's own tasks: mean losses, in parts of ``max_loss``.

    The server is trusted to add the noise. A lying one adds none, and has the exact sum.
    """

    def _begin(self, setting: AskedSumsSetting, rng: np.random.Generator) -> None:
        seed = int(rng.integers(1 << 31))
        privacy = PrivacySpec(
            model="central", clip=1.0, noise_multiplier=_NO_NOISE, delta=1e-5, honest_fraction=0.5
        )
        encoding = EncodingSpec(bits=self._bits)
        question = question_of("evaluate", setting.clients, privacy, encoding).model_copy(
            update={"seed": seed, "task": "digits", "model": ModelSpec(name="linear")}
        )
        task = resolve_task(question.task, question.data, question.model, seed)
        self.request = ModelRequest(question, model_payload(initial_vector(task, seed)))
        self.honest = ContributeFields((), (), "0", "1.0")
        self._app = build_app(DeployedEnvironment if self._bound else UnboundNode)
        info = ClientInfo(
            index=self._victim, count=setting.clients, seed=seed, node_config={"device": "cpu"}
        )
        unbounded = question.model_copy(update={"max_loss": math.inf})
        answer = LocalComputation(task, trainer="general").update(
            ModelRequest(unbounded, self.request.payload), info, SeededEntropy(seed)
        )
        self.wanted = answer.astype(np.float64)

    def _read(self, asked: ContributeFields) -> ModelRequest:
        own, model = self.request.header, self.request.payload
        header = own.replace(b'"max_loss":1.0', b'"max_loss":' + asked.max_loss.encode())
        # A text that readers refuse has no digest of theirs; any serves, for nobody compares it.
        digest = request_digest(header, model)
        with suppress(ValueError):
            kind = ModelRequest if self._bound else LaxRequest
            digest = kind.from_bytes(header, model).digest
        request = ModelRequest(self.request.question, self.request.payload)
        # Both are cached properties. The request is sent as the attack wrote it, in a text that
        # this library would not write.
        request.__dict__.update(header=header, digest=digest)
        return request

    def _beside(self, asked: ContributeFields) -> RecordDict:
        return flower_messages.pack({}, flower_messages.payload_record(self.request.payload))


def question_of(
    kind: Literal["train", "evaluate"], clients: int, privacy: PrivacySpec, encoding: EncodingSpec
) -> ModelQuestion:
    """Return the question of such a sum, but for its task.

    Parameters
    ----------
    kind : str
        "train" or "evaluate".
    clients : int
        In the population and the cohort.
    privacy : PrivacySpec
    encoding : EncodingSpec

    Returns
    -------
    ModelQuestion
    """
    return ModelQuestion(
        kind=kind,
        round=1,
        seed=0,
        population=clients,
        task="flower-app",
        data=DataSpec(),
        model=ModelSpec(),
        training=TrainSpec(),
        privacy=privacy,
        encoding=encoding,
        noise_draw="per_client",
        max_loss=1.0,
    )


def _with_content(original: Message, content: RecordDict) -> Message:
    """Return a copy of a Flower message with other content, and metadata of its own."""
    changed = copy.copy(original)
    changed.__dict__["_metadata"] = copy.copy(original.metadata)
    changed.__dict__["_content"] = content
    return changed
