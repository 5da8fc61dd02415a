"""Play many sums, each over its own clients; the attacker asks about one client of each.

A fair coin decides for each client whether it has a property: some of its images are mirrored,
which is independent of their labels. The server wants the coin of one client of each sum.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.spec import ModelSpec, TrainSpec
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.initial_model import initial_vector
from zerosum.secagg.randomness import derive_seed, numpy_generator
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.spec import SamplingSpec
from zerosum.simulations.attacks.harness.interface import Defense, Scene, ThreatModel
from zerosum.simulations.attacks.harness.to_specs import DELTA, check_played, secagg_of
from zerosum.simulations.attacks.settings.malicious_server import PolicyClients
from zerosum.simulations.attacks.settings.model_view import LearningView
from zerosum.simulations.attacks.settings.private_sums import PrivateSums, SumRequest
from zerosum.simulations.attacks.settings.records import RecordsTask, collection_of
from zerosum.simulations.data.datasets import Records
from zerosum.simulations.engine.grid import InProcessGrid

TARGET = 0
"""Index within its sum of the client whose property is inferred."""


@dataclass(frozen=True)
class PropertyView(LearningView):
    """Hold what a server receives in many sums about one model.

    Attributes
    ----------
    cohort, records : int
        Clients in a sum; records of each client.
    mirrored : float
        Fraction of its images that a client with the property has mirrored.
    vector : ndarray
        float32, shape (d,): the model that the server sent.
    totals : ndarray
        float64, shape (sums, d): the opened sums.
    contributions : ndarray or None
        float64, shape (sums, d): the target client's contributions, where the server sees single
        ones.
    noise_std : float
        Standard deviation of each coordinate of a sum.
    auxiliary_inputs, auxiliary_labels : ndarray or None
        Records of the same population that no client holds, where the threat model has them.
    """

    cohort: int = 0
    records: int = 0
    mirrored: float = 0.0
    vector: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    totals: np.ndarray | None = None
    contributions: np.ndarray | None = None
    noise_std: float = 0.0
    auxiliary_inputs: np.ndarray | None = None
    auxiliary_labels: np.ndarray | None = None


@dataclass(frozen=True)
class PropertySetting:
    """Open sums over clients that have a property or not, each by a fair coin.

    Attributes
    ----------
    cohort, sums : int
        Clients in a sum; sums. No client takes part in two.
    records : int
        Of each client, drawn from the training records.
    mirrored : float
        Fraction of its images that a client with the property has mirrored.
    steps : int
        Local steps, each on all records of the client.
    lr : float
    model : ModelSpec
    task : str
        "mnist5k" or "digits".
    through_masks : int
        Number of sums that use masks where sums are masked and carry no noise. The others are
        opened without masks: their totals are the same bits, in a fraction of the time.
    """

    cohort: int = 10
    sums: int = 100
    records: int = 20
    mirrored: float = 0.3
    steps: int = 1
    lr: float = 0.5
    model: ModelSpec = field(default_factory=lambda: ModelSpec(name="linear"))
    task: str = "digits"
    through_masks: int = 20

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"one of {self.cohort} clients, {self.records} images each"

    @property
    def training(self) -> TrainSpec:
        """Return the local training: full-batch steps."""
        return TrainSpec(epochs=None, steps=self.steps, batch_size=None, lr=self.lr)

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Open the sums; see :class:`~.interface.Setting`."""
        check_played(protection)
        coins = numpy_generator(seed, "property").random((self.sums, self.cohort)) < 0.5
        task = self._task(coins.ravel(), seed)
        played = _Sums(self, task, protection, seed)
        truth = {"has_property": coins[:, TARGET]}
        return Scene(played.view(attack.threat), truth, played.epsilon(), DELTA)

    def _task(self, coins: np.ndarray, seed: int) -> RecordsTask:
        collection = collection_of(self.task)
        rng = numpy_generator(seed, "records of clients")
        drawn = [client_records(collection.train, self, coin, rng) for coin in coins]
        return RecordsTask(
            self.model,
            np.stack([records.inputs for records in drawn]),
            np.stack([records.targets for records in drawn]),
            collection.test,
            collection.classes or 1,
            seed,
        )


class Population(Protocol):
    """Define what is public about a client's records."""

    @property
    def records(self) -> int:
        """Return the number of records."""
        ...

    @property
    def mirrored(self) -> float:
        """Return the fraction that is mirrored where the client has the property."""
        ...


def client_records(
    source: Records, public: Population, has_property: bool, rng: np.random.Generator
) -> Records:
    """Draw a client's records, some of them mirrored where it has the property.

    Parameters
    ----------
    source : Records
        Images, float32, shape (n, channels, height, width).
    public : PropertySetting or PropertyView
    has_property : bool
    rng : numpy.random.Generator

    Returns
    -------
    Records
        ``public.records`` of them, without repetition.
    """
    drawn = source.take(rng.permutation(len(source))[: public.records])
    count = round(public.mirrored * public.records) if has_property else 0
    inputs = np.concatenate([drawn.inputs[:count, ..., ::-1], drawn.inputs[count:]])
    return Records(inputs, drawn.targets)


class _Sums:
    """Play the sums of one scene."""

    def __init__(
        self, setting: PropertySetting, task: RecordsTask, protection: Defense, seed: int
    ) -> None:
        self._setting, self._task, self._protection = setting, task, protection
        self._vector = initial_vector(task, seed)
        # Masks cancel exactly: without noise a masked total equals the bare one bit for bit, so
        # most sums skip them. Noise that is drawn in shares differs, and is always played in full.
        identical = protection.masked and protection.noise == "none"
        masked = min(setting.through_masks, setting.sums) if identical else setting.sums
        self._sums = self._asking(protection, seed)
        self._opened = [self._open(self._sums, number) for number in range(1, masked + 1)]
        if masked < setting.sums:
            bare = self._asking(replace(protection, masking="none"), seed)
            self._opened += [self._open(bare, n) for n in range(masked + 1, setting.sums + 1)]

    def _asking(self, protection: Defense, seed: int) -> PrivateSums:
        setting, task = self._setting, self._task
        population, size = setting.sums * setting.cohort, setting.cohort
        clients = PolicyClients.with_rules(
            task, SeededEntropy(seed), secagg_of(protection), population
        )
        return PrivateSums(
            SumRequest(setting.task, setting.model, setting.training, self._vector),
            protection,
            clients,
            InProcessGrid(clients.app, population),
            population=population,
            cohort=size,
            sampling=SamplingSpec(kind="once", cohort=size),
            seed=seed,
            purpose="property sums",
        )

    def _open(self, sums: PrivateSums, number: int) -> Aggregate:
        size = self._setting.cohort
        return sums.open(number, range((number - 1) * size, number * size))

    def view(self, threat: ThreatModel) -> PropertyView:
        """Return what the server received."""
        setting, spare = self._setting, self._task.spare
        auxiliary = "auxiliary data" in threat.knows
        # The server of a masked sum sees no contributions, with or without real masks.
        contributions = [None if self._protection.masked else s.contributions for s in self._opened]
        single = [c[k * setting.cohort + TARGET] for k, c in enumerate(contributions) if c]
        return PropertyView(
            threat=threat,
            protection=self._protection,
            model=setting.model,
            input_shape=tuple(self._task.inputs.shape[2:]),
            classes=self._task.classes,
            training=setting.training,
            cohort=setting.cohort,
            records=setting.records,
            mirrored=setting.mirrored,
            vector=self._vector,
            totals=np.stack([opened.total for opened in self._opened]),
            contributions=np.stack(single) if single else None,
            noise_std=self._opened[0].noise_std,
            auxiliary_inputs=spare.inputs if auxiliary else None,
            auxiliary_labels=spare.targets if auxiliary else None,
        )

    def epsilon(self) -> float:
        """Return the ledger's epsilon of a client, for a server that sees what this one does."""
        return self._sums.epsilon()


def simulated_updates(
    view: PropertyView, coins: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Simulate updates of clients whose records are drawn from auxiliary data.

    Parameters
    ----------
    view : PropertyView
    coins : ndarray
        bool, shape (k,): which clients have the property.
    rng : numpy.random.Generator
        Draws their records.

    Returns
    -------
    ndarray of float64
        Shape (k, d), clipped as clients clip.

    Raises
    ------
    ValueError
        If the view holds no auxiliary data.
    """
    if view.auxiliary_inputs is None or view.auxiliary_labels is None:
        raise ValueError("the view holds no auxiliary data: add it to what the threat knows")
    spare = Records(view.auxiliary_inputs, view.auxiliary_labels)
    drawn = [client_records(spare, view, bool(coin), rng) for coin in coins]
    inputs, labels = (np.stack([getattr(r, n) for r in drawn]) for n in ("inputs", "targets"))
    task = RecordsTask(view.model, inputs, labels, spare, view.classes, 0)
    trainer = choose_trainer(task, view.training, seed=0)
    updates = np.empty((len(coins), len(view.vector)))
    for row in range(len(coins)):
        pair = torch.tensor(inputs[row]), torch.tensor(labels[row])
        updates[row] = trainer.train(view.vector, pair, derive_seed(0, "simulated", row))
    if view.protection.clip is not None:
        norms = np.linalg.norm(updates, axis=1, keepdims=True)
        updates *= np.minimum(1.0, view.protection.clip / norms)
    return updates
