"""Read a mean from two noised sums: the metrics of a federated evaluation."""

import math
from dataclasses import dataclass

from zerosum.client.training.metric_names import NOISE_SUFFIX

NOISE_STD = NOISE_SUFFIX
"""What the name of a metric's own noise ends with, in a line of metrics.jsonl."""


@dataclass(frozen=True)
class NoisedRatio:
    """A mean within its known range, and the standard deviation that noise gives it."""

    value: float
    noise_std: float

    def record(self, name: str) -> dict[str, float]:
        """Return what a line of metrics says of it: no noise where there is none."""
        return {name: self.value} | ({name + NOISE_STD: self.noise_std} if self.noise_std else {})


def noised_ratio(
    total: float, count: float, noise_std: float, *, scale: float = 1.0, least: float = 0.0
) -> NoisedRatio | None:
    """Return scale * total / count within its range, with its noise; None where noise drowns it.

    The deviation is that of the first-order expansion of a ratio of independent sums,
    sqrt(s_total^2 + r^2 s_count^2) / count with s_total = s_count = noise_std: Casella and Berger,
    "Statistical Inference" (2002), Example 5.5.27. It is taken at the clamped ratio: the one before
    may be any number, of which nothing is learnt but that noise made it. Where the noise is as
    large as the largest value that the mean can have, or the count no larger than its own noise,
    nothing is left to read.

    Parameters
    ----------
    total, count : float
        Opened sums, in one unit, in which no client's part of ``total`` exceeds its part of
        ``count``.
    noise_std : float
        Standard deviation of the noise in either, in the same unit.
    scale : float
        What a ratio of one stands for.
    least : float
        0, or -1 where a mean can be negative. The largest ratio is 1.

    Returns
    -------
    NoisedRatio or None
        In units of ``scale``.
    """
    if not count > noise_std:
        return None
    ratio = min(max(total / count, least), 1.0)
    spread = noise_std * math.hypot(1.0, ratio) / count
    return NoisedRatio(scale * ratio, scale * spread) if spread < 1.0 else None
