"""Read from a node's config which of its own file's records it trains on."""

import logging

from zerosum.client.task import ClientInfo, TaskError

log = logging.getLogger("zerosum.client")


def holds_out(client: ClientInfo) -> bool:
    """Return whether a node leaves the public test records of its own file out of training.

    Without the key nothing is left out, and a line of the node's own log says so: a server that
    tests on the same file would test on what was trained on, without a word. The key set to false
    says that somebody decided it.

    Parameters
    ----------
    client : ClientInfo
        With the node's config.

    Returns
    -------
    bool
        ``hold-out`` of the node config.

    Raises
    ------
    TaskError
        If it is neither true nor false.
    """
    value = client.node_config.get("hold-out")
    if value is None:
        log.warning(
            "node config hold-out is missing: this node trains on all of its file, on public test "
            "records (data.test_fraction) too; write hold-out=true where the server tests on "
            "records of the same file, hold-out=false where it does not"
        )
        return False
    if not isinstance(value, bool):
        raise TaskError(f"hold-out = {value!r} in the node config: write true or false")
    return value
