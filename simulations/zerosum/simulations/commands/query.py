"""``zerosum query``: ask a federation for counts, histograms, quantiles and words."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer
from rich.console import Console
from typer.core import TyperGroup

from zerosum.client.nearest_word import did_you_mean
from zerosum.server.config import ConfigError
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.signals import continue_with, interruptible
from zerosum.simulations.terminal.user_errors import check_writable, user_errors, write_json

if TYPE_CHECKING:
    from zerosum.client.queries.schema import Schema
    from zerosum.server.analytics.answers import Answer
    from zerosum.server.analytics.drafts import Draft
    from zerosum.server.analytics.query_plan import PlanFile
    from zerosum.simulations.queries.federation import Federation

ABANDONED = 1
"""Exit code of a question that was asked and has no answer: too few clients were left."""

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
Out = Annotated[Path | None, _option("Folder of queries: a new one, or one to ask more in.", _OUT)]

_COMMON: Mapping[str, Any] = {
    "epsilon": Annotated[float, _option("What the answer may cost.", _COST)],
    "where": Annotated[
        str | None, typer.Option(help="Filter, as 'age >= 65 and sex = \"Female\"'.")
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

_BUDGET = ("budget", "delta", "rule", "unit", "adjacency")

_ORACLE: Mapping[str, Any] = {"unit": "client", "adjacency": "replace", "cap": 1}

_MISSING: Mapping[str, str] = {
    "schema": "a TOML file with [schema], as zerosum schema DATA writes one",
    "data": "a CSV or Parquet file",
}


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
        read = read.changed(**{name: v for name, v in changed.items() if v is not None})
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


def _ask_one(kind: str, fields: dict[str, Any], common: dict[str, Any]) -> None:
    """Ask one question, of a federation that is begun or gone on with."""
    from zerosum.server.analytics.drafts import Draft
    from zerosum.server.analytics.query_folder import is_query_folder

    asked = {key: common.pop(key) for key in ("epsilon", "where", "name", "mechanism", "fresh")}
    json_file, csv_file = common.pop("json_file"), common.pop("csv_file")
    for path in (json_file, csv_file):
        if path is not None:
            check_writable(path)
    out = common.pop("out")
    given = {_FIELDS.get(name, name): v for name, v in common.items() if v is not None}
    draft = Draft.read(
        {"kind": kind, **fields, **{k: v for k, v in asked.items() if v is not None}}
    )
    begun = out is not None and is_query_folder(out)
    if kind == "oracle" and not begun:
        given = {**_ORACLE, **given}  # a report is of a client, and may become any other
    read = _again(out, given) if begun else _new(draft, given)
    draft = _completed(draft, read.domains)
    draft.ask(read.domains)  # a mistyped column is told before anything loads
    _say(f"{_words(draft)}: epsilon = {draft.epsilon:g} of {read.plan.budget.epsilon:g}")
    with loading():
        from zerosum.simulations.queries.federation import Federation, new_folder
    folder = out or new_folder()
    if begun:
        federation = Federation.resume(folder)
    else:
        federation = Federation.begin(replace(read, queries=(draft,)), None, folder)
    with federation, interruptible(lambda: _left(folder), failures=()), _query_errors():
        answer = federation.ask(draft)
        _write(federation, answer, draft, json_file, csv_file)
        _show(federation, [answer])


def _new(draft: "Draft", given: dict[str, Any]) -> "PlanFile":
    """Return the plan of a federation that one question begins."""
    from zerosum.client.queries.schema import Schema
    from zerosum.server.analytics.query_plan import PlanFile, plan_of

    for name in ("schema", "data"):
        if name not in given:
            raise ConfigError(f"--{name} is missing: {_MISSING[name]}")
    budget = {k: given.pop(k) for k in _BUDGET if k in given}
    budget["epsilon"] = budget.pop("budget", draft.epsilon)
    domains = Schema.read(given.pop("schema"))
    given["data"] = str(given["data"])
    return PlanFile(plan=plan_of({**given, "budget": budget}), domains=domains)


def _again(folder: Path, given: dict[str, Any]) -> "PlanFile":
    """Return the plan of a folder; an option that would change it is refused."""
    from zerosum.server.analytics.query_folder import read_folder

    read = read_folder(folder)
    values = read.plan.model_dump(mode="json")
    before = {**values, **values["budget"], "budget": read.plan.budget.epsilon}
    for name, value in given.items():
        if name in ("schema", "data"):
            raise ConfigError(f"--out {folder} has its own {name}: leave out --{name}")
        if before[name] != value:
            option = {v: k for k, v in _FIELDS.items()}.get(name, name).replace("_", "-")
            raise ConfigError(
                f"--{option} {value}: {folder} was begun with {before[name]}, and stays so; leave "
                "it out, or choose another --out"
            )
    return read


def _completed(draft: "Draft", domains: "Schema") -> "Draft":
    """Name all columns that have cells as features, where none are named."""
    if draft.kind != "bayes" or "features" in draft.fields:
        return draft
    label = draft.fields["label"]
    domains.column(label)
    celled = [
        name
        for name, column in domains.columns.items()
        if name != label and (column.kind == "category" or getattr(column, "bins", None))
    ]
    return replace(draft, fields={**draft.fields, "features": celled})


def _run(federation: "Federation", json_file: Path | None) -> None:
    """Ask all queries of a folder, and say each answer as it comes."""
    folder = federation.folder
    with interruptible(lambda: _left(folder), failures=()), _query_errors():
        answers = federation.run(lambda answer: _say(answer.sentence()))
        if json_file is not None:
            entries = list(federation.answers.entries)
            write_json(json_file, {"answers": entries, "budget": federation.spending.document()})
        _show(federation, [], len(answers))


def _write(
    federation: "Federation",
    answer: "Answer",
    draft: "Draft",
    json_file: Path | None,
    csv_file: Path | None,
) -> None:
    if json_file is not None:
        values = answer.to_json()
        write_json(
            json_file, {"name": draft.name, **values, "budget": federation.spending.document()}
        )
    if csv_file is not None:
        from zerosum.server.analytics.stored_answers import table_text

        csv_file.write_text(table_text(answer.rows()), encoding="utf-8")


def _show(federation: "Federation", answers: "Sequence[Answer]", asked: int = 1) -> None:
    """Print sentences, what was spent and where everything is."""
    for answer in answers:
        _say(answer.sentence())
        for line in _figures(answer):
            _say(line)
    _say(f"Budget   {federation.spending.sentence()}")
    _say(f"Folder   {federation.folder}")
    _say(f"Report   {federation.report()}")


def _figures(answer: "Answer") -> Iterator[str]:
    from zerosum.server.privacy.rounding import epsilon_text

    bounds = answer.epsilon.values()
    figures = ", ".join(f"{each.observer} {epsilon_text(each.value)}" for each in bounds)
    yield f"Epsilon  {figures}"


def _words(draft: "Draft") -> str:
    """Say a question in a line."""
    fields = [
        ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in draft.fields.items()
        if name in ("column", "columns", "label", "cliques")
    ]
    where = "" if draft.where is None else f" where {draft.where}"
    return " ".join([draft.kind, *fields]) + where


def _left(folder: Path | None) -> str:
    """Say what an ended command keeps, and how it goes on."""
    done = "What was paid for is kept and is not paid for again"
    return continue_with(f"{done}: {folder}.", ["zerosum", "query", "--resume", str(folder)])


def _listed(words: Sequence[str] | None) -> list[str]:
    """Return the parts of words that may hold commas."""
    return [part.strip() for word in words or () for part in word.split(",") if part.strip()]


def _beside(file: Path, given: Path | None, named: str | None) -> Path | None:
    """Return the data: as given, or as a plan names them, from its own folder on."""
    if given is not None or named is None:
        return given
    return Path(named) if Path(named).is_absolute() else file.parent / named


def _say(text: str) -> None:
    Console().print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _query_errors() -> Iterator[None]:
    """Say in one line what is wrong, and exit with 2; with 1 where an answer was given up."""
    from zerosum.client.queries.errors import QueryError
    from zerosum.server.analytics.asks import QueryAbandoned

    with (
        user_errors(ConfigError, QueryError),
        user_errors(QueryAbandoned, code=ABANDONED),
    ):
        yield
