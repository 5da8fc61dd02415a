"""The lines that make a Flower app private, written into a copy of it as its author would.

By its syntax tree alone, whatever names it gives things: the ``ClientApp(...)`` gets
``private_mod``, the strategy that is started becomes ``PrivateStrategy(strategy, ...)``, or, where
messages go out by the app's own hand, its grid becomes a private one. Nothing else of it changes.
"""

import ast
import difflib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OTHER_PROTECTIONS = (
    "secaggplus_mod",
    "secagg_mod",
    "fixedclipping_mod",
    "adaptiveclipping_mod",
    "LocalDpMod",
)
"""Mods that clip, noise or mask: what ``private_mod`` does takes their place."""

_OF_START = {"initial_arrays", "num_rounds", "train_config", "evaluate_config", "evaluate_fn"}
"""Arguments by which a strategy's ``start`` is told from a thread's."""


_SENDS = ("send_and_receive", "push_messages")


class CannotEditError(Exception):
    """An app has no place for the lines; the message says what was looked for."""


@dataclass(frozen=True)
class Edited:
    """What was changed of an app.

    Parameters
    ----------
    diff : str
        All changes, as ``diff -u`` writes them.
    notes : tuple of str
        What was taken away, in words.
    """

    diff: str
    notes: tuple[str, ...]

    @property
    def lines(self) -> int:
        """Lines that were added or changed; one that only went counts too."""
        signs = [line[0] for line in self.diff.splitlines() if line[:3] not in ("+++", "---")]
        return max(signs.count("+"), signs.count("-"))


@dataclass
class _Text:
    """A module's text, and the splices that are to be made in it."""

    path: Path
    text: str
    splices: list[tuple[int, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        """Return an index into the text; the tree counts columns in bytes of UTF-8."""
        whole = self.text[self.starts[line - 1] :].encode()
        return self.starts[line - 1] + len(whole[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node of the tree begins and ends."""
        return (
            self.place(node.lineno, node.col_offset),
            self.place(node.end_lineno, node.end_col_offset),
        )

    def of(self, node: Any) -> str:
        """Return a node's own words."""
        begin, end = self.span(node)
        return self.text[begin:end]

    def replace(self, node: Any, words: str) -> None:
        """Put words in a node's place."""
        self.splices.append((*self.span(node), words))

    def insert(self, where: int, words: str) -> None:
        """Put words in."""
        self.splices.append((where, where, words))

    def imports(self, line: str, user: ast.AST) -> None:
        """Add an import after the last one before the statement that needs it."""
        last, needed = 0, self.span(user)[0]
        for node in self.tree.body:
            if self.span(node)[0] > needed:
                break
            if isinstance(node, ast.Import | ast.ImportFrom) or _docstring(node):
                last = node.end_lineno or 0
        self.insert(self.starts[last], line + "\n")

    def written(self) -> str:
        """Return the text with all splices."""
        text = self.text
        for begin, end, words in sorted(self.splices, reverse=True):
            text = text[:begin] + words + text[end:]
        return text


@dataclass(frozen=True)
class Settings:
    """What is written behind the first argument of what protects.

    Parameters
    ----------
    strategy : str
        Arguments of ``PrivateStrategy`` after the strategy.
    queries : str
        Arguments of ``PrivateQueries`` after the grid.
    """

    strategy: str
    queries: str = ""


def make_private(app: Path, settings: Settings) -> Edited:
    """Write the lines into an app.

    Parameters
    ----------
    app : Path
        Its folder, with ``pyproject.toml``: files in it are changed.
    settings : Settings
        Of the training, or of the queries, whichever it does.

    Returns
    -------
    Edited
        The changes.

    Raises
    ------
    CannotEditError
        If it has no place for them.
    """
    texts = [_Text(path, path.read_text(encoding="utf-8")) for path in sorted(app.rglob("*.py"))]
    notes = _give_mod(_named_first(texts, app, "clientapp"))
    _give_protection(_named_first(texts, app, "serverapp"), settings)
    diffs: list[str] = []
    for text in texts:
        written = text.written()
        ast.parse(written)
        name = str(text.path.relative_to(app))
        before, after = text.text.splitlines(), written.splitlines()
        diffs += difflib.unified_diff(before, after, name, name, lineterm="", n=0)
        text.path.write_text(written, encoding="utf-8", newline="\n")
    return Edited("\n".join(diffs), tuple(notes))


def components(app: Path) -> dict[str, str]:
    """Return the modules of an app's two parts, as ``package.module:object``.

    Parameters
    ----------
    app : Path
        Its folder.

    Returns
    -------
    dict
        ``clientapp`` and ``serverapp``.

    Raises
    ------
    CannotEditError
        If its ``pyproject.toml`` names none.
    """
    try:
        read = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
        found: dict[str, str] = read["tool"]["flwr"]["app"]["components"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise CannotEditError(f"no Flower app: pyproject.toml: {error!r}") from None
    return found


def _named_first(texts: list[_Text], app: Path, component: str) -> list[_Text]:
    """Return the modules of an app, the one first that its pyproject names."""
    named = components(app).get(component, "").partition(":")[0].replace(".", "/") + ".py"
    return sorted(texts, key=lambda text: str(text.path.relative_to(app)) != named)


def _give_mod(texts: list[_Text]) -> list[str]:
    found = [(text, call) for text in texts for call in _calls(text.tree, "ClientApp")]
    if not found:
        raise CannotEditError("no ClientApp(...) in it")
    text, call = found[0]
    given = next((word.value for word in call.keywords if word.arg == "mods"), None)
    notes: list[str] = []
    if given is None:
        ends = [text.span(one)[1] for one in (*call.args, *(word.value for word in call.keywords))]
        if ends:
            text.insert(max(ends), ", mods=[private_mod]")
        else:
            text.insert(text.text.index("(", text.span(call.func)[1]) + 1, "mods=[private_mod]")
    elif isinstance(given, ast.List | ast.Tuple):
        left = [text.of(one) for one in given.elts if _protects(one)]
        if left:
            notes.append(f"{', '.join(left)} replaced")
            kept = [text.of(one) for one in given.elts if not _protects(one)]
            text.replace(given, f"[{', '.join(['private_mod', *kept])}]")
        elif given.elts:
            text.insert(text.span(given.elts[0])[0], "private_mod, ")
        else:
            text.replace(given, "[private_mod]")
    else:
        text.replace(given, f"[private_mod, *{text.of(given)}]")
    text.imports("from zerosum.client import private_mod", call)
    return notes


def _give_protection(texts: list[_Text], settings: Settings) -> None:
    for text in texts:
        started = list(_started(text.tree, []))
        for within, strategy in started:
            made = f"PrivateStrategy({text.of(strategy)}, {settings.strategy})"
            statement = within[-1]
            begin = text.starts[statement.lineno - 1]
            indent = text.text[begin : text.span(statement)[0]]
            if not indent.strip() and _is_own(strategy, within):
                text.insert(begin, f"{indent}{text.of(strategy)} = {made}\n")
            else:
                text.replace(strategy, made)
        if started:
            text.imports("from zerosum.server import PrivateStrategy", started[0][1])
            return
    for text in texts:
        for function in _sending(text.tree):
            _wrap_grid(text, function, settings.queries)
            return
    raise CannotEditError("no strategy is started in it, and no function sends by a grid")


def _wrap_grid(text: _Text, function: ast.FunctionDef, arguments: str) -> None:
    """Make the grid that a function is given a private one, before anything is sent."""
    grid = function.args.args[0].arg
    first = function.body[1 if _docstring(function.body[0]) and function.body[1:] else 0]
    begin, _ = text.span(first)
    indent = " " * first.col_offset
    words = ", ".join(filter(None, (grid, arguments)))
    text.insert(begin, f"{grid} = PrivateQueries({words})\n{indent}")
    used = [name for name in ("Counts", "Reals") if f"{name}(" in arguments]
    names = ", ".join(sorted(["PrivateQueries", *used]))
    text.imports(f"from zerosum.server import {names}", function)


def _sending(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the main functions of ServerApps, where anything in the module sends messages."""
    if not any(_name(call.func) in _SENDS for call in ast.walk(tree) if isinstance(call, ast.Call)):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.args.args:
            by = [_name(one.func) for one in node.decorator_list if isinstance(one, ast.Call)]
            if "main" in by:
                yield node


def _started(tree: ast.AST, within: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], ast.expr]]:
    """Yield each strategy that is started, or handed to a server of the legacy API.

    Before it stand the statements that it stands in, the innermost last.
    """
    for call in _own_calls(tree):
        named = {word.arg for word in call.keywords}
        if isinstance(call.func, ast.Attribute) and call.func.attr == "start":
            first = _name(call.args[0]) if call.args else ""
            if named & _OF_START or "grid" in named or first in ("grid", "driver"):
                yield within, call.func.value
        elif _name(call.func) in ("LegacyContext", "ServerAppComponents", "ServerApp"):
            for word in call.keywords:
                if word.arg == "strategy":
                    yield within, word.value
    for child in _statements(tree):
        yield from _started(child, [*within, child])


def _is_own(strategy: ast.expr, within: list[ast.stmt]) -> bool:
    """Return whether this name may be given another value: once, and where it got its first."""
    if not isinstance(strategy, ast.Name):
        return False
    functions = [one for one in within if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    scope = within[within.index(functions[-1]) :] if functions else within
    if any(isinstance(one, ast.For | ast.While | ast.AsyncFor) for one in scope):
        return False
    if not functions:
        return True
    given = {one.arg for one in ast.walk(functions[-1].args) if isinstance(one, ast.arg)}
    for node in ast.walk(functions[-1]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            given.add(node.id)
    return strategy.id in given


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements within a node, not those within them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        else:
            yield from _statements(child)


def _own_calls(statement: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a statement that stand in no statement within it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt):
            if isinstance(child, ast.Call):
                yield child
            yield from _own_calls(child)


def _calls(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == name:
            yield node


def _name(node: ast.expr) -> str:
    """Return the last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _protects(mod: ast.expr) -> bool:
    return _name(mod.func if isinstance(mod, ast.Call) else mod) in OTHER_PROTECTIONS


def _docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
