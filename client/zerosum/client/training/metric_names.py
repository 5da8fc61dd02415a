"""Check names of a task's metrics: none may mean something else in a line of metrics."""

import re
from typing import Final, Literal

TAKEN: Final = ("loss", "count", "status", "reason", "cut", "cut_of")
"""What stands in a line of metrics beside them."""

NOISE_SUFFIX: Final = "_noise_std"
"""What the name of a metric's own noise ends with."""

ALLOWED: Final = f"other than {', '.join(TAKEN)}, and not ending with {NOISE_SUFFIX}"


def is_metric_name(name: object) -> bool:
    """Return whether a metric may have this name."""
    return (
        isinstance(name, str)
        and bool(name.strip())
        and name.isprintable()
        and name not in TAKEN
        and not name.endswith(NOISE_SUFFIX)
    )


_SMALL: Final = frozenset(
    (
        *("loss", "error", "errors", "err", "mse", "rmse", "mae", "mape", "msle", "perplexity"),
        *("ppl", "nll", "bce", "entropy", "crossentropy", "brier", "ece", "mce", "deviance"),
        *("wer", "cer", "fpr", "fnr", "hamming", "hinge", "divergence", "distance"),
    )
)
_LARGE: Final = frozenset(
    (
        *("accuracy", "acc", "auc", "auroc", "auprc", "roc", "ap", "map", "f1", "f2", "fbeta"),
        *("r2", "precision", "recall", "sensitivity", "specificity", "iou", "jaccard", "dice"),
        *("bleu", "rouge", "kappa", "mcc", "score", "top1", "top3", "top5", "tpr", "tnr"),
        *("correlation", "psnr", "ssim", "ndcg", "mrr"),
    )
)
_TURNED: Final = frozenset(("neg", "negative", "minus", "inverse", "one", "1"))
"""Words that may turn the meaning of the others round."""


def direction(name: str) -> Literal["max", "min"] | None:
    """Return whether large or small values of a metric are good, as its name says.

    Parameters
    ----------
    name : str
        As "log_loss" or "balanced_accuracy": its words are what stands between other signs than
        letters and digits.

    Returns
    -------
    {"max", "min"} or None
        None where no word, or words of both kinds, say so: who guesses keeps the worst model.
    """
    words = set(re.split("[^a-z0-9]+", name.lower()))
    small, large = bool(words & _SMALL), bool(words & _LARGE)
    if small == large or words & _TURNED:
        return None
    return "min" if small else "max"
