"""What a client can be asked to do, and what it accepts: the specs that cross the wire.

Every class here is one section of an experiment file. Keys, types, defaults and meanings in
``docs/configuration.md`` are generated from these fields.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from zerosum.client.privacy import registry
from zerosum.client.privacy.mechanism import Mechanism, Norm
from zerosum.client.renyi_filter import fixed_order
from zerosum.client.session_limits import Openings
from zerosum.secagg import Policy, Protocol, ServerMode
from zerosum.secagg.graph.failure_bounds import security_of

PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Scale = Annotated[float, Field(gt=0, allow_inf_nan=False), Field(ge=1e-30, le=1e30)]
"""A norm or a range: bounded so that no square of it leaves float64."""
PositiveNoise = Annotated[float, Field(gt=0, le=1e6)]
PositiveInt = Annotated[int, Field(gt=0, lt=2**63)]


def _as_name(value: object) -> object:
    """Take a finite number for a name: TOML reads `data.label=1` as one, and columns are so called.

    What is not finite is no number of JSON, and whoever means the text writes quotes.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    return value


ColumnName = Annotated[str, BeforeValidator(_as_name)]

PrivacyModel = Literal["distributed", "local", "central", "none"]


@dataclass(frozen=True)
class Choices:
    """Metadata of a text that is one of some names, which may become more while a program runs."""

    names: Callable[[], tuple[str, ...]]


def _mechanism_choices() -> tuple[str, ...]:
    return ("auto", *registry.names())


def _one_of(choices: Callable[[], tuple[str, ...]]) -> AfterValidator:
    """Return a validator that says of another name what pydantic says of a wrong literal."""

    def check(name: str) -> str:
        *most, last = map(repr, choices())
        if name not in choices():
            expected = f"{', '.join(most)} or {last}"
            raise PydanticCustomError("literal_error", "Input should be {it}", {"it": expected})
        return name

    return AfterValidator(check)


MechanismName = Annotated[str, _one_of(registry.names), Choices(registry.names)]
"""A registered mechanism: no literal, so that one of a user's own is a name like the others."""

DEVICE = re.compile(r"cpu|cuda(:[0-9]{1,3})?")
"""What a device is called, whether it is there or not."""

DEFAULT_NOISE_MULTIPLIER = 2.1

LEAST_NOISE = 1e-9
"""Noise multipliers below it are no noise, and their variance may not be a float."""

DEFAULT_OPENINGS = 2000
"""A thousand rounds with an evaluation each, or with a second attempt."""

MEANINGFUL_EPSILON = 10.0
"""Above this an epsilon promises nothing that a person could rely on."""


class Spec(BaseModel):
    """A frozen section that refuses keys it does not know."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        # Not null, which is another value: what is not finite and got by the checks has to show.
        ser_json_inf_nan="constants",
    )

    def canonical(self) -> bytes:
        """Return the spec as canonical JSON: what enters a request's hash.

        Raises
        ------
        ValueError
            If a number in it is not finite: JSON has none such, so that no reader would take it.
        """
        data = self.model_dump_json(by_alias=True).encode()
        json.loads(data, parse_constant=_not_finite)
        return data

    @classmethod
    def from_canonical(cls, data: bytes) -> Self:
        """Read what :meth:`canonical` wrote, and nothing else.

        What is hashed are the bytes of a spec that was read. If a reader took others than it
        writes (spaces, other orders, keys twice, 1 for 1.0), two texts would have one digest, and
        a server could send them to two clients whose masks still cancel.

        Raises
        ------
        ValueError
            If the bytes are no such spec, or not the ones that it is written as.
        """
        try:
            read = cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(f"{first['loc']}: {first['msg']}") from None
        written = read.canonical()
        if written != data:
            at = next(
                (i for i, (a, b) in enumerate(zip(written, data, strict=False)) if a != b),
                min(len(written), len(data)),
            )
            raise ValueError(
                f"not canonical: from byte {at} on {data[at : at + 20]!r}, where this reader "
                f"writes {written[at : at + 20]!r}"
            )
        return read


def _not_finite(name: str) -> None:
    raise ValueError(f"{name} is no number that JSON has: a spec holds finite numbers")


class TrainSpec(Spec):
    """Local training at one client: plain SGD, for some epochs or some steps."""

    epochs: Annotated[int, Field(gt=0, le=1_000_000)] | None = 5
    """Passes over the client's data. Exclusive with `steps`."""
    steps: Annotated[int, Field(gt=0, le=1_000_000)] | None = None
    """Optimizer steps, cycling through the data. Exclusive with `epochs`."""
    batch_size: PositiveInt | None = 10
    """Examples in a step; the last batch of an epoch may be smaller. `"all"`: one full batch."""
    lr: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    """Learning rate of local SGD."""
    momentum: Fraction = 0.0
    """Momentum of local SGD; its buffer starts at zero in every round."""
    weight_decay: NonNegativeFloat = 0.0
    """L2 penalty, added to the gradient as torch.optim.SGD does."""
    proximal: NonNegativeFloat = 0.0
    """FedProx's mu: adds mu (w - w_global) to the gradient (Li et al. 2020)."""
    batchnorm: Literal["refuse", "average"] = "refuse"
    """What becomes of running statistics, as BatchNorm keeps them. `refuse`: a model whose \
statistics move is refused, one whose layers are frozen is not. `average`: they travel and are \
averaged like weights, past the server's optimizer; only with privacy.model = "none" and \
privacy.clip = "none"."""

    weighting: Literal["uniform", "examples"] = "uniform"
    """`examples` weighs a client by its number of examples, one more coordinate under the mask; \
only without noise, since counts are private."""
    max_examples: PositiveInt = 10_000
    """Largest number of examples a client may have under `weighting = "examples"`."""

    @model_validator(mode="before")
    @classmethod
    def _steps_replace_epochs(cls, values: object) -> object:
        if isinstance(values, dict):
            if values.get("steps") is not None:
                values = {"epochs": None} | values
            if values.get("batch_size") == "all":
                values = values | {"batch_size": None}
        return values

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError(
                f"training.epochs = {self.epochs} and training.steps = {self.steps} exclude each "
                "other: give exactly one"
            )
        if self.epochs is None and self.steps is None:
            raise ValueError("give exactly one of training.epochs and training.steps")
        return self


class PrivacySpec(Spec):
    """Who is protected, by how much noise, and at which delta it is reported."""

    model: PrivacyModel = "distributed"
    """`distributed`: each client adds a share of the noise. `local`: each adds the full \
strength. `central`: a trusted server adds it once. `none`: no noise and no epsilon, written out \
on purpose."""
    mechanism: Annotated[
        str,
        _one_of(_mechanism_choices),
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
        """Whether any noise is promised."""
        return self.model != "none"

    @property
    def noise(self) -> str:
        """The mechanism's name, `auto` resolved; "none" without noise."""
        if self.mechanism != "auto":
            return self.mechanism
        return registry.default_name(self.model)

    @property
    def by_example(self) -> bool:
        """Whether one example is protected, rather than all of a client's."""
        return self.unit == "example"

    @property
    def example_rate(self) -> float:
        """Probability with which a client draws each of its examples in a step."""
        if self.lot is None or self.examples is None:
            raise ValueError('only unit = "example" draws examples')
        return self.lot / self.examples

    @property
    def sums_gradients(self) -> bool:
        """Whether clients answer with sums of clipped gradients, one step a round."""
        return self.by_example and self.model != "local"

    @property
    def noise_inside(self) -> bool:
        """Whether noise is added inside local training, and the update carries no more of it."""
        return self.by_example and self.model == "local"

    @property
    def adaptive(self) -> bool:
        """Whether the clip follows the updates' norms, which takes one more coordinate."""
        return self.clipping == "adaptive"

    @property
    def bit_sensitivity(self) -> float:
        """What one client moves the count of adaptive clipping by: max(quantile, 1 - quantile)."""
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


class EncodingSpec(Spec):
    """How a real vector becomes integers in a ring."""

    bits: Annotated[int, Field(ge=2, le=32)] = 16
    """Bits of one coordinate before masking: the range is cut into 2^bits - 2 steps."""
    range: Scale | None = None
    """Largest magnitude of a coordinate; larger ones are cut to it, and without noise counted. \
Absent means `privacy.clip` (6 clip / sqrt(d) when rotated); required where clipping is off."""
    rotate: bool = False
    """Random signs and a Walsh-Hadamard transform first: spreads a vector over its coordinates."""
    ring_bits: Annotated[int, Field(ge=2, le=64)] | None = None
    """Bits of the ring. Absent: the fewest at which a sum cannot wrap."""


class SecAggSpec(Spec):
    """How the cohort's vectors become a sum."""

    protocol: Literal["pairwise", "ideal", "none"] = "pairwise"
    """`pairwise`: double-masked secure aggregation. `ideal`: a trusted sum, for accuracy work. \
`none`: the server sees every noised contribution."""
    server: Literal["malicious", "semi-honest"] = "malicious"
    """The server that the protocol withstands. `malicious`: one that lies about who dropped out; \
clients sign, with keys that they know of each other. `semi-honest`: one that is only curious."""
    dropout: Fraction = 0.15
    """Fraction of a cohort that may vanish in a session; sets the threshold and the guarantees."""
    corruption: Fraction = 0.0
    """Fraction of the roster assumed to collude with the server."""
    threshold: PositiveInt | Literal["auto"] = "auto"
    """Shares needed to recover a secret (t)."""
    degree: PositiveInt | Literal["auto", "complete"] = "auto"
    """Neighbours that each client gives shares to (k). `auto`: everybody in cohorts below 500, \
else the fewest that are safe."""
    openings: PositiveInt = DEFAULT_OPENINGS
    """Sessions that the nodes' policies let begin in a run or a day, the larger of both: in all \
together secrecy and connectivity fail with 2^-40 at most. Nodes that allow more decline a \
sparse graph made for fewer."""
    groups: PositiveInt = 1
    """Sessions that a cohort is split into, each with the full noise (a trusted server adds its \
own once); their sums are added. A group that fails costs only its members, but the server sees \
each group's sum."""

    @property
    def security(self) -> float:
        """The most that secrecy or connectivity may fail with in one session."""
        return security_of(self.openings)


class DataSpec(Spec):
    """Which records there are, and which client holds which."""

    path: str | None = None
    """File of the task's records: an npz for `mnist`; CSV, Parquet or NPZ for `table`; a text \
for `shakespeare`. The folder of the four files for `heart`."""
    name: str | None = None
    """Data set on the Hugging Face hub, for task `hf` (needs the extra `hf`)."""
    label: ColumnName = "label"
    """Column (or array) that holds the label."""
    target: Literal["auto", "classes", "values"] = "auto"
    """What labels are, for `table` and `hf`. `classes`: each its own kind. `values`: numbers to \
regress on. `auto`: texts, truths and whole numbers of few kinds are classes, other numbers are \
values; what could be both is refused."""
    features: list[ColumnName] | None = None
    """Columns used as inputs. Absent: all but the label, the client column and those in \
`exclude`; what is left out for another reason is named."""
    exclude: list[ColumnName] = []
    """Columns that are no inputs, for `table`."""
    missing: list[ColumnName] | None = None
    """Words that stand for a missing input, as `["", "?"]`, for `table`: numbers are filled with \
the column's mean over the public records, texts count as no category. Absent: a number that is \
missing is refused."""
    client_column: ColumnName | None = None
    """Column that names each record's client, for the natural partition."""
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """Character between the cells of a CSV. Absent: guessed, and said where it is no comma."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark of numbers in texts. Absent: guessed, and said where it is no point."""
    thousands: Literal["none", ",", ".", " ", "'"] | None = None
    """Mark between thousands of numbers in texts. Absent: guessed, and said where there is one."""
    encoding: str | None = None
    """Encoding of a CSV, as `cp1252`. Absent: its byte order mark, else UTF-8 and nothing else."""
    header: bool | None = None
    """Whether the first line of a CSV holds names; without, columns are called 1, 2 and so on. \
Absent: it does, and a line that looks like a record is refused."""
    clients: PositiveInt | None = None
    """Number of clients. Absent: what the task suggests, or the natural partition has."""
    partition: Literal["iid", "dirichlet", "shards", "natural"] = "iid"
    """How training records are split over clients."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.5
    """Concentration of the Dirichlet partition; smaller is more uneven."""
    shards_per_client: PositiveInt = 2
    """Label-sorted shards given to each client by the shards partition."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Part held out as public test data, where the data set has no test split of its own."""
    pool: PositiveInt = 1
    """Average pooling of images before training: 2 turns 28x28 into 14x14."""
    transform: Literal["none", "scattering", "unit"] = "none"
    """What is done to each record by itself. `scattering`: 81 channels of wavelet moduli at a \
quarter of an image's resolution, fixed, nothing learnt. `unit`: scaled to norm 1."""
    cache: str | None = None
    """Folder in which transformed records are kept from one run to the next."""
    project: PositiveInt | None = None
    """Project the transformed records on so many directions, and scale them to norm 1."""
    directions: Literal["random", "strokes"] = "random"
    """What records are projected on. `strokes`: the principal directions of the scattering \
features of random pen strokes, which the program draws, less their mean: no data is read for \
them."""
    limit: PositiveInt | None = None
    """Use only this many training records, drawn by the seed."""


class ModelSpec(Spec):
    """Which built-in model is trained; a task of one's own brings its own."""

    name: Literal["linear", "mlp", "cnn", "lstm", "transformer"] = "mlp"
    """Built-in architecture. `lstm` and `transformer` read text, the others take numbers."""
    hidden: list[Annotated[int, Field(gt=0, le=1_000_000)]] = [64]
    """Widths of the hidden layers of `mlp`, of the layers of `lstm`, or of the blocks of \
`transformer`, which are all as wide."""
    components: PositiveInt | None = None
    """Project inputs on so many principal components first. They are read from one private sum \
before the first round, which is charged like the others; for unit = "example" under \
`distributed`, `central` or `none`, and `linear` or `mlp`."""
    inputs: PositiveInt | None = None
    """Entries of one input, which must be known before any data are read: required with \
`components`, and with it alone."""
    bias: bool = True
    """Whether the output layer of `linear` and `mlp` has a bias. Where a clip is tight, a bias \
takes up much of it to say which classes a client has."""
    zero_output: bool = False
    """Start with an output layer of zeros: no class is favoured by chance, and none of the noise \
budget is spent on forgetting it."""

    @model_validator(mode="after")
    def _inputs_are_known(self) -> Self:
        if (self.components is None) != (self.inputs is None):
            given, absent = ("inputs", "components") if self.inputs else ("components", "inputs")
            raise ValueError(
                f"model.{given} = {getattr(self, given)} needs model.{absent} beside it, and "
                "without it has to be taken out"
            )
        if self.components is not None and self.inputs is not None:
            if self.components > self.inputs:
                raise ValueError(
                    f"model.components = {self.components} exceeds model.inputs = {self.inputs}: "
                    "lower it"
                )
            if self.name not in ("linear", "mlp"):
                raise ValueError(
                    f"model.components = {self.components} leave no image for model.name = "
                    f'"{self.name}": write model.name=linear or model.name=mlp'
                )
        return self

    @model_validator(mode="after")
    def _sequences_have_layers(self) -> Self:
        if self.name in ("lstm", "transformer") and not self.hidden:
            raise ValueError(
                f'model.hidden = [] leaves model.name = "{self.name}" without a layer: write a '
                "width or more, as model.hidden=[64]"
            )
        return self

    @property
    def public(self) -> int:
        """Entries of the vector of a request that are known and not trained: the components."""
        return (self.components or 0) * (self.inputs or 0)


BUDGET_DELTA = 1e-5
"""Delta of a node's own budget where its policy names none."""


class ClientPolicy(Spec):
    """What a client insists on, from its own node configuration: never from the server."""

    models: list[PrivacyModel] = ["distributed", "local"]
    """Privacy models that this client takes part in."""
    mechanisms: list[MechanismName] | Literal["any"] = registry.proved_names()
    """Noise that this client trusts. Left out is `privunit`: no proof covers its float sampling. \
`any`: every mechanism that is registered here."""
    units: list[Literal["client", "example"]] = ["client", "example"]
    """Units of privacy that this client is content with."""
    min_noise_multiplier: NonNegativeFloat = 0.5
    """Smallest noise multiplier accepted, where noise is added at all (see `models`). All steps \
of a contribution whose noise is inside local training may not cost more than one vector at this \
multiplier: in epsilon at `budget_delta`."""
    max_clip: Scale | None = None
    """Largest clip norm accepted."""
    corruption: Fraction
    """Fraction of the roster that this client assumes to collude with the server."""
    min_cohort: Annotated[int, Field(ge=2, lt=2**63)]
    """Fewest clients, itself included, whose vectors are in a sum with its own."""
    servers: Annotated[list[Literal["malicious", "semi-honest"]], Field(min_length=1)] = [
        "malicious"
    ]
    """Servers that a session must withstand, any of these; `semi-honest` trusts the server to \
follow the protocol."""
    protocols: Annotated[list[Literal["pairwise", "ideal", "none"]], Field(min_length=1)] = [
        "pairwise"
    ]
    """Protocols that this client takes part in: the others show its vector to the server. A node \
of its own takes part in `pairwise` alone, whatever is listed: they are for simulations."""
    tasks: list[str] | Literal["built-in", "any"] = "built-in"
    """Tasks that this client runs: their code runs here. `built-in`: those that ship with \
zerosum."""
    max_vector_length: PositiveInt = 1 << 28
    """Longest vector this client will send."""
    max_contributions: PositiveInt = 1000
    """Contributions, of all runs together, after which this client declines every further \
request."""
    max_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=True)]
    """Largest epsilon that this client spends, of all runs together: its own epsilon_sum, what a \
server that sees masked sums, or a fellow client, learns of it at the guaranteed noise, at \
`budget_delta`. Declined is a request that would exceed it, and any whose cost has no bound: \
without noise, or with noise of a trusted server. The first finite value fixes the Renyi order at \
which costs add up; later ones move the limit at that order. `inf`: only counted."""
    budget_delta: Annotated[float, Field(gt=0, lt=1)] = BUDGET_DELTA
    """Delta of `max_epsilon`, whatever delta a request names."""
    max_openings_per_run: PositiveInt = DEFAULT_OPENINGS
    """Sessions that begin here in one run. 2^-40 is divided by this or `max_openings_per_day`, \
whichever is larger: a session must be so much safer, as `secagg.openings` of the experiment \
makes it."""
    max_openings_per_day: PositiveInt = DEFAULT_OPENINGS
    """Sessions that begin here in a day, of all runs together; a day begins with its first."""
    run_timeout: PositiveFloat = 2_592_000.0
    """Seconds without a new session after which a run is over here: its records are deleted, and \
none of its sessions begins or goes on again."""
    session_timeout: PositiveFloat = 86_400.0
    """Seconds after which the secrets of a session that nobody ended are forgotten."""

    longest_wait: PositiveFloat = 3600.0
    """Seconds for which a message waits while the answer to another is computed; then it is \
declined."""

    @model_validator(mode="after")
    def _budget_admits_something(self) -> Self:
        if math.isfinite(self.max_epsilon):
            fixed_order(self.max_epsilon, self.budget_delta)
        return self

    def trusts(self, mechanism: str) -> bool:
        """Return whether this client takes part under noise of this name."""
        return self.mechanisms == "any" or mechanism in self.mechanisms

    def for_sessions(self) -> Policy:
        """Return the part that is judged by a session alone, before anything is asked."""
        return Policy(
            corruption=self.corruption,
            smallest_cohort=self.min_cohort,
            server_modes=frozenset(map(ServerMode, self.servers)),
            protocols=frozenset(map(Protocol, self.protocols)),
            longest_vector=self.max_vector_length,
            security=self.security,
        )

    @property
    def openings(self) -> Openings:
        """How many sessions begin here."""
        return Openings(self.max_openings_per_run, self.max_openings_per_day, self.run_timeout)

    @property
    def security(self) -> float:
        """The most that secrecy or connectivity may fail with in one of all these sessions."""
        return security_of(max(self.max_openings_per_run, self.max_openings_per_day))
