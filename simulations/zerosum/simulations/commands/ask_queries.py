"""Ask what ``zerosum query`` was given, and say what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from zerosum.client.files.operating_system import named_path
from zerosum.server.config import ConfigError
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.progress import ProgressBar
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

_FIELDS: Mapping[str, str] = {"clients_by": "by"}
"""Options that a plan has under another key."""

_BUDGET = ("budget", "delta", "rule", "unit", "adjacency")

_ORACLE: Mapping[str, Any] = {"unit": "client", "adjacency": "replace", "cap": 1}

_MISSING: Mapping[str, str] = {
    "schema": "a TOML file with [schema], as zerosum schema DATA writes one",
    "data": "a CSV or Parquet file",
}


def ask_one(kind: str, fields: dict[str, Any], common: dict[str, Any]) -> None:
    """Ask one question, of a federation that is begun or gone on with.

    Parameters
    ----------
    kind : str
        Of the query.
    fields : dict
        Of its kind, in plain values.
    common : dict
        The options that every query takes; those that were not given are None.

    Raises
    ------
    ConfigError, QueryError
        One line, before anything is asked.
    """
    from zerosum.server.analytics.drafts import Draft
    from zerosum.server.analytics.query_folder import is_query_folder

    asked = {key: common.pop(key) for key in ("epsilon", "where", "name", "mechanism", "fresh")}
    json_file, csv_file = common.pop("json_file"), common.pop("csv_file")
    for option, path in (("--json", json_file), ("--csv", csv_file)):
        if path is not None:
            check_writable(path, option)
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
    say(f"{_words(draft)}: epsilon = {draft.epsilon:g} of {read.plan.budget.epsilon:g}")
    with loading():
        from zerosum.server.runs.run_folder import new_folder
        from zerosum.simulations.queries.federation import Federation
    folder = out or new_folder("queries")
    if begun:
        federation = Federation.resume(folder)
    else:
        federation = Federation.begin(replace(read, queries=(draft,)), None, folder)
    with federation, interruptible(lambda: _left(folder), failures=()), query_errors():
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


def run_all(federation: "Federation", json_file: Path | None) -> None:
    """Ask all queries of a folder, and say each answer as it comes.

    Parameters
    ----------
    federation : Federation
        With its folder.
    json_file : Path or None
        Where all answers are written.
    """
    folder = federation.folder
    with interruptible(lambda: _left(folder), failures=()), query_errors():
        total, numbers = len(federation.queries), count(1)
        kept = len(federation.answers.entries)
        with ProgressBar(total, "query") as bar:

            def said(answer: "Answer") -> None:
                nonlocal kept
                bar.line(answer.sentence())
                number, before, kept = next(numbers), kept, len(federation.answers.entries)
                # A stored answer takes no time, and says nothing of those that are asked.
                bar.show(f"query {number}/{total}", number, own=kept > before)

            answers = federation.run(said)
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

        csv_file.write_text(table_text(answer.rows()), encoding="utf-8", newline="\n")


def _show(federation: "Federation", answers: "Sequence[Answer]", asked: int = 1) -> None:
    """Print sentences, what was spent and where everything is."""
    for answer in answers:
        say(answer.sentence())
        for line in _figures(answer):
            say(line)
    say(f"Budget   {federation.spending.sentence()}")
    say(f"Folder   {federation.folder}")
    say(f"Report   {federation.report()}")


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


def listed(words: Sequence[str] | None) -> list[str]:
    """Return the parts of words that may hold commas."""
    return [part.strip() for word in words or () for part in word.split(",") if part.strip()]


def beside(file: Path, given: Path | None, named: str | None) -> Path | None:
    """Return where the data are: as given, or as a plan names them, from its own folder on.

    Parameters
    ----------
    file : Path
        The plan.
    given : Path or None
        By an option.
    named : str or None
        In the plan.

    Returns
    -------
    Path or None
        None where neither says it.
    """
    if given is not None or named is None:
        return given
    return file.parent / named_path(named)


def say(text: str) -> None:
    """Print a line as it is."""
    Console().print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def query_errors() -> Iterator[None]:
    """Say in one line what is wrong, and exit with 2; with 1 where an answer was given up.

    Yields
    ------
    None
        While a command runs.
    """
    from zerosum.client.queries.errors import QueryError
    from zerosum.server.analytics.asks import QueryAbandoned

    with (
        user_errors(ConfigError, QueryError),
        user_errors(QueryAbandoned, code=ABANDONED),
    ):
        yield
