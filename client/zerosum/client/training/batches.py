"""Cut a client's examples into the batches of local training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
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
    per_epoch = -(-count // batch_size(count, spec))
    generator = _generator(seed, per_epoch)
    order: torch.Tensor | None = None
    for step in range(step_count(count, spec)):
        turn = step % per_epoch
        if turn == 0:
            order = _drawn(generator, count)
        yield step, turn, order


def passes(count: int, spec: TrainSpec, seed: int) -> list[torch.Tensor | None]:
    """Return the order of each pass over a client's examples, as :func:`schedule` yields it.

    Parameters
    ----------
    count, spec, seed
        As there.

    Returns
    -------
    list of torch.Tensor or None
        int64, shape (count,); None where one batch holds all.
    """
    per_epoch = -(-count // batch_size(count, spec))
    generator = _generator(seed, per_epoch)
    return [_drawn(generator, count) for _ in range(-(-step_count(count, spec) // per_epoch))]


def _generator(seed: int, per_epoch: int) -> np.random.Generator | None:
    """Return what draws the orders; None where one batch holds all, which needs no order."""
    return numpy_generator(seed, "batch order") if per_epoch > 1 else None


def _drawn(generator: np.random.Generator | None, count: int) -> torch.Tensor | None:
    return None if generator is None else torch.from_numpy(generator.permutation(count))


def places_after_first(orders: Sequence[torch.Tensor | None], count: int) -> list[torch.Tensor]:
    """Return where in the order of the first pass the examples of each later pass lie.

    Parameters
    ----------
    orders : sequence of torch.Tensor or None
        As :func:`passes` returns them.
    count : int
        The client's examples.

    Returns
    -------
    list of torch.Tensor
        int64, shape (count,), of each pass after the first.
    """
    first, *later = orders
    if not later:
        return []
    places = torch.arange(count)
    if first is not None:
        places = torch.empty_like(first).scatter_(0, first, places)
    return [places if order is None else places[order] for order in later]


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


def step_count(count: int, spec: TrainSpec) -> int:
    """Return the number of steps of a client's training.

    Parameters
    ----------
    count : int
        The client's examples, at least one.
    spec : TrainSpec
        Epochs or steps, and the batch size.

    Returns
    -------
    int
        At least 1.
    """
    if spec.steps is not None:
        return spec.steps
    return -(-count // batch_size(count, spec)) * (spec.epochs or 0)


@dataclass(frozen=True)
class Batch:
    """The examples of a step, taken as a whole or in parts.

    Attributes
    ----------
    examples : Examples
        The client's.
    rows : torch.Tensor or None
        int64, shape (size,): which of them; None for all, in the data set's order.
    size : int
        Examples of the step.
    part : int or None
        Examples of a part; None for the whole.
    """

    examples: Examples
    rows: torch.Tensor | None = field(repr=False)
    size: int
    part: int | None

    @classmethod
    def of(cls, examples: Examples, rows: torch.Tensor | None, spec: TrainSpec) -> Self:
        """Return a batch in parts of ``spec.micro_batch``.

        Parameters
        ----------
        examples : Examples
            The client's.
        rows : torch.Tensor or None
            As above.
        spec : TrainSpec
            Says how large a part may be.

        Returns
        -------
        Batch
            In one part where that holds all.
        """
        size = len(examples) if rows is None else len(rows)
        part = spec.micro_batch
        return cls(examples, rows, size, part if part and part < size else None)

    @property
    def whole(self) -> bool:
        """Return whether there is one part."""
        return self.part is None

    def taken(self) -> tuple[Any, torch.Tensor]:
        """Return inputs and targets of the whole batch."""
        return self.examples.all() if self.rows is None else self.examples.take(self.rows)

    def parts(self) -> Iterator[tuple[Any, torch.Tensor]]:
        """Yield inputs and targets of each part; one is in memory at a time."""
        if self.part is None:
            yield self.taken()
            return
        rows = torch.arange(self.size) if self.rows is None else self.rows
        for some in torch.split(rows, self.part):
            yield self.examples.take(some)


def batches(examples: Examples, spec: TrainSpec, seed: int) -> Iterator[tuple[bool, Batch]]:
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
    batch : Batch
        Up to ``spec.batch_size`` examples. Where one batch holds all, they are in the data set's
        order and may be its own tensors.
    """
    size = batch_size(len(examples), spec)
    for step, turn, order in schedule(len(examples), spec, seed):
        rows = None if order is None else order[turn * size : (turn + 1) * size]
        yield step == 0, Batch.of(examples, rows, spec)


def normalised(delta: np.ndarray, count: int, spec: TrainSpec) -> np.ndarray:
    """Scale a client's change to the reference number of steps, where that is asked.

    FedNova with one learning rate and plain SGD: of a client's tau steps the mean one is taken
    (Wang et al. 2020, equation 6, where the norm of a_i is tau).

    Parameters
    ----------
    delta : numpy.ndarray
        Shape (d,), before it is clipped.
    count : int
        The client's examples.
    spec : TrainSpec
        ``normalise`` and ``reference_steps``.

    Returns
    -------
    numpy.ndarray
        Shape (d,), of the same dtype; the change itself where it is not normalised.
    """
    if spec.normalise == "none" or spec.reference_steps is None or not count:
        return delta
    scaled: np.ndarray = delta * delta.dtype.type(spec.reference_steps / step_count(count, spec))
    return scaled
