"""What a client can be asked to do, and what it accepts: the specs that cross the wire.

Every class here is one section of an experiment file. Keys, types, defaults and meanings in
``docs/configuration.md`` are generated from these fields.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from zerosum.secagg import Policy, ServerMode

PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Scale = Annotated[float, Field(gt=0, allow_inf_nan=False), Field(ge=1e-30, le=1e30)]
"""A norm or a range: bounded so that no square of it leaves float64."""
PositiveInt = Annotated[int, Field(gt=0, lt=2**63)]


DEFAULT_NOISE_MULTIPLIER = 2.1


class Spec(BaseModel):
    """A frozen section that refuses keys it does not know."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    def canonical(self) -> bytes:
        """Return the spec as canonical JSON: what enters a request's hash."""
        return self.model_dump_json(by_alias=True).encode()


class TrainSpec(Spec):
    """Local training at one client: plain SGD, for some epochs or some steps."""

    epochs: PositiveInt | None = 5
    """Passes over the client's data. Exclusive with `steps`."""
    steps: PositiveInt | None = None
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
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of epochs and steps")
        return self


class PrivacySpec(Spec):
    """Who is protected, by how much noise, and at which delta it is reported."""

    model: Literal["distributed", "local", "none"] = "distributed"
    """`distributed`: each client adds a share of Skellam noise. `local`: each adds the full \
strength (binned Gaussian). `none`: no noise and no epsilon, written out on purpose."""
    clip: Scale | None = 0.5
    """L2 bound C of one client's update. `"none"`: no clipping, only with model = "none"."""
    noise_multiplier: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Noise of the guaranteed part of a sum, in sensitivities (z); under `local`, noise of each \
contribution. Exclusive with `epsilon`; 2.1 where neither is given."""
    epsilon: PositiveFloat | None = None
    """Find the noise multiplier that meets this epsilon. Exclusive with `noise_multiplier`."""
    epsilon_for: Literal["release", "sum", "local"] = "release"
    """The observer for whom `epsilon` is meant."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """Delta of every reported epsilon, per client."""
    allow_large_delta: bool = False
    """Allow delta >= 1/population, at which one client in the population may be exposed whole."""
    honest_fraction: Annotated[float, Field(gt=0, le=1)] = 0.8
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
    def _noise_is_given(self) -> Self:
        if self.model == "none":
            if self.noise_multiplier or self.epsilon:
                raise ValueError('model = "none" adds no noise: leave noise_multiplier and epsilon')
            return self
        if self.clip is None:
            raise ValueError('clip is required unless model = "none"')
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise ValueError("give exactly one of noise_multiplier and epsilon")
        if self.noise_multiplier == 0:
            raise ValueError('noise_multiplier must be above 0; for no noise write model = "none"')
        return self

    @property
    def private(self) -> bool:
        """Whether any noise is promised."""
        return self.model != "none"


class EncodingSpec(Spec):
    """How a real vector becomes integers in a ring."""

    bits: Annotated[int, Field(ge=2, le=32)] = 16
    """Bits of one coordinate before masking: the range is cut into 2^bits - 2 steps."""
    range: Scale | None = None
    """Largest magnitude of a coordinate. Absent means `privacy.clip` (6 clip / sqrt(d) when \
rotated); required where clipping is off."""
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
    groups: PositiveInt = 1
    """Sessions that a cohort is split into, each with the full noise; their sums are added. A \
group that fails costs only its members, but the server sees each group's sum."""


class DataSpec(Spec):
    """Which records there are, and which client holds which."""

    path: str | None = None
    """File of the task's records: an npz for `mnist`; CSV, Parquet or NPZ for `table`."""
    name: str | None = None
    """Data set on the Hugging Face hub, for task `hf` (needs the extra `hf`)."""
    label: str = "label"
    """Column (or array) that holds the label."""
    features: list[str] | None = None
    """Columns used as inputs. Absent: all numeric columns but the label and the client column."""
    client_column: str | None = None
    """Column that names each record's client, for the natural partition."""
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
    limit: PositiveInt | None = None
    """Use only this many training records, drawn by the seed."""


class ModelSpec(Spec):
    """Which built-in model is trained; a task of one's own brings its own."""

    name: Literal["linear", "mlp", "cnn"] = "mlp"
    """Built-in architecture."""
    hidden: list[Annotated[int, Field(gt=0, le=1_000_000)]] = [64]
    """Widths of the hidden layers of `mlp`."""


class ClientPolicy(Spec):
    """What a client insists on, from its own node configuration: never from the server."""

    models: list[Literal["distributed", "local", "none"]] = ["distributed", "local"]
    """Privacy models that this client takes part in."""
    min_noise_multiplier: NonNegativeFloat = 0.5
    """Smallest noise multiplier accepted, where noise is added at all (see `models`)."""
    max_clip: Scale | None = None
    """Largest clip norm accepted."""
    corruption: Fraction = 0.0
    """Fraction of the roster that this client assumes to collude with the server."""
    min_cohort: PositiveInt = 2
    """Fewest clients, itself included, whose vectors are in a sum with its own."""
    servers: list[Literal["malicious", "semi-honest"]] = ["malicious"]
    """Servers that a session must withstand, any of these; `semi-honest` trusts the server to \
follow the protocol."""
    protocols: list[Literal["pairwise", "ideal", "none"]] = ["pairwise"]
    """Protocols that this client takes part in: the others show its vector to the server."""
    tasks: list[str] | Literal["built-in", "any"] = "built-in"
    """Tasks that this client runs: their code runs here. `built-in`: those that ship with \
zerosum."""
    max_vector_length: PositiveInt = 1 << 28
    """Longest vector this client will send."""
    max_contributions: PositiveInt | None = None
    """Contributions after which this client declines every further request."""

    def for_sessions(self) -> Policy:
        """Return the part that is judged by a session alone, before anything is asked."""
        return Policy(
            corruption=self.corruption,
            server_modes=frozenset(map(ServerMode, self.servers)),
            longest_vector=self.max_vector_length,
        )
