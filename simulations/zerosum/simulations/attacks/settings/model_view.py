"""Define what every attacker of training knows: the model's kind, and how clients train it."""

from dataclasses import dataclass, field

from torch import nn

from zerosum.client.spec import ModelSpec, TrainSpec
from zerosum.simulations.attacks.harness.interface import View
from zerosum.simulations.data.models import make_model


@dataclass(frozen=True)
class LearningView(View):
    """A view of training: settings add what else is received.

    Attributes
    ----------
    model : ModelSpec
    input_shape : tuple of int
        Of one record.
    classes : int
    training : TrainSpec
        Local steps, batch size, learning rate.
    """

    model: ModelSpec = field(default_factory=ModelSpec)
    input_shape: tuple[int, ...] = ()
    classes: int = 0
    training: TrainSpec = field(default_factory=TrainSpec)

    def build(self) -> nn.Module:
        """Return a model of the kind that clients train; its weights are yours to load."""
        return make_model(self.model, self.input_shape, self.classes, seed=0)
