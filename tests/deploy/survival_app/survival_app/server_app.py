"""The server: the survival curve of all people, exactly and with noise."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from zerosum.server import Counts, PrivateQueries

app = ServerApp()

SUMS = {"left": {"counts": Counts(32)}}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask once without noise and once with it, and write what came."""
    config = context.run_config
    out = Path(str(config["out"]))
    keys = {name: config[name] for name in ("roster", "authority") if config[name]}
    settings: dict[str, Any] = {
        "secagg": {"server": config["server"]},
        "deployment": {"min_nodes": 3, **keys},
    }
    plain = PrivateQueries(grid, SUMS, privacy={"model": "none"}, out=out / "plain", **settings)
    epsilon = float(config["epsilon"])
    noisy = PrivateQueries(
        grid, SUMS, epsilon=epsilon, budget=epsilon, out=out / "noisy", **settings
    )
    found = {"plain": _asked(plain), "noisy": _asked(noisy)}
    written = out / "survival.json"
    written.write_text(json.dumps(found), encoding="utf-8")


def survival(counts: Any) -> np.ndarray:
    """Return Kaplan and Meier's estimate at the end of each interval, shape (16,)."""
    seen, died = np.reshape(counts, (16, 2)).clip(0).T
    at_risk = (seen + died)[::-1].cumsum()[::-1]
    curve: np.ndarray = np.cumprod(1 - died / np.maximum(at_risk, 1))
    return curve


def _asked(grid: Grid) -> dict[str, Any]:
    messages = [Message(RecordDict(), node, MessageType.QUERY) for node in grid.get_node_ids()]
    (reply,) = grid.send_and_receive(messages)
    counts = reply.content["left"]["counts"]
    return {"counts": counts, "survival": survival(counts).tolist()}
