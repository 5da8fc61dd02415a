"""Load a Flower app's two objects, and write which fails and why: a process of its own runs this.

``python -m zerosum.simulations.rehearsal.load_app FOLDER TOLD SERVERAPP CLIENTAPP``
"""

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def failure(folder: Path, component: str, kind: str) -> dict[str, str]:
    """Load ``module:name`` of an app's folder, and return what fails; nothing where it loads.

    Parameters
    ----------
    folder : Path
        On ``sys.path`` already.
    component : str
        As pyproject.toml has it.
    kind : str
        ``serverapp`` or ``clientapp``.

    Returns
    -------
    dict of str to str
        ``component``, ``error`` and ``where``.
    """
    said = f'{kind} = "{component}"'
    module, _, name = component.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except BaseException as error:  # sys.exit() at an app's top as well
        line = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        return {"component": said, "error": line, "where": _where(error, folder)}
    if not _is_app(found, kind):
        what = f"{name} is a {type(found).__name__}, and a {_CLASSES[kind]} is needed"
        return {"component": said, "error": what, "where": ""}
    return {}


_CLASSES = {"serverapp": "ServerApp", "clientapp": "ClientApp"}


def _is_app(found: Any, kind: str) -> bool:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    return isinstance(found, ServerApp if kind == "serverapp" else ClientApp)


def _where(error: BaseException, folder: Path) -> str:
    """Return the last place in the app's own files."""
    if isinstance(error, SyntaxError) and error.filename:
        return _place(Path(error.filename), error.lineno or 0, folder)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    return _place(Path(own[-1].filename), own[-1].lineno or 0, folder) if own else ""


def _place(file: Path, line: int, folder: Path) -> str:
    name = file.relative_to(folder) if file.is_relative_to(folder) else file
    return f"{name}, line {line}"


def main() -> None:
    """Load both, and write the first failure as JSON; an empty object where there is none."""
    folder, told, *components = sys.argv[1:]
    sys.path.insert(0, folder)
    failures = (
        failure(Path(folder), component, kind)
        for component, kind in zip(components, _CLASSES, strict=True)
    )
    failed = next(filter(None, failures), {})
    Path(told).write_text(json.dumps(failed), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
