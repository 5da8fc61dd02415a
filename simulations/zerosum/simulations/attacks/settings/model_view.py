"""Define what every attacker of training knows: the model's kind, and how clients train it."""

from dataclasses import dataclass, field

from torch import nn

from zerosum.client.spec import ModelSpec, TrainSpec
from zerosum.simulations.attacks.harness.interface import View
from zerosum.simulations.attacks.settings.task_model import TaskModel, of_unit_inputs
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
    own : TaskModel or None
        Of scenes on a user's task: its model, in place of ``model``, and the scale of inputs.
    """

    model: ModelSpec = field(default_factory=ModelSpec)
    input_shape: tuple[int, ...] = ()
    classes: int = 0
    training: TrainSpec = field(default_factory=TrainSpec)
    own: TaskModel | None = None

    def build(self) -> nn.Module:
        """Return a model of the kind that clients train; its weights are yours to load."""
        if self.own is not None and self.own.key:
            return self.own.build()
        model = make_model(self.model, self.input_shape, self.classes, seed=0)
        return model if self.own is None else of_unit_inputs(model, self.own.lowest, self.own.scale)
