"""``zerosum query``: ask a federation for counts, histograms, quantiles and words."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import typer
from click.shell_completion import CompletionItem

from zerosum.client.nearest_word import did_you_mean
from zerosum.server.config import ConfigError
from zerosum.simulations.commands.ask_queries import (
    ask_one,
    beside,
    listed,
    query_errors,
    run_all,
    say,
)
from zerosum.simulations.commands.query_options import (
    Clients,
    DataFile,
    JsonFile,
    Out,
    Seed,
    with_common_options,
)
from zerosum.simulations.terminal.command_line import CommandApp, CommandGroup
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.shell_completion import FILES
from zerosum.simulations.terminal.user_errors import check_writable, user_errors

PLAN = "plan"
"""The command that a file's name stands for."""


class Queries(CommandGroup):
    """The kinds of query; a file in place of one is a plan."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Return the kinds; where none begins so, files.

        Parameters
        ----------
        ctx : click.Context
            Of the group.
        incomplete : str
            The word so far.

        Returns
        -------
        list of CompletionItem
            In the form of Click.
        """
        kinds: list[CompletionItem[str]] = super().shell_complete(ctx, incomplete)
        if kinds or incomplete.startswith("-"):
            return kinds
        return FILES.items(ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take a file for the plan that it holds, and tell a mistyped kind.

        Parameters
        ----------
        ctx : click.Context
            Of the group.
        args : list of str
            Words that follow it.

        Returns
        -------
        tuple of str, click.Command and list of str
            The command, and its own words.

        Raises
        ------
        typer.Exit
            If there is neither such a kind nor such a file.
        """
        name = args[0]
        command = self.get_command(ctx, name)
        if command is not None:
            return name, command, args[1:]
        if name.endswith(".toml") or Path(name).is_file():
            return PLAN, self.get_command(ctx, PLAN), args
        kinds = [each for each in self.list_commands(ctx) if each != PLAN]
        hint = did_you_mean(name, kinds) or f": one of {', '.join(kinds)}, or a plan's TOML file"
        with user_errors(ConfigError):
            raise ConfigError(f"there is no query {name!r}{hint}")
        raise typer.Exit(2)


query_app = CommandApp(
    "Ask a federation for counts, histograms, quantiles, words, and see nothing else.\n\n"
    "`zerosum query PLAN.toml` asks all queries of a file.",
    Queries,
    invoke_without_command=True,
    no_args_is_help=False,
)


def asking(fields: Callable[..., tuple[str, dict[str, Any]]]) -> Callable[..., None]:
    """Make a command of a function from its own arguments to a kind and its fields."""

    def ask(read: Callable[[], tuple[str, dict[str, Any]]], common: dict[str, Any]) -> None:
        with query_errors():
            kind, values = read()
            ask_one(kind, {k: v for k, v in values.items() if v not in (None, [])}, common)

    command = with_common_options(fields, ask)
    return query_app.command(fields.__name__.strip("_"))(command)


ColumnName = Annotated[str, typer.Argument(metavar="COLUMN", help="Of the schema.")]


@asking
def count() -> tuple[str, dict[str, Any]]:
    """Count the records that a filter takes."""
    return "count", {}


@asking
def histogram(
    columns: Annotated[
        list[str], typer.Argument(metavar="COLUMN...", help="Up to four, --by included.")
    ],
    by: Annotated[
        list[str] | None, typer.Option("--by", metavar="COLUMN", help="Split by this column.")
    ] = None,
) -> tuple[str, dict[str, Any]]:
    """Count the records of each value, or of each combination of values."""
    return "histogram", {"columns": columns, "by": listed(by)}


@asking
def mean(column: ColumnName) -> tuple[str, dict[str, Any]]:
    """Estimate the mean of a column."""
    return "mean", {"column": column}


@asking
def sum_(column: ColumnName) -> tuple[str, dict[str, Any]]:
    """Estimate the sum of a column."""
    return "sum", {"column": column}


@asking
def variance(column: ColumnName) -> tuple[str, dict[str, Any]]:
    """Estimate the variance of a column."""
    return "variance", {"column": column}


@asking
def quantile(
    column: Annotated[
        list[str], typer.Argument(metavar="COLUMN", help="Of the schema: integer or number.")
    ],
    q: Annotated[
        list[str] | None, typer.Option("--q", help="Quantiles, as --q .1 .5 .9 [default: .5]")
    ] = None,
) -> tuple[str, dict[str, Any]]:
    """Estimate the median and other quantiles of a column."""
    # An option takes one word; those that follow it arrive here.
    levels = [*listed(q), *column[1:]] or ["0.5"]
    try:
        return "quantile", {"column": column[0], "q": [float(level) for level in levels]}
    except ValueError:
        raise ConfigError(f"--q {' '.join(levels)}: write numbers, as --q .1 .5 .9") from None


@asking
def words(
    column: ColumnName,
    top: Annotated[int, typer.Option(help="Words in the answer.")] = 50,
    max_prefixes: Annotated[int, typer.Option(help="Prefixes that survive a round.")] = 400,
) -> tuple[str, dict[str, Any]]:
    """Find the most frequent words of a column that holds text."""
    return "words", {"column": column, "top": top, "max_prefixes": max_prefixes}


@asking
def bayes(
    label: Annotated[str, typer.Argument(metavar="LABEL", help="Column that is predicted.")],
    features: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Predict from these. [default: all that have cells]"),
    ] = None,
) -> tuple[str, dict[str, Any]]:
    """Fit a naive Bayes classifier."""
    return "bayes", {"label": label, "features": listed(features)}


@asking
def marginals(
    cliques: Annotated[
        list[str], typer.Argument(metavar="COLUMNS...", help="Tables, as race,sex age,income.")
    ],
) -> tuple[str, dict[str, Any]]:
    """Tabulate several combinations of columns at once."""
    return "marginals", {"cliques": [listed([each]) for each in cliques]}


@asking
def oracle(
    column: ColumnName,
    kind: Annotated[
        Literal["auto", "rr", "k-rr", "oue", "olh", "hadamard"],
        typer.Option("--kind", help="How each client randomises its own report."),
    ] = "auto",
) -> tuple[str, dict[str, Any]]:
    """Count values under the local model: each client's report is random by itself."""
    return "oracle", {"column": column, "oracle": kind}


@query_app.command(PLAN, hidden=True)
def plan(
    file: Annotated[Path, typer.Argument(help="TOML file: [budget], [schema], [[queries]].")],
    data: DataFile = None,
    clients: Clients = None,
    seed: Seed = None,
    out: Out = None,
    json_file: JsonFile = None,
) -> None:
    """Ask all queries of a plan."""
    with query_errors():
        if json_file is not None:
            check_writable(json_file)
        from zerosum.server.analytics.query_plan import read_plan

        read = read_plan(file)
        changed = {"data": None if data is None else str(data), "clients": clients, "seed": seed}
        read = read.changed(**{name: v for name, v in changed.items() if v is not None})
        epsilon = read.plan.budget.epsilon
        say(f"{file}: {len(read.queries)} queries within epsilon = {epsilon:g}")
        with loading():
            from zerosum.simulations.queries.federation import Federation
        with Federation.begin(read, beside(file, data, read.plan.data), out) as federation:
            run_all(federation, json_file)


@query_app.callback()
def _resumed(
    ctx: typer.Context,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the queries of this folder.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the same data are now.", show_default=False)
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write answers here; - is standard output.")
    ] = None,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    if resume is None:
        typer.echo(ctx.get_help())
        return
    with query_errors():
        if json_file is not None:
            check_writable(json_file)
        with loading():
            from zerosum.simulations.queries.federation import Federation
        with Federation.resume(resume, data) as federation:
            say(f"{resume}: {len(federation.queries)} queries")
            run_all(federation, json_file)
