"""What a user brings: a model, data, a loss. And how a name becomes that object.

Nothing here imports torch, so a client that only masks and shares never pays for it.
"""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from zerosum.client.spec import DataSpec, ModelSpec

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import Dataset as TorchDataset

    Dataset: TypeAlias = TorchDataset[Any] | tuple[torch.Tensor, torch.Tensor]

BUILTIN_TASKS: Mapping[str, str] = {
    "mnist5k": "zerosum.simulations.tasks:Mnist5kTask",
    "digits": "zerosum.simulations.tasks:DigitsTask",
    "mnist": "zerosum.simulations.tasks:MnistTask",
    "table": "zerosum.simulations.tasks:TableTask",
    "hf": "zerosum.simulations.tasks:HuggingFaceTask",
}
"""Short names. Strings, because a client imports nothing that stands to its right."""

_REQUIRED = ("model", "data", "test_data", "loss")


class TaskError(ValueError):
    """A task, its data or its model cannot be used; the message is one line for the user."""


@dataclass(frozen=True)
class ClientInfo:
    """Which client is asking for its data.

    Parameters
    ----------
    index : int
        The client's place in the roster, in [0, count).
    count : int
        Clients in the roster.
    split : str
        ``"train"`` for training, ``"test"`` for federated evaluation.
    seed : int
        The experiment's seed.
    node_config : Mapping
        Configuration of the node in a deployment; empty in a simulation.
    """

    index: int
    count: int
    split: str = "train"
    seed: int = 0
    node_config: Mapping[str, Any] = field(default_factory=dict)


class Task(Protocol):
    """All that a user must write.

    Two more methods are used where a task has them: ``num_clients() -> int``, the size of a
    natural partition, and ``metrics(outputs, targets) -> dict[str, Tensor]``, values per
    example of shape (n,). Without ``metrics``, integer targets are scored by accuracy.
    """

    def model(self) -> "nn.Module":
        """Return a new model; initialisation may draw from torch's generator, seeded for it."""
        ...

    def data(self, client: ClientInfo) -> "Dataset":
        """Return one client's records: a torch Dataset or a pair (inputs, targets) of tensors."""
        ...

    def test_data(self) -> "Dataset | None":
        """Return public test data, or None where there is none."""
        ...

    def loss(self, outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        """Return one loss per example, shape (n,)."""
        ...


def resolve_task(name: str, data: DataSpec, model: ModelSpec, seed: int) -> Task:
    """Return the task that a name stands for.

    An object with ``from_specs(data, model, seed)`` is built by it; a class or a function
    without arguments is called; anything else is the task itself.

    Parameters
    ----------
    name : str
        A key of :data:`BUILTIN_TASKS` or ``"module:object"``; modules in the current directory
        are found.
    data, model : DataSpec, ModelSpec
        Sections of the experiment, for tasks that read them.
    seed : int
        The experiment's seed.

    Raises
    ------
    TaskError
        One line that names the key, the value, what is allowed and the cure.
    """
    target = BUILTIN_TASKS.get(name, name)
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise TaskError(
            f'task = "{name}": not a built-in task ({", ".join(sorted(BUILTIN_TASKS))}) and not '
            f'"module:object"{_nearest(name, BUILTIN_TASKS)}'
        )
    with _current_directory_importable():
        module = _import(module_name, name)
        found = _attribute(module, attribute, name)
        task = _build(found, name, data, model, seed)
    _check_methods(task, name)
    return cast(Task, task)


def population(task: Task, data: DataSpec) -> int:
    """Return the number of clients: ``data.clients``, else what the task suggests.

    Raises
    ------
    TaskError
        If neither says.
    """
    if data.clients is not None:
        return data.clients
    suggest = getattr(task, "num_clients", None)
    if suggest is None:
        raise TaskError(
            f"data.clients is absent and {type(task).__name__} has no num_clients(): "
            "set data.clients to the number of clients"
        )
    return int(suggest())


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    entry = os.getcwd()
    sys.path.insert(0, entry)
    importlib.invalidate_caches()  # the file may be seconds old
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def _import(module_name: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            near = _nearest(module_name, [path.stem for path in Path.cwd().glob("*.py")])
            raise TaskError(
                f'task = "{name}": no module {module_name} here or among the installed packages'
                f"{near}; run where {module_name.partition('.')[0]}.py lies, or install it"
            ) from error
        raise TaskError(
            f'task = "{name}": {module_name} imports {missing}, which is not installed: install it'
        ) from error
    except (ImportError, SyntaxError) as error:
        raise TaskError(f'task = "{name}": importing {module_name} fails: {error}') from error
    except (TypeError, ValueError) as error:
        if module_name.startswith("."):
            raise TaskError(f'task = "{name}": write the module without leading dots') from error
        raise


def _attribute(module: ModuleType, attribute: str, name: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [key for key in vars(found) if not key.startswith("_")]
            raise TaskError(
                f'task = "{name}": {module.__name__} has no {attribute}'
                f"{_nearest(attribute, public)}; define it there, as `{part} = MyTask()`"
            )
        found = getattr(found, part)
    return found


def _build(found: Any, name: str, data: DataSpec, model: ModelSpec, seed: int) -> Any:
    if hasattr(found, "from_specs"):
        return found.from_specs(data, model, seed)
    if not callable(found) or (not isinstance(found, type) and not _missing(found)):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise TaskError(
            f'task = "{name}": {getattr(found, "__name__", found)} needs arguments; name an '
            "object, a class or function without arguments, or give it from_specs(data, model, "
            "seed)"
        ) from error
    return found()


def _missing(task: Any) -> list[str]:
    return [method for method in _REQUIRED if not callable(getattr(task, method, None))]


def _check_methods(task: Any, name: str) -> None:
    missing = _missing(task)
    if missing:
        raise TaskError(
            f'task = "{name}": {type(task).__name__} lacks {", ".join(missing)}; '
            "a task has model(), data(client), test_data() and loss(outputs, targets)"
        )


def _nearest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f'; nearest is "{close[0]}"' if close else ""
