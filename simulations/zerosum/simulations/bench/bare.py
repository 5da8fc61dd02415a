"""Two loops of PyTorch alone: the one that most people write, and one written with care."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from zerosum.client.training.devices import described
from zerosum.client.training.torch_internals import foreach_add_, foreach_copy_, foreach_div_
from zerosum.simulations.bench.turns import Turn
from zerosum.simulations.bench.workload import BATCH, LEARNING_RATE, Workload

Client = tuple[torch.Tensor, torch.Tensor]
"""Inputs (n, c, h, w) and targets (n,)."""

State = dict[str, torch.Tensor]


def plain(workload: Workload, workers: int, turn: Turn) -> None:
    """Average models as tutorials do: ``load_state_dict``, ``optim.SGD``, ``state_dict``.

    One Module serves all clients, and batches are cut from tensors without a loader: nothing is
    slower than that way of writing it asks for.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        Threads.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    model = _prepared(workload, workers, turn)
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def step(cohort: Sequence[Client], generator: torch.Generator) -> None:
        nonlocal state
        state = average_of_states(model, state, cohort, generator, workload.epochs)

    _rounds(workload, _records(workload), turn, step)


def careful(workload: Workload, workers: int, turn: Turn) -> None:
    """Average models with the least that PyTorch asks for without leaving it.

    The start is copied in place, gradients are taken without ``.grad``, and all parameters take a
    step in one call; images are channels-last on a CPU.

    Parameters
    ----------
    workload : Workload
        Records and model.
    workers : int
        Threads.
    turn : callable
        Waits for the next turn; False ends the measurement.
    """
    model = _prepared(workload, workers, turn)
    clients = _records(workload)
    if workload.device == "cpu" and workload.model == "cnn":  # what convolutions are fastest on
        for p in model.parameters():
            if p.dim() == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)
        clients = [(a.contiguous(memory_format=torch.channels_last), b) for a, b in clients]
    start = [p.detach().clone() for p in model.parameters()]

    def step(cohort: Sequence[Client], generator: torch.Generator) -> None:
        nonlocal start
        start = average_in_place(model, start, cohort, generator, workload.epochs)

    _rounds(workload, clients, turn, step)


def average_of_states(
    model: nn.Module,
    state: State,
    cohort: Sequence[Client],
    generator: torch.Generator,
    epochs: int = 1,
) -> State:
    """Return the average of the models that clients train from the same start.

    Parameters
    ----------
    model : nn.Module
        Its state is overwritten.
    state : dict of str to torch.Tensor
        State of the global model; unchanged.
    cohort : sequence of (inputs, targets)
        Records of each client: inputs (n, c, h, w), targets (n,).
    generator : torch.Generator
        Shuffles the records.
    epochs : int
        Passes over them.

    Returns
    -------
    dict of str to torch.Tensor
        Keys and shapes of ``state``.
    """
    total = {name: torch.zeros_like(value) for name, value in state.items()}
    for inputs, targets in cohort:
        model.load_state_dict(state)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        for _ in range(epochs):
            for rows in _batches(targets, generator):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        for name, value in model.state_dict().items():
            total[name] += value
    return {name: value / len(cohort) for name, value in total.items()}


def average_in_place(
    model: nn.Module,
    start: list[torch.Tensor],
    cohort: Sequence[Client],
    generator: torch.Generator,
    epochs: int = 1,
) -> list[torch.Tensor]:
    """Return the average of the models that clients train from the same start.

    Parameters
    ----------
    model : nn.Module
        Its parameters are overwritten.
    start : list of torch.Tensor
        Parameters of the global model; unchanged.
    cohort : sequence of (inputs, targets)
        Records of each client: inputs (n, c, h, w), targets (n,).
    generator : torch.Generator
        Shuffles the records.
    epochs : int
        Passes over them.

    Returns
    -------
    list of torch.Tensor
        Shapes of ``start``.
    """
    parameters: list[torch.Tensor] = list(model.parameters())
    total = [torch.zeros_like(p) for p in start]
    for inputs, targets in cohort:
        with torch.no_grad():
            foreach_copy_(parameters, start)
        for _ in range(epochs):
            for rows in _batches(targets, generator):
                loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    foreach_add_(parameters, gradients, alpha=-LEARNING_RATE)
        with torch.no_grad():
            foreach_add_(total, parameters)
    foreach_div_(total, len(cohort))
    return total


def finish(device: torch.device) -> None:
    """Wait for what a GPU was asked to do: it is asked ahead of time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _batches(targets: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return the rows of shuffled batches, where the records are."""
    order = torch.randperm(len(targets), generator=generator)
    return torch.split(order.to(targets.device), BATCH)


def _prepared(workload: Workload, workers: int, turn: Turn) -> nn.Module:
    torch.set_num_threads(workers)
    turn.facts["device"] = described(workload.device)
    return workload.network().to(workload.device)


def _records(workload: Workload) -> list[Client]:
    """Return the records of all clients; on a GPU they are there before the first round."""
    device = torch.device(workload.device)
    return [(inputs.to(device), targets.to(device)) for inputs, targets in workload.tensors()]


def _rounds(
    workload: Workload,
    clients: Sequence[Client],
    turn: Turn,
    step: Callable[[Sequence[Client], torch.Generator], None],
) -> None:
    """Take a step of the global model with a new cohort at each turn."""
    rng, generator = workload.cohorts(), torch.Generator().manual_seed(workload.seed)
    while turn():
        cohort = rng.choice(len(clients), workload.cohort, replace=False)
        step([clients[index] for index in cohort], generator)
        finish(torch.device(workload.device))
