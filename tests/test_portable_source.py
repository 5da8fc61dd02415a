"""The code names what operating systems differ in at one place, and files' bytes everywhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from as_on_windows import MODULES, OF_OS, OF_SIGNAL

ROOT = Path(__file__).parents[1]
PARTS = ("secagg", "client", "server", "simulations")
FILES = [path for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))]

ONE_PLACE = "client/zerosum/client/files/operating_system.py"
NOT_ON_WINDOWS = (
    "client/zerosum/client/files/private_files.py",  # a node's, refused by its first call
    "simulations/zerosum/simulations/bench/",  # measures by /proc and beside other libraries
    "simulations/zerosum/simulations/rehearsal/",  # nodes on this machine
)
ASKED_FIRST = {  # hasattr() stands before each
    ("simulations/zerosum/simulations/engine/one_at_a_time.py", "os.register_at_fork"),
    ("simulations/zerosum/simulations/engine/processes.py", "signal.pthread_sigmask"),
    ("simulations/zerosum/simulations/engine/processes.py", "signal.SIG_BLOCK"),
    ("simulations/zerosum/simulations/terminal/signals.py", "signal.SIGHUP"),
}


# Most files name nothing of what is looked for: those are not parsed.
OPENING = re.compile(r"open|write_text|read_text")
LACKING = re.compile("|".join((*MODULES, r"\b(os|signal)\.")))


def calls(source: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the last part of its name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "attr", getattr(node.func, "id", "")), node


def unsaid(source: str) -> list[str]:
    """Return the calls that leave the encoding, or the ends of lines, to the machine."""
    found = []
    for name, call in calls(source) if OPENING.search(source) else ():
        said = {word.arg for word in call.keywords}
        values = [each.value for each in call.args if isinstance(each, ast.Constant)]
        modes = [value for value in values if isinstance(value, str) and 0 < len(value) <= 3]
        own = isinstance(call.func, ast.Name) or any(set(mode) <= set("rwaxbt+") for mode in modes)
        wanted: set[str | None] = set()
        if name == "write_text":
            wanted = {"encoding", "newline"}
        elif name == "read_text":
            wanted = {"encoding"}
        elif name in ("open", "fdopen") and own and not any("b" in mode for mode in modes):
            writes = any(set(mode) & set("wax+") for mode in modes)
            wanted = {"encoding", "newline"} if writes else {"encoding"}
        if wanted - said:
            found.append(ast.unparse(call))
    return found


def named(source: str) -> set[str]:
    """Return what the code names that Windows lacks: modules, and members of os and signal."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)) if LACKING.search(source) else ():
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names} & {*MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            found.add(str(node.module))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            members = {"os": OF_OS, "signal": OF_SIGNAL}.get(node.value.id, ())
            found |= {f"{node.value.id}.{node.attr}"} if node.attr in members else set()
    return found


def test_the_checks_find_what_they_are_for() -> None:
    assert unsaid("p.write_text(a, encoding='u')\nopen(p)\np.open('a')\np.read_text()") == [
        "p.write_text(a, encoding='u')",
        "open(p)",
        "p.open('a')",
        "p.read_text()",
    ]
    assert not unsaid("p.open('rb')\np.read_bytes()\nopen(p, encoding='u')\nRunFolder.open(p)")
    assert named("import fcntl\nos.fork()\nsignal.SIGKILL\nos.replace(a, b)") == {
        "fcntl",
        "os.fork",
        "signal.SIGKILL",
    }


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_text_files_say_their_encoding_and_their_ends_of_lines(part: str) -> None:
    found = {
        str(path.relative_to(ROOT)): bad
        for path in FILES
        if path.is_relative_to(ROOT / part) and (bad := unsaid(path.read_text(encoding="utf-8")))
    }
    # To nothing, where no byte arrives.
    found.pop("simulations/zerosum/simulations/commands/entry.py", None)
    assert not found


@pytest.mark.slow
def test_what_windows_lacks_is_named_at_one_place_or_asked_for_first() -> None:
    found = {
        (name, each)
        for path in FILES
        if not (name := path.relative_to(ROOT).as_posix()).startswith((ONE_PLACE, *NOT_ON_WINDOWS))
        for each in named(path.read_text(encoding="utf-8"))
    }
    assert found <= ASKED_FIRST
