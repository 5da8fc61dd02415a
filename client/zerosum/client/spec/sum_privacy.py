"""Define how a sum of an app's own values is protected: with a query's noise, or by masks alone."""

from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from zerosum.client.privacy.counts import guaranteed_fraction
from zerosum.client.privacy.registry import guaranteed_shares
from zerosum.client.spec.query_privacy import (
    LEAST_HONEST_FRACTION,
    LEAST_SCALE,
    MOST_SCALE,
    QueryPrivacy,
)
from zerosum.client.spec.section import Spec


class SumPrivacy(Spec):
    """The noise of a sum of an app's values, as the request carries it: resolved."""

    model: Literal["distributed", "none"]
    """`distributed`: each client adds a share of the noise. `none`: masks alone."""
    law: Literal["geometric", "skellam"] | None = None
    """The law of the noise; none without it."""
    scale: Annotated[float, Field(ge=LEAST_SCALE, le=MOST_SCALE)] | None = None
    """`geometric`: the scale s of the discrete Laplace. `skellam`: the standard deviation of the \
guaranteed noise."""
    unit: Literal["record", "client"] = "record"
    """Who is protected: one record, by what the app says of one, or all of a client's, by what \
the client's values are clipped to."""
    adjacency: Literal["zero_out", "replace"] = "zero_out"
    """Whether the unit's part becomes nothing, or another."""
    honest_fraction: Annotated[float, Field(ge=LEAST_HONEST_FRACTION, le=1)] = 0.8
    """Fraction f of a cohort whose noise shares are guaranteed."""

    by_example: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if {self.law is None, self.scale is None} != {not self.private}:
            raise ValueError(
                f'privacy.model = "{self.model}" with privacy.law = {self.law!r} and privacy.scale '
                f"= {self.scale!r}: noise has both, and no noise has neither"
            )
        return self

    @property
    def private(self) -> bool:
        """Return whether there is noise."""
        return self.model == "distributed"

    @property
    def noise(self) -> str:
        """The law's name; empty without noise."""
        return self.law or ""

    @property
    def top_up(self) -> bool:
        """Return whether the server brings every sum to the constant noise."""
        return self.private

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
        if self.law is None:
            return guaranteed_shares(self.honest_fraction, 1)
        return guaranteed_fraction(self.law, self.honest_fraction, cohort)


CountPrivacy: TypeAlias = QueryPrivacy | SumPrivacy
"""How a vector of integers is protected."""
