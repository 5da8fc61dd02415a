"""Compare the accuracy of training.precision = "bf16" with that of "float32", seed by seed.

Each row is one model on MNIST, trained by ``zerosum.simulations.run`` with the seeds 0 to 4 in both
precisions: clients, batches and initial weights of a seed are the same in both. Printed are the
mean test accuracies, the mean of the differences in points, and the spread of these differences.

``python benchmarks/precision_accuracy.py mnist.npz [shakespeare.txt]``, on a processor with native
bfloat16 products. With a text the models of shipped experiment "shakespeare" are asked for too, and
the refusal is printed: they have no hand-derived rules, so that bf16 is not for them.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from zerosum.client.task import TaskError
from zerosum.simulations import run

SEEDS = range(5)

COMMON = (
    "task=mnist",
    "data.clients=300",
    "data.pool=1",
    "engine=serial",
    "encoding.range=1.0",
    "privacy.model=none",
    "privacy.clip=none",
    "secagg.protocol=ideal",
    "sampling.kind=fixed",
    "sampling.cohort=20",
    "training.lr=0.1",
    "training.batch_size=20",
    "evaluation.every=20",
)

CASES = {
    "mlp, 1 epoch": ("model.name=mlp", "model.hidden=[200]", "training.epochs=1", "rounds=100"),
    "mlp, 5 epochs": ("model.name=mlp", "model.hidden=[200]", "training.epochs=5", "rounds=40"),
    "cnn, 1 epoch": ("model.name=cnn", "training.epochs=1", "rounds=20"),
    "mlp, clipped and noised": (
        "model.name=mlp",
        "model.hidden=[200]",
        "training.epochs=1",
        "rounds=100",
        "privacy.model=distributed",
        "privacy.clip=1.0",
        "privacy.noise_multiplier=0.02",
        "privacy.delta=1e-3",
    ),
}


def accuracy(settings: tuple[str, ...], seed: int, precision: str) -> float:
    """Return the test accuracy of a run's last model, in percent."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [*settings, f"seed={seed}", f"training.precision={precision}"]
        done = run("mnist5k", overrides=overrides, out=Path(folder) / "run", report=False)
    if done.summary.engine["precision"] != precision:
        raise RuntimeError(f"trained in {done.summary.engine['precision']}")
    return 100 * done.metrics["test_accuracy"]


def main(mnist: str, text: str | None = None) -> None:
    """Print a row for each case, and the refusal of the models of text."""
    for name, settings in CASES.items():
        whole = (*COMMON, f"data.path={mnist}", *settings)
        pairs = [[accuracy(whole, seed, p) for p in ("float32", "bf16")] for seed in SEEDS]
        usual, half = zip(*pairs, strict=True)
        differences = [b - a for a, b in pairs]
        print(
            f"{name:26s} float32 {statistics.mean(usual):.2f} %  bf16 {statistics.mean(half):.2f} %"
            f"  difference {statistics.mean(differences):+.3f} points"
            f" (spread {statistics.stdev(differences):.3f})",
            flush=True,
        )
    for model in ("lstm", "transformer") if text else ():
        settings = ("training.precision=bf16", f"data.path={text}", f"model.name={model}")
        try:
            run("shakespeare", overrides=settings, report=False)
        except TaskError as refusal:
            print(f"shakespeare, {model}: {refusal}")


if __name__ == "__main__":
    main(*sys.argv[1:])
