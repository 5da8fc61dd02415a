"""Define section `server`: the rule of aggregation and the optimizer of averages."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from zerosum.client.spec import (
    PositiveInt,
    Scale,
    Spec,
)
from zerosum.client.spec.schedule import (
    SCHEDULE_DEFAULTS,
    Decay,
    DecayRounds,
    Factor,
    Rounds,
    ScheduleName,
    check_schedule,
    factor_at,
    is_scheduled,
)
from zerosum.client.spec.section import without_usual

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
