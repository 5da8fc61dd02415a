"""Define ``[training]``: local training at one client."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from zerosum.client.spec.section import Fraction, NonNegativeFloat, PositiveInt, Spec

Precision = Literal["float32", "bf16"]
"""Numbers that products are computed in while a client trains."""


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
    def _float32_goes_without_saying(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the usual precision out.

        A request without the key has the bytes and the digest that it had before there was one, so
        that nodes of both kinds answer it; one that asks for more is refused by those that know no
        such key, which would train in float32.
        """
        values: dict[str, Any] = write(self)
        return {k: v for k, v in values.items() if (k, v) != ("precision", "float32")}

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
