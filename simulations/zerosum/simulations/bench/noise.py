"""Noise, in millions of integers a second on one core: tables, jumps, exact rejection, OpenDP."""

import importlib.util
import math
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from zerosum.client.privacy.jumps import JumpSampler
from zerosum.client.privacy.pmf import (
    BinnedGaussianLaw,
    DiscreteGaussianLaw,
    DiscreteLaplaceLaw,
    NoiseLaw,
    SkellamLaw,
)
from zerosum.client.privacy.samplers import ExactSampler, TableSampler
from zerosum.secagg.randomness import system_keystream
from zerosum.simulations.bench.process import Values, peak_memory_mb

Draw = Callable[[int], np.ndarray]

_LAWS: dict[str, Callable[[float], NoiseLaw]] = {
    "skellam": lambda std: SkellamLaw(std**2),
    "binned-gaussian": BinnedGaussianLaw,
    "discrete-gaussian": DiscreteGaussianLaw,
    "discrete-laplace": lambda std: DiscreteLaplaceLaw(std / 2**0.5),
}

_SHARES: tuple[tuple[Fraction, float], ...] = (
    (Fraction(1, 240), 1.0),
    (Fraction(1, 240), 100.0),
    (Fraction(1, 4), 10.0),
)
"""Parts r of geometric noise and their scales s: a share of 240, and a top-up."""


def run(
    *,
    deviations: list[float],
    count: int = 4_000_000,
    few: int = 200,
    repetitions: int = 5,
    opendp: bool = True,
) -> Values:
    """Measure every sampler of every law, and shares of geometric noise.

    Parameters
    ----------
    deviations : list of float
        Standard deviations, in integer units.
    count, few : int
        Integers that a table, or a share's jumps, and an exact sampler draw.
    repetitions : int
        A table's rate, and a share's, is the best of so many.
    opendp : bool
        Whether to measure OpenDP where it is installed.

    Returns
    -------
    dict
        ``rows``: law, std, sampler, million_per_s, tau, for tables and jumps build_s, and
        found_std of what was drawn last; ``opendp``: its version, or None.
    """
    version = _opendp_version() if opendp else None
    rows = []
    for law_name, make in _LAWS.items():
        for std in deviations:
            law = make(std)
            rows.append(_table_row(law_name, std, law, count, repetitions))
            ours = partial(ExactSampler(law).sample, rng=system_keystream())
            row = _row(law_name, std, "exact", ours, few, 1)
            rows.append(row | {"tau": ExactSampler.tau})
            theirs = _theirs(law_name, std) if version else None
            if theirs is not None:
                rows.append(_row(law_name, std, "opendp", theirs, 20 * few, 1) | {"tau": 0.0})
    rows += [_share_row(ratio, scale, count, repetitions) for ratio, scale in _SHARES]
    return {"rows": rows, "opendp": version, "peak_memory_mb": peak_memory_mb()}


def _table_row(name: str, std: float, law: NoiseLaw, count: int, repetitions: int) -> Values:
    start = time.thread_time()
    table = TableSampler(law)
    built = time.thread_time() - start
    draw = partial(table.sample, rng=system_keystream())
    row = _row(name, std, "table", draw, count, repetitions)
    return row | {"tau": table.tau, "build_s": built}


def _share_row(ratio: Fraction, scale: float, count: int, repetitions: int) -> Values:
    start = time.thread_time()
    sampler = JumpSampler(scale, ratio)
    sampler.sample(1 << 14, system_keystream())  # its tables are built at the first draw
    built = time.thread_time() - start
    draw = partial(sampler.sample, rng=system_keystream())
    std = math.sqrt(ratio * DiscreteLaplaceLaw(scale).variance)
    row = _row(f"geometric {ratio}, s={scale:g}", std, "jumps", draw, count, repetitions)
    return row | {"tau": sampler.tau, "build_s": built}


def _row(name: str, std: float, sampler: str, draw: Draw, count: int, repetitions: int) -> Values:
    spent, drawn = [], np.zeros(0)
    for _ in range(repetitions):
        start = time.thread_time()
        drawn = draw(count)
        spent.append(time.thread_time() - start)
    return {
        "law": name,
        "std": std,
        "sampler": sampler,
        "count": count,
        "million_per_s": count / min(spent) / 1e6,
        "million_per_s_median": count / float(np.median(spent)) / 1e6,
        "found_std": float(drawn.std()),
    }


def _theirs(name: str, std: float) -> Draw | None:
    from zerosum.client.privacy import opendp

    if name == "discrete-gaussian":
        return lambda count: opendp.discrete_gaussian(std, count)
    if name == "discrete-laplace":
        return lambda count: opendp.discrete_laplace(std / 2**0.5, count)
    return None


def _opendp_version() -> str | None:
    if importlib.util.find_spec("opendp") is None:
        return None
    from importlib.metadata import version

    # Its first use loads a library: not part of a rate.
    from zerosum.client.privacy import opendp

    opendp.discrete_gaussian(1.0, 1)
    return version("opendp")
