"""Names and words that the locale has no letters for."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zerosum.client.files.operating_system import named_path, readable
from zerosum.simulations.terminal import streams

WITHOUT = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

EXPERIMENT = """
extends = "cross-silo"
name = "expérience"
task = "table"
rounds = 1
engine = "serial"
data = { path = "tâble é.csv", label = "clé", clients = 3 }
privacy.model = "none"
"""


def without_letters(*command: str, cwd: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=os.environ | WITHOUT,
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_folder_a_table_and_a_run_of_other_letters_work_under_the_c_locale(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "données"
    folder.mkdir()
    rows = [f"{i / 90},{i % 7},{'été' if i > 45 else 'hiver'}" for i in range(90)]
    (folder / "tâble é.csv").write_text("\n".join(["âge,taille,clé", *rows]), encoding="utf-8")
    (folder / "expé.toml").write_text(EXPERIMENT, encoding="utf-8")
    cli = "from zerosum.simulations.commands.main import main; main()"
    given = ("run", "expé.toml", "--set", "data.path=tâble é.csv")
    done = without_letters("-c", cli, *given, cwd=folder)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    (run,) = (folder / "runs").iterdir()
    assert run.name.startswith("expérience-")
    assert "tâble é.csv" in (run / "config.toml").read_text(encoding="utf-8")
    assert "tâble é.csv" in (run / "report.html").read_text(encoding="utf-8")
    assert f"Run folder  runs/{run.name}" in done.stdout.decode()


def test_names_are_found_and_read_under_the_c_locale(tmp_path: Path) -> None:
    (tmp_path / "é.csv").touch()
    script = (
        "import sys, os; from zerosum.client.files.operating_system import named_path, readable;"
        "assert sys.getfilesystemencoding() == 'ascii', sys.getfilesystemencoding();"
        "assert named_path('\\xe9.csv').is_file();"
        "assert named_path(os.listdir('.')[0]).is_file();"
        "assert readable(os.listdir('.')[0]) == '\\xe9.csv'"
    )
    done = without_letters("-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()


def test_names_that_need_nothing_are_left_alone() -> None:
    assert named_path("é/b.csv") == Path("é/b.csv")
    assert readable("é/b.csv") == "é/b.csv"
    assert readable("\udcff.csv") == "\udcff.csv"  # its bytes are no UTF-8


def test_streams_give_names_back_as_bytes_and_escape_other_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", errors="strict"))
    with pytest.raises(UnicodeEncodeError):
        print("é", flush=True)
    streams.take_any_text()
    print("\udcc3\udca9 é ∞", end="", flush=True)
    assert raw.getvalue() == "é ".encode() + rb"\xe9 \u221e"


ASKED = """
data = "tâble é.csv"
clients = 5
budget.epsilon = 1.0
[schema]
b = {integer = [0, 9]}
y = ["été", "hiver"]
[[queries]]
kind = "count"
where = "y = \\"été\\""
epsilon = 0.5
"""


@pytest.mark.slow
def test_queries_and_new_apps_name_their_files_under_the_c_locale(tmp_path: Path) -> None:
    folder = tmp_path / "données"
    folder.mkdir()
    rows = [f"{i % 10},{'été' if i > 45 else 'hiver'}" for i in range(90)]
    (folder / "tâble é.csv").write_text("\n".join(["b,y", *rows]), encoding="utf-8")
    (folder / "plän.toml").write_text(ASKED, encoding="utf-8")
    cli = "from zerosum.simulations.commands.main import main; main()"
    for given in (
        ("query", "plän.toml", "--out", "réponses"),
        ("query", "--resume", "réponses"),
        ("new", "app", "--data", "tâble é.csv", "--label", "y"),
    ):
        done = without_letters("-c", cli, *given, cwd=folder)
        assert done.returncode == 0, (given, done.stderr.decode(errors="replace"))
    kept = (folder / "réponses" / "queries.toml").read_text(encoding="utf-8")
    assert f'"{folder / "tâble é.csv"}"' in kept
    assert "../tâble é.csv" in (folder / "app" / "experiment.toml").read_text(encoding="utf-8")


def test_letters_and_bytes_that_stand_for_letters_are_read_together() -> None:
    stood_in = "é".encode().decode("ascii", "surrogateescape")
    assert readable(f"größe/{stood_in}") == "größe/é"
