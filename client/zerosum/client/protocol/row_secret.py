"""The secret by which a node orders its rows, made once and kept beside its record."""

from pathlib import Path
from typing import Final

from zerosum.client.files.private_files import private_folder, read_private, replace_private
from zerosum.client.protocol.decision_store import DamagedStoreError
from zerosum.client.queries.record_order import SECRET_BYTES
from zerosum.secagg.randomness import SystemRandomness

FILE: Final = "rows.key"


def row_secret(folder: Path) -> bytes:
    """Return the secret of a state directory, and make one where there is none.

    The same for every query: were it drawn anew, a client that caps its records would show others
    of them each time. The caller holds the node's record alone.

    Parameters
    ----------
    folder : Path
        The node's state directory.

    Returns
    -------
    bytes
        32 of them, on the disk before they are used.

    Raises
    ------
    DamagedStoreError
        If the file holds anything else.
    OpenToOthersError
        If others than its owner can reach it.
    OSError
        If it cannot be read or written.
    """
    private_folder(folder)
    path = folder / FILE
    try:
        secret = read_private(path)
    except FileNotFoundError:
        secret = SystemRandomness().take(SECRET_BYTES)
        replace_private(path, secret)
    if len(secret) != SECRET_BYTES:
        raise DamagedStoreError(
            f"{path} is damaged: no query is answered until it holds the {SECRET_BYTES} bytes that "
            "it held, from a copy of this file alone"
        )
    return secret
