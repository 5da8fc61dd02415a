"""Play the same question to two cohorts, of which the second lacks one client."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from zerosum.client.privacy.clipping import clip_to_norm
from zerosum.client.task import ClientInfo
from zerosum.client.training.flat_parameters import parameters_to_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.simulations.attacks.harness.interface import Defense, Scene
from zerosum.simulations.attacks.settings.records import RecordsTask
from zerosum.simulations.attacks.settings.rounds import RoundsSetting, training_of

LEFT_OUT = 0
"""The client that the second cohort lacks."""


@dataclass(frozen=True)
class TwoCohorts(RoundsSetting):
    """Play rounds of which the first asks all clients, and the others all but one.

    The truth holds that client's update beside its records.
    """

    clients: int = 10
    rounds: int = 2

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"sums of {self.clients} clients and of {self.clients - 1} of them"

    def cohort(self, number: int) -> tuple[int, ...]:
        """Return the clients of a round; rounds count from 1."""
        return all_but_one(self.clients, number)

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Play the rounds; see :class:`~.interface.Setting`."""
        scene = super().play(attack, protection, seed)
        return without_one(self, scene, protection.clip, seed)


def without_one(setting: RoundsSetting, scene: Scene, clip: float | None, seed: int) -> Scene:
    """Return a scene whose truth is that of the one client, and its update before rounding.

    Parameters
    ----------
    setting : RoundsSetting
    scene : Scene
        As it was played.
    clip : float or None
    seed : int

    Returns
    -------
    Scene
    """
    task: RecordsTask = setting.drawn(seed)
    start = parameters_to_vector(task.model())
    records = task.data(ClientInfo(LEFT_OUT, setting.clients))
    change = LocalTrainer(task, training_of(setting)).train(start, records, 0).astype(np.float64)
    update = change if clip is None else clip_to_norm(change, clip)
    truth = {name: array[[LEFT_OUT]] for name, array in scene.truth.items()}
    return Scene(scene.view, truth | {"update": update}, scene.epsilon, scene.delta)


def all_but_one(clients: int, number: int) -> tuple[int, ...]:
    """Return the clients of a round: in the first all, then all but one.

    Parameters
    ----------
    clients : int
    number : int
        Of the round, from 1.

    Returns
    -------
    tuple of int
        Ascending.
    """
    return tuple(i for i in range(clients) if number == 1 or i != LEFT_OUT)
