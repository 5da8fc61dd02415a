"""Define ``[privacy]``: who is protected, by which noise, and what does not go together."""

import math
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from zerosum.client.privacy import registry
from zerosum.client.privacy.mechanism import Mechanism, Norm
from zerosum.client.spec.section import (
    Choices,
    PositiveFloat,
    PositiveInt,
    PositiveNoise,
    Scale,
    Spec,
    one_of,
)

PrivacyModel = Literal["distributed", "local", "central", "none"]


def _mechanism_choices() -> tuple[str, ...]:
    return ("auto", *registry.names())


def _for_real_vectors(name: str) -> str:
    """Refuse a law of counts by its name: trained are real vectors, rotated or not."""
    if name in dict(registry.counting_rows()):
        raise ValueError(
            "it is for the integer counts of a query, not for real vectors: write "
            f"privacy.mechanism={registry.default_name('distributed')}"
        )
    return name


MechanismName = Annotated[str, one_of(registry.names), Choices(registry.names)]
"""A registered mechanism: no literal, so that one of a user's own is a name like the others."""

DEFAULT_NOISE_MULTIPLIER = 2.1

LEAST_NOISE = 1e-9
"""Noise multipliers below it are no noise, and their variance may not be a float."""

MEANINGFUL_EPSILON = 10.0
"""Above this an epsilon promises nothing that a person could rely on."""


class PrivacySpec(Spec):
    """The unit of privacy, its noise, and the delta at which epsilon is reported."""

    model: PrivacyModel = "distributed"
    """`distributed`: each client adds a share of the noise. `local`: each adds the full \
strength. `central`: a trusted server adds it once. `none`: no noise and no epsilon, written out \
on purpose."""
    mechanism: Annotated[
        str,
        AfterValidator(_for_real_vectors),
        one_of(_mechanism_choices),
        Choices(_mechanism_choices),
        Field(description=registry.meanings()),
    ] = "auto"
    exact: bool = False
    """Draw small releases with OpenDP's exact sampler: discrete-gaussian and discrete-laplace, \
with the extra `exact`. Such a draw cannot be repeated, nor such a run resumed."""
    unit: Literal["client", "example"] = "client"
    """Who is protected. `client`: all of a client's data. `example`: one record. Then, under \
`distributed` and `central`, a round is one step of DP-SGD: each client draws its examples by \
itself and sends the sum of their clipped gradients; under `local` each client runs DP-SGD for \
`training.steps` steps, its noise inside."""
    examples: PositiveInt | None = None
    """Under unit = "example": examples of all clients together, a public figure. Delta must be \
below 1/examples."""
    lot: PositiveInt | None = None
    """Under unit = "example": examples expected in one step, all clients together; each example \
is drawn with probability lot/examples, and sums are divided by this."""
    clip: Scale | None = 0.5
    """L2 bound C of one client's update, or of one example's gradient (L1 under \
`discrete-laplace`); where it adapts, the first. `"none"`: no clipping, only with model = "none"."""
    clipping: Literal["flat", "per-layer", "adaptive"] = "flat"
    """`flat`: one bound for the whole update. `per-layer`: each layer has its part of it, the \
whole the same bound. `adaptive`: the bound follows a quantile of the updates' norms."""
    clip_fractions: list[Annotated[float, Field(gt=0, le=1e6)]] | None = None
    """Relative bounds of the layers under `per-layer`, in the model's order; scaled so that their \
squares add up to 1. Absent: equal."""
    clip_quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Fraction of updates that an adaptive bound leaves as they are."""
    clip_rate: Annotated[float, Field(gt=0, le=10)] = 0.2
    """How fast an adaptive bound moves (eta): by exp(-eta (fraction - quantile)) a round."""
    clip_noise: Annotated[float, Field(gt=0.5, le=1e6)] = 2.5
    """Noise of the count of small norms under `adaptive`, in clients, over the noise multiplier; \
the update's noise grows so that both together cost what the multiplier says. Above the larger of \
`clip_quantile` and its complement."""
    components_noise: PositiveNoise | None = None
    """Noise of the sum that principal components are read from, in sensitivities; required with \
`model.components` under privacy."""
    noise_multiplier: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Noise of the guaranteed part of a sum, in sensitivities (z); under `local`, noise of each \
contribution, and 2/z is its epsilon under `discrete-laplace` and `privunit`. Exclusive with \
`epsilon`; 2.1 where neither is given."""
    epsilon: PositiveFloat | None = None
    """Find the noise multiplier that meets this epsilon. Exclusive with `noise_multiplier`."""
    epsilon_for: Literal["release", "sum", "local"] = "release"
    """The observer for whom `epsilon` is meant."""
    delta: Annotated[float, Field(gt=0, ge=1e-300, lt=1)] = 1e-3
    """Delta of every reported epsilon, per client."""
    allow_large_delta: bool = False
    """Allow delta >= 1/population, at which one client in the population may be exposed whole."""
    honest_fraction: Annotated[float, Field(gt=0, ge=1e-6, le=1)] = 0.8
    """Fraction f of a cohort whose noise shares are guaranteed; a round with fewer is abandoned."""
    top_up: bool = True
    """The server adds noise up to the constant total V/f. Without it epsilon_release is refused."""
    noise_draw: Literal["auto", "per_client", "summed"] = "auto"
    """Simulations under the ideal protocol only: `summed` draws the noise of a sum once, \
`per_client` what each client would. `auto` is summed there, per_client elsewhere."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        if values.get("clip") == "none":
            values = values | {"clip": None}
        noise_given = (
            values.get("noise_multiplier") is not None or values.get("epsilon") is not None
        )
        if values.get("model") != "none" and not noise_given:
            values = values | {"noise_multiplier": DEFAULT_NOISE_MULTIPLIER}
        return values

    @model_validator(mode="after")
    def _clipping_is_whole(self) -> Self:
        if self.clipping != "flat" and self.clip is None:
            raise ValueError(
                f'privacy.clip = "none" is for privacy.clipping = "flat", and it is '
                f'"{self.clipping}": write a number, as privacy.clip=0.5'
            )
        if self.adaptive and self.clip_noise <= self.bit_sensitivity:
            raise ValueError(
                f"privacy.clip_noise = {self.clip_noise:g} must exceed {self.bit_sensitivity:g}, "
                "which one client moves the count by at privacy.clip_quantile = "
                f"{self.clip_quantile:g}: write privacy.clip_noise=2.5"
            )
        if self.clip_fractions is not None and self.clipping != "per-layer":
            raise ValueError(
                f"privacy.clip_fractions = {self.clip_fractions} need privacy.clipping = "
                f'"per-layer", and it is "{self.clipping}": take them out, or write '
                "privacy.clipping=per-layer"
            )
        return self

    @model_validator(mode="after")
    def _noise_is_given(self) -> Self:
        if self.model == "none":
            if self.noise_multiplier or self.epsilon:
                given = {"noise_multiplier": self.noise_multiplier, "epsilon": self.epsilon}
                listed = " and ".join(f"privacy.{k} = {v:g}" for k, v in given.items() if v)
                raise ValueError(f'privacy.model = "none" adds no noise: take out {listed}')
            return self
        if self.clip is None:
            raise ValueError(
                'privacy.clip = "none" is for privacy.model = "none", and it is '
                f'"{self.model}": write a number, as privacy.clip=0.5'
            )
        if self.noise_multiplier is not None and self.epsilon is not None:
            raise ValueError(
                f"privacy.noise_multiplier = {self.noise_multiplier:g} and privacy.epsilon = "
                f"{self.epsilon:g} exclude each other: give exactly one"
            )
        if self.noise_multiplier is None and self.epsilon is None:
            raise ValueError("give exactly one of privacy.noise_multiplier and privacy.epsilon")
        if self.noise_multiplier is not None and self.noise_multiplier < LEAST_NOISE:
            raise ValueError(
                f"privacy.noise_multiplier = {self.noise_multiplier:g} must be {LEAST_NOISE:g} or "
                "more; for no noise write privacy.model=none"
            )
        return self

    @model_validator(mode="after")
    def _examples_are_drawn(self) -> Self:
        if not self.by_example:
            given = {"privacy.examples": self.examples, "privacy.lot": self.lot}
            listed = " and ".join(f"{k} = {v}" for k, v in given.items() if v is not None)
            if listed:
                raise ValueError(
                    f'{listed}: for privacy.unit = "example" alone, and it is "client"; take it '
                    "out, or write privacy.unit=example"
                )
            return self
        if self.examples is None or self.lot is None:
            raise ValueError(
                'privacy.unit = "example" needs privacy.examples, the records of all clients '
                "together, and privacy.lot, those of them expected in a step: give both, or write "
                "privacy.unit=client"
            )
        if self.lot > self.examples:
            raise ValueError(
                f"privacy.lot = {self.lot} exceeds privacy.examples = {self.examples}: lower the "
                "one or raise the other"
            )
        if self.clipping != "flat":
            raise ValueError(
                f'privacy.clipping = "{self.clipping}" is for privacy.unit = "client", and it is '
                '"example": write privacy.clipping=flat'
            )
        inside = registry.default_name("local")  # what local_dp_noise draws in every step
        if self.model == "local" and self.noise != inside:
            raise ValueError(
                f'privacy.mechanism = "{self.mechanism}" is not for privacy.unit = "example" under '
                f'privacy.model = "local": write privacy.mechanism={inside}'
            )
        return self

    @model_validator(mode="after")
    def _mechanism_fits(self) -> Self:
        allowed = registry.names(self.model)
        if self.mechanism != "auto" and self.mechanism not in allowed:
            listed = " or ".join(f"privacy.mechanism={name}" for name in allowed or ("auto",))
            raise ValueError(
                f'privacy.mechanism = "{self.mechanism}" is not for privacy.model = '
                f'"{self.model}": write {listed}'
            )
        if self.exact and not (self.kind and self.kind.takes_exact):
            fitting = [name for name in allowed if self._kind(name).takes_exact]
            cure = f"privacy.mechanism={fitting[0]}, or " if fitting and not self.by_example else ""
            raise ValueError(
                f"privacy.exact = true: OpenDP samples {registry.exact_names()} alone; write "
                f"{cure}privacy.exact=false"
            )
        if self.adaptive and self.kind and not self.kind.takes_bit:
            listed = " or ".join(f'"{name}"' for name in registry.bit_names())
            fitting = [name for name in allowed if self._kind(name).takes_bit]
            cure = f"privacy.mechanism={fitting[0]}, or " if fitting else ""
            raise ValueError(
                f'privacy.clipping = "adaptive" is accounted for privacy.mechanism = {listed} '
                f'alone, and it is {self.noise} under privacy.model = "{self.model}": write '
                f"{cure}privacy.clipping=flat"
            )
        return self

    def _kind(self, name: str) -> type[Mechanism]:
        kind = registry.kind_of(name, self.model)
        if kind is None:
            raise ValueError(f"no mechanism for the model {self.model!r} is called {name!r}")
        return kind

    @property
    def kind(self) -> type[Mechanism] | None:
        """The class of the mechanism; None without noise."""
        return self._kind(self.noise) if self.private else None

    @property
    def norm(self) -> Norm:
        """The norm that ``clip`` bounds."""
        return self.kind.norm if self.kind else "l2"

    @property
    def private(self) -> bool:
        """Return whether any noise is promised."""
        return self.model != "none"

    @property
    def noise(self) -> str:
        """The mechanism's name, `auto` resolved; "none" without noise."""
        if self.mechanism != "auto":
            return self.mechanism
        return registry.default_name(self.model)

    def honest_part(self, cohort: int) -> Fraction:
        """Return the fraction f of a cohort whose shares are guaranteed, exactly.

        Parameters
        ----------
        cohort : int
            n; the fraction is the same at any.

        Returns
        -------
        Fraction
            In (0, 1].
        """
        return registry.guaranteed_shares(self.honest_fraction, 1)

    @property
    def by_example(self) -> bool:
        """Return whether one example is protected, rather than all of a client's."""
        return self.unit == "example"

    @property
    def example_rate(self) -> float:
        """Probability with which a client draws each of its examples in a step."""
        if self.lot is None or self.examples is None:
            raise ValueError('only unit = "example" draws examples')
        return self.lot / self.examples

    @property
    def sums_gradients(self) -> bool:
        """Return whether clients answer with sums of clipped gradients, one step a round."""
        return self.by_example and self.model != "local"

    @property
    def noise_inside(self) -> bool:
        """Return whether noise is added inside local training, and none to the update."""
        return self.by_example and self.model == "local"

    @property
    def adaptive(self) -> bool:
        """Return whether the clip follows the updates' norms, which takes one more coordinate."""
        return self.clipping == "adaptive"

    @property
    def bit_sensitivity(self) -> float:
        """Return a client's largest move of the clip's count: max(quantile, 1 - quantile)."""
        return max(self.clip_quantile, 1 - self.clip_quantile)

    @property
    def update_noise_multiplier(self) -> float | None:
        """Noise of the update alone: z, or z_delta beside the noised bit of adaptive clipping.

        z_delta = (z^-2 - (s / sigma_b)^2)^(-1/2) with sigma_b = clip_noise z and the bit's
        sensitivity s: Andrew et al. 2021, Theorem 1, where s is 1/2, as it is here at the median.
        """
        if self.noise_multiplier is None or not self.adaptive:
            return self.noise_multiplier
        return self.noise_multiplier / math.sqrt(1 - (self.bit_sensitivity / self.clip_noise) ** 2)
