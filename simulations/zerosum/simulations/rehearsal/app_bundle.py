"""Pack somebody's Flower app as Flower does, and check that it loads, before anything starts.

What is rehearsed is what nodes would get: Flower's own bundle of the folder, unpacked elsewhere.
The app's own files are read and never written.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.simulations.rehearsal.processes import ANSWER_SECONDS, BIN, DeploymentError
from zerosum.simulations.rehearsal.run_logs import last_error

LOAD_SECONDS = 300.0
"""Seconds that an app's modules may take to load: torch takes long on a busy machine."""

_FRAME = re.compile(r"[╭╮╰╯│─]+")
_PLACE = re.compile(r'File "(.+)", line (\d+)')


@dataclass(frozen=True)
class Bundle:
    """An app as Flower packs it.

    Attributes
    ----------
    name : str
        Its folder, as messages call it.
    data : bytes
        The bundle, a ZIP file.
    """

    name: str
    data: bytes

    def unpack(self, folder: Path) -> None:
        """Write the files, of which ``flwr run`` packs the same bundle."""
        with zipfile.ZipFile(BytesIO(self.data)) as packed:
            packed.extractall(folder)

    @property
    def sources(self) -> dict[str, str]:
        """The Python files, by their paths in the app's folder."""
        with zipfile.ZipFile(BytesIO(self.data)) as packed:
            return {
                name: packed.read(name).decode(errors="replace")
                for name in sorted(packed.namelist())
                if name.endswith(".py")
            }

    @property
    def _section(self) -> dict[str, Any]:
        with zipfile.ZipFile(BytesIO(self.data)) as packed:
            project = tomllib.loads(packed.read("pyproject.toml").decode())
        section: dict[str, Any] = project["tool"]["flwr"]["app"]
        return section

    @property
    def components(self) -> dict[str, str]:
        """``module:name`` of serverapp and clientapp."""
        return dict(self._section["components"])

    @property
    def config(self) -> dict[str, Any]:
        """The run config that the app has, by flat keys."""
        return _flat(self._section.get("config", {}))


def packed(app: Path) -> Bundle:
    """Let Flower pack an app's folder.

    Parameters
    ----------
    app : Path
        With a pyproject.toml.

    Returns
    -------
    Bundle
        Of all that nodes would get.

    Raises
    ------
    DeploymentError
        If Flower does not take it: one line with Flower's reason.
    """
    try:
        read_toml(app / "pyproject.toml")  # of an invalid one Flower does not say what is wrong
    except TomlError as error:
        raise DeploymentError(f"APP {app}: {error}") from None
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {
            "FLWR_HOME": folder,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONDONTWRITEBYTECODE": "1",  # Flower imports the app from where it lies
            "COLUMNS": "1000",
            "_TYPER_STANDARD_TRACEBACK": "1",
        }
        command = [str(BIN / "flwr"), "build", "--app", str(app.resolve())]
        done = _ran(command, env=env, cwd=folder, seconds=ANSWER_SECONDS)
        found = list(Path(folder).glob("*.fab"))
        if done.returncode or not found:
            said = reason(done.stdout + done.stderr) or f"flwr build ended with {done.returncode}"
            raise DeploymentError(f"APP {app}: Flower does not take it: {said}")
        return Bundle(str(app), found[0].read_bytes())


def check_loads(bundle: Bundle) -> None:
    """Import ServerApp and ClientApp in a process of their own.

    Parameters
    ----------
    bundle : Bundle
        Of the app.

    Raises
    ------
    DeploymentError
        If one does not load: one line with the error, where it was raised, and a cure.
    """
    with tempfile.TemporaryDirectory() as folder:
        bundle.unpack(Path(folder, "app"))
        told = Path(folder, "told.json")
        components = [bundle.components[name] for name in ("serverapp", "clientapp")]
        command = [sys.executable, "-m", "zerosum.simulations.rehearsal.load_app"]
        done = _ran(
            [*command, str(Path(folder, "app")), str(told), *components],
            env=dict(os.environ),
            cwd=folder,
            seconds=LOAD_SECONDS,
        )
        if told.is_file():
            failed = json.loads(told.read_text(encoding="utf-8"))
            if failed:
                raise DeploymentError(f"APP {bundle.name}: {_does_not_load(failed)}")
        elif done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise DeploymentError(
                f"APP {bundle.name}: loading its code ended the process ({done.returncode}): "
                f"{said[0]}"
            )


def reason(text: str) -> str:
    """Return what Flower printed as one line, without the frame that it draws around it.

    Parameters
    ----------
    text : str
        Standard output and error of a ``flwr`` command.

    Returns
    -------
    str
        Its lines, joined; of a traceback the error, and where a file of Python is none.
    """
    if error := last_error(text):
        places = _PLACE.findall(text) if error.startswith("SyntaxError") else []
        return error + (f" ({places[-1][0]}, line {places[-1][1]})" if places else "")
    lines = [_FRAME.sub(" ", line).strip() for line in text.splitlines()]
    kept = [line for line in lines if line and line not in ("Error", "Usage")]
    return " ".join(kept)


def _does_not_load(failed: dict[str, str]) -> str:
    where = f" ({failed['where']})" if failed["where"] else ""
    line = f"{failed['component']} does not load: {failed['error']}{where}"
    if failed["error"].startswith("ModuleNotFoundError"):
        line += "; install it beside zerosum, here as on every node"
    return line


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        whole = f"{prefix}{key}"
        flat |= _flat(value, f"{whole}.") if isinstance(value, dict) else {whole: value}
    return flat


def _ran(
    command: list[str], *, env: dict[str, str], cwd: str, seconds: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=env,
            cwd=cwd,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DeploymentError(f"{' '.join(command[:3])}: no end in {seconds:g} s") from None
