"""Read what a run's figures are compared with, and say where the model is no better."""

from typing import Final

from zerosum.server.runs.records import Summary

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
        return f"always class {found.get('label')}, the most frequent of the test set itself"
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
