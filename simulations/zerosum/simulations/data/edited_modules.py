"""Read a task's modules again where their files were edited since they were imported.

Python imports a module once in the life of a process. In a notebook that life is a day, in which
a user edits a task, runs again, and would be given the figures of the old one.

Read again are the module of the task and the modules that it imports by a statement, as far as
their files lie under the current directory and belong to no installed package. One edit makes all
of them new: a module that was not edited holds classes of one that was.
"""

import ast
import hashlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import zerosum
from zerosum.client.given_task import GivenTask
from zerosum.client.task import TaskError, module_and_object

_read: dict[str, tuple[ModuleType, str]] = {}
"""Of each module of a user's: the module, and the SHA-256 of its file when it was imported."""


@contextmanager
def read_again(task: str) -> Iterator[None]:
    """Forget a task's modules, if one of their files was edited; the block imports them.

    A name that is none of a task is left to who resolves it.

    Parameters
    ----------
    task : str
        Name of a task. An object is what it is, and nothing is forgotten.

    Yields
    ------
    None
        While the task is resolved.
    """
    name = None
    if not isinstance(task, GivenTask):
        with suppress(TaskError):
            name, _ = module_and_object(task)
    if name is None:
        yield
        return
    own = list(_own_modules(name))
    if any(_is_edited(module, path) for module, path in own):
        for module, path in own:
            _forget(module.__name__, path)
    try:
        yield
    finally:
        for module, path in _own_modules(name):
            if _read.get(module.__name__, (None,))[0] is not module:
                _read[module.__name__] = module, _digest(path)


def _forget(name: str, path: Path) -> None:
    sys.modules.pop(name, None)
    _read.pop(name, None)
    parent, _, last = name.rpartition(".")
    if parent in sys.modules and hasattr(sys.modules[parent], last):
        delattr(sys.modules[parent], last)  # `from package import module` would find it there
    # Python takes a compiled file of the same second and size for the same: an edit may be both.
    with suppress(OSError, NotImplementedError):
        Path(importlib.util.cache_from_source(str(path))).unlink()


def _is_edited(module: ModuleType, path: Path) -> bool:
    """Return whether a module's file is another than it was when the module was imported."""
    known, digest = _read.get(module.__name__, (None, ""))
    if known is module:
        return digest != _digest(path)
    # Imported by the user's own code: its compiled file is dated with the text it was made of.
    with suppress(OSError, NotImplementedError):
        compiled = Path(importlib.util.cache_from_source(str(path))).read_bytes()[:16]
        now = path.stat()
        dated = int.from_bytes(compiled[8:12], "little"), int.from_bytes(compiled[12:], "little")
        by_date = int.from_bytes(compiled[4:8], "little") == 0
        return by_date and dated != (int(now.st_mtime) % 2**32, now.st_size % 2**32)
    return False


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # gone: whoever imports it says so
        return ""


def _own_modules(name: str) -> Iterator[tuple[ModuleType, Path]]:
    """Yield a module and what it imports, of those that are loaded and the user's own."""
    waiting, seen = [name], set[str]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        parent = each.rpartition(".")[0]
        waiting += [parent] if parent else []
        module = sys.modules.get(each)
        if module is None:  # its import failed, or is to come; what it imports may be loaded
            waiting += _imported_by_file(each)
        elif (path := _own_file(module)) is not None:
            waiting += _imported(path, module.__package__ or "")
            yield module, path


def _imported_by_file(name: str) -> list[str]:
    stem, package = Path.cwd().joinpath(*name.split(".")), name.rpartition(".")[0]
    files = {stem.with_suffix(".py"): package, stem / "__init__.py": name}
    return next((_imported(path, files[path]) for path in files if path.is_file()), [])


def _own_file(module: ModuleType) -> Path | None:
    """Return the file of a module under the current directory, outside installed packages."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or not isinstance(file, str) or not file.endswith(".py"):
        return None
    path = Path(os.path.abspath(file))
    if not path.is_relative_to(Path.cwd()) or any(map(path.is_relative_to, _installed())):
        return None
    return path


def _installed() -> list[Path]:
    """Return the folders of packages that were installed, which nobody edits between two runs."""
    paths = sysconfig.get_paths()
    names = [paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    with suppress(AttributeError):  # of some virtual environments
        names += [*site.getsitepackages(), site.getusersitepackages()]
    return [Path(os.path.abspath(name)) for name in [*names, *zerosum.__path__]]


def _imported(path: Path, package: str) -> list[str]:
    """Return the modules that a file's import statements name, wherever in it they stand."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # whoever imports it says so
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                with suppress(ImportError, ValueError):  # beyond the package
                    base = importlib.util.resolve_name("." * node.level + base, package)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names
