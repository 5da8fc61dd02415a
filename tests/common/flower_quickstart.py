"""A small Flower app as somebody else might have written it, and the diffs of the page applied."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "flower-apps.md"

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "quickstart"
version = "1.0.0"
description = "Linear regression, as plain as can be."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "quickstart.server_app:app"
clientapp = "quickstart.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 2
"""

CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    rng = np.random.default_rng(context.node_config["partition-id"])
    inputs = rng.normal(size=(64, 3)).astype(np.float32)
    targets = inputs @ np.array([1.0, -2.0, 0.5], dtype=np.float32)
    weight = message.content["arrays"]["weight"].numpy()
    for _ in range(20):
        weight = weight - 0.05 * inputs.T @ (inputs @ weight - targets) / len(inputs)
    reply = RecordDict(
        {
            "arrays": ArrayRecord({"weight": Array(weight)}),
            "metrics": MetricRecord({"num-examples": len(inputs)}),
        }
    )
    return Message(reply, reply_to=message)


@app.evaluate()
def evaluate(message, context):
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
"""

SERVER = """
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAdam

app = ServerApp()


@app.main()
def main(grid, context):
    strategy = FedAdam(eta=0.05)
    arrays = ArrayRecord({"weight": Array(np.zeros(3, dtype=np.float32))})
    result = strategy.start(grid, arrays, num_rounds=context.run_config["num-server-rounds"])
    print("the model has", sorted(result.arrays))
"""


def written(folder):
    """Write the app, without a line of ours, and return its folder."""
    package = folder / "quickstart"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").touch()
    (package / "client_app.py").write_text(CLIENT)
    (package / "server_app.py").write_text(SERVER)
    return folder


def diffs():
    """Return the diffs of the page, as it prints them."""
    return re.findall(r"```diff\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def patched(source, diff):
    """Return a source with a printed diff applied, at whatever depth its lines stand.

    A line that is taken out or stays has to be there once, below the one before; what is added
    follows it, and imports go first.
    """
    lines = source.strip("\n").split("\n")
    at = 0
    for change in filter(None, diff.split("\n")):
        sign, text = change[0], change[1:]
        if sign == "+":
            depth = "" if at == 0 else " " * (len(lines[at - 1]) - len(lines[at - 1].lstrip()))
            lines.insert(at, depth + text)
            at += 1
            continue
        (found,) = [number for number, line in enumerate(lines) if line.strip() == text.strip()]
        assert found >= at, f"{text!r} stands above what the diff speaks of before"
        if sign == "-":
            depth = lines[found][: len(lines[found]) - len(lines[found].lstrip())]
            del lines[found]
            at = found
            assert depth == "", "a diff that takes out has no depth of its own"
        else:
            at = found + 1
    return "\n".join(lines) + "\n"
