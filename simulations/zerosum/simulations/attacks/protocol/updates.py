"""Draw updates for attacks on the protocol: first steps of a linear model on a few digits."""

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.simulations.data import datasets

LR = 1.0


def first_steps(clients: int, records: int, rng: np.random.Generator) -> np.ndarray:
    """Return each client's change in one full-batch step from weights of zero.

    Softmax regression on scikit-learn's digits, without a bias: -lr X^T (1/10 - Y) / records. A
    pixel that is dark in all records leaves ten coordinates at exactly zero, as dead units do in
    any model.

    Parameters
    ----------
    clients, records : int
        Clients; records of each, no two alike.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of float64
        Shape (clients, 640).
    """
    inputs, targets = drawn(clients, records, rng)
    errors = 0.1 - np.eye(10)[targets]
    steps = -LR * np.einsum("crp,crk->ckp", inputs, errors) / records
    updates: np.ndarray = steps.reshape(clients, -1)
    return updates


def drawn(clients: int, records: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw each client's digits, without repetition.

    Parameters
    ----------
    clients, records : int
        Clients; records of each.
    rng : numpy.random.Generator

    Returns
    -------
    inputs : ndarray of float64
        Shape (clients, records, 64), in [0, 1].
    targets : ndarray of int64
        Shape (clients, records).

    Raises
    ------
    ValueError
        If the data have too few records.
    """
    train = datasets.digits(DataSpec()).train
    if clients * records > len(train):
        raise ValueError(
            f"{clients} clients of {records} records: digits has {len(train)}; lower either"
        )
    chosen = train.take(rng.permutation(len(train))[: clients * records])
    inputs: np.ndarray = chosen.inputs.reshape(clients, records, -1).astype(np.float64)
    return inputs, chosen.targets.reshape(clients, records)
