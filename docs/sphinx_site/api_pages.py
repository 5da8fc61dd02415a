"""Pages of the public API, from ``__all__`` of each public module: one for each name.

A module has a page with its docstring and a table of its names; its exceptions share a page. A name
that another module has already is described there, and stands here as a reference.
"""

import importlib
import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from pydantic import BaseModel

MODULES = {
    "zerosum.simulations": "run, resume, plan, sweep and attack experiments",
    "zerosum.simulations.data": "tasks, models and data sets",
    "zerosum.simulations.attacks": "attacks, and what one's own is made of",
    "zerosum.analytics": "ask a federation without a model",
    "zerosum.client": "what runs where the data are",
    "zerosum.server": "what coordinates, accounts and averages",
    "zerosum.secagg": "secure sums by themselves",
}
"""All public modules, in the order of the contents, and what each is for."""


def pages() -> Iterator[tuple[str, str]]:
    """Yield name and text, in reStructuredText, of every page."""
    described: dict[int, str] = {}
    for module in MODULES:
        names = _names(module)
        errors = [name for name, it in names.items() if _is_error(it)]
        others = [name for name in names if name not in errors]
        documents = [f"{module}.{name}" for name in others]
        documents += [f"{module}.errors"] if errors else []
        yield f"{module}.rst", _module_page(module, names, documents)
        for name in others:
            text = _entry(module, name, names[name], described)
            yield f"{module}.{name}.rst", _titled(name) + text
        if errors:
            entries = (_entry(module, name, names[name], described) for name in errors)
            text = _titled("Errors") + f"Exceptions of :mod:`{module}`.\n\n" + "".join(entries)
            yield f"{module}.errors.rst", text


def public_names() -> list[str]:
    """Return every public name, as it is imported."""
    return [f"{module}.{name}" for module in MODULES for name in _names(module)]


def _names(module: str) -> dict[str, Any]:
    loaded = importlib.import_module(module)
    return {name: getattr(loaded, name) for name in sorted(loaded.__all__, key=str.lower)}


def _is_error(it: Any) -> bool:
    return isinstance(it, type) and issubclass(it, BaseException)


def _titled(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n"


def _role(it: Any) -> str:
    if isinstance(it, ModuleType):
        return "mod"
    if isinstance(it, type):
        return "exc" if _is_error(it) else "class"
    return "func" if callable(it) and not _is_alias(it) else "data"


def _is_alias(it: Any) -> bool:
    return not inspect.isroutine(it)


def _module_page(module: str, names: dict[str, Any], documents: list[str]) -> str:
    rows = "".join(
        f"   * - :{_role(it)}:`{name} <{module}.{name}>`\n     - {_summary(it)}\n"
        for name, it in names.items()
    )
    tree = "".join(f"   {document}\n" for document in documents)
    return (
        f"{_titled(module)}.. automodule:: {module}\n   :no-members:\n\n"
        f".. list-table::\n   :widths: 30 70\n\n{rows}\n"
        f".. toctree::\n   :hidden:\n\n{tree}"
    )


def _summary(it: Any) -> str:
    text = (it.__doc__ or "").strip() if _role(it) != "data" else ""
    return text.split("\n\n")[0].replace("\n", " ") or "An alias."


def _entry(module: str, name: str, it: Any, described: dict[int, str]) -> str:
    """Return what describes one name; the second time, a reference to the first."""
    path, role = f"{module}.{name}", _role(it)
    if first := described.get(id(it)):
        kind = {"exc": "exception", "func": "function", "mod": "module"}.get(role, role)
        return f".. py:{kind}:: {path}\n\n   The same as :{role}:`{first}`.\n\n"
    described[id(it)] = path
    if role == "mod":
        return f".. py:module:: {path}\n\n.. automodule:: {it.__name__}\n   :members:\n\n"
    if isinstance(it, type) and issubclass(it, BaseModel):
        return _section_entry(path, it)
    directive = {"exc": "exception", "func": "function"}.get(role, role)
    return f".. auto{directive}:: {path}\n\n"


def _section_entry(path: str, section: type[BaseModel]) -> str:
    """Return what describes a section of the configuration: its keys have a page already."""
    own = [
        name
        for name, it in vars(section).items()
        if isinstance(it, FunctionType | property | classmethod)
        and not name.startswith(("_", "model_"))
        and it.__doc__
    ]
    keys = ", ".join(f"``{name}``" for name in section.model_fields)
    left_out = ", ".join(sorted({*section.model_fields, *vars(section)} - {*own}))
    return (
        f".. autoclass:: {path}(**keys)\n   :exclude-members: {left_out}\n\n"
        f"   Keys: {keys}. Their types, bounds and defaults: :doc:`/configuration`.\n\n"
    )
