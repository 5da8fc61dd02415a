"""Compare training.normalise = "steps" with "none" where clients take unequal numbers of steps.

The 8x8 digits over 50 clients by a Dirichlet partition of concentration 0.1, 10 epochs in batches
of 5, an MLP, no clip and no noise. The reference is the clients' mean number of steps, weighted as
their updates are. Printed are means over the seeds 0 to 11: the accuracy on the common test records
in the last ten rounds, and that of the last model on each client's own records, averaged over the
clients; in brackets, in how many seeds "steps" was the better one.

``python benchmarks/normalised_steps.py``
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

from zerosum.client.task import ClientInfo, Task, resolve_task
from zerosum.client.training.seeded_task import client_records
from zerosum.simulations import run
from zerosum.simulations.config import load_experiment

SEEDS = range(12)
CLIENTS, EPOCHS, SIZE = 50, 10, 5

COMMON = (
    f"data.clients={CLIENTS}",
    "data.partition=dirichlet",
    "data.alpha=0.1",
    "rounds=30",
    "sampling.kind=fixed",
    "sampling.cohort=10",
    "engine=serial",
    f"training.epochs={EPOCHS}",
    f"training.batch_size={SIZE}",
    "training.lr=0.1",
    "model.name=mlp",
    "privacy.model=none",
    "privacy.clip=none",
    "encoding.range=8.0",
    "secagg.protocol=none",
)

Records = list[tuple[torch.Tensor, torch.Tensor]]


def records(seed: int) -> tuple[Task, Records]:
    """Return the task of a seed and what its clients have."""
    spec = load_experiment("digits", [*COMMON, f"seed={seed}"])
    task = resolve_task(spec.task, spec.data, spec.model, seed)
    infos = [ClientInfo(index, CLIENTS, seed=seed) for index in range(CLIENTS)]
    held: Records = [client_records(task, info) for info in infos]  # type: ignore[misc]
    return task, held


def reference(clients: Records, weighting: str) -> int:
    """Return the mean number of steps of the clients, weighted as their updates are."""
    counts = np.array([len(targets) for _, targets in clients])
    weights = counts if weighting == "examples" else np.ones(CLIENTS)
    return round(float(np.average(EPOCHS * -(-counts // SIZE), weights=weights)))


def accuracies(seed: int, settings: tuple[str, ...]) -> tuple[float, float]:
    """Return a run's accuracy on common records and the mean over clients', in percent."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [*COMMON, *settings, f"seed={seed}"]
        done = run("digits", overrides=overrides, out=Path(folder) / "run", report=False)
    task, clients = records(seed)
    model = task.model()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in done.model.items()})
    with torch.no_grad():
        own = [
            float((model(inputs).argmax(1) == targets).double().mean())
            for inputs, targets in clients
            if len(targets)
        ]
    common = [line["test_accuracy"] for line in done.rounds[-10:]]
    return 100 * float(np.mean(common)), 100 * float(np.mean(own))


def main() -> None:
    """Print a row for each weighting."""
    for weighting in ("uniform", "examples"):
        weighted = f"training.weighting={weighting}"
        found = []
        for seed in SEEDS:
            steps = reference(records(seed)[1], weighting)
            scaled = ("training.normalise=steps", f"training.reference_steps={steps}")
            found.append([accuracies(seed, (weighted, *more)) for more in ((), scaled)])
        figures = np.array(found)  # seeds, none or steps, common or own
        none, scaled_mean = figures.mean(0)
        better = (figures[:, 1] > figures[:, 0]).sum(0)
        print(
            f"{weighting:9s} common records: none {none[0]:.1f}, steps {scaled_mean[0]:.1f} % "
            f"({better[0]} of {len(SEEDS)}); own records, mean over clients: none {none[1]:.1f}, "
            f"steps {scaled_mean[1]:.1f} % ({better[1]} of {len(SEEDS)})",
            flush=True,
        )


if __name__ == "__main__":
    main()
