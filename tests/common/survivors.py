"""People in a study, dealt to nodes, and their survival curve by the definition."""

from itertools import pairwise
from pathlib import Path

import numpy as np

APP = Path(__file__).parents[1] / "deploy" / "survival_app"

EDGES = np.append(np.arange(0.0, 80.0, 5.0), np.inf)


def people(count, seed=0):
    """Times at which people left, and whether they died: exponential, of which a third is lost."""
    rng = np.random.default_rng(seed)
    dies, lost = rng.exponential(30.0, count), rng.exponential(60.0, count)
    return np.minimum(dies, lost), (dies <= lost).astype(float)


def write_people(folder, times, died, nodes):
    """Deal them to the nodes' files; return these."""
    files = []
    for index in range(nodes):
        path = folder / f"people{index}.csv"
        np.savetxt(path, np.stack([times[index::nodes], died[index::nodes]], axis=1), delimiter=",")
        files.append(path)
    return files


def counted(times, died):
    """Count by the definition, one person at a time: shape (16, 2), lost and died."""
    counts = np.zeros((len(EDGES) - 1, 2), dtype=int)
    for time, dead in zip(times, died, strict=True):
        counts[int(np.flatnonzero(time >= EDGES[:-1])[-1]), int(dead)] += 1
    return counts


def survival_of(times, died):
    """Kaplan and Meier's estimate over the grid by its definition: one step an interval."""
    curve, alive = [], 1.0
    for low, high in pairwise(EDGES):
        at_risk = int((times >= low).sum())
        dead = int(((times >= low) & (times < high) & (died == 1)).sum())
        alive *= 1 - dead / at_risk if at_risk else 1.0
        curve.append(alive)
    return np.array(curve)
