"""``zerosum list``: experiments, tasks, models, mechanisms, rules, attacks, queries."""

import ast
import importlib.util
import sys
import tomllib
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, get_args

import typer

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.privacy.registry import counting_rows
from zerosum.client.queries.query import KINDS
from zerosum.client.spec import Choices, PrivacySpec, SecAggSpec
from zerosum.client.spec.section import described
from zerosum.client.task import error_line, registered_tasks
from zerosum.client.task_errors import FAILURES
from zerosum.server.config import ConfigError
from zerosum.server.spec import SamplingSpec, ServerSpec
from zerosum.simulations.attacks.harness.built_in import BUILT_IN, PACKAGE
from zerosum.simulations.config import experiment_names, experiment_text
from zerosum.simulations.terminal.help_page import columns, definitions
from zerosum.simulations.terminal.shell_completion import Completes
from zerosum.simulations.terminal.user_errors import user_errors

Rows = list[tuple[str, str]]

MODELS: Mapping[str, str] = {
    "linear": "one layer: logistic or linear regression",
    "mlp": "layers of model.hidden units",
    "cnn": "two convolutions, pooling, two layers: images",
    "lstm": "layers of an LSTM: text",
    "transformer": "blocks of attention: text",
}
"""Of each name of ``model.name``, what it is."""


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="Of one kind alone, as attacks; else of all."),
        Completes(lambda incomplete: [(word, title) for word, (title, _) in _ROWS.items()], ""),
    ] = None,
) -> None:
    """List experiments, presets, tasks, models, mechanisms, rules, attacks, kinds of query.

    Where the output is no terminal, a line is a name, a tab and its meaning; of all kinds, the kind
    stands between the two.
    """
    with user_errors(ConfigError):
        chosen = {word: rows_of(word) for word in ([kind] if kind else _ROWS)}
    if sys.stdout.isatty():
        blocks = [
            f"{_ROWS[word][0]} (zerosum list {word})\n{definitions(rows, columns())}"
            for word, rows in chosen.items()
        ]
        typer.echo("\n\n".join(blocks))
        return
    for word, rows in chosen.items():
        for name, meaning in rows:
            typer.echo("\t".join([name, *([] if kind else [word]), meaning]))


def catalog() -> dict[str, Rows]:
    """Return names with meanings: experiments, tasks, models, mechanisms, protocols, and so on."""
    return {title: rows() for title, rows in _ROWS.values()}


def rows_of(word: str) -> Rows:
    """Return the names of one kind, with meanings.

    Parameters
    ----------
    word : str
        A kind, as ``zerosum list`` takes it.

    Returns
    -------
    list of pair of str
        Each name as commands and configurations take it.

    Raises
    ------
    ConfigError
        If there is no such kind.
    """
    if word not in _ROWS:
        hint = did_you_mean(word, _ROWS)
        raise ConfigError(f"zerosum list {word}: there are {', '.join(_ROWS)}{hint}")
    return _ROWS[word][1]()


def experiments() -> Rows:
    """Return the experiments that ship with the package."""
    return [(name, _first_comment(experiment_text(name))) for name in experiment_names()]


def presets() -> Rows:
    """Return the experiments that others extend."""
    start = "Preset: "
    return [
        (name, meaning.removeprefix(start))
        for name, meaning in experiments()
        if meaning.startswith(start)
    ]


def tasks() -> Rows:
    """Return the registered tasks, and the form of one's own."""
    rows = [(name, _summary_of(entry)) for name, entry in registered_tasks().items()]
    return [*rows, ("module:object", "a Task of your own")]


def attacks() -> Rows:
    """Return the names that ``zerosum attack`` takes, each with its first attacker's summary."""
    rows = [
        (name, _first_line(*f"{PACKAGE}.{first}".split(":")))
        for name, (first, *_) in BUILT_IN.items()
    ]
    return [*rows, ("module:Class", "an Attack of your own")]


def _queries() -> Rows:
    """Return the kinds of query, each with its command's summary."""
    module = f"{__package__}.query"
    # "sum" is a name of Python's, and so the function's has an underscore.
    return [(k, _first_line(module, k) or _first_line(module, f"{k}_")) for k in KINDS]


def _first_comment(text: str) -> str:
    first = text.splitlines()[0]
    return first.removeprefix("#").strip() if first.startswith("#") else tomllib.loads(text)["name"]


def _summary_of(entry: EntryPoint) -> str:
    """Return the first line of a task's docstring, or why the task cannot be imported.

    The line is read from the source: importing the tasks would import torch and scikit-learn,
    seconds for a line each.
    """
    try:
        return _first_line(entry.module, entry.attr)
    except FAILURES as error:  # another package's fault, which must not hide the other tasks
        return f"cannot be imported: {error_line(error)}"


def _first_line(module: str, name: str) -> str:
    """Return the first docstring line of a class or function at the top of a module."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    if spec.origin is None or not spec.origin.endswith(".py"):
        return ""  # a folder, or compiled: no source to read
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _choices(spec: type[PrivacySpec | SecAggSpec | SamplingSpec | ServerSpec], key: str) -> Rows:
    """Read each choice's meaning from the key's description: `name`: meaning."""
    field = described(spec)[key]
    text = field.description or ""
    names = [name for part in get_args(field.annotation) for name in (get_args(part) or [part])]
    names = names or [
        name for at in field.metadata if isinstance(at, Choices) for name in at.names()
    ]
    starts = [f"`{name}`: " for name in names]
    rows = []
    for name, start in zip(names, starts, strict=True):
        meaning = text.partition(start)[2]
        for other in starts:
            meaning = meaning.partition(other)[0]
        rows.append((name, meaning.replace("`", "").strip(" .")))
    return rows


_ROWS: Mapping[str, tuple[str, Callable[[], Rows]]] = {
    "experiments": ("Experiments", experiments),
    "presets": ("Presets", presets),
    "tasks": ("Tasks", tasks),
    "models": ("Models", lambda: list(MODELS.items())),
    "privacy-models": ("Privacy models", lambda: _choices(PrivacySpec, "model")),
    "mechanisms": (
        "Privacy mechanisms",
        lambda: _choices(PrivacySpec, "mechanism") + counting_rows(),
    ),
    "clipping": ("Clipping", lambda: _choices(PrivacySpec, "clipping")),
    "protocols": ("Secure aggregation", lambda: _choices(SecAggSpec, "protocol")),
    "sampling": ("Sampling", lambda: _choices(SamplingSpec, "kind")),
    "rules": ("Server rules", lambda: _choices(ServerSpec, "rule")),
    "attacks": ("Attacks", attacks),
    "queries": ("Kinds of query", _queries),
}
"""What ``zerosum list`` takes: the title of each kind, and its rows."""
