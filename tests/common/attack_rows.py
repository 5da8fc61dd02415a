"""Rows, cells and outcomes of attacks, written by hand."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerosum.simulations.attacks.harness.interface import Case, Defense, Metric, ThreatModel
from zerosum.simulations.attacks.harness.metrics import Mean
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.results import Row, rows_of, shown

SERVER = ThreatModel("curious server")

PSNR = Metric("PSNR", "dB", whole=40.0)


@dataclass(frozen=True)
class _Named:
    """Stands for an attack, or for a setting."""

    name: str
    metrics: tuple = ()
    adaptive: str = "knows all"
    threat: ThreatModel = SERVER


Named: Any = _Named
"""Neither plays, so it is neither to a type checker."""

PLAIN = Defense("plain")
CLIP = Defense("clip", clip=0.1)
MASKED = Defense("masked", masking="double")


def local(sigma: float) -> Defense:
    """Return local noise of so many clips."""
    return Defense(f"local noise {sigma:g} C", clip=0.1, noise="local", sigma=sigma)


def distributed(sigma: float) -> Defense:
    """Return masks and distributed noise of so many clips."""
    name = f"masked + distributed noise {sigma:g} C"
    return Defense(name, masking="double", clip=0.1, noise="distributed", sigma=sigma)


@dataclass(frozen=True)
class Played:
    """A cell by hand: what was measured, against a baseline of 12.

    Attributes
    ----------
    clients : int
        Its setting is named after them.
    figure : float or None
        All units have it; None: no value, with the status.
    epsilon : float
    status : str
    units : int
        Of all seeds together.
    """

    defense: Defense
    clients: int = 2
    figure: float | None = 112.0
    epsilon: float = math.inf
    status: Any = "value"
    units: int = 6


def suite(
    *played: Played,
    name: str = "inversion",
    metric: Metric = PSNR,
    pictures: dict[str, np.ndarray] | None = None,
    seeds: int = 3,
) -> tuple[list[Cell], list[Outcome]]:
    """Return cells and outcomes of one attack, units dealt to as many seeds."""
    attack = Named(name, (metric,))
    cells = [
        Cell(attack, Case(Named(f"{each.clients} clients, 1 image each"), each.defense,
                          {"cohort": float(each.clients), "sigma": each.defense.sigma}))
        for each in played
    ]  # fmt: skip
    return cells, [
        _outcome(number, seed, each, metric.name, pictures or {}, seeds)
        for number, each in enumerate(played)
        for seed in range(seeds if each.figure is None else min(seeds, each.units))
    ]


def _outcome(number: int, seed: int, of: Played, metric: str, pictures: Any, seeds: int) -> Outcome:
    if of.figure is None:
        return Outcome(number, seed, of.status, "a reason", threat=SERVER)
    # A little apart, so that intervals have a width.
    count = (of.units + seeds - 1 - seed) // seeds
    apart = np.linspace(-0.5, 0.5, count) if count > 1 else np.zeros(count)
    units, blind = Mean(of.figure + apart), Mean(12.0 + apart)
    if abs(of.figure - 12.0) < 0.01:
        blind = Mean(12.0 - apart)
    return Outcome(number, seed, of.status, "", {metric: units}, {metric: blind},
                   of.epsilon, 1e-5, 0.1, pictures, SERVER)  # fmt: skip


def shown_of(cells: list[Cell], outcomes: list[Outcome]) -> list[Row]:
    """Return the rows of the table."""
    return shown(cells, rows_of(cells, outcomes))
