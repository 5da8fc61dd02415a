"""Tell what kind of app a folder has: an experiment, queries, or somebody's own with our lines.

What an app imports and makes use of is read from its code, which is not run here.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.simulations.rehearsal.app_bundle import Bundle
from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.rehearsal.used_names import imports_of, names_read

EXPERIMENT: Final = "experiment.toml"
PLAN: Final = "plan.toml"
POLICY: Final = "policy.toml"

Kind = Literal["experiment", "queries", "own"]

_SERVERS: Final[dict[str, Kind]] = {
    "zerosum.server.flower.server_app": "experiment",
    "zerosum.server.flower.query_app": "queries",
}

_TREES: Final = frozenset({"FedXgbBagging", "FedXgbCyclic", "FedXgbNnAvg"})
_LEGACY: Final = frozenset(
    {"ServerAppComponents", "NumPyClient", "start_server", "start_client", "start_numpy_client"}
)

_CLIENT_LINE: Final = "app = ClientApp(mods=[private_mod])"
_NAMED_LINE: Final = 'app = PrivateClientApp("module:app")'
_STRATEGY_LINE: Final = (
    "strategy = PrivateStrategy(strategy, clip=1.0, noise_multiplier=2.0, delta=1e-3)"
)
_LOOP_LINE: Final = (
    "a strategy in place of its loop over grid.send_and_receive, PrivateStrategy(FedAvg(), "
    "clip=1.0, noise_multiplier=2.0, delta=1e-3).start(grid, arrays)"
)
_QUERY_LINE: Final = "grid = PrivateQueries(grid, {...}, epsilon=0.5, budget=1.0)"

_LINES: Final[Mapping[str, Mapping[str, str]]] = {
    "clientapp": {"private_mod": _CLIENT_LINE, "PrivateClientApp": _NAMED_LINE},
    "serverapp": {"PrivateStrategy": _STRATEGY_LINE, "PrivateQueries": _QUERY_LINE},
}
"""By component, what is imported of ours, and the line that makes use of it."""

_PACKAGES: Final = {"clientapp": "zerosum.client", "serverapp": "zerosum.server"}


def kind_of(app: Path) -> Kind:
    """Return the kind of an app.

    Parameters
    ----------
    app : Path
        Its folder.

    Returns
    -------
    str
        "own" for one of anybody's, which neither has our files nor runs our ServerApp.
    """
    if (app / EXPERIMENT).is_file():
        return "experiment"
    if (app / PLAN).is_file():
        return "queries"
    return _SERVERS.get(_serverapp(app), "own")


def check_private(bundle: Bundle) -> None:
    """Refuse an app that no private sum can serve, or that lacks our lines.

    Parameters
    ----------
    bundle : Bundle
        Of an app of somebody's own.

    Raises
    ------
    DeploymentError
        One line: what it is, and what to change.
    """
    modules = {file: _parsed(text) for file, text in bundle.sources.items()}
    for file, names in ((file, _names(tree)) for file, tree in modules.items()):
        if trees := sorted(names & _TREES):
            raise DeploymentError(
                f"APP {bundle.name}: {trees[0]} in {file} joins boosted trees, and a private sum "
                "has a mean of arrays alone: no lines make it private"
            )
    if found := _legacy(modules):
        raise DeploymentError(
            f"APP {bundle.name}: {found[0]} in {found[1]} is Flower's legacy API, and private sums "
            "need the Message API: write @app.train() in the ClientApp and @app.main() in the "
            "ServerApp (docs/flower-apps.md)"
        )
    _check_lines(bundle, modules)
    _check_fits(bundle, modules)


def answers_queries(bundle: Bundle) -> bool:
    """Return whether some function of the app answers messages of type ``query``."""
    return "query" in _decorators(map(_parsed, bundle.sources.values()))


def _decorators(trees: Iterable[ast.Module]) -> set[str]:
    """Return the attributes that decorate functions, as ``train`` of ``@app.train()``."""
    return {
        name.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        for name in [decorator.func if isinstance(decorator, ast.Call) else decorator]
        if isinstance(name, ast.Attribute)
    }


def _has_own_loop(modules: Mapping[str, ast.Module]) -> bool:
    """Return whether a ServerApp sends its messages itself, and nothing reads a strategy."""
    imported = {name for tree in modules.values() for name in _imports(tree)}
    return bool(_attributes(modules) & {"send_and_receive", "push_messages"}) and not any(
        name.startswith("flwr.serverapp.strategy") for name in imported
    )


def _attributes(modules: Mapping[str, ast.Module]) -> set[str]:
    nodes = (node for tree in modules.values() for node in ast.walk(tree))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _check_fits(bundle: Bundle, modules: Mapping[str, ast.Module]) -> None:
    """Refuse queries around an app that trains: its messages are none."""
    if "train" not in _decorators(modules.values()) or "query" in _attributes(modules):
        return
    read = {
        one.name
        for one in imports_of(modules, _LINES["serverapp"], _is_of(_PACKAGES["serverapp"]))
        if one.used
    }
    if read == {"PrivateQueries"}:
        raise DeploymentError(
            f"APP {bundle.name}: PrivateQueries answers queries, and the app has @app.train() and "
            f"no @app.query(): write {_LOOP_LINE} (docs/flower-apps.md)"
        )


def _check_lines(bundle: Bundle, modules: dict[str, ast.Module]) -> None:
    """Refuse an app that makes no use of ours on one side, or on both."""
    faults = {kind: _fault(bundle, modules, kind) for kind in _PACKAGES}
    missing = [line for line, imported in faults.values() if line and not imported]
    unused = [f"{imported}: write {line}" for line, imported in faults.values() if imported]
    if len(missing) == 2:
        raise DeploymentError(
            f"APP {bundle.name} is a plain Flower app, whose nodes send what they trained as it "
            f"is: add two lines, {missing[0]}; and {missing[1]} (docs/flower-apps.md)"
        )
    if unused:
        said = "; and ".join([*unused, *(f"add {line}" for line in missing)])
        raise DeploymentError(f"APP {bundle.name} {said} (docs/flower-apps.md)")
    if missing:
        raise DeploymentError(
            f"APP {bundle.name} has one of its two lines: add {missing[0]} (docs/flower-apps.md)"
        )


def _fault(bundle: Bundle, modules: dict[str, ast.Module], kind: str) -> tuple[str, str]:
    """Return the line that a component lacks, and which import nothing makes use of.

    Both are empty where nothing is amiss, and the second where nothing is imported.
    """
    package, lines = _PACKAGES[kind], _LINES[kind]
    inside = f"{package}.flower."  # what is not public there is not looked into
    taken = {bundle.components[kind]}.union(*map(_imports, modules.values()))
    if any(each.startswith(inside) and each.rpartition(".")[2] not in lines for each in taken):
        return "", ""
    entries = [each.partition(":")[2].split(".")[0] for each in bundle.components.values()]
    if kind == "serverapp" and _has_own_loop(modules):
        lines = {**lines, "PrivateStrategy": _LOOP_LINE}
    found = imports_of(modules, lines, _is_of(package), entries)
    if any(each.used for each in found):
        return "", ""
    if found:
        one = found[0]
        idle = f"imports {one.name} and makes no use of it ({one.place})"
        return lines[one.name], idle
    name = list(lines)[kind == "serverapp" and answers_queries(bundle)]
    file = _file_of(bundle.components[kind], modules)
    return f"{lines[name]}, with from {package} import {name}, in {file}", ""


def _is_of(package: str) -> Callable[[str], bool]:
    """Return what tells the modules of a package."""
    return lambda module: f"{module}.".startswith(f"{package}.")


def _legacy(modules: dict[str, ast.Module]) -> tuple[str, str] | None:
    """Return a name of Flower's legacy API and the file that uses it; None where none does."""
    for file, tree in modules.items():
        if used := sorted(_names(tree) & _LEGACY):
            return used[0], file
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name, given = _called(call), {keyword.arg for keyword in call.keywords}
            if name in ("ClientApp", "PrivateClientApp") and (call.args or "client_fn" in given):
                if _is_text(call.args):  # the name of an app, not a function
                    continue
                return "client_fn", file
            if name == "ServerApp" and (call.args or "server_fn" in given):
                return "server_fn", file
    return None


def _is_text(arguments: list[ast.expr]) -> bool:
    return any(isinstance(each, ast.Constant) for each in arguments)


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _names(tree: ast.Module) -> set[str]:
    """Return what a module takes from Flower and reads: by import, or as an attribute."""
    return set(names_read(tree, _is_of("flwr")))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the whole names of what a module imports from others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(component: str, modules: dict[str, ast.Module]) -> str:
    """Return the file that makes a component."""
    path = component.partition(":")[0].replace(".", "/")
    names = (f"{path}.py", f"{path}/__init__.py", f"src/{path}.py")
    return next((name for name in names if name in modules), f"{path}.py")


def _parsed(text: str) -> ast.Module:
    """Return a module's tree; an empty one of a file that is no Python, which loading will tell."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _serverapp(app: Path) -> str:
    """Return the module of an app's ServerApp; nothing where the file does not say."""
    try:
        value: object = read_toml(app / "pyproject.toml")
    except TomlError:
        return ""
    for key in ("tool", "flwr", "app", "components", "serverapp"):
        value = value.get(key) if isinstance(value, dict) else None
    return value.partition(":")[0] if isinstance(value, str) else ""
