"""An ordinary Flower app for tests of PrivateStrategy, what it trains, and ways to watch it."""

from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from policies import LEAST_TOML

from zerosum.client.flower.app_request import stage_type
from zerosum.client.protocol import flower_messages
from zerosum.secagg import ClientParty, RemoteProtocolError, Session
from zerosum.secagg.messages.all_messages import Contribution, decode
from zerosum.simulations.engine.grid import InProcessGrid

CLIENTS = 6


POLICY = (
    'models = ["none", "distributed", "local", "central"]\nservers = ["semi-honest"]\n' + LEAST_TOML
)


OPEN: dict[str, Any] = {
    "privacy": {"model": "none", "clip": "none"},
    "encoding": {"bits": 24, "range": 4.0},
    "secagg": {"server": "semi-honest", "dropout": 0.4},
}


STEP = 4.0 / (2**23 - 1)
"""Of the encoding above: each client rounds each entry by less than this."""


def model():
    rng = np.random.default_rng(3)
    return ArrayRecord(
        {
            "layer.weight": Array(rng.normal(size=(7, 5)).astype(np.float32)),
            "layer.bias": Array(rng.normal(size=5)),
            "batches": Array(np.array(3, dtype=np.int64)),
        }
    )


def trained(arrays, index, config):
    """What client ``index`` makes of a model: moved by an amount of its own and of the round."""
    moved = {}
    for name, array in arrays.items():
        value = array.numpy()
        if value.dtype.kind == "f":
            amount = 0.05 * (index + 1) * np.cos(np.arange(value.size) + config["server-round"])
            value = value + amount.reshape(value.shape).astype(value.dtype)
        else:
            value = value + 10
        moved[name] = Array(np.asarray(value))
    return ArrayRecord(moved)


def client_app(mods, examples=lambda index: 20, fails=lambda *who: False, make=ClientApp):
    """An ordinary ClientApp; all that is ours are its mods."""
    app = make(mods=mods)

    @app.train()
    def train(message, context):
        index, config = context.node_config["partition-id"], message.content["config"]
        if fails(index, config["server-round"]):
            raise RuntimeError("no data today")
        content = RecordDict(
            {
                "arrays": trained(message.content["arrays"], index, config),
                "metrics": MetricRecord({"train_loss": 7.25, "num-examples": examples(index)}),
            }
        )
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        index = context.node_config["partition-id"]
        metrics = {
            "eval_loss": 0.5 + index,
            "eval_acc": 0.1 * index,
            "num-examples": examples(index),
        }
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def plain(strategy, app=None, rounds=3, **start):
    grid = InProcessGrid(app or client_app([]), CLIENTS)
    return strategy.start(grid, model(), rounds, **start)


def arrays_of(result):
    return {name: array.numpy() for name, array in result.arrays.items()}


def without(lost, app):
    """Return an app whose clients ``lost[stage]`` never get that stage of sum 2."""

    def is_lost(stage, number, index):
        return number == 2 and index in lost.get(stage, ())

    def losing(message, context):
        index, content = context.node_config["partition-id"], message.content
        main, riding = parts_of(message)
        gone = {flower_messages.RECORD} if main and is_lost(main[0], main[1], index) else set()
        if riding and is_lost(riding[0], riding[1], index):
            gone.add(flower_messages.PIGGYBACK)
        if gone and len(gone) == bool(main) + bool(riding):
            raise RuntimeError("gone")
        message.content = RecordDict({k: v for k, v in content.items() if k not in gone})
        return app(message, context)

    return losing


def parts_of(message):
    """Return stage and sum of a message, and of what rides on it; None for what is not there."""
    content, stage = message.content, stage_type(message.content)
    name = next((n for n, kind in flower_messages.STAGE_TYPES.items() if kind == stage), None)
    main = None if name is None else (str(name), int(message.metadata.group_id))
    riding = flower_messages.piggyback_stage(content)
    if riding is None:
        return main, None
    return main, (riding, flower_messages.int_field(flower_messages.piggyback(content), "round"))


def carried(app):
    """Return an app whose messages and replies pass through Flower's own bytes."""

    def through_bytes(message):
        data = message_to_proto(message).SerializeToString()
        return message_from_proto(ProtoMessage.FromString(data))

    return lambda message, context: through_bytes(app(through_bytes(message), context))


class Wire:
    """All messages and replies between server and clients."""

    def __init__(self, app):
        self.app = app
        self.sent, self.replies, self.errors = [], [], []

    def __call__(self, message, context):
        self.sent.append(message.content)
        try:
            reply = self.app(message, context)
        except Exception as error:
            self.errors.append(str(error))
            raise
        self.replies.append(reply.content)
        return reply

    def contributions(self):
        """Return the masked vectors of the first session."""
        opening = next(
            c for c in self.sent if stage_type(c) == flower_messages.STAGE_TYPES["advertise"]
        )
        session = Session.from_bytes(flower_messages.bytes_field(opening, "session"))
        found = []
        for content in self.replies:
            try:
                message = flower_messages.bytes_field(content, "message")
                found.append(decode(message, Contribution, session).vector)
            except (ValueError, RemoteProtocolError):
                continue
        return session, found


def says(content, needle):
    """Return whether some bytes are in any record of a message."""
    for record in content.values():
        for key, value in record.items():
            data = value.data if isinstance(value, Array) else value
            data = data if isinstance(data, bytes) else str(data).encode()
            if needle in data or needle in key.encode():
                return True
    return False


NOISY: dict[str, Any] = {
    "clip": 1.0,
    "noise_multiplier": 2.0,
    "delta": 0.01,
    "privacy": {"honest_fraction": 0.6},
    "secagg": {"server": "semi-honest", "dropout": 0.3},
}


def sizes(index):
    return 5 * (index + 1)


def wrong_shares_of(liar):
    """Return a client's unmask stage in which one client answers with shares that are wrong."""
    honest = ClientParty.unmask

    def unmask(party, request):
        step: Any = honest(party, request)  # it sends a stage's message, with fields of its own
        if step.send.index != liar:
            return step
        table = np.frombuffer(step.send.shares, "<u4") ^ 1
        return replace(step, send=replace(step.send, shares=table.tobytes()))

    return unmask
