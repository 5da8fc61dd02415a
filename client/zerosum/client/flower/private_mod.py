"""A Flower mod for other people's ClientApps: what they train leaves their node masked.

One line of a ClientApp changes::

    app = ClientApp(mods=[private_mod])

or, so that errors outside of the mod say nothing either, ``app = PrivateClientApp()``; or, so that
nothing but training imports what the app needs, ``app = PrivateClientApp("module:attribute")``.

The mod stands first among the mods. It answers the stages of the protocol, which the app never
sees, and hands the app the strategy's message when it is time to train: its type and its records,
to which masks are bound, and blanks for the rest (:mod:`~zerosum.client.flower.request_digest`).
The app's reply is turned into a clipped, noised and masked vector, and nothing else of it is sent.
Messages that are no part of a private sum are refused: their answers would leave in plain. The node
is configured as for :class:`zerosum.client.flower.client_app.DeployedEnvironment`.

Importing this imports neither torch nor dp_accounting.
"""

import logging
import math
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from zerosum.client.flower.app_query import (
    AppReplyError,
    AppSumRequest,
    asks_for_sums,
    reply_vector,
)
from zerosum.client.flower.app_request import AppRequest, only_arrays, stage_type
from zerosum.client.flower.arrays import UnusableArraysError
from zerosum.client.flower.client_app import DeployedEnvironment, SimulatedNode, build_app
from zerosum.client.flower.flower_internals import (
    ClientAppCallable,
    ClientFn,
    Mod,
    changed_message,
    has_function,
)
from zerosum.client.flower.named_app import NamedApp
from zerosum.client.flower.request_digest import config_digest, shown, shown_message
from zerosum.client.flower.simulated_node import is_simulated
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.client_vector import Future, OnCollection, Work, protected
from zerosum.client.protocol.query_answer import QUERY_COINS
from zerosum.client.request import ModelRequest
from zerosum.client.task import ClientInfo, Task
from zerosum.client.task_errors import FAILURES

log = logging.getLogger("zerosum.client")

_OURS = "zerosum."
"""What names of our records in a node's state begin with."""


_TRAINS: ContextVar[bool] = ContextVar("zerosum_trains", default=False)
"""Whether an app has its turn here. It may have the mod itself, and stand behind another."""


class AppEnvironment(DeployedEnvironment):
    """A deployed client whose answers come from somebody else's app.

    Parameters
    ----------
    context : Context
    message : Message
    call_next : callable
        The app's function, within its further mods.
    """

    warns_of_any_key = False

    def __init__(self, context: Context, message: Message, call_next: ClientAppCallable) -> None:
        super().__init__(context)
        # What runs is the app that stands here, whatever name the server has for it.
        self.policy = self.policy.model_copy(update={"tasks": "any"})
        self._context, self._message, self._call_next = context, message, call_next

    def check_ready(self) -> None:
        """Check that an app is there that is imported only later; it has no table of a policy's."""
        if isinstance(self._call_next, NamedApp):
            self._call_next.check()

    def request(self, content: RecordDict) -> AppRequest | AppSumRequest:
        """Read the request, and refuse one that an app's reply cannot answer."""
        request: AppRequest | AppSumRequest
        try:
            sums = asks_for_sums(content)
            request = AppSumRequest.read(content) if sums else AppRequest.read(content)
        except ValueError as error:
            raise Declined(str(error)) from None
        question = request.question
        came = self._message.metadata.message_type
        # Both choose what the app computes, and a server could choose for one client alone.
        if came != question.message_type or question.kind != came.partition(".")[0]:
            raise Declined(
                f"a message of type {came!r} carries a request to {question.kind}, by "
                f"{question.message_type!r}"
            )
        if config_digest(self._context.run_config).hex() != question.run_config:
            raise Declined(
                "the run config that came here is not the one that the request speaks of: a "
                "server that changes its own gives it to PrivateStrategy(..., run_config=...)"
            )
        self._find_app(came)
        if isinstance(request, AppSumRequest):
            return request
        question = request.question
        if question.privacy.by_example or question.privacy.clipping == "per-layer":
            raise Declined("an app's update is clipped as a whole, for its client as a whole")
        return request

    def _find_app(self, message_type: str) -> None:
        """Import an app that is a name so far: one that is not there is no matter of records."""
        self._call_next = _imported(self._call_next)
        if not has_function(self._call_next, message_type):
            raise Declined(f"the app has no function for messages of type {message_type!r}")

    def task(self, request: ModelRequest, client: ClientInfo) -> Task:
        """Return what stands for the task: nothing asks it."""
        return cast(Task, self)

    def update(self, request: ModelRequest, task: Task, client: ClientInfo) -> np.ndarray:
        """Let the app train or evaluate, and return what it changed or found.

        Raises
        ------
        AppReplyError
            If its reply lacks what is summed. What the app raises is passed on.
        """
        if not isinstance(request, AppRequest):
            raise TypeError(f"an app answers an AppRequest, not a {type(request).__name__}")
        if request.question.kind == "evaluate":
            return _metrics(request, self._reply(self.handed(request)))
        # Before the app has the records: it may change them.
        layout, sent = request.layout, request.layout.vector(request.arrays)
        reply = self._reply(self.handed(request))
        try:
            delta: np.ndarray = layout.vector(only_arrays(reply)) - sent
        except UnusableArraysError as error:
            raise AppReplyError(f"the app's reply: {error}") from None
        if request.question.training.weighting == "uniform":
            return delta
        count, most = _weight(request, reply), request.question.training.max_examples
        if not 0 < count <= most:
            raise AppReplyError(
                f"{count:g} examples are not between 0 and training.max_examples = {most}"
            )
        weighted: np.ndarray = np.append(delta.astype(np.float64), 1.0) * (count / most)
        return weighted

    def compute(self, work: Work, client: ClientInfo) -> Future:
        """Compute the vector in this process, when it is collected."""
        if not isinstance(work.request, AppSumRequest):
            return super().compute(work, client)
        answer = partial(self._sums, work.request, work, client)
        return OnCollection(partial(protected, work, client.index, self.entropy, answer))

    def _sums(self, request: AppSumRequest, work: Work, client: ClientInfo) -> np.ndarray:
        """Let the app answer, and return what is summed of its reply."""
        key = work.session.round, work.session.attempt, client.index
        reply = self._reply(shown_message(request.question.message_type, request.records))
        return reply_vector(request, reply, self.entropy.keystream(QUERY_COINS, *key))

    def handed(self, request: AppRequest) -> Message:
        """Return what the app is handed: all that masks are bound to, and blanks."""
        return shown_message(request.question.message_type, request.records)

    def _reply(self, message: Message) -> RecordDict:
        """Hand the app a message that was meant for it."""
        reply: object = _called(self._call_next, message, self._context)
        if not isinstance(reply, Message):
            raise AppReplyError(f"the app returned a {type(reply).__name__}, and no Message")
        if reply.has_error():
            raise AppReplyError(f"the app replied with an error: {reply.error.reason}")
        return reply.content


class SimulatedApp(AppEnvironment, SimulatedNode):
    """Somebody else's app on a node of Flower's simulation runtime, which has nothing of its own.

    Its state, keys and open policy are a simulated node's. Its noise is the operating system's, as
    on a node: nobody draws it again.
    """


def environment_of(context: Context) -> type[AppEnvironment]:
    """Return what an app stands in: its own node, or one that Flower's simulation plays.

    Parameters
    ----------
    context : flwr.app.Context
        Of the node.

    Returns
    -------
    type
        By this process alone: nothing that a server sends makes a node a simulated one.
    """
    return SimulatedApp if is_simulated(context) else AppEnvironment


def private_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer a stage of a private sum with the app's help; refuse anything else.

    Parameters
    ----------
    message : flwr.app.Message
        Of a stage, or anything else that a server sends.
    context : flwr.app.Context
        Of the node.
    call_next : callable
        The app, within its further mods.

    Returns
    -------
    flwr.app.Message
        The stage's reply.

    Raises
    ------
    Declined
        For any refusal or failure, without its cause, which is in this client's log.
    """
    if _TRAINS.get():
        return call_next(message, context)
    return answered(message, context, call_next)


def answered(
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    environment: type[AppEnvironment] | None = None,
) -> Message:
    """Answer a message as :func:`private_mod` does, in an environment of a class of one's own.

    Parameters
    ----------
    message, context, call_next
        As of :func:`private_mod`.
    environment : type, optional
        What the client stands in; by default as :func:`environment_of` says.

    Returns
    -------
    flwr.app.Message
        The stage's reply.

    Raises
    ------
    Declined
        As :func:`private_mod`.
    """
    category = message.metadata.message_type
    stage = stage_type(message.content) if message.has_content() else None
    if stage is None:
        missing = (
            "PrivateQueries around the ServerApp's grid"
            if category.startswith("query")
            else "PrivateStrategy around the server's strategy (a loop over "
            "grid.send_and_receive has none: a strategy trains in its place)"
        )
        log.warning(
            "a %s message is declined: it is no part of a private sum, and its answer would leave "
            "this node in plain; is %s?",
            category,
            missing,
        )
        raise Declined(
            f"no answer to {category}: only private sums are answered here; is {missing}?"
        )
    stands_in = environment or environment_of(context)
    app = build_app(lambda context: stands_in(context, message, call_next))
    reply = app(changed_message(message, stage, message.content), context)
    return Message(reply.content, reply_to=message)


class PrivateClientApp(ClientApp):
    """A ClientApp behind :func:`private_mod`, of whose errors nothing leaves the node.

    Flower sends a server the text of whatever an app raises. The mod keeps back what is raised
    within it; here the whole app lies within: its lifespan function, its mods, and, where it is
    named, its import. It runs where it trains or evaluates, and at no other stage.

    Parameters
    ----------
    client_fn : callable or str, optional
        As for Flower's; or a name of a ClientApp, ``package.module:attribute``, which is imported
        when it is its turn, and at no other stage.
    mods : list, optional
        Further mods, behind :func:`private_mod`. An app that is named has its own.

    Attributes
    ----------
    within : ClientApp or NamedApp
        What the mod stands before.

    Raises
    ------
    ValueError
        If a name is none, or comes with mods.
    TypeError
        If the app is given itself, or a mod without a list around it.
    """

    def __init__(
        self, client_fn: ClientFn | str | None = None, mods: list[Mod] | None = None
    ) -> None:
        super().__init__()
        if isinstance(client_fn, ClientApp):
            raise TypeError(
                "PrivateClientApp(ClientApp(...)): give the name of the app, as "
                'PrivateClientApp("quickstart.client_app:app"), or write app = '
                "ClientApp(mods=[private_mod]) where it is made"
            )
        if callable(mods):
            raise TypeError("PrivateClientApp(mods=...): give a list of mods, as mods=[my_mod]")
        if not isinstance(client_fn, str):
            self.within: ClientApp | NamedApp = ClientApp(client_fn, mods=mods)
            return
        self.within = NamedApp(client_fn)
        if mods:
            raise self._named("its mods are those of its own ClientApp(mods=[...]): leave mods out")

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message.

        Raises
        ------
        Declined
            For any refusal or failure, without its cause, which is in this client's log.
        """
        try:
            return private_mod(message, context, self.within)
        except Declined:
            raise
        except FAILURES:
            log.exception("the app failed outside of what it was asked")
            raise Declined(f"no answer: {flower_messages.OWN_LOG}") from None

    def train(self, *arguments: Any, **named: Any) -> Callable[[Any], Any]:
        """Register a function, as Flower's ClientApp does."""
        return self._app().train(*arguments, **named)

    def evaluate(self, *arguments: Any, **named: Any) -> Callable[[Any], Any]:
        """Register a function, as Flower's ClientApp does."""
        return self._app().evaluate(*arguments, **named)

    def query(self, *arguments: Any, **named: Any) -> Callable[[Any], Any]:
        """Register a function, as Flower's ClientApp does."""
        return self._app().query(*arguments, **named)

    def lifespan(self) -> Callable[[Any], Any]:
        """Register a lifespan function, as Flower's ClientApp does."""
        return self._app().lifespan()

    def _app(self) -> ClientApp:
        if isinstance(self.within, NamedApp):
            raise self._named("its functions are registered with the app that it names")
        return self.within

    def _named(self, why: str) -> ValueError:
        return ValueError(f"PrivateClientApp({getattr(self.within, 'reference', '')!r}): {why}")


def _imported(app: ClientAppCallable) -> ClientAppCallable:
    """Import an app that has been a name so far; one that is private already is what it wraps."""
    if not isinstance(app, NamedApp):
        return app
    found = app.load()
    if not isinstance(found, PrivateClientApp):
        return found
    if isinstance(found.within, NamedApp):
        raise Declined(f"PrivateClientApp({app.reference!r}) names an app that names another")
    return found.within


def _called(call_next: ClientAppCallable, message: Message, context: Context) -> Message:
    """Call an app with a context whose state lacks what is ours: seeds of masks among it."""
    ours = {name: record for name, record in context.state.items() if name.startswith(_OURS)}
    its = shown(context, RecordDict({k: v for k, v in context.state.items() if k not in ours}))
    token = _TRAINS.set(True)
    try:
        return call_next(message, its)
    finally:
        _TRAINS.reset(token)
        changed = {k: v for k, v in its.state.items() if not k.startswith(_OURS)}
        for name in list(context.state):
            del context.state[name]
        context.state.update(changed | ours)


def _weight(request: AppRequest, reply: RecordDict) -> float:
    return _metric(reply, request.question.weight_key)


def _metric(reply: RecordDict, name: str) -> float:
    """Return a number from the reply's metrics."""
    for record in reply.metric_records.values():
        value = record.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    raise AppReplyError(f"the app's reply has no finite number {name!r} in a MetricRecord")


def _metrics(request: AppRequest, reply: RecordDict) -> np.ndarray:
    """Return [metrics..., count]: sums over examples without DP; means and a one, at norm 1, with.

    Under DP each metric is cut to its largest magnitude, which the node's own log says, and a
    client without examples is a zero.
    """
    bounds, count = request.question.metrics, _weight(request, reply)
    if count <= 0:
        return np.zeros(len(bounds) + 1)
    if not request.question.privacy.private:
        return np.array([_metric(reply, name) * count for name in bounds] + [count])
    means = [_cut(name, _metric(reply, name), bound) / bound for name, bound in bounds.items()]
    metrics: np.ndarray = np.array([*means, 1.0]) / math.sqrt(len(means) + 1)
    return metrics


def _cut(name: str, value: float, bound: float) -> float:
    cut = min(max(value, -bound), bound)
    if value < cut or value > cut:
        log.warning(
            "the app's metric %r of %.6g was cut to %.6g: PrivateStrategy(metrics=...) names %g as "
            "its largest magnitude",
            name,
            value,
            cut,
            bound,
        )
    return cut
