"""References of docstrings that Sphinx does not find: to public names by their module, and inward.

A docstring names things where they are defined, as ``zerosum.secagg.parties.client.ClientParty``,
and types of signatures come so too. Public names have their page under the name that is imported.
What is public nowhere, or is another package's, has no page: it stays text, if there is such a
thing. If there is none, the reference is an error.
"""

import importlib
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from .api_pages import MODULES, public_names

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment


def resolve(
    app: "Sphinx", env: "BuildEnvironment", node: "pending_xref", contnode: "nodes.Element"
) -> "nodes.Node | None":
    """Return the reference to a public name, text where nothing has a page, None where nothing is.

    Parameters
    ----------
    app : Sphinx
    env : BuildEnvironment
    node : pending_xref
        The reference that Sphinx did not resolve.
    contnode : Element
        How it is shown.

    Returns
    -------
    Node or None
    """
    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"]).lstrip(".~")
    # A part of a type, cut at its comma by numpydoc, is no name.
    if re.search(r"[^\w.]", target) or target.split(".")[-1] in _NOT_NAMES:
        return contnode
    found = _found(target, node.get("py:module"), node.get("py:class"))
    if found is _NOTHING:
        return None
    public = _public().get(id(found))
    if public is None:
        return contnode
    domain = env.domains.python_domain
    return (
        domain.resolve_xref(
            env, node["refdoc"], app.builder, "obj", public, _absolute(node), contnode
        )
        or contnode
    )


def exists(name: str) -> bool:
    """Return whether a name that a docstring refers to means anything."""
    return _found(name, None, None) is not _NOTHING


def without_bounds(
    app: "Sphinx",
    kind: str,
    path: str,
    described: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Take what pydantic reads of types out of a signature: ``Annotated[X, ...]`` is shown as X.

    Parameters
    ----------
    app : Sphinx
    kind, path : str
        Of what is described.
    described : object
        Itself.
    options : mapping
        Of the directive.
    signature, returned : str or None
        As text.

    Returns
    -------
    tuple of str or None
        Both without bounds.
    """
    return plain_type(signature), plain_type(returned)


def plain_type(text: str | None) -> str | None:
    """Return a type, or a signature, with X for each ``Annotated[X, ...]``."""
    while text and (found := re.search(r"(?:[~\w.]*\.)?Annotated\[", text)):
        depth, comma = 1, 0
        for end in range(found.end(), len(text)):
            depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(text[end], 0)
            if text[end] == "," and depth == 1:
                comma = comma or end
            if depth == 0:
                break
        text = text[: found.start()] + text[found.end() : comma or end] + text[end + 1 :]
    return text


_NOTHING = object()

_NOT_NAMES = ("Dataset", "Annotated")
"""An alias that exists for type checkers alone, and what Sphinx looks for in wrong modules."""

_ELSEWHERE = ("builtins", "types", "typing", "numpy", "collections.abc")
"""Modules whose names stand bare in docstrings."""


def _absolute(node: "pending_xref") -> "pending_xref":
    node = node.copy()
    node["refspecific"] = False
    return node


@cache
def _public() -> dict[int, str]:
    """Return the path of each public object; the first where two modules have it."""
    paths: dict[int, str] = {}
    for path in public_names():
        module, _, name = path.rpartition(".")
        paths.setdefault(id(getattr(importlib.import_module(module), name)), path)
    return paths


@cache
def _loaded() -> tuple[str, ...]:
    for module in MODULES:
        importlib.import_module(module)
    public_names()
    return tuple(name for name in sys.modules if name.split(".")[0] == "zerosum")


def _found(target: str, module: str | None, owner: str | None) -> Any:
    """Return what a name means: from the root, in its module or class, or anywhere of ours."""
    starts = [target]
    if module and owner:
        starts.append(f"{module}.{owner}.{target}")
    if module:
        starts.append(f"{module}.{target}")
    starts += [f"{name}.{target}" for name in _loaded()]
    starts += [f"{place}.{target}" for place in _ELSEWHERE]
    for path in starts:
        it = _imported(path)
        if it is not _NOTHING:
            return it
    return _NOTHING


@cache
def _imported(path: str) -> Any:
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            it: Any = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            it = getattr(it, part, _NOTHING)
            if it is _NOTHING:
                return _NOTHING
        return it
    return _NOTHING
