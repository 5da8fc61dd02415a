"""Find out what a task's records, model and loss are, by trying them on numbers that are drawn."""

import copy
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import torch
from torch import nn

from zerosum.client.task import TaskError, error_line
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.flat_parameters import Layout
from zerosum.client.training.initial_model import draw_weights
from zerosum.client.training.model_checks import usable
from zerosum.client.training.threads import one_thread
from zerosum.client.training.torch_seed import seeded
from zerosum.simulations.attacks.own_task.subject import Loaded, Pool, Subject, loaded, pool_of
from zerosum.simulations.attacks.settings.task_model import Place, TaskModel, drawn_model
from zerosum.simulations.data.tasks import BuiltinTask

_PROBES = 4
"""Records that a model is tried on."""


@dataclass(frozen=True)
class Facts:
    """What attacks may need of a task.

    Attributes
    ----------
    shape : tuple of int
        Of a record.
    numbers : bool
        Whether records are floating-point numbers.
    classes : int
        Outputs of which a target names one; 1 where targets are no class labels.
    first : Place or None
        The fully connected layer that takes the whole record.
    chain : tuple of Place
        As of :class:`TaskModel`.
    outputs : Place or None
        As of :class:`TaskModel`.
    sequential : bool
        Whether the model is a plain ``torch.nn.Sequential`` that ends in that layer.
    cross_entropy : bool
        Whether the loss is the cross-entropy of class labels.
    steady : bool
        Whether the model in training gives the same outputs twice, as with dropout it does not.
    free : bool
        Whether a server may ask for another built-in model.
    """

    shape: tuple[int, ...]
    numbers: bool
    classes: int
    first: Place | None
    chain: tuple[Place, ...]
    outputs: Place | None
    sequential: bool
    cross_entropy: bool
    steady: bool
    free: bool

    @property
    def size(self) -> int:
        """Numbers in a record."""
        return prod(self.shape)

    @property
    def image(self) -> bool:
        """Whether a record is an image."""
        return self.numbers and len(self.shape) in (2, 3) and min(self.shape[-2:]) > 1


@lru_cache(maxsize=4)
def facts_of(subject: Subject) -> Facts:
    """Try a subject's model and loss.

    Parameters
    ----------
    subject : Subject

    Returns
    -------
    Facts

    Raises
    ------
    ConfigError, TaskError
        If the task cannot be had, its records are no tensors, or its model cannot be trained.
    """
    found, pool = loaded(subject), pool_of(subject)
    with one_thread(), seeded(0):
        try:
            return _tried(found, pool)
        except TaskError:
            raise
        except FAILURES as error:
            raise TaskError(
                f'task = "{subject.task}": its model or loss fails with {error_line(error)} on '
                f"{_PROBES} of its records"
            ) from error


def task_model(subject: Subject, seed: int) -> TaskModel:
    """Return what a view says of a subject's model.

    Parameters
    ----------
    subject : Subject
    seed : int
        Of the model's initialisation.

    Returns
    -------
    TaskModel
    """
    facts, pool, found = facts_of(subject), pool_of(subject), loaded(subject)
    return TaskModel(
        found.key,
        seed,
        found.experiment.seed,
        pool.lowest,
        pool.scale,
        facts.first,
        facts.outputs,
        facts.chain,
        facts.cross_entropy,
        facts.free,
    )


def _tried(found: Loaded, pool: Pool) -> Facts:
    some = pool.records.take(np.arange(min(_PROBES, len(pool.records))))
    model = usable(drawn_model(found.task, 0, found.experiment.seed))
    Layout.of(model)  # refuses running statistics, which travel in no vector here
    inputs, targets = torch.tensor(some.inputs), torch.tensor(some.targets)
    numbers = inputs.is_floating_point()
    trained = [value for value in model.parameters() if value.requires_grad]
    outputs = model(inputs)
    losses = found.task.loss(outputs, targets)
    if not isinstance(losses, torch.Tensor) or losses.shape != (len(targets),):
        raise TaskError("attacks need a loss of shape (n,), one an example")
    torch.autograd.grad(losses.sum(), trained, allow_unused=True)
    classes, entropy = _classes(found, pool, outputs)
    drawn = torch.randn(inputs.shape) if numbers else inputs
    # On drawn weights: with an output layer of zeros all models would return the same.
    probe = copy.deepcopy(model)
    with torch.no_grad():
        draw_weights(probe.parameters(), torch.Generator().manual_seed(0))
    return Facts(
        shape=tuple(some.inputs.shape[1:]),
        numbers=numbers,
        classes=classes,
        first=_first(probe, drawn) if numbers else None,
        chain=_chain(probe, drawn) if numbers else (),
        outputs=_outputs(probe, drawn, classes),
        sequential=type(model) is nn.Sequential and isinstance(model[-1], nn.Linear),
        cross_entropy=entropy,
        steady=_alike(outputs, model(inputs)),
        free=isinstance(found.task, BuiltinTask) and found.experiment.model.components is None,
    )


def _classes(found: Loaded, pool: Pool, outputs: object) -> tuple[int, bool]:
    """Return the number of classes, and whether the loss is their cross-entropy.

    Tried on outputs that are drawn: those of a new model may be alike.
    """
    labels = pool.records.targets
    if not isinstance(outputs, torch.Tensor) or labels.dtype.kind not in "iu" or labels.ndim != 1:
        return 1, False
    if outputs.dim() != 2 or outputs.shape[1] < 2:
        return 1, False
    count = outputs.shape[1]
    if labels.min() < 0 or labels.max() >= count:
        return 1, False
    drawn = torch.randn(len(outputs), count)
    targets = torch.tensor(labels[: len(outputs)]).long()
    expected = nn.functional.cross_entropy(drawn, targets, reduction="none")
    try:
        losses = found.task.loss(drawn, torch.tensor(labels[: len(outputs)]))
    except FAILURES:
        return count, False
    return count, bool(torch.allclose(losses, expected, atol=1e-5))


def _alike(one: object, other: object) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return True
    return bool(torch.equal(one, other))


def _called(model: nn.Module, inputs: torch.Tensor) -> list[tuple[nn.Linear, torch.Tensor]]:
    """Return the fully connected layers that a model calls, in order, each with its input."""
    calls: list[tuple[nn.Linear, torch.Tensor]] = []

    def look(module: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        if isinstance(module, nn.Linear):
            calls.append((module, given[0].clone()))

    hooks = [m.register_forward_pre_hook(look) for m in model.modules() if type(m) is nn.Linear]
    with torch.no_grad():
        model(inputs.clone())
    for hook in hooks:
        hook.remove()
    return calls


def _first(model: nn.Module, inputs: torch.Tensor) -> Place | None:
    """Return the layer that is given every record whole and unchanged, flattened at most."""
    flat = inputs.flatten(1)
    calls = _called(model, inputs)
    whole = [layer for layer, given in calls if given.shape == flat.shape and given.equal(flat)]
    once = len(whole) == 1 and sum(layer is whole[0] for layer, _ in calls) == 1
    return _place(model, whole[0]) if once else None


def _chain(model: nn.Module, inputs: torch.Tensor) -> tuple[Place, ...]:
    """Return a model's layers, if it computes what they compute with ReLU between them.

    However it is written: what it returns is compared.
    """
    layers = [layer for layer, _ in _called(model, inputs)]
    found = [_place(model, layer) for layer in layers]
    if len(layers) < 2 or len(set(map(id, layers))) < len(layers) or not all(found):
        return ()
    with torch.no_grad():
        values = inputs.flatten(1)
        if values.shape[1] != layers[0].in_features:
            return ()
        for layer in layers[:-1]:
            values = layer(values).relu()
        outputs, expected = model(inputs.clone()), layers[-1](values)
    same = isinstance(outputs, torch.Tensor) and outputs.numel() == expected.numel()
    if not same or not torch.allclose(outputs.reshape(expected.shape), expected, atol=1e-5):
        return ()
    return tuple(each for each in found if each)


def _outputs(model: nn.Module, inputs: torch.Tensor, classes: int) -> Place | None:
    """Return the layer that the outputs are of, unchanged, if it has a bias for each class."""
    calls = _called(model, inputs)
    if not calls:
        return None
    layer, given = calls[-1]
    with torch.no_grad():
        outputs = model(inputs.clone())
        same = isinstance(outputs, torch.Tensor) and outputs.equal(layer(given))
    return _place(model, layer) if same and layer.out_features == classes else None


def _place(model: nn.Module, layer: nn.Linear) -> Place | None:
    """Return where a layer lies in the vector; None if its weights or biases are not trained."""
    begins: dict[int, int] = {}
    here = 0
    for value in model.parameters():
        if value.requires_grad:
            begins[id(value)] = here
            here += value.numel()
    if layer.bias is None or id(layer.weight) not in begins or id(layer.bias) not in begins:
        return None
    return Place(begins[id(layer.weight)], begins[id(layer.bias)], *layer.weight.shape)
