"""Which experiment and which policy an app is written with, by who is to be protected."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import tomli_w

from zerosum.client.nearest_word import did_you_mean
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.spec import Experiment
from zerosum.simulations.new.description import DataDescription


class Protected(StrEnum):
    """Who is protected by noise."""

    PATIENT = "patient"
    CLIENT = "client"
    NONE = "none"


MOST_CLIENTS = 10
"""Clients of the app's simulation, where records are dealt to them and nobody is hidden."""

MOST_HIDDEN_CLIENTS = 200
"""Clients of the app's simulation, where records are dealt to them and each is hidden in noise."""

FEWEST_OF_A_CLIENT = 5
"""Records that a client has, where records are dealt."""

LARGEST_LOT = 65_536
"""Records expected in a step: more cost time, and their average has next to no noise already.

Below it a step takes every record. Few steps on all records teach a linear model as much as many
on some (heart disease at epsilon_sum 3: ten of 735 as 60 of 183), and a round of nodes takes
seconds however little is in it.
"""

MANY_RECORDS, ROUNDS_OF_MANY = 5_000, 30
"""Records from which on more rounds have next to no more noise, and go on learning."""

ROUNDS = {Protected.PATIENT: 10, Protected.CLIENT: 40, Protected.NONE: 5}

CLIP = 1.0
"""Of one record's gradient, or of one client's update; inputs have about norm 3."""

HONEST_FRACTION, DROPOUT = 0.8, 0.2
"""Of clients, where some may vanish."""


@dataclass(frozen=True)
class Recipe:
    """What is asked for, and what the data allow.

    Parameters
    ----------
    protected : Protected
        Who is.
    epsilon : float or None
        epsilon_sum of the run; None where nobody is.
    description : DataDescription
        Of the data.
    task : str
        The app's, as the experiment names it.
    """

    protected: Protected
    epsilon: float | None
    description: DataDescription
    task: str

    @cached_property
    def clients(self) -> int:
        """Return how many clients the app's simulation has: fewer where there are few records."""
        if self.description.clients is not None:
            return self.description.clients
        records, most = self.description.records, MOST_CLIENTS
        if self.protected is Protected.CLIENT:
            most = MOST_HIDDEN_CLIENTS
        return max(2, min(most, records // FEWEST_OF_A_CLIENT))

    @property
    def private(self) -> bool:
        """Return whether there is noise."""
        return self.protected is not Protected.NONE

    @property
    def nodes(self) -> int:
        """Return how many nodes a deployment waits for."""
        natural = self.description.clients is not None and not self.description.client_column
        return self.clients if natural or self.private else 2

    @property
    def rounds(self) -> int:
        """Return how many rounds the experiment has."""
        many = self.description.training_records >= MANY_RECORDS
        if self.protected is Protected.PATIENT and many:
            return ROUNDS_OF_MANY
        return ROUNDS[self.protected]

    @property
    def delta(self) -> float:
        """Return a power of ten between a tenth and a hundredth of one in so many units.

        A file that a node has grows, and the units of a simulation are fewer than a node's own.
        """
        patient = self.protected is Protected.PATIENT
        units = self.description.records if patient else self.clients
        return float(f"1e-{len(str(units - 1)) + 1}")

    @property
    def lot(self) -> int:
        """Return the records expected in a step of all clients together."""
        return min(self.description.training_records, LARGEST_LOT)

    @property
    def sections(self) -> dict[str, Any]:
        """Return the experiment's sections from ``[privacy]`` on."""
        if self.protected is Protected.NONE:
            return {
                "privacy": {"model": "none", "clip": "none"},
                "encoding": {"bits": 24, "range": 4.0},
                "secagg": {"server": "semi-honest", "dropout": DROPOUT},
                "sampling": {"kind": "everyone"},
                "deployment": {"min_nodes": self.nodes},
            }
        noise = {"clip": CLIP, "epsilon": self.epsilon, "epsilon_for": "sum", "delta": self.delta}
        shared: dict[str, Any] = {
            "sampling": {"kind": "everyone"},
            "server": {"lr": 1.0, "options": {"momentum": 0.5}},
            "deployment": {"min_nodes": self.nodes},
        }
        if self.protected is Protected.CLIENT:
            return {
                "privacy": {"model": "distributed", **noise, "honest_fraction": HONEST_FRACTION},
                "secagg": {"server": "semi-honest", "dropout": DROPOUT},
                **shared,
            }
        return {
            "privacy": {
                "model": "distributed",
                "unit": "example",
                "examples": self.description.training_records,
                "lot": self.lot,
                **noise,
                "honest_fraction": 1.0,
            },
            "encoding": {"range": self._range},
            "secagg": {"server": "semi-honest", "dropout": 0.0},
            **shared,
        }

    @property
    def _range(self) -> float:
        """Return a bound on a coordinate of one client's sum: each record drawn gives the clip.

        A node has all of its file, and draws of that.
        """
        largest = self.description.largest_client or self.description.records
        drawn = largest * self.lot / self.description.training_records
        return float(2 ** math.ceil(math.log2(max(16.0, drawn * CLIP))))

    @property
    def values(self) -> dict[str, Any]:
        """Return the experiment as plain values, but for its data."""
        return {"name": "app", "task": self.task, "rounds": self.rounds, **self.sections}

    @property
    def dimension(self) -> int:
        """Return the trainable parameters of the linear model that is trained under noise."""
        return (self.description.inputs + 1) * (self.description.outputs)

    @cached_property
    def experiment(self) -> Experiment:
        """Return the experiment with its noise resolved, before any data are read.

        Raises
        ------
        ConfigError
            If it cannot run, as with an epsilon that no noise reaches.
        """
        from zerosum.server.planning.preflight import prepare

        written = parse_experiment(self.values)
        return prepare(written, population=self.clients, dimension=self.dimension)

    def hopeless(self) -> str:
        """Return why nothing would be learnt, and what is nearest to it that would; "" if it is."""
        from zerosum.server.planning.nearest_setting import HopelessPlan, nearest_settings
        from zerosum.server.planning.plan import outlook

        size = {"population": self.clients, "dimension": self.dimension}
        why = outlook(self.experiment, **size).hopeless
        if not why:
            return ""
        plan = HopelessPlan(parse_experiment(self.values), self.clients, self.dimension)
        nearest = [near.says for near in nearest_settings(plan)]
        return f"{why}; not hopeless: {', or '.join(nearest)}" if nearest else why

    def policy(self) -> dict[str, Any]:
        """Return what a node accepts: this experiment, and no weaker one.

        ``max_epsilon`` is what one run costs by the node's own count, rounded up: it is above
        epsilon_sum, for a node counts by Renyi divergences at one order.
        """
        base = {"tasks": [self.task]}
        open_ = {"min_cohort": 2, "corruption": 0.0, "max_epsilon": math.inf}
        if not self.private:
            models = {"models": ["none", "distributed"], "servers": ["semi-honest"]}
            return {**base, **models, **open_}
        z = self.experiment.privacy.noise_multiplier or 0.0
        return {
            **base,
            "models": ["distributed"],
            "units": ["example" if self.protected is Protected.PATIENT else "client"],
            "min_noise_multiplier": math.floor(z * 100) / 100,
            "max_clip": CLIP,
            "servers": ["semi-honest"],
            "min_cohort": min(3, self.clients),
            "corruption": 0.0,
            "max_epsilon": self.node_epsilon(),
            "budget_delta": self.delta,
        }

    def node_epsilon(self, repeated: int = 0) -> float:
        """Return the least ``max_epsilon``, to a tenth, under which a node answers all rounds.

        Parameters
        ----------
        repeated : int
            Rounds that are asked, and charged, a second time. The noise stays that of the run.
        """
        from zerosum.client.spec import ClientPolicy
        from zerosum.server.planning.policy_fit import PlannedRun, least_max_epsilon, own_cost

        written = parse_experiment(self.values)
        asked = self.experiment.model_copy(update={"rounds": self.rounds + repeated})
        run = PlannedRun(asked, self.clients, self.dimension, written)
        policy = ClientPolicy(min_cohort=2, corruption=0.0, max_epsilon=math.inf)
        spent = own_cost(run, policy)
        return math.inf if spent is None else least_max_epsilon(spent, self.delta)


def toml(values: Mapping[str, Any]) -> str:
    """Return sections as TOML, a short list in one line."""
    return tomli_w.dumps(values).strip()


def protected_of(text: str | None) -> Protected:
    """Return who is protected, as ``--privacy`` names it.

    Parameters
    ----------
    text : str or None
        Default: nobody.

    Returns
    -------
    Protected
        One of three.

    Raises
    ------
    ConfigError
        If it is none of them.
    """
    if text is None:
        return Protected.NONE
    known = [str(each) for each in Protected]
    if text not in known:
        raise ConfigError(f"--privacy {text}: it is {', '.join(known)}{did_you_mean(text, known)}")
    return Protected(text)


def checked_recipe(
    protected: Protected, epsilon: float | None, description: DataDescription, task: str
) -> Recipe:
    """Return a recipe that is not hopeless.

    Parameters
    ----------
    protected : Protected
        Who is protected.
    epsilon : float or None
        ``--epsilon``.
    description : DataDescription
        Of the data.
    task : str
        The app's.

    Returns
    -------
    Recipe
        Checked as ``zerosum plan`` would.

    Raises
    ------
    ConfigError
        One line, if an epsilon is missing or of no use, or nothing could be learnt.
    """
    option = f"--privacy {protected}"
    if protected is Protected.NONE:
        if epsilon is not None:
            raise ConfigError(
                f"--epsilon {epsilon:g}: without --privacy there is no noise; add --privacy "
                "patient, or --privacy client"
            )
        return Recipe(protected, None, description, task)
    if epsilon is None:
        raise ConfigError(f"{option}: give --epsilon, of all rounds together, as --epsilon 3")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ConfigError(f"--epsilon {epsilon:g}: allowed: numbers above 0")
    if protected is Protected.PATIENT and description.scaling == "columns":
        raise ConfigError(
            f"{option}: the columns of an array are scaled by each node's own mean, which one "
            "record moves; give a .csv or .parquet file"
        )
    made = Recipe(protected, epsilon, description, task)
    try:
        why = made.hopeless()
    except ConfigError as error:
        raise ConfigError(f"{option} --epsilon {epsilon:g}: {error}") from None
    if why:
        cure = ""
        if protected is Protected.CLIENT:
            cure = "; --privacy patient hides each record among all, under far less noise"
        raise ConfigError(
            f"{option} --epsilon {epsilon:g} with {made.clients} clients: {why}{cure}"
        )
    return made
