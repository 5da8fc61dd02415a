"""A mechanism that the package does not have, with an event of its own: what a user could add.

Its shares are Gaussians rounded to integers, drawn in floats; its event claims the Gaussian's Renyi
divergences and nothing else, so that every figure has a closed form.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import attr
import numpy as np
from scipy.special import ndtri

from zerosum.client.privacy.events import ORDERS, NoiseDpEvent, share_divergences
from zerosum.secagg.vectors.wrapping import skellam_log_tail

NAME = "added"


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AddedDpEvent(NoiseDpEvent):
    multiplier: float
    symmetric: ClassVar[bool] = True

    def divergences(self):
        return np.array(ORDERS) / (2 * self.multiplier**2)

    def doubled(self):
        return AddedDpEvent(self.multiplier / 2)


@dataclass(frozen=True)
class AddedShares:
    l2_sensitivity: float
    share_variance: float
    added_by: ClassVar = "share"
    norm: ClassVar = "l2"
    takes_records: ClassVar = True
    takes_bit: ClassVar = False
    takes_exact: ClassVar = False
    summary: ClassVar = "rounded Gaussian shares"
    drawn: ClassVar = "float"
    tau: ClassVar = 0.0
    caveat: ClassVar = "the noise is drawn in floats"

    @classmethod
    def from_spec(cls, privacy, code, multiplier, shares):
        return cls(code.l2_sensitivity, (multiplier * code.l2_sensitivity) ** 2 / shares)

    def apply(self, vector, rng):
        return vector + self.noise(1, vector.size, rng)

    def noise(self, shares, count, rng):
        normal = ndtri(rng.uniform(count) + 2.0**-54)
        return np.rint(self.std(shares) * normal).astype(np.int64)

    def variance(self, shares):
        return self.share_variance * shares

    def std(self, shares):
        return math.sqrt(self.variance(shares))

    def bit_std(self, shares):
        return 0.0

    def bound(self, code):
        return code.bound

    def log_tail(self, shares, margin):
        return skellam_log_tail(margin, self.variance(shares))

    def slack(self, cohort):
        return cohort

    def event(self, shares):
        return AddedDpEvent(self.std(shares) / self.l2_sensitivity)

    def divergences(self, shares, *, doubled):
        return share_divergences(self.event(shares), doubled=doubled)
