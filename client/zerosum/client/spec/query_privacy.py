"""Define how the answer to a query is protected: its law and scale of noise, unit and adjacency."""

from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from zerosum.client.privacy.counts import guaranteed_fraction
from zerosum.client.privacy.laplace import SMALLEST_SCALE
from zerosum.client.privacy.noise_range import LARGEST_STD
from zerosum.client.privacy.registry import guaranteed_shares
from zerosum.client.spec.section import PositiveInt, Spec

LEAST_SCALE, MOST_SCALE = SMALLEST_SCALE, LARGEST_STD
"""Of noise, in counts: what :mod:`zerosum.client.privacy.jumps` draws. At the least it is 0 but for
a chance of 2^-180."""

MOST_LOCAL_EPSILON = 20.0
"""Of a randomised response: beyond it a report is the value itself, and OLH would hash into 2^29
cells."""

LEAST_HONEST_FRACTION = 0.01
"""A share of noise is 1/(f n) of the guaranteed one, and takes as much longer to draw: a smaller f
would hold a client up for hours, and buys nobody any privacy."""


class QueryPrivacy(Spec):
    """The noise of a query, as the request carries it: resolved, so that a client can price it."""

    model: Literal["distributed", "local"] = "distributed"
    """`distributed`: each client adds a share of the noise. `local`: each sends one randomised \
report, under masks."""
    law: Literal["geometric", "skellam", "randomized-response"]
    """The law of the noise; `randomized-response` under `local`, and there alone."""
    scale: Annotated[float, Field(ge=LEAST_SCALE, le=MOST_SCALE)]
    """`geometric`: the scale s of the discrete Laplace. `skellam`: the standard deviation of the \
guaranteed noise. `randomized-response`: epsilon of one report."""
    unit: Literal["record", "client"] = "record"
    """Who is protected: one record, or all of a client's."""
    adjacency: Literal["zero_out", "replace"] = "zero_out"
    """Whether the unit's part becomes nothing, or another."""
    cap: PositiveInt | None = None
    """Records of a client that are used, under unit = "client"."""
    honest_fraction: Annotated[float, Field(ge=LEAST_HONEST_FRACTION, le=1)] = 0.8
    """Fraction f of a cohort whose noise shares are guaranteed."""

    private: ClassVar[bool] = True
    by_example: ClassVar[bool] = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.noise_inside != (self.law == "randomized-response"):
            raise ValueError(
                f'privacy.law = "{self.law}" is not for privacy.model = "{self.model}": write '
                '"randomized-response" under "local" and there alone'
            )
        if self.noise_inside:
            report = (self.unit, self.adjacency, self.cap) == ("client", "replace", 1)
            if not report:
                raise ValueError(
                    'privacy.model = "local" has one report a client: write privacy.unit=client, '
                    "privacy.adjacency=replace and privacy.cap=1"
                )
            if self.scale > MOST_LOCAL_EPSILON:
                raise ValueError(
                    f"privacy.scale = {self.scale:g}, an epsilon, must be at most "
                    f"{MOST_LOCAL_EPSILON:g}"
                )
        if (self.unit == "client") != (self.cap is not None):
            raise ValueError(
                'privacy.unit = "client" needs privacy.cap, the records of a client that are used'
                if self.cap is None
                else f'privacy.cap = {self.cap} is for privacy.unit = "client": take it out'
            )
        return self

    @property
    def noise(self) -> str:
        """The law's name."""
        return self.law

    @property
    def noise_inside(self) -> bool:
        """Return whether the answer itself is random, and no noise is added to it."""
        return self.model == "local"

    @property
    def top_up(self) -> bool:
        """Return whether the server brings every sum to the constant noise."""
        return not self.noise_inside

    def honest_part(self, cohort: int) -> Fraction:
        """Return the fraction f of a cohort whose shares are guaranteed, exactly.

        Parameters
        ----------
        cohort : int
            n. Of geometric noise f is at most 1 - 1/n, so that fellow clients face all of it.

        Returns
        -------
        Fraction
            In (0, 1].
        """
        if self.noise_inside:
            return guaranteed_shares(self.honest_fraction, 1)
        return guaranteed_fraction(self.law, self.honest_fraction, cohort)
