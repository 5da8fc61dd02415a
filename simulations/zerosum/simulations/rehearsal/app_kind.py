"""Tell what kind of app a folder has: an experiment, queries, or somebody's own with our lines.

What an app imports is read from its code, which is not run here.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.simulations.rehearsal.app_bundle import Bundle
from zerosum.simulations.rehearsal.processes import DeploymentError

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

_CLIENT_LINE: Final = (
    "app = ClientApp(mods=[private_mod]), with from zerosum.client import private_mod, in {file}"
)
_SERVER_LINE: Final = (
    "strategy = PrivateStrategy(strategy, clip=1.0, noise_multiplier=2.0, delta=1e-3), with "
    "from zerosum.server import PrivateStrategy, in {file}"
)
_QUERY_LINE: Final = (
    "grid = PrivateQueries(grid, {{...}}, epsilon=0.5, budget=1.0), with from zerosum.server "
    "import PrivateQueries, in {file}"
)


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
    for file, names in ((file, set(_names(tree))) for file, tree in modules.items()):
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


def answers_queries(bundle: Bundle) -> bool:
    """Return whether some function of the app answers messages of type ``query``."""
    return any(
        isinstance(name, ast.Attribute) and name.attr == "query"
        for tree in map(_parsed, bundle.sources.values())
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        for name in [decorator.func if isinstance(decorator, ast.Call) else decorator]
    )


def _check_lines(bundle: Bundle, modules: dict[str, ast.Module]) -> None:
    """Refuse an app in which nothing of ours is imported on one side, or on both."""
    imported = {name for tree in modules.values() for name in _imports(tree)}
    imported |= {component.partition(":")[0] for component in bundle.components.values()}
    queries = answers_queries(bundle)
    missing = [
        line.format(file=_file_of(bundle.components[kind], modules))
        for kind, side, line in (
            ("clientapp", "zerosum.client", _CLIENT_LINE),
            ("serverapp", "zerosum.server", _QUERY_LINE if queries else _SERVER_LINE),
        )
        if not any(name == side or name.startswith(f"{side}.") for name in imported)
    ]
    if len(missing) == 2:
        raise DeploymentError(
            f"APP {bundle.name} is a plain Flower app, whose nodes send what they trained as it "
            f"is: add two lines, {missing[0]}; and {missing[1]} (docs/flower-apps.md)"
        )
    if missing:
        raise DeploymentError(
            f"APP {bundle.name} has one of its two lines: add {missing[0]} (docs/flower-apps.md)"
        )


def _legacy(modules: dict[str, ast.Module]) -> tuple[str, str] | None:
    """Return a name of Flower's legacy API and the file that uses it; None where none does."""
    for file, tree in modules.items():
        if used := sorted(set(_names(tree)) & _LEGACY):
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


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield what a module takes from Flower: by import, or as an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
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
