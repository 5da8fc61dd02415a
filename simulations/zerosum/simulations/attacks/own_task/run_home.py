"""Find what a run was made of from its folder, wherever the attack is called from."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import has_magic, iglob
from pathlib import Path

from zerosum.client.given_task import GivenTask
from zerosum.client.task import TaskError, module_and_object


def home_of(run: str, module: str) -> Path | None:
    """Return the nearest folder above a run's that has a module.

    Parameters
    ----------
    run : str
        The run's folder.
    module : str
        Name of a module, of which the part before the first dot is looked for.

    Returns
    -------
    Path or None
        None where the current folder has it, which comes first, or none above the run's has.
    """
    top = module.partition(".")[0]
    above = [] if _has(Path.cwd(), top) else Path(run).resolve().parents
    return next((each for each in above if _has(each, top)), None)


def _has(folder: Path, top: str) -> bool:
    # A folder without __init__.py would be one of an app as well as the package in it.
    return (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file()


@contextmanager
def importable_from(run: str, task: str) -> Iterator[None]:
    """Let a run's task be found beside the run's folder, after the current one, for a while.

    Parameters
    ----------
    run : str
        The run's folder; empty for no run.
    task : str
        Name of the task.

    Yields
    ------
    None
        While the task is resolved.
    """
    home, module = None, ""
    if run and not isinstance(task, GivenTask):
        with suppress(TaskError):  # who resolves it says so
            module, _ = module_and_object(task)
            home = home_of(run, module)
    if home is None:
        yield
        return
    _forget_others(module.partition(".")[0], home)
    sys.path.insert(0, str(home))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if str(home) in sys.path:
            sys.path.remove(str(home))


def _forget_others(top: str, home: Path) -> None:
    """Forget a module of this name that another run's home had."""
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None or not Path(file).resolve().is_relative_to(home):
        for name in [each for each in sys.modules if each.partition(".")[0] == top]:
            del sys.modules[name]


def found_path(run: str, path: str | list[str] | None) -> str | None:
    """Return where a run's data lie, if they are not where the current folder has them.

    Parameters
    ----------
    run : str
        The run's folder.
    path : str, list of str or None
        As ``data.path`` has it.

    Returns
    -------
    str or None
        Absolute, below the nearest folder above the run's that has it; None where nothing is to
        be changed.
    """
    if not isinstance(path, str) or not path or Path(path).is_absolute() or _exists(Path(path)):
        return None
    above = Path(run).resolve().parents
    return next((str(each / path) for each in above if _exists(each / path)), None)


def _exists(path: Path) -> bool:
    return any(True for _ in iglob(str(path))) if has_magic(str(path)) else path.exists()
