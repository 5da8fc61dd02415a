"""An engine in a process of its own that does a round whenever it is its turn.

The process that compares starts all engines, then asks one after another for one round: what else
the machine does meanwhile falls on all alike, and the memory of each is its own.
"""

import contextlib
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.bench.workload import Workload

ENGINES = {
    "floor": "engines:floor",
    "bare": "bare:plain",
    "bare-careful": "bare:careful",
    "zerosum": "engines:unprotected",
    "zerosum-protected": "engines:protected",
    "zerosum-masked": "engines:masked",
    "pfl": "peers:pfl",
    "flower": "peers:flower",
    "fedjax": "peers:fedjax",
}
"""Module and function of each engine, in this package."""

_SAMPLE_SECONDS = 0.05
"""Between two looks at an engine's memory: peaks that are shorter are missed."""

_CPUCLOCK_SCHED = 2
"""Low bits of the number of a clock, on Linux: all that a process ran. See clock_getres(2)."""

_PATIENCE_SECONDS = 20.0
"""That an engine may take to end by itself before it is killed."""


_WAITING_SECONDS = 10.0
"""Between two lines that say which engine is waited for."""


class MissingError(BenchError):
    """A library that an engine needs is not installed."""


class LateError(BenchError):
    """An engine was not done within the time that it may take."""


@dataclass(frozen=True)
class Spent:
    """Seconds of one round.

    Attributes
    ----------
    wall : float
        From the order to the answer.
    cpu : float or None
        Of all threads of the engine's process and of all processes that it started; None where the
        system does not tell.
    """

    wall: float
    cpu: float | None


class Turn:
    """The engine's side: call it before the first round and after each.

    Standard input and output are taken over, so that nothing an engine prints gets between.
    """

    def __init__(self) -> None:
        self.facts: Values = {}
        self._orders = os.fdopen(os.dup(0), "r", encoding="utf-8")
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)

    def settings(self) -> Values:
        """Return what the engine is started with."""
        order: Values = json.loads(self._orders.readline())
        return order

    def __call__(self) -> bool:
        """Tell that the round is done, wait, and return whether one more is wanted."""
        self.say(self.facts)
        return self._orders.readline() == "go\n"

    def say(self, what: Values) -> None:
        """Send one line of JSON."""
        self._answers.write(json.dumps(what) + "\n")
        self._answers.flush()


class Entrant:
    """The other side: one engine in its process.

    Parameters
    ----------
    engine : str
        A key of :data:`ENGINES`.
    workload : Workload
    workers : int
        Processes or threads that it may compute on.
    extra : Path, optional
        A folder of packages that stand behind those installed.
    time_limit : float
        Seconds that it may be waited for, from the first wait to the last.
    waiting : callable
        Is told now and then that an engine is waited for.
    """

    def __init__(
        self,
        engine: str,
        workload: Workload,
        workers: int,
        *,
        extra: Path | None = None,
        time_limit: float = 3600.0,
        waiting: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.engine, self.workers, self.clients = engine, workers, workload.clients
        self.facts: Values = {}
        self._limit, self._waited, self._waiting = time_limit, 0.0, waiting
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # until kill()
        folders = [*filter(None, sys.path), *([str(extra)] if extra else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,  # so that all that it started can be ended
            env={**os.environ, **_settings(workers), "PYTHONPATH": os.pathsep.join(folders)},
        )
        self._orders = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)
        self._send(json.dumps({"workload": asdict(workload), "workers": workers}))

    def ready(self) -> None:
        """Wait until the first round can begin.

        Raises
        ------
        MissingError
            If a package is not there.
        LateError
            If it takes too long.
        BenchError
            If the process ended.
        """
        self._hear()

    def round(self, watch: Callable[[], None] | None = None) -> Spent:
        """Let it do one round and return what it took; ``watch`` is called now and then."""
        cpu, started = cpu_seconds(self._process.pid), time.perf_counter()
        self._send("go")
        self._hear(watch)
        wall, cpu_now = time.perf_counter() - started, cpu_seconds(self._process.pid)
        return Spent(wall, None if cpu is None or cpu_now is None else cpu_now - cpu)

    def peak_memory_mb(self) -> float | None:
        """Return the most memory held in one more round, in units of 10^6 bytes.

        None where the system does not tell.
        """
        peaks: list[float] = []

        def watch() -> None:
            megabytes = memory_mb(self._process.pid)
            if megabytes is not None:
                peaks.append(megabytes)

        self.round(watch)
        watch()
        return max(peaks, default=None)

    def end(self) -> None:
        """End it, and whatever it started."""
        with contextlib.suppress(OSError):
            self._send("end")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._orders, self._answers, self._errors):
            stream.close()

    def _send(self, line: str) -> None:
        # Of a process that ended is told when its answer is awaited.
        with contextlib.suppress(BrokenPipeError):
            self._orders.write(line.encode() + b"\n")

    def _hear(self, watch: Callable[[], None] | None = None) -> None:
        """Wait for an answer, and keep what it tells."""
        answer, started = b"", time.monotonic()
        told = started
        while not answer.endswith(b"\n"):
            now = time.monotonic()
            left = self._limit - self._waited - (now - started)
            if left <= 0:
                raise LateError(f"{self.engine} was not done within {self._limit:g} s")
            if now - told >= _WAITING_SECONDS:
                told = now
                self._waiting(
                    f"waiting for {self.engine}, {self._limit - left:.0f} s of at most "
                    f"{self._limit:g}"
                )
            pause = _SAMPLE_SECONDS if watch else _WAITING_SECONDS
            ready, _, _ = select.select([self._answers], [], [], min(left, pause))
            if ready:
                piece = os.read(self._answers.fileno(), 1 << 16)
                if not piece:
                    raise BenchError(f"{self.engine} ended: {self._last_words()}")
                answer += piece
            elif watch:
                watch()
        self._waited += time.monotonic() - started
        message = json.loads(answer)
        if "missing" in message:
            raise MissingError(message["missing"])
        self.facts = message

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Missing)\b", line)]
        return (raised or lines or [f"exit code {self._process.wait()}"])[-1]


def _settings(workers: int) -> dict[str, str]:
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    reports = ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED")
    return dict.fromkeys(threads, str(workers)) | dict.fromkeys(reports, "0")


def memory_mb(root: int) -> float | None:
    """Return the memory of a process and all that it started, in units of 10^6 bytes.

    Pages of data are counted once, however many of them share one; of mapped files (libraries,
    records) those of the process that holds most. None where the system does not tell.
    """
    data, files = 0, 0
    for pid in _family(root):
        try:
            shared = _fields(Path(f"/proc/{pid}/smaps_rollup"))
            status = _fields(Path(f"/proc/{pid}/status"))
        except OSError:  # it just ended
            continue
        data += shared.get("Pss_Anon", 0) + shared.get("Pss_Shmem", 0)
        files = max(files, status.get("RssFile", 0))
    return (data + files) * 1024 / 1e6 if data else None


def cpu_seconds(root: int) -> float | None:
    """Return the CPU seconds so far of a process and all that it started.

    Those of processes that ended count with the one that waited for them. None where the system
    does not tell.
    """
    if sys.platform != "linux":
        return None
    total = 0.0
    for pid in _family(root):
        with contextlib.suppress(OSError):  # it just ended
            # The clock of another process, to the nanosecond; fields 14 and 15 of its stat are
            # in hundredths of a second.
            total += time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
            reaped = (
                Path(f"/proc/{pid}/stat")
                .read_text(encoding="utf-8")
                .rpartition(")")[2]
                .split()[13:15]
            )
            total += sum(map(int, reaped)) / os.sysconf("SC_CLK_TCK")
    return total


def _fields(path: Path) -> dict[str, int]:
    """Return the figures of a file of ``/proc``, in kB."""
    parts = (
        line.split()
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.endswith(" kB")
    )
    return {name.rstrip(":"): int(number) for name, number, _ in parts}


def _family(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(entry.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    family = [root]
    for pid in family:
        family += children.get(pid, [])
    return family


def main(engine: str) -> None:
    """Play an engine: read what it is started with, and do rounds until no more are wanted."""
    turn = Turn()
    settings = turn.settings()
    module, _, function = ENGINES[engine].partition(":")
    try:
        play: Any = getattr(
            importlib.import_module(f"zerosum.simulations.bench.{module}"), function
        )
        play(Workload(**settings["workload"]), settings["workers"], turn)
    except ModuleNotFoundError as error:
        turn.say({"missing": f"{error}"})


if __name__ == "__main__":
    main(sys.argv[1])
