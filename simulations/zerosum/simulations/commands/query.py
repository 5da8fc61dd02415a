"""``zerosum query``: ask a federation for counts, histograms, quantiles and words."""

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer
from rich.console import Console
from typer.core import TyperGroup

from zerosum.client.nearest_word import did_you_mean
from zerosum.server.config import ConfigError
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.signals import continue_with, interruptible, start_again
from zerosum.simulations.terminal.user_errors import (
    FAILED_QUERY,
    check_writable,
    user_errors,
    write_json,
)

if TYPE_CHECKING:
    from zerosum.server.analytics.answers import Answer
    from zerosum.server.analytics.drafts import Draft
    from zerosum.simulations.queries.federation import Federation

PLAN = "plan"
"""The command that a file's name stands for."""


class Queries(TyperGroup):
    """The kinds of query; a file in place of one is a plan."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take a file for the plan that it holds, and tell a mistyped kind."""
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


query_app = typer.Typer(
    cls=Queries,
    help="Ask a federation for counts, histograms, quantiles, words, and see nothing else.\n\n"
    "`zerosum query PLAN.toml` asks all queries of a file.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
)

_DATA, _COST, _OUT = "The federation", "The budget", "Output"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


JsonFile = Annotated[Path | None, _option("Write the answer here.", _OUT, "--json")]
CsvFile = Annotated[Path | None, _option("Write the answer's cells here.", _OUT, "--csv")]
DataFile = Annotated[Path | None, _option("CSV or Parquet file.", _DATA)]
Seed = Annotated[int | None, _option("Of rows, dropouts and noise. [default: 0]", _DATA)]
Clients = Annotated[int | None, _option("Deal the rows to so many clients.", _DATA)]
Out = Annotated[
    Path | None, _option("Folder of queries: a new one, or one to ask more in.", _OUT)
]

_COMMON: Mapping[str, Any] = {
    "epsilon": Annotated[float, _option("What the answer may cost.", _COST)],
    "where": Annotated[
        str | None, typer.Option(help='Filter, as \'age >= 65 and sex = "Female"\'.')
    ],
    "name": Annotated[str, _option("Name of the answer's file.", _OUT)],
    "mechanism": Annotated[
        Literal["auto", "geometric", "skellam"],
        _option("Law of the noise. [default: auto, the less noisy]", _COST),
    ],
    "fresh": Annotated[
        bool, typer.Option("--fresh", help="Pay for a new answer where one is stored.")
    ],
    "schema": Annotated[
        Path | None, _option("TOML file with [schema]: see zerosum schema.", _DATA)
    ],
    "data": DataFile,
    "clients": Clients,
    "clients_by": Annotated[
        str | None, _option("Or: the column whose values are the clients.", _DATA)
    ],
    "budget": Annotated[
        float | None, _option("Epsilon of all questions here. [default: --epsilon]", _COST)
    ],
    "delta": Annotated[float | None, _option("Delta of the budget. [default: 1e-6]", _COST)],
    "rule": Annotated[
        Literal["sum", "renyi"] | None, _option("How costs add up. [default: sum]", _COST)
    ],
    "unit": Annotated[
        Literal["record", "client"] | None,
        _option("What is protected. [default: record]", _COST),
    ],
    "adjacency": Annotated[
        Literal["zero_out", "replace"] | None,
        _option("How neighbours differ. [default: zero_out]", _COST),
    ],
    "cap": Annotated[
        int | None, _option("Under --unit client: records of a client that count.", _COST)
    ],
    "records": Annotated[int | None, _option("Records of all clients, where public.", _COST)],
    "protocol": Annotated[
        Literal["ideal", "pairwise"] | None,
        _option("Trusted sum, or masked ones. [default: ideal]", _DATA),
    ],
    "dropout": Annotated[float | None, _option("Part of the clients that vanish.", _DATA)],
    "seed": Seed,
    "out": Out,
    "json_file": JsonFile,
    "csv_file": CsvFile,
}
"""Options of every kind of query; those of a federation are for a folder that is new."""

_DEFAULTS: Mapping[str, Any] = {
    "epsilon": inspect.Parameter.empty,
    "name": "",
    "mechanism": "auto",
    "fresh": False,
}

_FIELDS: Mapping[str, str] = {"clients_by": "by"}
"""Options that a plan has under another key."""


def asking(fields: Callable[..., tuple[str, dict[str, Any]]]) -> Callable[..., None]:
    """Make a command of a function from its own arguments to a kind and its fields.

    Parameters
    ----------
    fields : callable
        With the arguments of one kind of query.

    Returns
    -------
    callable
        With the options of every query, too; its help is the function's.
    """
    own = inspect.signature(fields).parameters

    def command(**given: Any) -> None:
        with _query_errors():
            kind, values = fields(**{name: given[name] for name in own})
            common = {name: given[name] for name in _COMMON}
            _ask_one(kind, {k: v for k, v in values.items() if v not in (None, [])}, common)

    common = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=_DEFAULTS.get(name),
        )
        for name, annotation in _COMMON.items()
    ]
    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.values()]
    parameters = [*named, *common]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    command.__doc__, command.__name__ = fields.__doc__, fields.__name__
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
    return "histogram", {"columns": columns, "by": _listed(by)}


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
    levels = [*_listed(q), *column[1:]] or ["0.5"]
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
    return "bayes", {"label": label, "features": _listed(features)}


@asking
def marginals(
    cliques: Annotated[
        list[str], typer.Argument(metavar="COLUMNS...", help="Tables, as race,sex age,income.")
    ],
) -> tuple[str, dict[str, Any]]:
    """Tabulate several combinations of columns at once."""
    return "marginals", {"cliques": [_listed([each]) for each in cliques]}


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
    with _query_errors():
        if json_file is not None:
            check_writable(json_file)
        from zerosum.server.analytics.query_plan import read_plan

        read = read_plan(file)
        changed = {"data": None if data is None else str(data), "clients": clients, "seed": seed}
        update = {name: value for name, value in changed.items() if value is not None}
        read = read.model_copy(update={"plan": read.plan.model_copy(update=update)})
        epsilon = read.plan.budget.epsilon
        _say(f"{file}: {len(read.queries)} queries within epsilon = {epsilon:g}")
        with loading():
            from zerosum.simulations.queries.federation import Federation
        with Federation.begin(read, _beside(file, data, read.plan.data), out) as federation:
            _run(federation, json_file)


@query_app.callback()
def _resumed(
    ctx: typer.Context,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the queries of this folder.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the same data are now.", show_default=False)
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write answers here.")] = None,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    if resume is None:
        typer.echo(ctx.get_help())
        return
    with _query_errors():
        if json_file is not None:
            check_writable(json_file)
        with loading():
            from zerosum.simulations.queries.federation import Federation
        with Federation.resume(resume, data) as federation:
            _say(f"{resume}: {len(federation.queries)} queries")
            _run(federation, json_file)
