"""Keys that the server decides: sampling, optimization, evaluation; and the whole experiment."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
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
    Fraction,
    ModelSpec,
    PositiveFloat,
    PositiveInt,
    PrivacySpec,
    Scale,
    SecAggSpec,
    Spec,
    TrainSpec,
)
from zerosum.client.spec.schedule import (
    SCHEDULE_DEFAULTS,
    Decay,
    DecayRounds,
    Factor,
    Rounds,
    ScheduleName,
    check_length,
    check_schedule,
    factor_at,
    is_scheduled,
)
from zerosum.client.spec.section import without_usual
from zerosum.client.training.metric_names import ALLOWED, direction, is_metric_name
from zerosum.secagg.stages import Stage

MOST_STEPS = 1_000_000
"""Rounds of a run, and steps of DP-SGD at one client: what can be planned in seconds."""


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


RULE_KEYS: Mapping[str, tuple[str, ...]] = {
    "rule_malicious": ("trimmed-mean", "krum", "multi-krum", "bulyan"),
    "rule_selected": ("multi-krum",),
    "rule_bound": ("norm-bound",),
    "rule_examples": ("fltrust",),
}
"""Keys of section `server` that say how a rule works, and the rules that take each."""

_OPTIONAL = "rule_selected"
"""The one that no rule requires."""


class ServerSpec(Spec):
    """Aggregation of a round's contributions, and the optimizer of their average."""

    optimizer: str = "SGD"
    """Class name in `torch.optim`. FedAvg is SGD with lr = 1, FedAdam is Adam."""
    lr: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Server learning rate."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the optimizer, as `momentum = 0.9` or `betas = [0.9, 0.99]`."""
    schedule: ScheduleName = "constant"
    """How `server.lr` falls over the rounds: as `training.schedule`, and with the keys below as \
there. Not for `ASGD` and `Rprop`, whose steps follow their own state."""
    warmup_rounds: Rounds = 0
    """First rounds, in which `server.lr` rises in equal steps to its whole."""
    decay_rounds: DecayRounds = Field(default_factory=list)
    """Rounds after which `step` multiplies by `decay`, counted from the end of the warm-up."""
    decay: Decay = 0.1
    """Factor of each decay of `step`."""
    final: Factor = 0.0
    """Part of `server.lr` that `cosine` and `linear` would reach in the round after the last."""
    rule: Literal[
        "mean",
        "median",
        "trimmed-mean",
        "krum",
        "multi-krum",
        "bulyan",
        "geometric-median",
        "fltrust",
        "norm-bound",
    ] = "mean"
    """How contributions become the average; all but the first need to see each one, and so \
`secagg.protocol = "none"`. `mean`: the sum, divided. `median`: of each coordinate. \
`trimmed-mean`: of each coordinate, without its f smallest and f largest. `krum`: the \
contribution nearest to its neighbours. `multi-krum`: the mean of the best by Krum's score. \
`bulyan`: n - 2f by Krum, then the middle of each coordinate. `geometric-median`: the point of \
least total distance (RFA). `fltrust`: scaled and weighed by likeness to the server's own update. \
`norm-bound`: the mean of contributions scaled down to a norm."""
    rule_malicious: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Contributions f of a round that may be malicious: required by `trimmed-mean`, which needs \
2f + 1 contributions, `krum` and `multi-krum` (2f + 3) and `bulyan` (4f + 3). A round with fewer \
is abandoned."""
    rule_selected: PositiveInt | None = None
    """Contributions that `multi-krum` averages; a round needs f more. Absent: all but f."""
    rule_bound: Scale | None = None
    """L2 norm that `norm-bound` scales each contribution down to; required by it."""
    rule_examples: PositiveInt | None = None
    """Root records that the server trains its own update on, as a client would: required by \
`fltrust`. They are drawn by the seed from the task's public test data, and not tested on."""

    @model_serializer(mode="wrap")
    def _usual_goes_without_saying(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep the digest of a configuration without a schedule, by which old runs go on."""
        return without_usual(write(self), SCHEDULE_DEFAULTS)

    @model_validator(mode="after")
    def _schedule_is_whole(self) -> Self:
        check_schedule("server", self)
        if is_scheduled(self) and self.optimizer in ("ASGD", "Rprop"):
            raise ValueError(
                f'server.optimizer = "{self.optimizer}" takes its steps from its own state, past '
                f'server.schedule = "{self.schedule}" and server.warmup_rounds = '
                f"{self.warmup_rounds}: leave server.lr constant, or take another optimizer"
            )
        return self

    @model_validator(mode="after")
    def _rule_has_what_it_takes(self) -> Self:
        for name, takers in RULE_KEYS.items():
            if self.rule in takers and name != _OPTIONAL and getattr(self, name) is None:
                raise ValueError(
                    f'server.rule = "{self.rule}" needs server.{name}: give it, or write '
                    "server.rule=mean"
                )
        for name, takers in RULE_KEYS.items():
            if getattr(self, name) is not None and self.rule not in takers:
                listed = ", ".join(f'"{rule}"' for rule in takers)
                raise ValueError(
                    f"server.{name} = {getattr(self, name):g} is for {listed}: take it out under "
                    f'server.rule = "{self.rule}"'
                )
        return self

    def lr_at(self, round: int, rounds: int) -> float:
        """Return the server's learning rate in force.

        Parameters
        ----------
        round : int
            From 1 on.
        rounds : int
            Of the whole run.

        Returns
        -------
        float
            ``lr`` times :func:`~zerosum.client.spec.schedule.factor_at`.
        """
        return self.lr * factor_at(self, round, rounds)

    @property
    def rule_settings(self) -> str:
        """Return the rule's settings, as ``rule_malicious = 3``; empty where it takes none."""
        given = {name: getattr(self, name) for name in RULE_KEYS}
        return ", ".join(f"{k} = {v:g}" for k, v in given.items() if v is not None)


def _is_free(name: str) -> str:
    if not is_metric_name(name):
        raise ValueError(f"name a metric of the task, {ALLOWED}")
    return name


MetricName = Annotated[str, AfterValidator(_is_free)]


_BEST_DEFAULTS: Mapping[str, Any] = {
    "best": None,
    "patience": None,
    "min_delta": 0.0,
    "mode": None,
}
"""The keys about the best model, and what a run has that keeps none."""


class EvaluationSpec(Spec):
    """Tests of the model: in which rounds, on which data."""

    every: PositiveInt = 1
    """Rounds between tests on public test data; the last planned round is always tested."""
    batch_size: PositiveInt = 1000
    """Examples in a test batch."""
    federated_every: Annotated[int, Field(ge=0)] = 0
    """Rounds between evaluations on the clients' own data, each a private sum too; 0 is never."""
    federated_noise_multiplier: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Noise of a federated evaluation, in sensitivities; required under DP."""
    federated_max_loss: PositiveFloat = 10.0
    """A client's mean loss is cut to this before it is summed under DP."""
    federated_metrics: dict[MetricName, Scale] | None = None
    """The task's metrics that a federated evaluation sums beside the loss, each with the largest \
magnitude that a client's mean is cut to under DP, as `{ accuracy = 1.0 }`; `{}`: none. Absent: \
those that the task has, under DP accuracy alone, whose magnitude is known."""
    best: str | None = None
    """Metric on public test data, as `accuracy` or `loss`, by which the best model of the run is \
kept as `best.safetensors`. No `federated_` one: those are of other rounds, and noised under DP. \
Absent: the last model alone."""
    patience: PositiveInt | None = None
    """Completed rounds without improvement of `best` after which the run ends, at the next test. \
Under DP the run is charged for all planned rounds all the same. Absent: never."""
    min_delta: Annotated[float, Field(ge=0, le=1e30)] = 0.0
    """Improvement of `best` that `patience` does not count as one, and all below it."""
    mode: Literal["max", "min"] | None = None
    """Whether the largest or smallest value of `best` is the best one. Absent: as its name says, \
`loss` and `error` being small, `accuracy` and `auc` large."""

    @model_serializer(mode="wrap")
    def _usual_goes_without_saying(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep the digest of a configuration that keeps no best model, by which old runs go on."""
        return without_usual(write(self), _BEST_DEFAULTS)

    @model_validator(mode="after")
    def _best_is_of_public_data(self) -> Self:
        if self.best is None:
            for name, usual in _BEST_DEFAULTS.items():
                if (value := getattr(self, name)) != usual:
                    raise ValueError(
                        f"evaluation.{name} = {value} needs evaluation.best, the metric that it "
                        "is about: write it, as evaluation.best=accuracy"
                    )
            return self
        if self.best.startswith("federated_"):
            raise ValueError(
                f'evaluation.best = "{self.best}" is a figure of the clients\' own data, of some '
                "rounds only and noised under DP: name a metric on public test data, as "
                "evaluation.best=accuracy"
            )
        if self.best != "loss" and not is_metric_name(self.best):
            raise ValueError(
                f'evaluation.best = "{self.best}" is no name of a metric: write loss, or a metric '
                f"of the task, {ALLOWED}"
            )
        return self

    @property
    def without_best(self) -> Self:
        """Return the section without the keys about the best model."""
        return self.model_copy(update=dict(_BEST_DEFAULTS))

    @property
    def largest_is_best(self) -> bool:
        """Return whether large values of ``best`` are good ones.

        Raises
        ------
        ValueError
            If neither ``mode`` nor the name says so.
        """
        mode = self.mode or direction(self.best or "")
        if mode is None:
            raise ValueError(
                f'evaluation.best = "{self.best}": its name does not say whether large or small '
                "values are good: write evaluation.mode=max or evaluation.mode=min"
            )
        return mode == "max"


class FaultSpec(Spec):
    """Clients that vanish on purpose: probability at each stage. Simulations only."""

    advertise: Fraction = 0.0
    """Never answers the session's first message."""
    share: Fraction = 0.0
    """Vanishes before sending its shares."""
    contribute: Fraction = 0.0
    """Vanishes before sending its masked vector."""
    confirm: Fraction = 0.0
    """Vanishes before it confirms who survived; sessions of a malicious server only."""
    unmask: Fraction = 0.0
    """Vanishes before it releases its shares: its contribution counts."""


class DeploymentSpec(Spec):
    """Time limits of a deployed server. Deployments only."""

    min_nodes: PositiveInt = 2
    """Nodes to wait for before the first round; with a roster, all of its clients are waited \
for."""
    start_timeout: PositiveFloat = 600.0
    """Seconds to wait for them, before the run ends with an error that names who is missing."""
    stage_timeout: PositiveFloat = 60.0
    """Seconds to wait for the answers of a protocol stage."""
    train_timeout: PositiveFloat = 600.0
    """Seconds to wait for the answers of the stage that trains."""
    timeouts: dict[Annotated[Stage, Field(strict=False)], PositiveFloat] = Field(
        default_factory=dict
    )
    """Seconds to wait at single stages, as `confirm = 20.0`, in place of the two above."""
    pipeline: bool = True
    """Send the keys and shares of a round along with the messages of the round before: two \
exchanges a round instead of four, or three instead of five against a malicious server."""
    roster: str | None = None
    """File of the signed roster, as every node has it; required against a malicious server."""
    authority: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    """Public key of who signed the roster, 64 hexadecimal digits."""
    left_out: str | None = None
    """File of clients that are not asked, a JSON line for each. Who is proved to have given or \
dealt wrong shares is added; delete a line, and the client is asked again from the next start on. \
One file for all runs of a roster keeps a liar out of all. Default: `left-out.jsonl` in the run \
folder, for this run alone."""

    def seconds(self, stage: str) -> float:
        """Return how long the answers of a stage are waited for."""
        usual = self.train_timeout if stage == Stage.CONTRIBUTE else self.stage_timeout
        return self.timeouts.get(Stage(stage), usual)


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
                "raise it to 1.0 or more"
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
