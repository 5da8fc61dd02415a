"""Read what a run's figures are compared with, and say where the model is no better."""

import math
from collections.abc import Sequence
from typing import Final

from zerosum.server.runs.records import RoundRecord, Summary

MAJORITY: Final = "majority class"
MEAN: Final = "mean of the targets"


def reference_of(summary: Summary) -> dict[str, float]:
    """Return the constant predictor's figures of a summary, by the names of the model's."""
    metrics = summary.reference.get("metrics", {})
    return {name: value for name, value in metrics.items() if name in summary.metrics}


def alone_of(summary: Summary) -> dict[str, float]:
    """Return the mean figures of clients trained alone, by metric; empty without baselines."""
    spreads = summary.baselines.get("alone", {}).get("metrics", {})
    return {name: spread["mean"] for name, spread in spreads.items()}


def pooled_of(summary: Summary) -> dict[str, float]:
    """Return the figures of all records together, by metric; empty without baselines."""
    return dict(summary.baselines.get("pooled", {}).get("metrics", {}))


def predictor_in_words(summary: Summary) -> str:
    """Return who the constant predictor is, and of which labels; empty where there is none."""
    found = summary.reference
    if found.get("predictor") == MAJORITY:
        name = found.get("label_name")
        what = f"class {found.get('label')}" if name is None else f'"{name}"'
        return f"always {what}, the most frequent of the test set itself"
    if found.get("predictor") == MEAN:
        return "always the mean of the targets of the test set itself"
    return ""


def not_better(summary: Summary) -> str:
    """Say where the model is no better than a predictor that looks at nothing.

    Parameters
    ----------
    summary : Summary
        Of the run.

    Returns
    -------
    str
        A clause; empty where the model is better, or nothing is known.
    """
    given, constant = summary.metrics, reference_of(summary)
    if "test_accuracy" in constant:
        name, worse = "test_accuracy", given["test_accuracy"] <= constant["test_accuracy"]
    elif "test_loss" in constant:
        name, worse = "test_loss", given["test_loss"] >= constant["test_loss"]
    else:
        return ""
    if not worse:
        return ""
    what = "accuracy" if name == "test_accuracy" else "loss"
    return (
        f"the model's {what} on test data, {given[name]:.4g}, is no better than that of a "
        f"predictor that looks at nothing, {constant[name]:.4g} ({predictor_in_words(summary)})"
    )


def worse_losses(summary: Summary, rounds: Sequence[RoundRecord]) -> list[str]:
    """Say where the last loss is above the first, or above that of a constant predictor.

    Parameters
    ----------
    summary : Summary
        Of the run.
    rounds : sequence of RoundRecord
        All of its rounds.

    Returns
    -------
    list of str
        Clauses; none where the loss fell, or is not known.
    """
    losses = [(r.round, r.metrics["test_loss"]) for r in rounds if "test_loss" in r.metrics]
    last = summary.metrics.get("test_loss", math.nan)
    if math.isnan(last):
        return []
    said = []
    if len(losses) > 1 and last > losses[0][1]:
        said.append(
            f"the loss on test data ended at {last:.4g}, above the {losses[0][1]:.4g} of round "
            f"{losses[0][0]}: later rounds made it surer of its mistakes, or wrong more often"
        )
    constant = summary.reference.get("loss")
    if isinstance(constant, float) and last >= constant:
        said.append(
            f"the loss on test data, {last:.4g}, is no better than the {constant:.4g} of a "
            "predictor that looks at nothing and says how frequent each class is"
        )
    return said
