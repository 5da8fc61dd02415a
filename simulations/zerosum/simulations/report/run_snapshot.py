"""Keep for the report what the server saw: one masked vector, one opened sum."""

import io

import numpy as np
import torch

from zerosum.client.task import Task
from zerosum.client.training.default_metrics import why_unscored
from zerosum.client.training.examples import as_examples
from zerosum.client.training.seeded_task import public_records
from zerosum.client.training.torch_seed import seeded
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations.report.record import SIGHT

WORDS_KEPT = 4096
"""Words kept of one masked vector."""
IMAGES_KEPT = 24
"""Test images kept, with the model's predictions."""


def write_sight(folder: RunFolder, training: FederatedTraining, task: Task) -> None:
    """Write ``sight.npz`` into the run folder: what the report's last pictures are drawn from.

    Parameters
    ----------
    folder : RunFolder
        Of the run.
    training : FederatedTraining
        After its last round.
    task : Task
        With public test images, or none.
    """
    arrays: dict[str, np.ndarray] = {}
    opened = training.last_opened
    if opened is not None:
        arrays["sum"] = opened.average[:WORDS_KEPT]
        if opened.contribution is not None:
            arrays["masked"] = opened.contribution.vector[:WORDS_KEPT]
            arrays["ring_bits"] = np.array(opened.contribution.ring_bits)
    arrays |= _predictions(training, task, folder.experiment.seed)
    if arrays:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # the stub forbids **
        folder.write(SIGHT, buffer.getvalue())


def _predictions(training: FederatedTraining, task: Task, seed: int) -> dict[str, np.ndarray]:
    """Return some test images with labels and predictions; nothing for other kinds of data."""
    dataset = public_records(task, seed)
    if dataset is None:
        return {}
    examples = as_examples(dataset, torch.float32, torch.device("cpu"))
    chosen = torch.linspace(0, len(examples) - 1, min(IMAGES_KEPT, len(examples))).long()
    with seeded(0):
        inputs, targets = examples.take(chosen)
    if not isinstance(inputs, torch.Tensor) or targets.dim() != 1 or targets.is_floating_point():
        return {}
    if inputs.dim() != 4 or inputs.shape[1] != 1:
        return {}
    outputs = training.predict(inputs)
    if why_unscored(outputs, targets) or outputs.isnan().any():
        return {}
    low, high = inputs.min(), inputs.max()
    grey = ((inputs[:, 0] - low) / (high - low).clamp(min=1e-12) * 255).round().to(torch.uint8)
    return {
        "images": grey.numpy(),
        "labels": targets.numpy(),
        "predictions": outputs.argmax(1).numpy(),
    }
