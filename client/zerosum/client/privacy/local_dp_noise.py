"""Noise inside local training: what each step of DP-SGD is given, and the steps without examples.

Nothing here imports torch: the noise of a client that cannot train is drawn where its model cannot
be built either.
"""

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.mechanisms import BinnedGaussian
from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding

LARGEST_SUM = float(1 << 16)
"""Coordinates of a local sum are clamped to this many clips: a lot would have to be larger."""


def noise_inside(privacy: PrivacySpec, dimension: int) -> tuple[Encoding, BinnedGaussian]:
    """Return how a step's sum becomes integers at a client, and the noise that it is given.

    Raises
    ------
    ValueError
        If clip or noise multiplier are missing.
    """
    clip, z = privacy.clip, privacy.noise_multiplier
    if clip is None or z is None:
        raise ValueError("DP-SGD needs a clip and a noise multiplier")
    code = Encoding.from_bits(
        2, dimension=dimension, clip=clip, limit=LARGEST_SUM * clip, rule="records"
    )
    return code, BinnedGaussian(z * code.l2_sensitivity, code.l2_sensitivity)


def local_lot(privacy: PrivacySpec, clients: int) -> float:
    """Return the expected sample of one of so many clients, by which its sums are divided."""
    return (privacy.lot or 1) / clients


def train_on_noise(
    start: NDArray[np.float32],
    training: TrainSpec,
    privacy: PrivacySpec,
    coins: Keystream,
    clients: int,
) -> NDArray[np.float64]:
    """Return the change that DP-SGD makes at a client that draws no example in any step.

    What a client answers that fails: its vector has the law of one whose samples were empty, so
    that a failure is not seen in it.

    Parameters
    ----------
    start : numpy.ndarray
        The global model, shape (d,).
    training : TrainSpec
        Steps, learning rate and the rest of local training.
    privacy : PrivacySpec
        With noise inside local training.
    coins : Keystream
        Draws the noise.
    clients : int
        Clients that share the examples.

    Returns
    -------
    numpy.ndarray
        float64, shape (d,).
    """
    origin = start.astype(np.float64)
    code, mechanism = noise_inside(privacy, len(origin))
    nothing = np.zeros(code.length, dtype=np.int64)
    weights, momentum = origin.copy(), np.zeros(len(origin))
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges does so here too
        for _ in range(training.steps or 0):
            gradient = code.decode(mechanism.apply(nothing, coins)) / local_lot(privacy, clients)
            gradient += training.weight_decay * weights + training.proximal * (weights - origin)
            momentum = training.momentum * momentum + gradient
            weights -= training.lr * momentum
        return weights - origin
