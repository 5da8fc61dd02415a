"""One measurement in one process of its own."""

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from zerosum.client.files.operating_system import peak_bytes

Values = dict[str, Any]

T = TypeVar("T")

# Threads of the linear algebra would use CPU time that a client on one core does not have.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_KINDS = ("session", "liars", "primitives", "flower", "rounds", "memory", "noise", "dpsgd")


class BenchError(Exception):
    """A benchmark was asked for what it cannot measure, or did not finish."""


def measure(kind: str, settings: Values, time_limit: float | None = None) -> Values:
    """Run one measurement in a new process and return what it found.

    Parameters
    ----------
    kind : str
        ``session``, ``liars``, ``primitives``, ``flower``, ``rounds``, ``memory``, ``noise`` or
        ``dpsgd``: the
        module whose ``run`` is called.
    settings : dict
        Its keyword arguments, as JSON carries them.
    time_limit : float, optional
        Seconds after which the process is ended.

    Returns
    -------
    dict
        Figures by name, with the processor and the version of Python.

    Raises
    ------
    BenchError
        If the process fails, or does not finish within the limit.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, kind],
            input=json.dumps(settings),
            capture_output=True,
            text=True,
            timeout=time_limit,
            env={
                **os.environ,
                **_ONE_THREAD,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"the {kind} benchmark did not end within {time_limit:.0f} s") from None
    if done.returncode:
        raise BenchError(_last_line(done.stderr) or f"the {kind} benchmark failed")
    figures: Values = json.loads(done.stdout)
    return figures


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix(f"{BenchError.__module__}.BenchError: ") if lines else ""


def peak_memory_mb() -> float:
    """Return the most memory that this process has held so far, in units of 10^6 bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike getrusage, this does not count what the parent process held when it forked.
        lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["VmHWM"].split()[0]) * 1024 / 1e6
    peak = peak_bytes()
    return float("nan") if peak is None else peak / 1e6


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return what a call returns, and the CPU seconds it took."""
    start = time.process_time()
    value = call()
    return value, time.process_time() - start


def processor() -> str:
    """Return the name of the processor, as far as the system tells."""
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main(kind: str) -> None:
    """Read settings from standard input, measure, and write what was found as JSON.

    Parameters
    ----------
    kind : str
        Module of this package whose ``run`` is called.

    Raises
    ------
    BenchError
        If there is no such benchmark, or what it measures is not installed.
    """
    if kind not in _KINDS:
        raise BenchError(f"no benchmark {kind!r}; there are {', '.join(_KINDS)}")
    try:
        module = importlib.import_module(f"zerosum.simulations.bench.{kind}")
    except ImportError as error:
        raise BenchError(f"the {kind} benchmark needs what is not installed: {error}") from None
    figures = module.run(**json.load(sys.stdin))
    json.dump(
        {**figures, "processor": processor(), "python": platform.python_version()}, sys.stdout
    )


if __name__ == "__main__":
    main(sys.argv[1])
