"""``zerosum new NAME --queries``."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from zerosum.server.config import ConfigError
from zerosum.simulations.terminal.user_errors import user_errors


def new_queries(name: Path, data: Path | None, others: Mapping[str, object]) -> None:
    """Make an app of queries, and say what comes next.

    Parameters
    ----------
    name : Path
        Folder to make.
    data : Path or None
        A table whose rows are dealt to three nodes; else a sample.
    others : mapping of str to object
        Options of a training app that were given, which queries have no use for.

    Raises
    ------
    typer.Exit
        With 2, after one line, if nothing is made.
    """
    with user_errors(ConfigError):
        for option, value in others.items():
            if value:
                raise ConfigError(f"{option} {value}: --queries has no use for it; leave it out")
        from zerosum.simulations.new.queries_app import make_queries_app

        made = make_queries_app(name, data)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    rows = ", ".join(map(str, made.rows))
    console.print(f"Made {made.folder}, a Flower app of queries: three nodes with {rows} rows.")
    if made.to_edit:
        console.print(
            "\nDeclare the domains in plan.toml, under [schema], from public knowledge: uncomment "
            "each column that may be asked of. Then:"
        )
    console.print(f"\n  cd {shlex.quote(str(made.folder))}\n  zerosum rehearse .\n")
    console.print(
        "plan.toml has the queries and their budget; nodes/0/zerosum-node.toml is what a node "
        "answers. README.md has the commands that run it across machines."
    )
