"""Find public functions whose docstrings lack the sections that a reader needs.

A public function with two parameters or more, or one that raises, has numpydoc sections:
Parameters, Returns or Yields where it gives something, Raises where it raises. pydoclint checks
that sections which are there agree with the signature; it cannot ask for them by that rule.
References as ``:func:`name``` have to name something that there is.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = ("secagg", "client", "server", "simulations")

LEFT_OUT = {
    # It cannot read "low, high : int", which numpydoc allows: see strangers().
    "DOC101",
    "DOC103",
    # Our types say shapes and units, which signatures cannot.
    "DOC105",
    "DOC109",
    "DOC110",
    # Absent sections: see missing_sections().
    "DOC201",
    "DOC501",
    # What callees raise is documented too.
    "DOC502",
    "DOC503",
}

REFERENCE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?([\w.]+)`")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(node: ast.Module | ast.ClassDef) -> Iterator[Function]:
    """Yield functions and methods that neither they nor their class hide by an underscore."""
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from public_functions(child)
        elif isinstance(child, Function) and not child.name.startswith("_"):
            yield child


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, without those of functions defined in it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            yield node
            pending.extend(ast.iter_child_nodes(node))


def sections_of(function: Function) -> dict[str, list[str]]:
    """Return the sections of a docstring: titles, each with its lines."""
    lines = (ast.get_docstring(function) or "").splitlines()
    starts = [i for i, (a, b) in enumerate(pairwise(lines)) if a and b and set(b) == {"-"}]
    return {lines[i]: lines[i + 2 : j] for i, j in pairwise([*starts, len(lines)])}


def strangers(function: Function) -> set[str]:
    """Name parameters that only the signature has, or only the docstring."""
    lines = sections_of(function).get("Parameters")
    if lines is None:
        return set()
    heads = [line.split(" : ")[0] for line in lines if line and not line.startswith(" ")]
    documented = {name.strip(" *") for head in heads for name in head.split(",")}
    a = function.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return (
        (documented ^ {x.arg for x in every})
        - {"self", "cls"}
        - {x.arg for x in every if x.arg.startswith("_")}
    )


def missing_sections(function: Function) -> list[str]:
    """Name the sections that a function's docstring should have and has not."""
    if any(ast.unparse(d).split(".")[-1] in ("property", "cached_property", "overload", "setter")
           or ast.unparse(d).endswith(".command()") for d in function.decorator_list):  # fmt: skip
        return []
    arguments = function.args
    if "typer.Option(" in ast.unparse(arguments) or "typer.Argument(" in ast.unparse(arguments):
        return []  # a command: its docstring is its help, and each option has a help of its own
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names = [name for name in names if name not in ("self", "cls") and not name.startswith("_")]
    # A bare ``raise`` hands on what others raise; what others raise is theirs to document.
    raises = any(isinstance(n, ast.Raise) and n.exc is not None for n in own_nodes(function))
    if len(names) < 2 and not raises:
        return []
    returns = function.returns is not None and ast.unparse(function.returns) not in (
        "None", "Never", "NoReturn")  # fmt: skip
    wanted = {"Parameters": bool(names), "Returns": returns, "Raises": raises}
    there = sections_of(function).keys()
    if "Yields" in there:
        wanted["Returns"] = False
    return [name for name, needed in wanted.items() if needed and name not in there]


def interface_methods() -> set[str]:
    """Name the methods that a Protocol or an ABC documents in full: who implements one need not."""
    return {
        method.name
        for part in PARTS
        for path in (ROOT / part).rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        and {"Protocol", "ABC"} & {ast.unparse(base).split("[")[0] for base in node.bases}
        for method in public_functions(node)
        if not missing_sections(method)
    }


def of_file(path: Path, interfaces: set[str]) -> Iterator[str]:
    """Yield one line for each docstring of a file that lacks sections, or parameters."""
    for function in public_functions(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path}:{function.lineno}: {function.name}"
        missing = missing_sections(function)
        if missing and function.name not in interfaces:
            yield f"{where} lacks {', '.join(missing)}"
        if odd := strangers(function):
            yield f"{where}: signature and docstring disagree on {', '.join(sorted(odd))}"


def names_in(path: Path) -> set[str]:
    """Return all names that a file defines or imports, at any depth, and its own."""
    names = {path.stem if path.stem != "__init__" else path.parent.name}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[-1])
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def resolves(reference: str, own: set[str], modules: dict[str, set[str]]) -> bool:
    """Return whether a reference names something: of its own file, of ours, or of a package.

    Parameters
    ----------
    reference : str
        As "name", "Class.name", ".module.name" or "zerosum.part.module.Class.name".
    own : set of str
        Names of the file in which it stands.
    modules : dict of str to set of str
        Names of each of our modules.

    Returns
    -------
    bool
    """
    path = reference.lstrip(".")
    *owners, name = path.split(".")
    if path == reference and not owners:
        return name in own
    if not reference.startswith((".", "zerosum.")):
        return owners[0] in own or owners[0].islower()  # a class here, or another package
    # Between the module and the name a class may stand.
    ends = {".".join(owners), ".".join(owners[:-1])} - {""}
    return any(
        f".{module}".endswith(f".{path}")
        or (name in names and any(f".{module}".endswith(f".{end}") for end in ends))
        for module, names in modules.items()
    )


def dangling(path: Path, modules: dict[str, set[str]]) -> Iterator[str]:
    """Yield one line for each reference of a file that names nothing."""
    text = path.read_text(encoding="utf-8")
    for match in REFERENCE.finditer(text):
        if not resolves(match[1], names_in(path), modules):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: nothing is called {match[1]}"


def names_of_modules() -> dict[str, set[str]]:
    """Return the names of each of our modules, by its dotted name."""
    paths = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(
            ".__init__"
        ): names_in(path)
        for path in paths
    }


def of_pydoclint(paths: list[Path]) -> Iterator[str]:
    """Yield what pydoclint finds: sections that disagree with their function."""
    command = [sys.executable, "-m", "pydoclint.main", "-q", *map(str, paths)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if said.returncode not in (0, 1):
        yield said.stderr
    path = ""
    for line in (said.stderr + said.stdout).splitlines():
        path = line if line.endswith(".py") else path
        found = re.match(r"\s+(\d+): (DOC\d+): (.*)", line)
        if found and found[2] not in LEFT_OUT:
            yield f"{path}:{found[1]}: {found[3]}"


def main(names: list[str]) -> None:
    """Check the files and folders of these names, all parts without any."""
    paths = [Path(name) for name in names or PARTS]
    files = [f for p in paths for f in ([p] if p.is_file() else sorted(p.rglob("*.py")))]
    interfaces, modules = interface_methods(), names_of_modules()
    found = [line for file in files for line in of_file(file, interfaces)]
    found += [line for file in files for line in dangling(file, modules)]
    found += of_pydoclint(paths)
    print("\n".join(found))
    sys.exit(f"{len(found)} docstrings to complete" if found else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
