"""Each extra of pyproject.toml installs with constraints.txt, from versions all pinned there.

A package that an extra brings and that is not pinned sends pip back through the releases of
everything that depends on it, for longer than anybody waits. A pin that contradicts one does not
install at all.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
OF_PYTORCH = ("cuda-", "nvidia-", "triton")
"""Builds of PyTorch for CUDA name their versions themselves; builds for CPUs bring none."""
PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)", re.MULTILINE)


def canonical(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Return the version of each package that a list of requirements pins."""
    return {canonical(name): version for name, version in PIN.findall(text)}


def faults_of(extra: str, constraints: Path, project: Path) -> list[str]:
    """Return what keeps an extra from being installed with the constraints.

    Parameters
    ----------
    extra : str
    constraints : Path
        A list of pins.
    project : Path
        A pyproject.toml.

    Returns
    -------
    list of str
        A line each; nothing where it installs.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header"]
    command += ["--python", sys.executable]
    command += ["--constraint", str(constraints), "--extra", extra, str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"{extra}: no versions fit: {' '.join(done.stderr.split())}"]
    pinned = pins(constraints.read_text(encoding="utf-8"))
    brought = sorted(pins(done.stdout).items())
    return [
        f"{extra}: {name} is not pinned; {version} fits"
        for name, version in brought
        if name not in pinned and not name.startswith(OF_PYTORCH)
    ]


def main() -> int:
    """Print what is wrong with any extra, and return 1 if something is."""
    project = ROOT / "pyproject.toml"
    extras = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    faults = [each for e in extras for each in faults_of(e, ROOT / "constraints.txt", project)]
    print("\n".join(faults) or f"{len(extras)} extras install with constraints.txt")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
