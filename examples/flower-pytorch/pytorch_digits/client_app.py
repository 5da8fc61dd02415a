"""The ClientApp: an ordinary one, but for its mods."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from zerosum.client import private_mod

app = ClientApp(mods=[private_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came, on this node's own data."""
    # Imported where it trains: a SuperNode starts a process for each message, and few train.
    from pytorch_digits import task

    partition = int(context.node_config["partition-id"])
    partitions = int(context.node_config["num-partitions"])
    config = message.content["config"]
    model = task.make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data = task.load_data(partition, partitions)
    loss = task.train(
        model,
        data,
        epochs=int(context.run_config["local-epochs"]),
        lr=float(config["lr"]),
        seed=1000 * int(config["server-round"]) + partition,
    )
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"train_loss": loss, "num-examples": len(data)}),
        }
    )
    return Message(content=content, reply_to=message)
