"""Define section `evaluation`: tests of the model, and the best one."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from zerosum.client.spec import (
    PositiveFloat,
    PositiveInt,
    Scale,
    Spec,
)
from zerosum.client.spec.section import without_usual
from zerosum.client.training.metric_names import ALLOWED, direction, is_metric_name


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
