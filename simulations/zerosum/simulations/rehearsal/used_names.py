"""Tell which names an app imports, and whether it makes use of them, from its syntax trees.

Nothing is run. An import is no use, nor is an annotation, nor a call whose value nothing reads.
Whatever the trees leave open counts as a use: a run without a private sum is told at its end, and
a rehearsal that is refused wrongly cannot be had at all.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True)
class Import:
    """A name that a module imports.

    Attributes
    ----------
    name : str
        As it is called where it comes from.
    place : str
        File and line: of a call whose value nothing reads, or else of the import.
    used : bool
        Whether the module makes use of it.
    """

    name: str
    place: str
    used: bool


def imports_of(
    modules: Mapping[str, ast.Module],
    names: Iterable[str],
    source: Callable[[str], bool],
    entries: Iterable[str] = (),
) -> list[Import]:
    """Return where some names are imported, or are attributes of what is imported.

    Parameters
    ----------
    modules : mapping of str to ast.Module
        By file.
    names : iterable of str
        As they are called where they come from.
    source : callable
        Says of a module's name whether names come from there. An app's own modules pass on what
        they import, under other names too.
    entries : iterable of str
        Names that something outside of these modules reads.

    Returns
    -------
    list of Import
        In the order of the files.
    """
    known = {name: name for name in names}
    own = {file.removeprefix("src/").removesuffix(".py").split("/")[0] for file in modules}

    def comes_from(module: str) -> bool:
        return source(module) or module.split(".")[0] in own

    while True:  # a name that one module passes on by another name is known by both
        local = {file: _bound(tree, known, comes_from) for file, tree in modules.items()}
        more = {name: here.name for each in local.values() for name, here in each.items()} | known
        if more == known:
            break
        known = more
    read = set(chain(entries, *(_read(tree) for tree in modules.values())))
    return [
        found
        for file, tree in modules.items()
        for found in _judged(file, tree, known, local[file], read)
    ]


def names_read(tree: ast.Module, source: Callable[[str], bool]) -> Iterator[str]:
    """Yield what a module reads of what it imports from somewhere, and every attribute.

    Parameters
    ----------
    tree : ast.Module
    source : callable
        Says of a module's name whether it is wanted.

    Yields
    ------
    str
        As it is called where it comes from.
    """
    read = {node.id for node in ast.walk(tree) if _is_loaded(node) and isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and source(_module(node)):
            yield from (alias.name for alias in node.names if (alias.asname or alias.name) in read)
        elif isinstance(node, ast.Attribute):
            yield node.attr


@dataclass(frozen=True)
class _Bound:
    """What a local name stands for, and the line that imports it."""

    name: str
    line: int


def _bound(
    tree: ast.Module, known: Mapping[str, str], comes_from: Callable[[str], bool]
) -> dict[str, _Bound]:
    """Return the local names of what is known, as a module imports it."""
    found: dict[str, _Bound] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.level or comes_from(_module(node))):
            continue
        for alias in node.names:
            if alias.name == "*":
                found |= {name: _Bound(whose, node.lineno) for name, whose in known.items()}
            elif alias.name in known:
                found[alias.asname or alias.name] = _Bound(known[alias.name], node.lineno)
    return found


def _judged(
    file: str,
    tree: ast.Module,
    known: Mapping[str, str],
    local: Mapping[str, _Bound],
    read: set[str],
) -> Iterator[Import]:
    """Yield what a module imports, or has as an attribute, with whether it makes use of it."""
    idle = {id(node): line for node, line in _idle(tree, read)}
    used: set[str] = set()
    dropped: dict[str, int] = {}
    attributes: dict[str, int] = {}
    for node in ast.walk(tree):
        if not _is_loaded(node):
            continue
        if isinstance(node, ast.Name) and node.id in local:
            name = local[node.id].name
        elif isinstance(node, ast.Attribute) and node.attr in known:
            name = known[node.attr]
            attributes.setdefault(name, node.lineno)
        else:
            continue
        if id(node) in idle:
            dropped.setdefault(name, idle[id(node)])
        else:
            used.add(name)
    imported = {bound.name: bound.line for bound in local.values()}
    for name, line in (attributes | imported).items():
        at = line if name in used else dropped.get(name, line)
        yield Import(name, f"{file}, line {at}", name in used)


def _idle(tree: ast.Module, read: set[str]) -> Iterator[tuple[ast.AST, int]]:
    """Yield what no use is made of: annotations, and what is called for a value nobody reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            yield from ((each, node.lineno) for each in ast.walk(node.annotation))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield from ((each, node.lineno) for each in ast.walk(node.returns))
        if isinstance(node, ast.Expr):
            targets: list[ast.expr] = []
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        kept = any(not isinstance(each, ast.Name) or each.id in read for each in targets)
        if isinstance(node.value, ast.Call) and not kept:
            yield node.value.func, node.lineno


def _read(tree: ast.Module) -> Iterator[str]:
    """Yield all names that a module reads, of its own or of others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and _is_loaded(node):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def _is_loaded(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)


def _module(node: ast.ImportFrom) -> str:
    return "" if node.level else node.module or ""
