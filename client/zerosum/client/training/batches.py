"""Cut a client's examples into the batches of local training."""

from collections.abc import Iterator
from typing import Any

import torch

from zerosum.client.spec import TrainSpec
from zerosum.client.training.examples import Examples
from zerosum.secagg.randomness import numpy_generator


def schedule(
    count: int, spec: TrainSpec, seed: int
) -> Iterator[tuple[int, int, torch.Tensor | None]]:
    """Yield which examples each step of a client's training takes.

    Parameters
    ----------
    count : int
        The client's examples, at least one.
    spec : TrainSpec
        Epochs or steps, and the batch size.
    seed : int
        Draws the orders.

    Yields
    ------
    step : int
        From 0 on.
    turn : int
        Which batch of its epoch this is.
    order : torch.Tensor or None
        int64, shape (count,): the order of this epoch. None where one batch holds all, which
        needs no order.
    """
    size = batch_size(count, spec)
    per_epoch = -(-count // size)
    steps = spec.steps if spec.steps is not None else per_epoch * (spec.epochs or 0)
    order: torch.Tensor | None = None
    generator = numpy_generator(seed, "batch order") if per_epoch > 1 else None
    for step in range(steps):
        turn = step % per_epoch
        if generator is not None and turn == 0:
            order = torch.from_numpy(generator.permutation(count))
        yield step, turn, order


def batch_size(count: int, spec: TrainSpec) -> int:
    """Return the number of examples in a batch, which the last of an epoch may fall short of.

    Parameters
    ----------
    count : int
        The client's examples.
    spec : TrainSpec
        The batch size that is asked for, or None for all.

    Returns
    -------
    int
        At most ``count``.
    """
    return min(spec.batch_size or count, count)


def trained_records(count: int, spec: TrainSpec) -> int:
    """Return how many records all steps of a client take together, at most.

    Parameters
    ----------
    count : int
        The client's examples.
    spec : TrainSpec
        Epochs or steps, and the batch size.

    Returns
    -------
    int
        Those of each epoch counted anew.
    """
    if spec.steps is not None:
        return spec.steps * batch_size(count, spec)
    return count * (spec.epochs or 0)


def batches(
    examples: Examples, spec: TrainSpec, seed: int
) -> Iterator[tuple[bool, tuple[Any, torch.Tensor]]]:
    """Yield the batches of a client's training, shuffled anew each epoch.

    Parameters
    ----------
    examples : Examples
        The client's, at least one.
    spec : TrainSpec
        Epochs or steps, and the batch size.
    seed : int
        Draws the orders.

    Yields
    ------
    first : bool
        Whether this is the first step.
    batch : tuple
        Inputs and targets of up to ``spec.batch_size`` examples. Where one batch holds all, they
        are in the data set's order and may be its own tensors.
    """
    size = batch_size(len(examples), spec)
    for step, turn, order in schedule(len(examples), spec, seed):
        if order is None:
            yield step == 0, examples.all()
        else:
            yield step == 0, examples.take(order[turn * size : (turn + 1) * size])
