"""The console script ends in one line where ctrl-C comes while it loads."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PRESSED = """
import os, signal, sys

class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
            sys.exit(7)  # the signal was ignored

signal.signal(signal.SIGINT, signal.{before})
sys.meta_path.insert(0, Pressed())
sys.argv = ["zerosum", "--version"]
from zerosum.simulations.commands.{module} import main
main()
"""


def pressed(module: str, before: str = "default_int_handler") -> subprocess.CompletedProcess[str]:
    code = PRESSED.format(module=module, before=before)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_the_script_is_the_module_that_is_tested() -> None:
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("an installed package has no project file")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["zerosum"].partition(":")
    assert module == "zerosum.simulations.commands.entry"
    assert callable(getattr(import_module(module), name))


def test_ctrl_c_while_it_loads_ends_it_in_one_line() -> None:
    ended = pressed("entry")
    assert ended.returncode == 130
    assert ended.stderr.split() == ["Interrupted.", "Nothing", "was", "begun."]
    assert "Traceback" in pressed("main").stderr  # without the module that is tested


def test_ctrl_c_that_is_ignored_stays_ignored_while_it_loads() -> None:
    assert pressed("entry", "SIG_IGN").returncode == 7


HEAVY = ("torch", "dp_accounting", "scipy", "matplotlib", "pandas", "jinja2", "sklearn", "flwr")

LOADED = """
import contextlib, io, sys

sys.argv = ["zerosum", *{arguments}]
from zerosum.simulations.commands.entry import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
{more}
print(*[name for name in {heavy} if name in sys.modules])
"""


def loaded(arguments: list[str], heavy: tuple[str, ...] = HEAVY, more: str = "") -> list[str]:
    code = LOADED.format(arguments=arguments, heavy=heavy, more=more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["list"],
        ["keys", "show", "no-such-file"],
        ["roster", "add", "no-such-file", "0=7", "--authority", "no-such-file"],
        ["ruun"],
        ["run", "--set", "rouns=3"],
        ["run", "--dry-run", "--set", "rouns=3"],
        ["plan", "--set", "privacy.clips=1"],
        ["audit", "--set", "rouns=3"],
        ["query", "cuont"],
        ["query", "no-such-plan.toml"],
        ["query", "count", "--epsilon", "1"],
        ["schema", "no-such-file"],
    ],
    ids=" ".join,
)
def test_a_command_that_computes_nothing_loads_no_heavy_library(arguments: list[str]) -> None:
    assert loaded(arguments) == []


@pytest.mark.slow
def test_a_heavy_library_that_is_loaded_is_told() -> None:
    assert loaded(["--version"], more="import matplotlib") == ["matplotlib"]


@pytest.mark.slow
def test_a_dry_run_loads_what_it_computes_with_alone() -> None:
    assert loaded(["run", "--dry-run"]) == ["torch", "dp_accounting", "scipy", "flwr"]


@pytest.mark.slow
def test_a_run_says_what_it_begins_before_it_loads_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; "  # so that it cannot be loaded
        "sys.argv = ['zerosum', 'run', '--set', 'rounds=1']; "
        "from zerosum.simulations.commands.entry import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "mnist5k: 1 round of the task mnist5k\n"
    assert "torch" in done.stderr


@pytest.mark.slow
def test_printed_version_is_that_of_the_project_file() -> None:
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("an installed package has no project file")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    code = (
        "import sys; from zerosum.simulations.commands.entry import main; "
        "sys.argv = ['zerosum', '--version']; main()"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout.strip() == project["version"]


STARTED = (
    "import sys; sys.argv = ['zerosum', 'list'];"
    "from zerosum.simulations.commands.{module} import main; main()"
)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_to_a_full_disk_ends_in_one_line() -> None:
    def full(module: str) -> subprocess.CompletedProcess[str]:
        code = [sys.executable, "-c", STARTED.format(module=module)]
        with Path("/dev/full").open("w") as out:
            return subprocess.run(code, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60)

    ended = full("entry")
    assert ended.returncode == 1
    assert ended.stderr == "error: the output cannot be written: No space left on device\n"
    assert "Traceback" in full("main").stderr  # without the module that is tested


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_not_missed(closed: str) -> None:
    code = STARTED.format(module="entry").replace("'list'", "'run', 'nonsense'")
    shell = f'"$0" -c "$1" {closed}'
    ended = subprocess.run(
        ["sh", "-c", shell, sys.executable, code], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert "2>&-" in closed or ended.stderr.startswith("error: experiment 'nonsense' is neither")


@pytest.mark.slow
def test_a_file_that_the_system_refuses_ends_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code = STARTED.format(module="entry").replace("'list'", "'compare', 'n' * 300")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: nnn")
    assert ended.stderr.endswith("File name too long\n")
    assert len(ended.stderr.splitlines()) == 1
