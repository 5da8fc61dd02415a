"""Train on this node's part of the digits, with nothing private."""

from typing import cast

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from zerosum.client.task import ClientInfo
from zerosum.simulations.bench.apps.plain.plain_digits import SEED, digits

app = ClientApp()


@app.train()
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
    config, node = context.run_config, context.node_config
    index, count = int(node["partition-id"]), int(node["num-partitions"])
    task = digits()
    model = task.model()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    records = task.data(ClientInfo(index=index, count=count, seed=SEED))
    inputs, targets = cast(tuple[torch.Tensor, torch.Tensor], records)
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
