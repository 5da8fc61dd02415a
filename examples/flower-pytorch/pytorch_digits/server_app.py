"""The ServerApp: an ordinary one, but for what is around its strategy."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from pytorch_digits import task
from zerosum.server import PrivateStrategy

app = ServerApp()

MASKED_ONLY = {
    "privacy": {"model": "none", "clip": "none"},
    "encoding": {"bits": 24, "range": 4.0},
    "secagg": {"server": "semi-honest", "dropout": 0.0},
    "deployment": {"stage_timeout": 300.0},
}


def global_test(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test the global model on public digits."""
    model = task.make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.test(model)})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train over all nodes and save the model."""
    config = context.run_config
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=int(config["nodes"]))
    strategy = PrivateStrategy(strategy, **MASKED_ONLY)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(task.make_model().state_dict()),
        num_rounds=int(config["rounds"]),
        train_config=ConfigRecord({"lr": float(config["lr"])}),
        evaluate_fn=global_test,
    )
    torch.save(result.arrays.to_torch_state_dict(), str(config["save-to"]))
