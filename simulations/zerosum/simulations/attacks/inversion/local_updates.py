"""Compute a client's update as a differentiable function of its data: steps unrolled, clipped.

Gradient matching optimises through it: Zhu, Liu, Han, "Deep leakage from gradients" (2019),
Algorithm 1, with all local steps and not only the first, as in Geiping et al. 2020, section 6.2.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch.func import functional_call, grad, vmap

from zerosum.client.training.flat_parameters import load_vector, trainable
from zerosum.simulations.attacks.settings.rounds import RoundsView

Updates = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From images (n, ...) and class probabilities (n, classes), one record a client, to (n, d)."""


def updates_of(view: RoundsView, steps: int, clip: float | None) -> Updates:
    """Return the function from clients' records, one each, to their updates.

    Parameters
    ----------
    view : RoundsView
        Whose model, weights and learning rate are used.
    steps : int
        Local steps that are unrolled.
    clip : float or None
        L2 bound that updates are scaled to.

    Returns
    -------
    callable
        See :data:`Updates`; differentiable in both arguments.
    """
    model = view.build().double()
    load_vector(model, view.vectors[0])
    start = {name: value.detach() for name, value in trainable(model).items()}
    lr = view.training.lr

    def loss(
        weights: dict[str, torch.Tensor], image: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        outputs: torch.Tensor = functional_call(model, weights, (image.unsqueeze(0),))
        return -(target * outputs.log_softmax(1)[0]).sum()

    slope = grad(loss)

    def one(image: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        weights = start
        for _ in range(steps):
            slopes = slope(weights, image, target)
            weights = {name: weights[name] - lr * slopes[name] for name in weights}
        change = torch.cat([(weights[name] - start[name]).flatten() for name in weights])
        return change if clip is None else change * (clip / change.norm()).clamp(max=1.0)

    updates: Updates = vmap(one)
    return updates


def labels_of(view: RoundsView, vector: np.ndarray, clients: int, steps: int) -> np.ndarray:
    """Infer the labels of clients with one record each from the output biases.

    Zhao, Mopuri, Bilen, "iDLG" (2020), section 3: of a single record only its own class has an
    output bias that moves up. In a sum, the bias of a class moves by lr times the records of it
    less their probabilities, which are estimated at the auxiliary data's mean image.

    Parameters
    ----------
    view : RoundsView
    vector : ndarray of float64
        Shape (d,): a change of all parameters.
    clients, steps : int
        Clients in the sum; their local steps.

    Returns
    -------
    ndarray of int64
        Shape (clients,).

    Raises
    ------
    ValueError
        If labels of a sum are asked for, and the view holds no auxiliary data.
    """
    last = None if view.own is None else view.own.outputs
    begin = len(vector) - view.classes if last is None else last.biases
    moved = vector[begin : begin + view.classes].copy()
    if clients == 1:
        return np.array([int(np.argmax(moved))])
    model = view.build()
    load_vector(model, view.vectors[0])
    if view.auxiliary_inputs is None:
        raise ValueError("the view holds no auxiliary data: add it to what the threat knows")
    with torch.no_grad():
        mean = torch.tensor(view.auxiliary_inputs.mean(0, keepdims=True))
        probabilities = model(mean).softmax(1)[0].double().numpy()
    left = moved / (view.training.lr * steps) + clients * probabilities
    labels = []
    for _ in range(clients):
        labels.append(int(np.argmax(left)))
        left[labels[-1]] -= 1
    return np.array(labels)
