"""Run a task's own code with every global generator seeded from the experiment's seed.

Equal experiments give equal bits, whichever process asks and whatever was drawn there before.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from zerosum.client.task import ClientInfo, Task
from zerosum.client.training.torch_seed import seeded, seeded_anew
from zerosum.secagg.randomness import derive_seed

if TYPE_CHECKING:
    from zerosum.client.task import Dataset


def seeded_resolution(seed: int) -> AbstractContextManager[None]:
    """Seed all global generators while a task is imported and made."""
    return seeded(derive_seed(seed, "task"))


def client_records(task: Task, client: ClientInfo) -> "Dataset":
    """Return one client's records, loaded under the same seed in every round.

    A task that keeps its records in the process would otherwise give others in another worker.

    Parameters
    ----------
    task : Task
        Whose ``data`` may draw at random.
    client : ClientInfo
        Whose records.

    Returns
    -------
    torch Dataset or pair of tensors
        The same in every round.
    """
    with seeded_anew(derive_seed(client.seed, "client data", client.index)):
        return task.data(client)


def public_records(task: Task, seed: int) -> "Dataset | None":
    """Return the task's public test data, if it has any.

    Parameters
    ----------
    task : Task
        Whose ``test_data`` may draw at random.
    seed : int
        The experiment's.

    Returns
    -------
    torch Dataset or pair of tensors, or None
        None where the task has none.
    """
    with seeded(derive_seed(seed, "test data")):
        return task.test_data()
