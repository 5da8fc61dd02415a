"""Values to regress on: scaled for training, and undone in what is reported."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.datasets import Collection, Records


@dataclass(frozen=True)
class TargetScale:
    """A trained target t stands for the label ``mean + deviation * t``.

    Parameters
    ----------
    mean, deviation : float
        Of the labels of the public test records, in the label's unit; a deviation of 0 counts
        as 1.
    """

    mean: float
    deviation: float

    @property
    def loss_unit(self) -> float:
        """One squared error of a trained target, in the label's unit squared."""
        return self.deviation**2

    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return each example's absolute error and part of R^2, shape (n,).

        The mean of the first is the mean absolute error, in the label's unit. The mean of the
        second over the public records is R^2: there, trained targets have variance 1.
        """
        error = outputs.squeeze(1) - targets
        return {"mean_absolute_error": error.abs() * self.deviation, "r2": 1 - error.square()}

    def said(self, label: str) -> str:
        """Return in words what the model's output is."""
        return f"the model gives ({label} - {self.mean:.9g}) / {self.deviation:.9g}"


def scaled_targets(collection: Collection) -> tuple[Collection, TargetScale]:
    """Scale labels to mean 0 and deviation 1 over the public test records.

    A step of SGD moves an output by about the learning rate times the error. Labels of 200,000
    would need steps that diverge, or more rounds than there are. The constants come from the public
    records alone, as those of the inputs do, so that they cost no privacy.

    Parameters
    ----------
    collection : Collection
        Targets are floating-point labels, shape (n,).

    Returns
    -------
    collection : Collection
        Targets are float32.
    scale : TargetScale
        What undoes it.

    Raises
    ------
    DataError
        If a scaled label leaves float32.
    """
    public = collection.test.targets.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(public.std()) if public.min() < public.max() else 1.0
        scale = TargetScale(float(public.mean()), deviation)
        parts = [_scaled(part, scale) for part in (collection.train, collection.test)]
    if not all(np.isfinite(part.targets).all() for part in parts) or not np.isfinite(deviation**2):
        raise DataError("data.label: labels reach beyond float32 once scaled; drop the outliers")
    return replace(collection, train=parts[0], test=parts[1]), scale


def _scaled(records: Records, scale: TargetScale) -> Records:
    targets = (records.targets.astype(np.float64) - scale.mean) / scale.deviation
    return replace(records, targets=targets.astype(np.float32))
