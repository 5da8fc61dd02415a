"""A node's own policy file: what must stand in it, and one line for what does not.

Nothing permissive is assumed where the file is silent: how few may be in a sum, how many may work
for the server, and what all answers together may cost are the owner's to write, be it a pair,
nobody and no bound.
"""

import os
import stat
import tomllib
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from zerosum.client.files.private_files import open_regular
from zerosum.client.spec import ClientPolicy

EXAMPLES: Final = {
    "min_cohort": "min_cohort = 10 (the fewest clients of a cohort; 2: a pair is enough)",
    "corruption": "corruption = 0.2 (0.0: nobody works for the server)",
    "max_epsilon": "max_epsilon = 8.0 (inf: counted, but not bounded)",
}
"""What every policy must say, as it may be written."""


class PolicyError(Exception):
    """A node has no policy that can be used; the message is one line, with the cure."""


def read_policy(path: str) -> ClientPolicy:
    """Read a node's policy.

    Parameters
    ----------
    path : str
        Of a TOML file; empty where the node config names none.

    Returns
    -------
    ClientPolicy
        Checked.

    Raises
    ------
    PolicyError
        If there is none, or it cannot be used, or any user of the machine may change it.
    """
    if not path:
        raise PolicyError(
            "node config policy is missing: a node takes part in nothing until a TOML file of its "
            f"own says what it accepts, at least {'; '.join(EXAMPLES.values())}"
        )
    try:
        with os.fdopen(open_regular(Path(path)), "rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise PolicyError(
                    f"the policy {path} can be changed by any user of this machine: "
                    f"chmod o-w {path}"
                )
            content = tomllib.loads(file.read().decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise PolicyError(f"the policy {path} cannot be used: {error}") from None
    return checked_policy(content, f"the policy {path}")


def checked_policy(content: dict[str, Any], name: str) -> ClientPolicy:
    """Return the policy of a file's keys.

    Parameters
    ----------
    content : dict
        The file's keys.
    name : str
        What messages call the file.

    Returns
    -------
    ClientPolicy
        Checked.

    Raises
    ------
    PolicyError
        If a key is missing, unknown or wrong.
    """
    missing = [example for key, example in EXAMPLES.items() if key not in content]
    if missing:
        raise PolicyError(
            f"{name} lacks keys that have no default: write for example {'; '.join(missing)}"
        )
    try:
        return ClientPolicy.model_validate(content)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc']))} = {each['input']!r}: {each['msg']}"
            for each in error.errors()
        )
        raise PolicyError(f"{name} cannot be used: {wrong}") from None
