"""CPU seconds, first line and imports of commands, each in a process as a user starts it."""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from zerosum.simulations.bench.process import BenchError, Values

BARE = "python -c pass"
"""Row that each ratio is to."""

WHOLE = "run"
"""Row of the default run: minutes for a few turns, where the others take seconds."""

TABLE = "table.csv"
"""File that a command which names it finds in its folder, with the schema beside it."""

ROWS = 30_000
"""Of that file: as many as the table of the first example has."""

COMMANDS: dict[str, tuple[tuple[str, ...], int]] = {
    "--help": (("--help",), 0),
    "--version": (("--version",), 0),
    "list": (("list",), 0),
    "keys --help": (("keys", "--help"), 0),
    "roster --help": (("roster", "--help"), 0),
    "a mistyped command": (("ruun",), 2),
    "a mistyped key": (("run", "--set", "rouns=3"), 2),
    "run --dry-run": (("run", "--dry-run"), 0),
    "query count": (
        (
            *("query", "count", "--where", "age >= 65", "--epsilon", "0.1", "--clients", "300"),
            *("--schema", "table.toml", "--data", TABLE, "--out", "q"),
        ),
        0,
    ),
    WHOLE: (("run",), 0),
}
"""Arguments of each row, and the exit code that it must end with."""

HEAVY = ("torch", "scipy", "pandas", "matplotlib", "flwr")
"""Libraries that take from a quarter of a second to import."""

# What the console script does; then it tells what was imported.
_CODE = """
import sys
try:
    from zerosum.simulations.commands.entry import main
    main()
finally:
    with open({path!r}, "w") as file:
        print(*sys.modules, file=file)
"""


@dataclass(frozen=True)
class Start:
    """One command, from its start to its end.

    Attributes
    ----------
    cpu_s : float
        CPU seconds of its process and all that it waited for.
    first_line_s : float or None
        Seconds of the clock until it printed something; None where it prints nothing.
    modules : int
        Imported when it ended.
    heavy : tuple of str
        Those of :data:`HEAVY` among them.
    """

    cpu_s: float
    first_line_s: float | None
    modules: int = 0
    heavy: tuple[str, ...] = ()


def run(
    repeats: int = 5,
    whole: int = 1,
    *,
    time_limit: float = 900.0,
    tell: Callable[[str], None] = lambda what: None,
    keep: Callable[[list[Values]], None] = lambda rows: None,
) -> Values:
    """Let the commands take turns.

    Parameters
    ----------
    repeats : int
        Turns of each command, beside one that warms the disk's cache.
    whole : int
        Turns of the default run; 0 leaves it out.
    time_limit : float
        Seconds that a command may take.
    tell : callable
        Is told what is being done.
    keep : callable
        Is given the rows of all turns so far, after each.

    Returns
    -------
    dict
        ``rows``: each with ``command``, ``turns``, ``cpu_s``, ``first_line_s``, ``modules``,
        ``heavy``, and ``ratio_to_python``, the median of those of each turn.

    Raises
    ------
    BenchError
        If the system does not tell a process's CPU time, or a command does not end as it must.
    """
    if not hasattr(os, "wait4"):
        raise BenchError(f"{sys.platform} does not tell the CPU time of a process that ended")
    starts: dict[str, list[tuple[Start, Start]]] = {}
    for turn in range(repeats + 1):
        tell(f"turn {turn} of {repeats}" if turn else "warming up")
        bare = started([sys.executable, "-c", "pass"], 0, time_limit)
        for name in (BARE, *COMMANDS):
            if name == WHOLE and not 1 <= turn <= whole:
                continue
            one = bare if name == BARE else command(*COMMANDS[name], time_limit)
            if turn:
                starts.setdefault(name, []).append((one, bare))
        if turn:
            keep([_row(name, turns) for name, turns in starts.items()])
    return {"rows": [_row(name, turns) for name, turns in starts.items()]}


def command(arguments: Sequence[str], code: int, time_limit: float) -> Start:
    """Run ``zerosum`` with arguments, in a new folder.

    Parameters
    ----------
    arguments : sequence of str
    code : int
        Exit code that it must end with.
    time_limit : float
        In seconds.

    Returns
    -------
    Start
        With its modules.

    Raises
    ------
    BenchError
        If it ends otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "modules"
        if TABLE in arguments:
            ages = (f"{17 + 7 * row % 74}\n" for row in range(ROWS))
            (Path(folder) / TABLE).write_bytes(("age\n" + "".join(ages)).encode())
            (Path(folder) / "table.toml").write_bytes(b"[schema]\nage = {integer = [17, 90]}\n")
        line = [sys.executable, "-c", _CODE.format(path=str(listing)), *arguments]
        ended = started(line, code, time_limit, folder)
        modules = listing.read_text(encoding="utf-8").split()
    heavy = tuple(name for name in HEAVY if name in modules)
    return Start(ended.cpu_s, ended.first_line_s, len(modules), heavy)


def started(line: Sequence[str], code: int, time_limit: float, folder: str | None = None) -> Start:
    """Run a process to its end and return what it took.

    Parameters
    ----------
    line : sequence of str
        The program and its arguments.
    code : int
        Exit code that it must end with.
    time_limit : float
        In seconds.
    folder : str, optional
        To run it in.

    Returns
    -------
    Start
        Without modules.

    Raises
    ------
    BenchError
        If it ends with another code, or not within the limit.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    words, first = b"", None
    with process:
        try:
            while piece := _heard(process, begun + time_limit):
                first = time.perf_counter() - begun if first is None else first
                words += piece
        except BaseException:
            process.kill()
            raise
        # Not Popen.wait, which keeps the CPU time to itself.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != code:
        last = words.decode(errors="replace").strip().rpartition("\n")[2]
        raise BenchError(f"{' '.join(line[3:])} ended with {process.returncode}: {last}")
    return Start(used.ru_utime + used.ru_stime, first)


def _heard(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Return what a process says next, nothing once it is done."""
    if process.stdout is None:  # it was not given a pipe
        return b""
    left = max(0.0, deadline - time.perf_counter())
    if not select.select([process.stdout], [], [], left)[0]:
        raise BenchError("a command did not end within its time")
    return os.read(process.stdout.fileno(), 1 << 16)


def _row(name: str, turns: Sequence[tuple[Start, Start]]) -> Values:
    first = [one.first_line_s for one, _ in turns if one.first_line_s is not None]
    last = turns[-1][0]
    return {
        "command": name,
        "turns": len(turns),
        "cpu_s": median(one.cpu_s for one, _ in turns),
        "first_line_s": median(first) if first else None,
        "ratio_to_python": median(one.cpu_s / bare.cpu_s for one, bare in turns),
        "modules": last.modules,
        "heavy": list(last.heavy),
    }
