"""Other engines on the same workload, each set up as its own documentation advises.

Where advice and speed differ, speed is taken: batches are cut from tensors, without a loader.
"""

import os
import socket
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from zerosum.simulations.bench.process import BenchError
from zerosum.simulations.bench.turns import Turn
from zerosum.simulations.bench.workload import BATCH, CLASSES, LEARNING_RATE, SHAPE, Workload

if TYPE_CHECKING:
    import torch

    Clients = list[tuple[torch.Tensor, torch.Tensor]]


def pfl(workload: Workload, workers: int, turn: Turn) -> None:
    """Run pfl's FederatedAveraging in its SimulatedBackend, a process a worker as by torchrun.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        Processes.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    first = workers == 1 or _ranked(workers)
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Pace(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, *rest: Any, **more: Any) -> Any:
            return first and not turn(), Metrics()

    torch.set_num_threads(1)
    turn.facts["version"] = version("pfl")
    users = dict(enumerate(workload.tensors()))
    data = FederatedDataset.from_slices(users, get_user_sampler("random", list(users)))
    module = _scored(workload)
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    if first and not turn():
        return
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=workload.rounds,
            evaluation_frequency=workload.rounds,
            train_cohort_size=workload.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByUser()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=workload.epochs,
            local_learning_rate=LEARNING_RATE,
            local_batch_size=BATCH,
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Pace()],
    )


def _ranked(workers: int) -> bool:
    """Fork into as many ranks, with the variables that torchrun sets; return whether the first."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    rank = next((rank for rank in range(1, workers) if os.fork() == 0), 0)
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "zerosum",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": f"{port}",
        "RANK": f"{rank}",
        "LOCAL_RANK": f"{rank}",
        "WORLD_SIZE": f"{workers}",
        "LOCAL_WORLD_SIZE": f"{workers}",
    }
    return rank == 0


def _scored(workload: Workload) -> "torch.nn.Module":
    """Return the network with the two methods that pfl asks of it."""
    import torch

    class Scored(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = workload.network()

        def loss(self, inputs: Any, targets: Any, eval: bool = False) -> torch.Tensor:
            self.train(not eval)
            return torch.nn.functional.cross_entropy(self.network(inputs), targets)

        def metrics(self, inputs: Any, targets: Any, eval: bool = True) -> dict[str, Any]:
            return {}

    return Scored()


@lru_cache(maxsize=1)
def _clients(workload: Workload) -> "Clients":
    """Map the records once in each of Ray's processes."""
    return workload.tensors()


def flower(workload: Workload, workers: int, turn: Turn) -> None:
    """Run Flower's FedAvg and a ClientApp on its simulation runtime, one CPU a client.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        CPUs of the runtime.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    import ray  # noqa: F401  # Flower ends the process where it is missing
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    class Paced(FedAvg):
        def configure_train(self, *rest: Any, **more: Any) -> Any:
            return super().configure_train(*rest, **more) if turn() else []

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            answers = list(replies)
            failed = workload.cohort - sum(answer.has_content() for answer in answers)
            if failed:  # else the rest would be averaged, and the round be fast
                raise BenchError(f"{failed} of Flower's clients failed")
            return super().aggregate_train(server_round, answers)

    turn.facts["version"] = version("flwr")
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        index = int(context.node_config["partition-id"])
        state, count = _trained(workload, index, message.content["arrays"])
        metrics = MetricRecord({"num-examples": count})
        content = RecordDict({"arrays": ArrayRecord(state), "metrics": metrics})
        return Message(content=content, reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = Paced(
            fraction_train=workload.cohort / workload.clients,
            min_train_nodes=workload.cohort,  # a fraction of all is rounded down
            fraction_evaluate=0.0,
            min_available_nodes=workload.clients,
        )
        arrays = ArrayRecord(workload.network().state_dict())
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=workload.rounds)
        turn()

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=workload.clients,
        backend_config={
            "init_args": {"num_cpus": workers, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


@lru_cache(maxsize=1)
def _network(workload: Workload) -> Any:
    return workload.network()


def _trained(workload: Workload, index: int, arrays: Any) -> tuple[Any, int]:
    """Train as Flower's PyTorch tutorial does; return the state and the number of records."""
    import torch  # before Flower looks for it

    torch.set_num_threads(1)
    state = arrays.to_torch_state_dict()
    inputs, targets = _clients(workload)[index]
    model = _network(workload)  # made once a process: the state replaces all of it
    model.load_state_dict(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    model.train()
    for _ in range(workload.epochs):
        for rows in torch.split(torch.randperm(len(targets)), BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.state_dict(), len(targets)


def fedjax(workload: Workload, workers: int, turn: Turn) -> None:
    """Run FedJAX's federated averaging, compiled, on as many cores as there are workers.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        Cores.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    if hasattr(os, "sched_setaffinity"):  # JAX takes all cores that it sees
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:workers])
    import fedjax as library
    import jax
    from fedjax.algorithms.fed_avg import federated_averaging

    turn.facts["version"] = version("fedjax")
    inputs, targets = workload.arrays()
    channels, *sides = SHAPE
    images = inputs.reshape(*inputs.shape[:2], *sides, channels)
    data = library.InMemoryFederatedData(
        {
            b"%d" % index: {"x": images[index % len(images)], "y": targets[index % len(images)]}
            for index in range(workload.clients)
        }
    )

    def loss(params: Any, batch: Any, rng: Any) -> Any:
        scores = jax.nn.log_softmax(_outputs(params, batch["x"]))
        return -(scores * jax.nn.one_hot(batch["y"], CLASSES)).sum(axis=-1).mean()

    algorithm = federated_averaging(
        jax.grad(loss),
        library.optimizers.sgd(LEARNING_RATE),
        library.optimizers.sgd(1.0),
        library.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=workload.epochs),
    )
    sampler = library.client_samplers.UniformGetClientSampler(data, workload.cohort, workload.seed)
    state = algorithm.init([jax.numpy.asarray(layer) for layer in _layers(workload)])
    while turn():
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)


def _layers(workload: Workload) -> list[Any]:
    """Return weights and biases of the network in JAX's order: HWIO, and inputs before outputs."""
    return [
        p.detach().permute(*((2, 3, 1, 0) if p.dim() == 4 else range(p.dim())[::-1])).numpy()
        for p in workload.network().parameters()
    ]


def _outputs(params: list[Any], inputs: Any) -> Any:
    """Apply convolutions, each with ReLU and pooling, then linear layers with ReLU between."""
    import jax
    from jax import lax

    pairs = list(zip(params[::2], params[1::2], strict=True))
    for weight, bias in pairs:
        if weight.ndim == 4:
            layout = ("NHWC", "HWIO", "NHWC")
            inputs = lax.conv_general_dilated(
                inputs, weight, (1, 1), "SAME", dimension_numbers=layout
            )
            window = (1, 2, 2, 1)
            inputs = lax.reduce_window(
                jax.nn.relu(inputs + bias), -jax.numpy.inf, lax.max, window, window, "VALID"
            )
            continue
        inputs = inputs.reshape(len(inputs), -1) @ weight + bias
        if weight is not pairs[-1][0]:
            inputs = jax.nn.relu(inputs)
    return inputs
