"""Updates to attack a protocol for: each is the first step of a linear model on a few digits."""

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.simulations.data import datasets

LR = 1.0


def first_steps(clients: int, records: int, rng: np.random.Generator) -> np.ndarray:
    """Return what each client's model moves by in one full-batch step from weights of zero.

    Softmax regression on scikit-learn's digits, without a bias: -lr X^T (1/10 - Y) / records. A
    pixel that is dark in all records leaves ten coordinates at exactly zero, as dead units do in
    any model.

    Parameters
    ----------
    clients, records : int
        Clients, and the records of each, no two alike.
    rng : Generator

    Returns
    -------
    ndarray of float64, shape (clients, 640)
    """
    inputs, targets = drawn(clients, records, rng)
    errors = 0.1 - np.eye(10)[targets]
    steps = -LR * np.einsum("crp,crk->ckp", inputs, errors) / records
    updates: np.ndarray = steps.reshape(clients, -1)
    return updates


def drawn(clients: int, records: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw each client's digits.

    Returns
    -------
    inputs : ndarray of float64, shape (clients, records, 64)
    targets : ndarray of int64, shape (clients, records)
    """
    train = datasets.digits(DataSpec()).train
    if clients * records > len(train):
        raise ValueError(f"{clients} clients of {records} records: there are {len(train)}")
    chosen = train.take(rng.permutation(len(train))[: clients * records])
    inputs: np.ndarray = chosen.inputs.reshape(clients, records, -1).astype(np.float64)
    return inputs, chosen.targets.reshape(clients, records)
