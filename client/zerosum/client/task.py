"""Define a Task, which a user writes (model, data, loss), and find one by its name.

Nothing here imports torch, so a client that only masks and shares never pays for it.
"""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import zerosum
from zerosum.client.given_task import GivenTask, is_object_name
from zerosum.client.nearest_word import did_you_mean
from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task_errors import FAILURES
from zerosum.client.user_error import UserError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import Dataset as TorchDataset

    Dataset: TypeAlias = TorchDataset[Any] | tuple[torch.Tensor, torch.Tensor]

TASK_GROUP = "zerosum.tasks"
"""Entry points of installed packages that give tasks short names."""

_REQUIRED = ("model", "data", "test_data", "loss")
_METHODS = "model(), data(client), test_data() and loss(outputs, targets)"


_LONGEST_LINE_CHARACTERS = 1000
"""Of an error that is quoted: some have a page, or all records, in their first line."""


class TaskError(UserError, ValueError):
    """A task, its data or its model cannot be used; the message is one line for the user.

    Line ends and other control characters in it, as a path may bring them, are written as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))


def error_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message, cut where it is very long.

    Never raises: an error of somebody else's whose text cannot be had is one that cannot be
    handled, and under privacy its client would drop out, which depends on its records.
    """
    try:
        lines = str(error).strip().splitlines()
    except FAILURES:
        lines = ["its message cannot be read"]
    if not lines:
        return type(error).__name__
    said, longest = lines[0], _LONGEST_LINE_CHARACTERS
    said = said if len(said) <= longest else said[: longest - 1] + "…"
    return f"{type(error).__name__}: {said}"


@dataclass(frozen=True)
class ClientInfo:
    """The client whose data is asked for.

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
    """The model, data and loss that a user writes.

    Further members are used where a task has them: ``num_clients() -> int``, the size of a
    natural partition; ``num_examples(clients) -> int``, the training records of so many clients
    together, which are counted one client after another where it is missing;
    ``metrics(outputs, targets) -> dict[str, Tensor]``, values per example of shape (n,);
    ``public_metrics: Collection[str]``, names of those that are figures of the public test data
    alone; ``loss_unit: float``, by which reported losses are multiplied where targets were scaled;
    ``data_summary() -> dict | None``, what was read of a file, for the summary: ``line`` in
    words, the rest for programs; and ``test_metrics(outputs, targets) -> Mapping[str, float]``,
    figures of all public test data at once, which no mean over examples gives (AUC, macro F1): see
    :mod:`zerosum.client.training.whole_set`. Without ``metrics``, integers that each name one of
    two or more outputs are scored by accuracy, and nothing else is.
    """

    def model(self) -> "nn.Module":
        """Return a new model each time; it may draw from torch's generator, seeded for it.

        Trained is what requires a gradient here, in float32. What could not be trained as
        ``torch.optim.SGD`` would is refused: see :mod:`zerosum.client.training.model_checks`.
        """
        ...

    def data(self, client: ClientInfo) -> "Dataset":
        """Return one client's records: a torch Dataset or a pair (inputs, targets) of tensors."""
        ...

    def test_data(self) -> "Dataset | None":
        """Return public test data, or None where there is none."""
        ...

    def loss(self, outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        """Return one loss an example.

        Parameters
        ----------
        outputs : torch.Tensor
            Shape (n, ...).
        targets : torch.Tensor
            Shape (n, ...).

        Returns
        -------
        torch.Tensor
            Shape (n,).
        """
        ...


def registered_tasks() -> dict[str, EntryPoint]:
    """Return the tasks that installed packages register, by name in alphabetical order.

    A package registers a task as an entry point of the group ``zerosum.tasks`` in its own
    pyproject.toml: ``wards = "hospital.tasks:WardsTask"``. Nothing of the task is imported here.

    Raises
    ------
    TaskError
        If two packages register one name: which code a node runs must not depend on the order
        in which packages were installed.
    """
    return dict(_registered(tuple(sys.path)))


def builtin_tasks() -> list[str]:
    """Return the names of the tasks that zerosum itself registers, in alphabetical order."""
    return [name for name, entry in registered_tasks().items() if _package(entry) == "zerosum"]


@lru_cache(maxsize=4)  # reading all packages' metadata takes 5 ms, and a node asks every stage
def _registered(path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    try:
        entries = sorted(entry_points(group=TASK_GROUP), key=lambda entry: entry.name)
    except Exception as error:  # whatever reading another package's files runs into
        raise TaskError(
            f"the entry points of an installed package cannot be read ({error_line(error)}): which "
            "tasks there are is not known; uninstall that package, or install it again"
        ) from error
    for entry in entries:
        other = found.setdefault(entry.name, entry)
        if other is not entry:
            raise TaskError(
                f'task = "{entry.name}": two packages register it, {_package(other)} and '
                f"{_package(entry)}; uninstall one of them"
            )
    return found


def _package(entry: EntryPoint) -> str:
    name = None if entry.dist is None else entry.dist.name
    return name or "one without a name"  # whose METADATA is gone


def resolve_task(name: str, data: DataSpec, model: ModelSpec, seed: int) -> Task:
    """Return the task that a name stands for.

    An object with ``from_specs(data, model, seed)`` is built by it. A class is called without
    arguments, and so is a function, if the named module defines it: a function that the module
    merely imports, or one written in C, is refused. Anything else is the task itself.

    Parameters
    ----------
    name : str
        One of :func:`registered_tasks` or ``"module:object"``; modules in the current directory
        are found. Of a :class:`GivenTask` the object is taken, as if it had been found so.
    data, model : DataSpec, ModelSpec
        Sections of the experiment, for tasks that read them.
    seed : int
        The experiment's seed.

    Returns
    -------
    Task
        With all methods that a task must have.

    Raises
    ------
    TaskError
        One line that names the key, the value, what is allowed and the cure. Whatever the
        module or the task raises while it is imported or built, an exit included, is its cause.
    """
    specs = (data, model, seed)
    if isinstance(name, GivenTask):
        return _made(name, name.given, name, None, specs)
    module_name, attribute = module_and_object(name)
    with current_directory_importable():
        found = _attribute(_import(module_name, name), attribute, name)
        return _made(name, found, attribute, module_name, specs)


def _made(
    name: str,
    found: Any,
    attribute: str,
    module_name: str | None,
    specs: tuple[DataSpec, ModelSpec, int],
) -> Task:
    """Return the task that an object is, or makes."""
    if hasattr(found, "from_specs"):
        with _told(name, f"{attribute}.from_specs"):
            task = found.from_specs(*specs)
    elif isinstance(found, type) or (callable(found) and _missing(found)):
        _check_factory(found, module_name, name)
        with _told(name, attribute):
            task = found()
    else:
        task = found
    _check_methods(task, name)
    return cast(Task, task)


def module_and_object(name: str) -> tuple[str, str]:
    """Return the module and the object in it that a task's name stands for.

    Parameters
    ----------
    name : str
        As for :func:`resolve_task`.

    Returns
    -------
    tuple of str
        Module, and a dotted path in it.

    Raises
    ------
    TaskError
        If the name is neither registered nor ``"module:object"``.
    """
    if is_object_name(name):
        raise TaskError(
            f'task = "{name}": it was given as an object, which no name leads to: give the object '
            "again from Python, as resume(folder, task=MyTask()), or begin a new run"
        )
    known = registered_tasks()
    target = known[name].value if name in known else name
    module_name, _, attribute = target.partition(":")
    if module_name and attribute:
        return module_name, attribute
    if name in known:
        raise TaskError(
            f'task = "{name}": {_package(known[name])} registers it as {target!r}, which is no '
            '"module:object"; install another version of that package, or uninstall it'
        )
    if not known:
        raise TaskError(
            f'task = "{name}": no task has a short name, because the metadata of the installed '
            "zerosum registers none; install it again, as with pip install -e ."
        )
    raise TaskError(
        f'task = "{name}": not a built-in task ({", ".join(known)}) and not '
        f'"module:object"{did_you_mean(name, known)}'
    )


def population(task: Task, data: DataSpec) -> int:
    """Return the number of clients: ``data.clients``, else what the task suggests.

    Parameters
    ----------
    task : Task
        May have ``num_clients()``.
    data : DataSpec
        ``clients`` comes first.

    Returns
    -------
    int
        Clients in the roster.

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
def current_directory_importable() -> Iterator[None]:
    """Let modules in the current directory be found, before any others, for a while."""
    entry = os.getcwd()
    sys.path.insert(0, entry)
    importlib.invalidate_caches()  # the file may be seconds old
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


@contextmanager
def _told(name: str, what: str) -> Iterator[None]:
    """Turn whatever code of the user's raises into one line that says where it happened."""
    try:
        yield
    except (KeyboardInterrupt, TaskError):
        raise
    except BaseException as error:  # SystemExit too: an exit here would end the run in silence
        raise TaskError(
            f'task = "{name}": {what} fails with {error_line(error)}{_place(error)}'
        ) from error


def _place(error: BaseException) -> str:
    """Name the innermost line of the first file that is neither this one nor the importer's.

    A file of this package is not the user's to correct, and is not named.
    """
    known = (__file__, importlib.__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in known and not frame.filename.startswith("<")
    ]
    if not frames or isinstance(error, SyntaxError):  # the latter says where
        return ""
    if any(Path(frames[0].filename).is_relative_to(part) for part in zerosum.__path__):
        return f" (inside zerosum's {Path(frames[0].filename).stem}); check the keys under [data]"
    line = [frame.lineno for frame in frames if frame.filename == frames[0].filename][-1]
    return f" ({Path(frames[0].filename).name}, line {line}); correct it there"


def _import(module_name: str, name: str) -> ModuleType:
    if module_name.startswith("."):
        raise TaskError(f'task = "{name}": write the module without leading dots')
    with _told(name, f"importing {module_name}"):
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not error.name:
                raise
            raise _not_found(module_name, error.name, name) from error


def _not_found(module_name: str, missing: str, name: str) -> TaskError:
    if module_name == missing or module_name.startswith(missing + "."):
        near = did_you_mean(module_name, (path.stem for path in Path.cwd().glob("*.py")))
        return TaskError(
            f'task = "{name}": no module {module_name} here or among the installed packages; '
            f"{_where(module_name)}, or install it{near}"
        )
    return TaskError(
        f'task = "{name}": {module_name} imports {missing}, which is not installed: install it'
    )


def _where(module_name: str) -> str:
    """Say where a command finds a module: of one in a package, beside the package's folder."""
    top, dot, _ = module_name.partition(".")
    if (Path.cwd() / top / top).is_dir() or (Path.cwd() / top / f"{top}.py").is_file():
        return f"run in the folder {top}"  # as of an app that was made here
    return f"run where the folder {top} lies" if dot else f"run where {top}.py lies"


def _attribute(module: ModuleType, attribute: str, name: str) -> Any:
    found: Any = module
    with _told(name, attribute):
        for part in attribute.split("."):
            if not hasattr(found, part):
                public = [key for key in dir(found) if not key.startswith("_")]
                raise TaskError(
                    f'task = "{name}": {module.__name__} has no {attribute}; define '
                    f"it there, as `{part} = MyTask()`{did_you_mean(attribute, public)}"
                )
            found = getattr(found, part)
    return found


def _check_factory(found: Any, module_name: str | None, name: str) -> None:
    """Raise unless calling it without arguments is what the user can have meant."""
    home = getattr(found, "__module__", None)
    imported = module_name is not None and home != module_name
    if not isinstance(found, type) and (inspect.isbuiltin(found) or imported):
        raise TaskError(
            f'task = "{name}": {getattr(found, "__name__", found)} is no task, and no function '
            f"that {module_name} defines ({home} does); name an object with {_METHODS}, or the "
            "class or function that makes one, in the module that defines it"
        )
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError) as error:  # ValueError: written in C, and says nothing
        raise TaskError(
            f'task = "{name}": {getattr(found, "__name__", found)} needs arguments; name an '
            "object, a class or function without arguments, or give it from_specs(data, model, "
            "seed)"
        ) from error


def _missing(task: Any) -> list[str]:
    return [method for method in _REQUIRED if not callable(getattr(task, method, None))]


def _check_methods(task: Any, name: str) -> None:
    missing = _missing(task)
    if missing:
        raise TaskError(
            f'task = "{name}": {type(task).__name__} lacks {", ".join(missing)}; '
            f"a task has {_METHODS}"
        )
