"""Say how many records of a user's own are public, so that nothing protects them."""

from collections.abc import Mapping
from typing import Any, Final

from zerosum.client.spec.training import APP_TASK
from zerosum.simulations.report.record import RunRecord
from zerosum.simulations.report.words import count

OWN_FILES: Final = ("table", "heart")
"""Shipped tasks whose test records come from the user's own files."""

SAID: Final = "nothing protects them"
"""What the line says that tells how a file was read, where it counts its public records."""


def is_own(task: str) -> bool:
    """Return whether a task's test records are a user's own: those of other tasks are published."""
    return task in (*OWN_FILES, APP_TASK) or task.startswith("<") or ":" in task


def public_count(data: Mapping[str, Any] | None, task: str, tested: object = None) -> int | None:
    """Return how many records of a user's own are public.

    Parameters
    ----------
    data : mapping or None
        What the task says of its files: the summary's ``data``.
    task : str
        As the experiment names it.
    tested : object
        Records of the test set, where they were counted.

    Returns
    -------
    int or None
        None where there are none of the user's own, or nobody counted them.
    """
    given = (data or {}).get("public_records")
    if isinstance(given, int):
        return given
    return tested if isinstance(tested, int) and is_own(task) else None


def public_of_run(run: RunRecord) -> int | None:
    """Return how many records of the user's own a run was tested on."""
    return public_count(run.summary.data, run.experiment.task, run.test_set.get("examples"))


def unprotected_in_words(public: int | None) -> str:
    """Return the sentence; empty where there are none, or nobody counted them."""
    if not public:
        return ""
    verb, them = ("is", "it") if public == 1 else ("are", "them")
    records = count(public, "record")
    return (
        f"{records} {verb} public (data.test_fraction): the model is tested on {them}, and "
        f"nothing protects {them}. No epsilon speaks of {them}."
    )
