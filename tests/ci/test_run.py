"""CI's order of stages, with stand-ins for make and Python."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "stage"), [("check", "static checks"), ("docs", "documentation")]
)
@pytest.mark.parametrize(
    ("does", "seconds", "said", "code"),
    [
        ("true", 60, "passed", 0),
        ("false", 60, "FAILED", 1),
        ("exec sleep 60", 2, "cut", 1),
        ("true", 0, "not begun", 1),
    ],
)
def test_checks_that_did_not_end_fail(target, stage, does, seconds, said, code, tmp_path) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    script(tmp_path / ".venv" / "bin" / "python", "true")
    script(tmp_path / "bin" / "make", f'[ "$1" != {target} ] || {does}')
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env={**os.environ, "PATH": path, "CI_ALL_SECONDS": str(seconds), "CI_OUT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"== {stage}: {said}" in run.stdout
    assert run.returncode == code, run.stdout
