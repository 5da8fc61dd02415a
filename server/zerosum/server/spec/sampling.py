"""Define section `sampling`: who takes part in a round."""

from typing import Literal, Self

from pydantic import (
    model_validator,
)

from zerosum.client.spec import (
    PositiveInt,
    Spec,
)


class SamplingSpec(Spec):
    """Sampling of a round's clients."""

    kind: Literal["poisson", "fixed", "everyone", "once"] = "poisson"
    """`poisson`: each client flips its own coin (amplifies privacy). `fixed`: exactly `cohort` \
clients. `everyone`: cross-silo. `once`: `cohort` clients who never took part before."""
    cohort: PositiveInt | None = 100
    """Clients a round: expected under `poisson`, exact under `fixed` and `once`, ignored under \
`everyone`."""

    @model_validator(mode="before")
    @classmethod
    def _all_by_name(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("kind") == "everyone":
            return values | {"cohort": None}
        return values

    @model_validator(mode="after")
    def _cohort_is_given(self) -> Self:
        if self.cohort is None and self.kind != "everyone":
            raise ValueError(
                f'sampling.cohort is required under sampling.kind = "{self.kind}": write the '
                "clients of a round, as sampling.cohort=100"
            )
        return self
