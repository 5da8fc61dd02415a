"""Define ``[training]``: local training at one client."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

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
from zerosum.client.spec.section import (
    Fraction,
    NonNegativeFloat,
    PositiveInt,
    Spec,
    without_usual,
)

APP_TASK: Final = "flower-app"
"""Stands for the task where somebody else's Flower app trains."""

Precision = Literal["float32", "bf16"]
"""Numbers that products are computed in while a client trains."""


_USUAL: Final[Mapping[str, object]] = {
    "precision": "float32",
    "optimizer": "SGD",
    "options": {},
    "micro_batch": None,
    "normalise": "none",
    "reference_steps": None,
    **SCHEDULE_DEFAULTS,
}
"""Keys that a request goes without, as it did before there were any."""


class TrainSpec(Spec):
    """Local training at one client: some epochs or some steps of an optimizer."""

    epochs: Annotated[int, Field(gt=0, le=1_000_000)] | None = 5
    """Passes over the client's data. Exclusive with `steps`."""
    steps: Annotated[int, Field(gt=0, le=1_000_000)] | None = None
    """Optimizer steps, cycling through the data. Exclusive with `epochs`."""
    batch_size: PositiveInt | None = 10
    """Examples in a step; the last batch of an epoch may be smaller. `"all"`: one full batch."""
    lr: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    """Learning rate of the local optimizer."""
    momentum: Fraction = 0.0
    """Momentum of local SGD; its buffer starts at zero in every round."""
    weight_decay: NonNegativeFloat = 0.0
    """L2 penalty of local SGD, added to the gradient as torch.optim.SGD does."""
    proximal: NonNegativeFloat = 0.0
    """FedProx's mu: adds mu (w - w_global) to the gradient (Li et al. 2020)."""
    optimizer: str = "SGD"
    """Class name in `torch.optim`, as `Adam` or `AdamW`; what it remembers starts anew in every \
round. All but `SGD` are trained by trainer = "general", and never under privacy.unit = \
"example"."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of another optimizer than `SGD`, as `betas = [0.9, 0.99]`."""
    micro_batch: PositiveInt | None = None
    """Examples whose gradients are computed at once: those of the parts of a batch are added, \
which takes less memory and gives the same step to float rounding. By trainer = "general". Absent: \
a whole batch."""
    normalise: Literal["none", "steps"] = "none"
    """`steps`: an update is multiplied by `reference_steps` over the client's own number of steps \
before it is clipped, so that clients with more examples do not pull the model to themselves \
(FedNova; Wang et al. 2020). It is meant for weighting = "examples": with uniform weights it costs \
accuracy on common records. For `epochs` of SGD without momentum or proximal term."""
    reference_steps: PositiveInt | None = None
    """Steps that an update is scaled to; required by normalise = "steps"."""
    schedule: ScheduleName = "constant"
    """How `lr` falls over the rounds, after the warm-up. `cosine` and `linear`: to `lr` times \
`final` at the end of the run, whose `rounds` then cannot grow. `step`: times `decay` at each of \
`decay_rounds`. Clients are sent the rate that is in force."""
    warmup_rounds: Rounds = 0
    """First rounds, in which `lr` rises in equal steps to its whole."""
    decay_rounds: DecayRounds = Field(default_factory=list)
    """Rounds after which `step` multiplies by `decay`, counted from the end of the warm-up."""
    decay: Decay = 0.1
    """Factor of each decay of `step`."""
    final: Factor = 0.0
    """Part of `lr` that `cosine` and `linear` would reach in the round after the last."""
    batchnorm: Literal["refuse", "average"] = "refuse"
    """What becomes of running statistics, as BatchNorm keeps them. `refuse`: a model whose \
statistics move is refused, one whose layers are frozen is not. `average`: they travel and are \
averaged like weights, past the server's optimizer; only with privacy.model = "none" and \
privacy.clip = "none"."""
    precision: Precision = "float32"
    """Numbers of products and convolutions while a client trains. `bf16` (experimental): inputs, \
activations and copies of the weights are rounded to bfloat16 in all layers but the last; sums, \
weights and updates stay float32. Refused unless trainer = "fast" can train the model on a CPU \
with native bfloat16 products, here and on every node; never under privacy.unit = "example"."""

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

    @model_serializer(mode="wrap")
    def _usual_goes_without_saying(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_usual(write(self), _USUAL)

    @model_validator(mode="after")
    def _schedule_is_whole(self) -> Self:
        check_schedule("training", self)
        return self

    @model_validator(mode="after")
    def _options_have_their_optimizer(self) -> Self:
        """Refuse SGD's own keys for others, and the other way round."""
        if self.optimizer == "SGD" and self.options:
            raise ValueError(
                f"training.options = {self.options} is for other optimizers: SGD has the keys "
                "training.momentum and training.weight_decay"
            )
        for name in ("momentum", "weight_decay"):
            if self.optimizer != "SGD" and getattr(self, name):
                raise ValueError(
                    f"training.{name} = {getattr(self, name):g} is for training.optimizer = "
                    f'"SGD", and it is "{self.optimizer}": take it out; what torch.optim.'
                    f"{self.optimizer} takes stands in training.options"
                )
        if self.micro_batch and self.batchnorm == "average":
            raise ValueError(
                f"training.micro_batch = {self.micro_batch} is not for training.batchnorm = "
                '"average": statistics would be those of parts of a batch; take it out'
            )
        return self

    @model_validator(mode="after")
    def _steps_are_comparable(self) -> Self:
        """Refuse to normalise what is no sum of as many equal steps: Wang et al. 2020, section 4.

        With momentum, a proximal term or another optimizer the number to divide by is not that of
        the steps.
        """
        if (self.normalise == "steps") != (self.reference_steps is not None):
            raise ValueError(
                'training.normalise = "steps" needs training.reference_steps: write the steps of a '
                "usual client, as training.reference_steps=50"
                if self.reference_steps is None
                else f"training.reference_steps = {self.reference_steps} is for "
                'training.normalise = "steps": take it out'
            )
        others = {
            f"training.steps = {self.steps}, which all clients take": self.steps is not None,
            f'training.optimizer = "{self.optimizer}"': self.optimizer != "SGD",
            f"training.momentum = {self.momentum:g}": self.momentum > 0,
            f"training.proximal = {self.proximal:g}": self.proximal > 0,
            'training.batchnorm = "average"': self.batchnorm == "average",
        }
        if self.normalise == "steps" and any(others.values()):
            named = next(key for key, given in others.items() if given)
            raise ValueError(
                f'training.normalise = "steps" is not for {named}: it is for training.epochs of '
                "SGD without momentum; write training.normalise=none"
            )
        return self

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

    @property
    def past_fast(self) -> str:
        """Return the key that only the general trainer follows; empty where there is none."""
        if self.optimizer != "SGD":
            return f'training.optimizer = "{self.optimizer}"'
        return f"training.micro_batch = {self.micro_batch}" if self.micro_batch else ""

    @property
    def beyond_sgd(self) -> str:
        """Return the key that training by single examples does not know; empty of none."""
        return self.past_fast or ('training.normalise = "steps"' * (self.normalise == "steps"))

    def lr_at(self, round: int, rounds: int) -> float:
        """Return the learning rate in force: ``lr`` times :func:`~.schedule.factor_at`.

        Parameters
        ----------
        round : int
            From 1 on.
        rounds : int
            Of the whole run.

        Returns
        -------
        float
            Above 0.
        """
        return self.lr * factor_at(self, round, rounds)

    def at(self, round: int, rounds: int) -> Self:
        """Return the section as a round's request carries it: the rate in force, no schedule.

        Parameters
        ----------
        round : int
            From 1 on.
        rounds : int
            Of the whole run.

        Returns
        -------
        TrainSpec
            The same where nothing is scheduled.
        """
        if not is_scheduled(self):
            return self
        update = {"lr": self.lr_at(round, rounds), **SCHEDULE_DEFAULTS, "decay_rounds": []}
        return self.model_copy(update=update)
