"""A node: counts of its own people, by interval and by how they left."""

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from zerosum.client import private_mod

GRID = np.append(np.arange(0.0, 80.0, 5.0), np.inf)

app = ClientApp(mods=[private_mod])


@app.query()
def query(message: Message, context: Context) -> Message:
    """Count who left in each interval: last seen alive, or died."""
    times, died = np.loadtxt(str(context.node_config["people"]), delimiter=",", unpack=True)
    left, _ = np.histogramdd((times, died), bins=[GRID, np.array([0, 0.5, 1])])
    counts = left.astype(int).ravel().tolist()
    return Message(RecordDict({"left": MetricRecord({"counts": counts})}), reply_to=message)
