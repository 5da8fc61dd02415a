"""Draw the noise of DP-SGD inside local training, and take its steps without examples.

Nothing here imports torch: the noise of a client that cannot train is drawn where its model cannot
be built either.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.binned_gaussian import BinnedGaussian
from zerosum.client.privacy.mechanism import NoiseSettings
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding

LARGEST_SUM = float(1 << 16)
"""Clips to which coordinates of a local sum are clamped. A sum of n clipped gradients is within n
clips, so only a lot of more than 65,536 examples could reach it; clamping costs no privacy."""


class LocalSteps(Protocol):
    """Settings of ``[training]`` that DP-SGD's noise steps read."""

    @property
    def steps(self) -> int | None:
        """Steps of local training."""
        ...

    @property
    def lr(self) -> float:
        """Learning rate."""
        ...

    @property
    def momentum(self) -> float:
        """Momentum."""
        ...

    @property
    def weight_decay(self) -> float:
        """Pull of the weights towards zero."""
        ...

    @property
    def proximal(self) -> float:
        """Pull of the weights towards the global model."""
        ...


def noise_inside(privacy: NoiseSettings, dimension: int) -> tuple[Encoding, BinnedGaussian]:
    """Build the encoding of a step's sum at a client, and the noise that it is given.

    Parameters
    ----------
    privacy : NoiseSettings
        With clip and noise multiplier.
    dimension : int
        Coordinates of the model.

    Returns
    -------
    tuple of Encoding and BinnedGaussian
        Both in one integer unit.

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


def local_lot(privacy: NoiseSettings, clients: int) -> float:
    """Return the expected sample of one client, by which its sums are divided.

    Parameters
    ----------
    privacy : NoiseSettings
        With the lot of all clients together.
    clients : int
        Clients that share the examples.

    Returns
    -------
    float
        Examples.
    """
    return (privacy.lot or 1) / clients


def train_on_noise(
    start: NDArray[np.float32],
    training: LocalSteps,
    privacy: NoiseSettings,
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
    training : LocalSteps
        Steps, learning rate and the rest of local training.
    privacy : NoiseSettings
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
