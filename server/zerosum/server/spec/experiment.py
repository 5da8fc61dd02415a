"""Define the keys of a whole experiment, and its sections."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_serializer,
    model_validator,
)

from zerosum.client.given_task import named_or_given
from zerosum.client.spec import (
    DEVICE,
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PositiveInt,
    PrivacySpec,
    SecAggSpec,
    Spec,
    TrainSpec,
)
from zerosum.client.spec.schedule import (
    check_length,
    is_scheduled,
)
from zerosum.client.spec.section import without_usual
from zerosum.server.spec.aggregation import ServerSpec
from zerosum.server.spec.deployment import DeploymentSpec, FaultSpec
from zerosum.server.spec.evaluation import EvaluationSpec
from zerosum.server.spec.sampling import SamplingSpec

MOST_STEPS = 1_000_000
"""Rounds of a run, and steps of DP-SGD at one client: what can be planned in seconds."""

LoggerName = Literal["tensorboard", "wandb", "mlflow"]

_USUAL: Mapping[str, object] = {"log": [], "baselines": False}
"""Keys of an experiment that earlier versions did not know, and what they are where nobody asks."""


class Experiment(Spec):
    """One whole experiment, as written in a TOML file."""

    name: Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^/\\\x00-\x1f]*$")] = (
        "experiment"
    )
    """Name shown in the report and given to the run folder: no slashes. A file without one is
called as the file is."""
    task: Annotated[str, WrapValidator(named_or_given)] = "mnist5k"
    """Built-in task, or `module:object` of your own; from Python the task itself too."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of everything reproducible."""
    rounds: Annotated[int, Field(gt=0, le=MOST_STEPS)] = 40
    """Rounds to run: at most a million."""
    engine: Literal["auto", "serial", "processes", "ray"] = "auto"
    """Where simulated clients are computed. `processes`: in worker processes. `serial`: in this \
one. `auto`: in processes, where there are cores for two and this process can fork. `ray`: on the \
cluster that RAY_ADDRESS names, or this machine (needs the extra `ray`). The result is the same, \
bit for bit, where processors are alike."""
    workers: PositiveInt | Literal["auto"] = "auto"
    """Worker processes, of one thread each. `auto`: as many as there are cores for this process, \
or in Ray's cluster."""
    device: str = "cpu"
    """Where clients are trained and models tested: `cpu`, `cuda` (the first GPU) or `cuda:N`. A \
GPU trains clients in groups, for this process alone: `engine` is serial, `workers` 1. Results are \
a CPU's to float rounding, so a run is resumed on the device that it began on. What comes after \
training (clipping, noise, sums, the server's step) is done on the CPU."""
    trainer: Literal["auto", "fast", "general", "batched"] = "auto"
    """How clients are trained. `fast`: by hand-derived rules, models of common layers on a CPU. \
`general`: any model by autograd, one client after another. `batched`: clients in groups, as many \
as fit into memory, in one process; where one fails, its group is trained one by one in that \
round. `auto`: fast on a CPU, batched on a GPU. What fast and batched \
cannot train they leave to general, and the summary says so. All agree to float rounding, so this \
too is fixed for a run."""
    log: list[LoggerName] = Field(default_factory=list)
    """Where else each round's public figures are written, as `["tensorboard", "wandb"]`; each \
needs the extra of its name. docs/loggers.md says what goes where."""
    baselines: bool = False
    """Also train, after the run, single clients on their own data alone, and one model on all \
records together without privacy, to compare accuracies with: docs/evaluation.md. Simulations \
only; no epsilon covers these figures."""
    data: DataSpec = DataSpec()
    model: ModelSpec = ModelSpec()
    training: TrainSpec = TrainSpec()
    privacy: PrivacySpec = PrivacySpec()
    encoding: EncodingSpec = EncodingSpec()
    secagg: SecAggSpec = SecAggSpec()
    sampling: SamplingSpec = SamplingSpec()
    server: ServerSpec = ServerSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    faults: FaultSpec = FaultSpec()
    deployment: DeploymentSpec = DeploymentSpec()

    @model_serializer(mode="wrap")
    def _usual_goes_without_saying(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep the digest of a configuration without them, by which old runs go on."""
        return without_usual(write(self), _USUAL)

    @field_validator("log", mode="before")
    @classmethod
    def _one_logger_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("log")
    @classmethod
    def _loggers_are_named_once(cls, value: list[LoggerName]) -> list[LoggerName]:
        return list(dict.fromkeys(value))

    @field_validator("trainer", mode="before")
    @classmethod
    def _lean_is_called_fast(cls, value: object) -> object:
        if value == "lean":
            raise ValueError('this trainer is called "fast" now: write trainer=fast')
        return value

    @field_validator("device")
    @classmethod
    def _device_has_a_form(cls, value: str) -> str:
        if not DEVICE.fullmatch(value):
            raise ValueError('write "cpu", "cuda" or "cuda:N", N being the number of a GPU')
        return value

    @model_validator(mode="after")
    def _rules_are_for_a_cpu(self) -> Self:
        if self.trainer == "fast" and self.device != "cpu":
            raise ValueError(
                f'trainer = "fast" is for device = "cpu", and it is "{self.device}": write '
                "trainer=auto, or device=cpu"
            )
        return self

    @model_validator(mode="after")
    def _schedules_end_in_time(self) -> Self:
        check_length("training", self.training, self.rounds)
        check_length("server", self.server, self.rounds)
        return self

    @model_validator(mode="after")
    def _examples_have_plain_steps(self) -> Self:
        """Refuse for single examples what their trainer does not do."""
        if self.privacy.by_example and (asked := self.training.beyond_sgd):
            raise ValueError(
                f'{asked} is for privacy.unit = "client", and it is "example", which trains by '
                "SGD: take it out"
            )
        return self

    @model_validator(mode="after")
    def _precision_is_the_fast_trainers(self) -> Self:
        """Refuse bf16 where something else would train, which knows float32 alone."""
        others = {
            f'device = "{self.device}"': self.device != "cpu",
            f'trainer = "{self.trainer}"': self.trainer not in ("auto", "fast"),
            'privacy.unit = "example"': self.privacy.by_example,
            'training.batchnorm = "average"': self.training.batchnorm == "average",
            'server.rule = "fltrust"': self.server.rule == "fltrust",
            self.training.past_fast: bool(self.training.past_fast),
        }
        if self.training.precision == "bf16" and any(others.values()):
            named = next(key for key, given in others.items() if given)
            raise ValueError(
                f'training.precision = "bf16" is not for {named}, where float32 or float64 are '
                "computed: write training.precision=float32"
            )
        return self

    @model_validator(mode="after")
    def _weights_are_public(self) -> Self:
        if self.training.weighting == "examples" and self.privacy.private:
            raise ValueError(
                'training.weighting = "examples" needs privacy.model = "none": weights are uniform '
                "under DP, where a count is as private as a record; write "
                "training.weighting=uniform"
            )
        if self.privacy.clip is None and self.encoding.range is None:
            raise ValueError(
                'encoding.range is required where privacy.clip = "none": write the largest '
                "coordinate of an update, as encoding.range=1.0"
            )
        self._check_weights_fit()
        return self

    def _check_weights_fit(self) -> None:
        """Refuse a range that cuts weights: one coordinate of many that scales the whole mean."""
        largest = min(1.0, self.privacy.clip or 1.0)
        if self.training.weighting == "uniform" or self.encoding.rotate:
            return
        if (self.encoding.range or 1.0) < largest:
            raise ValueError(
                f"encoding.range = {self.encoding.range} would cut weights: "
                'training.weighting = "examples" sends a weight of up to 1 beside the update: '
                "write encoding.range=1.0 or more"
            )

    @model_validator(mode="after")
    def _statistics_are_averaged(self) -> Self:
        privacy, rule = self.privacy, self.server.rule
        if self.training.batchnorm == "refuse":
            return self
        if privacy.private or privacy.by_example:
            raise ValueError(
                'training.batchnorm = "average" needs privacy.model = "none" and privacy.unit = '
                '"client": running statistics would be a second release of private data; use '
                "GroupNorm or LayerNorm, or freeze the layers"
            )
        if privacy.clip is not None:
            raise ValueError(
                f'training.batchnorm = "average" needs privacy.clip = "none": privacy.clip = '
                f"{privacy.clip:g} bounds weights and statistics together, and these may be of "
                "any scale"
            )
        if rule not in ("mean", "median", "trimmed-mean"):
            raise ValueError(
                f'training.batchnorm = "average" needs server.rule = "mean", "median" or '
                f'"trimmed-mean", and not "{rule}": distances and norms of whole updates would be '
                "those of the statistics, which may be of any scale"
            )
        return self

    @model_validator(mode="after")
    def _examples_are_drawn(self) -> Self:
        privacy = self.privacy
        if not privacy.by_example:
            return self
        if self.encoding.range is None:
            raise ValueError(
                'encoding.range is required under privacy.unit = "example": write the largest '
                "coordinate of what a client sends, a sum of gradients or a whole update, as "
                "encoding.range=50.0"
            )
        if self.training.weighting == "examples":
            raise ValueError(
                'training.weighting = "examples" is for privacy.unit = "client", and it is '
                '"example": write training.weighting=uniform'
            )
        if privacy.noise_inside and self.training.steps is None:
            raise ValueError(
                'training.steps is required where privacy.unit = "example" and privacy.model = '
                '"local": write the steps of DP-SGD that a contribution takes, as training.steps=10'
            )
        if privacy.noise_inside and self.rounds * (self.training.steps or 1) > MOST_STEPS:
            raise ValueError(
                f"training.steps = {self.training.steps} in each of rounds = {self.rounds}: at "
                f"most {MOST_STEPS:,} steps of DP-SGD are accounted"
            )
        if privacy.sums_gradients and self.sampling.kind != "everyone":
            raise ValueError(
                f'sampling.kind = "{self.sampling.kind}" is not for privacy.unit = "example": '
                "clients draw examples, and nobody draws clients; write sampling.kind=everyone"
            )
        return self

    @model_validator(mode="after")
    def _components_are_private(self) -> Self:
        privacy, wanted = self.privacy, self.model.components is not None
        if wanted and (not privacy.by_example or privacy.model == "local"):
            raise ValueError(
                f'model.components = {self.model.components} needs privacy.unit = "example" and '
                'another privacy.model than "local": they are read from a sum over all records'
            )
        if (wanted and privacy.private) != (privacy.components_noise is not None):
            noise = privacy.components_noise
            raise ValueError(
                f"model.components = {self.model.components} needs privacy.components_noise: write "
                "it, as privacy.components_noise=2.1"
                if noise is None
                else f"privacy.components_noise = {noise:g} is for model.components under privacy, "
                "and nothing else: take it out"
            )
        return self

    @model_validator(mode="after")
    def _rule_sees_contributions(self) -> Self:
        rule, privacy = self.server.rule, self.privacy
        if rule == "mean":
            return self
        if self.secagg.protocol != "none":
            hidden = {"pairwise": "masks hide", "ideal": "a trusted sum hides"}
            raise ValueError(
                f'server.rule = "{rule}" needs secagg.protocol = "none": under '
                f'"{self.secagg.protocol}" {hidden[self.secagg.protocol]} the contributions, and '
                "a malicious client is bounded by clipping alone (privacy.clip); write "
                "secagg.protocol=none, or server.rule=mean"
            )
        if privacy.model in ("distributed", "central"):
            raise ValueError(
                f'server.rule = "{rule}" needs privacy.model = "local" or "none": under '
                f'"{privacy.model}" the noise that is accounted for is in the sum, not in each '
                "contribution; write privacy.model=local, or server.rule=mean"
            )
        if privacy.sums_gradients:
            raise ValueError(
                f'server.rule = "{rule}" is for updates: under privacy.unit = "example" clients '
                "send sums over lots of unequal sizes; write server.rule=mean"
            )
        if self.training.weighting == "examples":
            raise ValueError(
                f'server.rule = "{rule}" counts each client once: write training.weighting=uniform'
            )
        return self

    @model_validator(mode="after")
    def _noise_fits(self) -> Self:
        privacy, encoding, secagg = self.privacy, self.encoding, self.secagg
        if privacy.norm == "l1" and encoding.rotate:
            raise ValueError(
                f'privacy.mechanism = "{privacy.noise}" bounds an L1 norm, which no rotation '
                "keeps: write encoding.rotate=false (it is true)"
            )
        if privacy.adaptive and encoding.range is not None:
            raise ValueError(
                'privacy.clipping = "adaptive" moves the range with the clip: take out '
                f"encoding.range = {encoding.range:g}, or write privacy.clipping=flat"
            )
        masked = secagg.protocol == "pairwise"
        if privacy.model == "central" and masked and secagg.server == "malicious":
            raise ValueError(
                'privacy.model = "central" trusts the server with the noise, and secagg.server = '
                '"malicious" does not: write secagg.server=semi-honest, or secagg.protocol=ideal'
            )
        return self

    @model_validator(mode="after")
    def _evaluation_is_accounted(self) -> Self:
        evaluation = self.evaluation
        wanted = evaluation.federated_every > 0 and self.privacy.private
        if wanted and not evaluation.federated_noise_multiplier:
            raise ValueError(
                f"evaluation.federated_every = {evaluation.federated_every} needs "
                "evaluation.federated_noise_multiplier: under privacy.model = "
                f'"{self.privacy.model}" a federated evaluation is a private sum like any other; '
                "write evaluation.federated_noise_multiplier=2.1, or evaluation.federated_every=0"
            )
        return self

    @property
    def scheduled(self) -> dict[Literal["training", "server"], TrainSpec | ServerSpec]:
        """Return the sections whose learning rate changes over the rounds, by name."""
        sections: dict[Literal["training", "server"], TrainSpec | ServerSpec]
        sections = {"training": self.training, "server": self.server}
        return {name: section for name, section in sections.items() if is_scheduled(section)}
