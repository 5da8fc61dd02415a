"""Collect the rows of ``zerosum list``: experiments, tasks, models, mechanisms, attacks."""

import ast
import importlib.util
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import get_args

from zerosum.client.privacy.registry import counting_rows
from zerosum.client.spec import Choices, ModelSpec, PrivacySpec, SecAggSpec
from zerosum.client.task import error_line, registered_tasks
from zerosum.client.task_errors import FAILURES
from zerosum.server.spec import SamplingSpec, ServerSpec
from zerosum.simulations.attacks.harness.built_in import BUILT_IN, PACKAGE
from zerosum.simulations.config import experiment_names, experiment_text

Rows = list[tuple[str, str]]


def catalog() -> dict[str, Rows]:
    """Return names with meanings: experiments, tasks, models, mechanisms, protocols, and so on."""
    return {
        "Experiments": [
            (name, _first_comment(experiment_text(name))) for name in experiment_names()
        ],
        "Tasks": [(name, _summary_of(entry)) for name, entry in registered_tasks().items()]
        + [("module:object", "a Task of your own")],
        "Models": [(name, "") for name in get_args(ModelSpec.model_fields["name"].annotation)],
        "Privacy models": _choices(PrivacySpec, "model"),
        "Privacy mechanisms": _choices(PrivacySpec, "mechanism") + counting_rows(),
        "Clipping": _choices(PrivacySpec, "clipping"),
        "Secure aggregation": _choices(SecAggSpec, "protocol"),
        "Sampling": _choices(SamplingSpec, "kind"),
        "Server rules": _choices(ServerSpec, "rule"),
        "Attacks": _attacks(),
    }


def _attacks() -> Rows:
    """Return the names that ``zerosum attack`` takes, each with its first attacker's summary."""
    rows = [
        (name, _first_line(*f"{PACKAGE}.{first}".split(":")))
        for name, (first, *_) in BUILT_IN.items()
    ]
    return [*rows, ("module:Class", "an Attack of your own")]


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
    field = spec.model_fields[key]
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
