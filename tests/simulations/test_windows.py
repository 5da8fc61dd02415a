"""Windows, as far as it can be had here: a process without what Windows lacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMON = Path(__file__).parents[1] / "common"

BEGIN = """
import sys
sys.path.insert(0, {common!r})
import as_on_windows
locks = as_on_windows.pretend()
from pathlib import Path
as_on_windows.watched(Path.cwd())
from typer.testing import CliRunner
"""

RUNS = """
from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.server.config import ConfigError
from zerosum.simulations import api
from zerosum.simulations.commands import main

def refused(call):
    try:
        call()
    except (ConfigError, HeldError) as error:
        return error
    raise AssertionError("nothing was refused")

def again(record):
    assert locks.held  # the run folder's
    refused(lambda: api.held(api.RunFolder(Path("run"))).__enter__())

small = ["rounds=1", "data.clients=24", "sampling.cohort=10", "privacy.model=none"]
result = api.run("digits", overrides=small, out="run", on_round=again)
assert result.summary["engine"]["name"] == "serial"
assert result.summary["peak_memory_mb"] is None
assert not locks.held
api.resume("run", overrides=["rounds=2"], report=False)
error = refused(lambda: api.plan(api.load_experiment("digits", ["engine=processes"])))
assert 'write engine = "serial"' in str(error)
for command in (["keys", "new", "key"], ["rehearse", "."]):
    done = CliRunner().invoke(main.app, command)
    assert done.exit_code == 2, done.output
    assert "deploy on Linux, macOS or in WSL" in " ".join(done.output.split())
assert CliRunner().invoke(main.app, ["list"]).exit_code == 0
assert not Path("key").exists()
print("all of it")
"""

COMMANDS = """
from zerosum.simulations.commands import main

def done(*arguments):
    ended = CliRunner().invoke(main.app, [str(each) for each in arguments])
    assert ended.exit_code == 0, (arguments, ended.output, ended.exception)

small = [word for key in ("rounds=1", "data.clients=6", "sampling.cohort=4", "privacy.model=none")
         for word in ("--set", key)]
done("run", "digits", *small)
(run,) = Path("runs").iterdir()
done("report", run)
done("report", run, "--public", "public")
done("budget", run)
done("sweep", "digits", "--seeds", "0-1", *small, "--out", "sweep")
done("compare", "sweep", "--out", "compared", "--plots", "svg")
done("plan", "digits")
rows = "\\n".join(f"{17 + i % 60},{i % 3}" for i in range(200))
Path("people.csv").write_bytes(f"age,kind\\n{rows}\\n".encode())
Path("q.toml").write_bytes(b'data = "people.csv"\\nclients = 20\\nbudget.epsilon = 1.0\\n'
    b'[schema]\\nage = {integer = [17, 90]}\\n[[queries]]\\nkind = "count"\\nepsilon = 0.5\\n')
done("query", "q.toml", "--out", "asked")
done("new", "my-app", "--data", "people.csv", "--label", "kind")
assert b"\\r" not in b"".join(f.read_bytes() for f in Path("my-app").rglob("*.py"))
print("all of it")
"""

IMPORTS = """
import importlib, pkgutil, warnings, zerosum
from zerosum.client.files.operating_system import NOT_DEPLOYABLE
warnings.simplefilter("ignore")
import sys
sys.modules["wandb"] = None  # what it asks of a system that calls itself Linux is not pretended
EXTRAS = {"ray", "opacus", "flwr_datasets", "pyarrow", "opendp", "tensorboard", "jax", "pfl",
          "wandb", "mlflow"}

def walk(path, prefix):
    for module in pkgutil.iter_modules(path, prefix):
        yield module.name
        if module.ispkg:
            package = importlib.import_module(module.name)
            yield from walk(package.__path__, module.name + ".")

names = []
for name in walk(zerosum.__path__, "zerosum."):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name in EXTRAS, (name, error)
    names.append(name)
assert NOT_DEPLOYABLE
assert len(names) > 500, len(names)
print("all of it")
"""


def as_on_windows(script: str, folder: Path) -> None:
    """Run a script in a folder where a child of it pretends as well."""
    begun = BEGIN.format(common=str(COMMON))
    (folder / "site").mkdir()
    # An interpreter that it starts, as a sweep does, has nothing either.
    (folder / "site" / "sitecustomize.py").write_text(begun.partition("from pathlib")[0])
    work = folder / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", begun + script],
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(folder / "site")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all of it" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [RUNS, COMMANDS, IMPORTS], ids=["runs", "commands", "every module"]
)
def test_without_what_windows_lacks_simulations_go_on_and_deployments_are_refused(
    script: str, tmp_path: Path
) -> None:
    as_on_windows(script, tmp_path)


REFUSED_THERE = {
    "open('a:b', 'w')": "OSError",
    "Path('nul.txt').touch()": "OSError",
    "held = open('a', 'w'); Path('b').touch(); Path('b').replace('a')": "PermissionError",
    "held = open('c', 'w'); Path('c').unlink()": "PermissionError",
    "Path('d').symlink_to('e')": "OSError",
    "import fcntl": "ImportError",
    "import os; os.fork()": "AttributeError",
}


@pytest.mark.slow
def test_what_is_pretended_refuses_what_windows_refuses(tmp_path: Path) -> None:
    script = f"""
for code, wanted in {REFUSED_THERE}.items():
    try:
        exec(code)
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        assert wanted in kinds, (code, error)
    else:
        raise AssertionError(code)
print("all of it")
"""
    as_on_windows(script, tmp_path)
