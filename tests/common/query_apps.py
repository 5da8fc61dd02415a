"""An ordinary Flower app that answers queries with counts and totals, and its ServerApp's loop."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from policies import LEAST_TOML

from zerosum.server import Counts, Reals

POLICY = (
    'models = ["none", "distributed"]\nservers = ["semi-honest"]\n'
    + LEAST_TOML
    + '[app_queries]\nunits = ["record", "client"]\nmax_epsilon_per_query = inf\n'
)

SECAGG = {"server": "semi-honest", "dropout": 0.3}

CELLS = 9


def lengths(index):
    """Sepal lengths of a client's flowers, so to speak."""
    return np.random.default_rng(index).normal(5.8, 0.8, 20 + index)


def answered(index):
    """What a client's query function returns: a histogram, their number, and their total."""
    values = lengths(index)
    counts, _ = np.histogram(values, bins=np.linspace(2.0, 10.0, CELLS + 1))
    return {
        "length": counts.tolist(),
        "length_count": len(values),
        "length_total": float(values.mean() * len(values)),
    }


SUMS: dict[str, dict[str, Counts | Reals]] = {
    "results": {
        "length": Counts(CELLS),
        "length_count": Counts(),
        "length_total": Reals(most=1000.0, sensitivity=10.0),
    }
}


def app_of(mods, reply=answered):
    """An app that has other things in its reply, too, which nobody declared."""
    app = ClientApp(mods=mods)

    @app.query()
    def query(message, context):
        index = context.node_config["partition-id"]
        content = RecordDict({"results": MetricRecord({**reply(index), "secret": 4711.5})})
        return Message(content, reply_to=message)

    @app.query("arrays")
    def arrays(message, context):
        index = context.node_config["partition-id"]
        table = np.arange(6, dtype=np.int64).reshape(2, 3) + index
        record = ArrayRecord({"table": Array(table), "other": Array(table * 1.5)})
        return Message(RecordDict({"tables": record}), reply_to=message)

    return app


def asked(grid, kind=MessageType.QUERY, content=None, nodes=None):
    """Ask as the ServerApps of Flower's examples do."""
    chosen = list(grid.get_node_ids()) if nodes is None else nodes
    content = RecordDict() if content is None else content
    messages = [
        Message(content=content, message_type=kind, dst_node_id=node, group_id="0")
        for node in chosen
    ]
    return list(grid.send_and_receive(messages))


def plain_sums(indices):
    """The sums without any of this."""
    replies = [answered(index) for index in indices]
    return {
        "length": np.sum([reply["length"] for reply in replies], axis=0).tolist(),
        "length_count": sum(reply["length_count"] for reply in replies),
        "length_total": sum(reply["length_total"] for reply in replies),
    }
