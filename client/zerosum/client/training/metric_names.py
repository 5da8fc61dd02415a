"""Check names of a task's metrics: none may mean something else in a line of metrics."""

from typing import Final

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
