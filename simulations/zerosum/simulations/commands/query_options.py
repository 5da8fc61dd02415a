"""Options that every kind of query takes, written once."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

_DATA, _COST, _OUT = "The federation", "The budget", "Output"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


JsonFile = Annotated[
    Path | None, _option("Write the answer here; - is standard output.", _OUT, "--json")
]
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


def with_common_options(
    fields: Callable[..., tuple[str, dict[str, Any]]],
    ask: Callable[[Callable[[], tuple[str, dict[str, Any]]], dict[str, Any]], None],
) -> Callable[..., None]:
    """Make a command of a function from its own arguments to a kind and its fields.

    Parameters
    ----------
    fields : callable
        With the arguments of one kind of query.
    ask : callable
        Is given a call that returns kind and fields, and the values of all common options.

    Returns
    -------
    callable
        With the options of every query, too; its help is the function's.
    """
    own = inspect.signature(fields).parameters

    def command(**given: Any) -> None:
        common = {name: given[name] for name in _COMMON}
        ask(lambda: fields(**{name: given[name] for name in own}), common)

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
    return command
