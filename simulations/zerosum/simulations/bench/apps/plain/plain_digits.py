"""The model and the records that both sides use."""

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import Task, resolve_task

SEED = 0


def digits() -> Task:
    """Return the task of both sides.

    Returns
    -------
    Task
        The digits, in as many parts as there are clients.
    """
    return resolve_task("digits", DataSpec(), ModelSpec(), SEED)
