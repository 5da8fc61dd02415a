"""A node's own policy file: what must stand in it, and one line for what does not.

Nothing permissive is assumed where the file is silent: how few may be in a sum, how many may work
for the server, and what all answers together may cost are the owner's to write, be it a pair,
nobody and no bound.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from zerosum.client.files.operating_system import named_path
from zerosum.client.files.private_files import open_regular
from zerosum.client.files.toml_file import TomlError, parse_toml
from zerosum.client.protocol.query_answer import columns_read
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table, check_file, read_table
from zerosum.client.queries.table_files import header
from zerosum.client.request import QueryQuestion
from zerosum.client.spec import ClientPolicy
from zerosum.client.spec.complaints import complaints
from zerosum.client.spec.own_table import OwnTable

EXAMPLES: Final = {
    "min_cohort": "min_cohort = 10 (the fewest clients of a cohort; 2: a pair is enough)",
    "corruption": "corruption = 0.2 (0.0: nobody works for the server)",
    "max_epsilon": "max_epsilon = 8.0 (inf: counted, but not bounded)",
}
"""What every policy must say, as it may be written."""


class PolicyError(Exception):
    """A node has no policy that can be used; the message is one line, with the cure."""


@dataclass(frozen=True)
class NodeFile:
    """A node's own file: its policy, and perhaps the table that it answers queries from.

    Attributes
    ----------
    policy : ClientPolicy
        What it accepts.
    table : OwnTable or None
        Absent: no query is answered.
    folder : Path
        Where relative paths begin.
    name : str
        What messages call the file.
    """

    policy: ClientPolicy
    table: OwnTable | None
    folder: Path
    name: str

    def check_table(self) -> None:
        """Check that the table is there, with the columns that queries may read.

        Raises
        ------
        PolicyError
            If the policy allows queries and the file or a column is missing.
        """
        own = self.policy.queries
        if own is None:
            return
        if self.table is None:
            raise PolicyError(
                f"{self.name} allows queries and names no table: write [table] and path = "
                '"patients.csv" there, or take its section [queries] out'
            )
        columns = () if own.columns == "any" else own.columns
        try:
            check_file(self._table_path, columns, self.table.rename)
        except QueryError as error:
            raise PolicyError(f"{self.name}, table and policy.queries.columns: {error}") from None

    def read_table(self, question: QueryQuestion) -> Table:
        """Read the columns that a query reads.

        Parameters
        ----------
        question : QueryQuestion
            Allowed by the policy.

        Returns
        -------
        Table
            As the file is now.

        Raises
        ------
        QueryError
            If it cannot be read, or lacks a column.
        """
        if self.table is None:
            raise QueryError(f"{self.name} names no table")
        domains, rename = columns_read(question), self.table.rename
        if not question.query.reads:
            # Rows are counted by a column that is there, whatever the query's domains name: once,
            # for of two of one name neither is read.
            names = header(self._table_path)
            once = next((name for name in names if names.count(name) == 1), names[0])
            domains, rename = Schema.of({"row": ["-"]}), {"row": once}
        return read_table(self._table_path, domains, rename)

    @property
    def _table_path(self) -> Path:
        return self.folder / ("" if self.table is None else named_path(self.table.path))


def read_policy(path: str) -> ClientPolicy:
    """Read a node's policy, as :func:`read_node_file` does."""
    return read_node_file(path).policy


def read_node_file(path: str) -> NodeFile:
    """Read a node's own file.

    Its keys are those of a policy, and perhaps a section [table]; or all of them stand in a section
    [policy], as in `zerosum-node.toml`.

    Parameters
    ----------
    path : str
        Of a TOML file; empty where the node config names none.

    Returns
    -------
    NodeFile
        Checked, but for the table.

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
            data = file.read()
    except (OSError, ValueError) as error:
        raise PolicyError(f"the policy {path} cannot be used: {error}") from None
    try:
        content = parse_toml(data, f"the policy {path}")
    except TomlError as error:
        raise PolicyError(str(error)) from None
    return checked_node_file(content, f"the policy {path}", Path(path).parent)


def checked_node_file(content: dict[str, Any], name: str, folder: Path) -> NodeFile:
    """Return policy and table of a file's keys.

    Parameters
    ----------
    content : dict
        The file's keys.
    name : str
        What messages call the file.
    folder : Path
        Where relative paths begin.

    Returns
    -------
    NodeFile
        Checked, but for the table.

    Raises
    ------
    PolicyError
        If a key is missing, unknown or wrong.
    """
    policy, table = dict(content), content.get("table")
    policy.pop("table", None)
    if isinstance(policy.get("policy"), dict):
        if unknown := sorted(policy.keys() - {"policy"}):
            raise PolicyError(
                f"{name} cannot be used: {', '.join(unknown)} stands beside its sections [policy] "
                "and [table]: write it into [policy], or take it out"
            )
        policy = policy["policy"]
    try:
        own = None if table is None else OwnTable.model_validate(table)
    except ValidationError as error:
        raise PolicyError(f"{name} cannot be used: {_wrong(error, 'table.')}") from None
    return NodeFile(checked_policy(policy, name), own, folder, name)


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
        raise PolicyError(f"{name} cannot be used: {_wrong(error)}") from None


def _wrong(error: ValidationError, section: str = "") -> str:
    return "; ".join(f"{section}{each}" for each in complaints(error))
