"""Federated averaging on Flower, with nothing private: the clock runs for each round."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

SEED = 0

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came, on this node's part of the digits.

    Parameters
    ----------
    message : Message
        With the model.
    context : Context
        With the node's config.

    Returns
    -------
    Message
        With the trained model.
    """
    import torch
    from torch import nn

    from zerosum.client.task import ClientInfo

    config, node = context.run_config, context.node_config
    index, count = int(node["partition-id"]), int(node["num-partitions"])
    task = _task()
    model = task.model()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    inputs, targets = task.data(ClientInfo(index=index, count=count, seed=SEED))
    optimizer = torch.optim.SGD(model.parameters(), lr=float(config["lr"]))
    generator = torch.Generator().manual_seed(index)
    for _ in range(int(config["epochs"])):
        order = torch.randperm(len(targets), generator=generator)
        for rows in torch.split(order, int(config["batch-size"])):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
            torch.autograd.backward(loss)
            optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(targets)}),
        }
    )
    return Message(content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train over all nodes and write the seconds of each round.

    Parameters
    ----------
    grid : Grid
        To the nodes.
    context : Context
        With the run's config.
    """
    run(grid, context, lambda strategy: strategy)


def run(grid: Grid, context: Context, around: Callable[[Strategy], Strategy]) -> None:
    """Train with a strategy that stands around Flower's own, and write the rounds' seconds.

    Parameters
    ----------
    grid : Grid
        To the nodes.
    context : Context
        With the run's config.
    around : callable
        Returns what is started.
    """
    config = context.run_config
    strategy = _Timed(fraction_evaluate=0.0, min_available_nodes=int(config["nodes"]))
    around(strategy).start(
        grid=grid,
        initial_arrays=ArrayRecord(_task().model().state_dict()),
        num_rounds=int(config["rounds"]),
    )
    Path(str(config["out"])).write_text(
        json.dumps(strategy.seconds), encoding="utf-8", newline="\n"
    )


class _Timed(FedAvg):
    """Flower's own averaging, and when each round began and ended."""

    seconds: list[float]
    _began = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round == 1:
            self.seconds = []
        self._began = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        averaged = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self._began)
        return averaged


def _task() -> Any:
    from zerosum.client.spec import DataSpec, ModelSpec
    from zerosum.client.task import resolve_task

    return resolve_task("digits", DataSpec(), ModelSpec(), SEED)
