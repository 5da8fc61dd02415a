"""What ``zerosum new`` prints, and its apps of queries."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from zerosum.server.config import ConfigError
from zerosum.simulations.data.data_files import counted
from zerosum.simulations.new import Kind
from zerosum.simulations.terminal.user_errors import user_errors

if TYPE_CHECKING:
    from zerosum.simulations.new.app import Made
    from zerosum.simulations.new.recipes import Recipe


def say_made(made: "Made") -> None:
    """Say what an app is, and what comes next."""
    found = made.found
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"Made {made.folder}, a Flower app for {made.data_words}: {found.described}.")
    if found.left_out:
        left_out = (f"{name} ({reason})" for name, reason in found.left_out.items())
        console.print(f"Left out: {', '.join(left_out)}")
    if made.kind in (Kind.CSV, Kind.PARQUET):
        public = found.records - found.training_records
        console.print(
            f"{counted(public, 'record')} {'is' if public == 1 else 'are'} public "
            "(data.test_fraction): the scales and categories in the code are of those alone, and "
            "nothing protects them."
        )
    if made.recipe.private:
        console.print(_promise(made.recipe))
    console.print(f"\n  cd {shlex.quote(str(made.folder))}\n  zerosum run experiment.toml\n")
    console.print(
        f"{made.package}/task.py has the model and {made.package}/data.py reads the records: edit "
        "both. README.md has the commands that run it across nodes."
    )


def _promise(recipe: "Recipe") -> str:
    """Return in words who is protected, and what a node counts for it."""
    unit = "record" if recipe.protected == "patient" else "client"
    return (
        f"Each {unit} is hidden in noise: epsilon_sum {recipe.epsilon:g} at delta {recipe.delta:g} "
        f"over {recipe.rounds} rounds. policy.toml admits one such run: "
        f"{recipe.node_epsilon():g} by a node's own count."
    )


def new_queries(name: Path, data: Sequence[str], others: Mapping[str, object]) -> None:
    """Make an app of queries, and say what comes next.

    Parameters
    ----------
    name : Path
        Folder to make.
    data : sequence of str
        One table whose rows are dealt to three nodes; else a sample.
    others : mapping of str to object
        Options of a training app that were given, which queries have no use for.

    Raises
    ------
    typer.Exit
        With 2, after one line, if nothing is queries.
    """
    with user_errors(ConfigError):
        for option, value in others.items():
            if value:
                raise ConfigError(f"{option} {value}: --queries has no use for it; leave it out")
        if len(data) > 1:
            raise ConfigError(f"--data {data[1]}: a second one; --queries takes one table")
        from zerosum.simulations.new.queries_app import make_queries_app

        queries = make_queries_app(name, Path(data[0]) if data else None)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    rows = ", ".join(map(str, queries.rows))
    console.print(f"Made {queries.folder}, a Flower app of queries: three nodes with {rows} rows.")
    if queries.to_edit:
        console.print(
            "\nDeclare the domains in plan.toml, under [schema], from public knowledge: uncomment "
            "each column that may be asked of. Then:"
        )
    console.print(f"\n  cd {shlex.quote(str(queries.folder))}\n  zerosum rehearse .\n")
    console.print(
        "plan.toml has the queries and their budget; nodes/0/zerosum-node.toml is what a node "
        "answers. README.md has the commands that run it across machines."
    )
