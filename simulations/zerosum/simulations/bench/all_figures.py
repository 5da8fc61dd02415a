"""Every figure of the README in one file: commands of their own, each kept as it ends."""

import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zerosum.simulations.bench.engine import MASKED, PEER_LIMIT_SECONDS, PEERS, Peer
from zerosum.simulations.bench.process import BenchError, Values, processor
from zerosum.simulations.partial_results import PartialRows
from zerosum.simulations.terminal.printable import shell_command

_MAIN = "from zerosum.simulations.commands.entry import main; main()"

_PATIENCE_SECONDS = 30.0
"""That a command may take to end its own processes before it is killed."""

SEEDS = (0, 1, 2)
"""Of the default run."""

OPACUS = Peer("opacus", "pip install opacus")
"""Peer of the part dpsgd, in the same folder as those of engines."""

SHORT_ROUNDS = 3
"""Timed rounds of a CNN, which take a minute for all engines."""


@dataclass(frozen=True)
class Part:
    """A command whose figures are kept.

    Attributes
    ----------
    name : str
        Under which they are.
    arguments : tuple of str
        What a user types after ``zerosum`` to measure them alone.
    read : callable
        Reads them from what the command wrote.
    option : str
        Which names the file or folder that it writes.
    private : tuple of str
        Further arguments, which name folders of this machine.
    packages : Path, optional
        A folder of packages that stand behind those installed.
    """

    name: str
    arguments: tuple[str, ...]
    read: Callable[[Path], Any]
    option: str = "--json"
    private: tuple[str, ...] = ()
    packages: Path | None = None

    @property
    def command(self) -> str:
        """Return the command without what is of this machine alone."""
        return shell_command(["zerosum", *self.arguments])


def parts(
    rounds: int = 5, peers: Path | None = None, peer_limit: float = PEER_LIMIT_SECONDS
) -> list[Part]:
    """Return all parts, in the order in which they are measured.

    Parameters
    ----------
    rounds : int
        Timed rounds of engines; of a CNN at most :data:`SHORT_ROUNDS`.
    peers : Path, optional
        A folder of packages for peers.
    peer_limit : float
        Seconds that a peer may be waited for.

    Returns
    -------
    list of Part
        Names differ.
    """
    extra = ("--peer-limit", f"{peer_limit:g}", *(() if peers is None else ("--peers", f"{peers}")))
    rivals = ",".join(PEERS)

    def engine(name: str, *options: str, wanted: int = rounds) -> Part:
        arguments = ("bench", "engine", *options, "--rounds", f"{wanted}")
        return Part(name, arguments, _rows, private=extra if "--versus" in options else ())

    few = min(rounds, SHORT_ROUNDS)
    cnn = ("--model", "cnn")
    session = ("bench", "secagg", "--n", "500", "--d", "100000", "--degree", "complete")
    return [
        engine("mlp", "--versus", f"{MASKED},{rivals}"),
        engine("mlp-epochs", "--epochs", "5"),
        engine("mlp-bf16", "--precision", "bf16"),
        engine("mlp-workers", "--workers", "1,2"),
        engine("mlp-population", "--clients", "1000,1000000"),
        engine("cnn", *cnn, "--versus", "pfl,flower", wanted=few),
        engine("cnn-bf16", *cnn, "--precision", "bf16", wanted=few),
        Part("dpsgd", ("bench", "dpsgd"), _rows, packages=OPACUS.folder("opacus", peers)),
        Part("secagg", session, _rows),
        # Clients alone share what they derive, which spares minutes; the server never does.
        Part("secagg-10", (*session, "--dropout", "0.1", "--share"), _rows),
        Part("secagg-30", (*session, "--dropout", "0.3", "--share"), _rows),
        Part("secagg-liars", (*session, "--dropout", "0.1", "--liars", "25"), _rows),
        Part(
            "secagg-sparse",
            ("bench", "secagg", "--n", "1000", "--d", "1000000", "--dropout", "0.05"),
            _rows,
        ),
        Part("start", ("bench", "start"), _rows),
        *(Part(f"run-{s}", ("run", "--seed", f"{s}"), _of_a_run, "--out") for s in SEEDS),
        Part("inversion", ("attack", "gradient-inversion"), _of_an_attack, "--out"),
    ]


def run(
    wanted: Sequence[Part],
    partial: PartialRows,
    *,
    show: Callable[[str], None] = lambda what: None,
    tell: Callable[[str], None] = lambda line: None,
) -> Values:
    """Measure parts that were not measured before.

    Parameters
    ----------
    wanted : sequence of Part
        In their order.
    partial : PartialRows
        What an earlier call came to.
    show, tell : callable
        Are told which part is measured; and each line that it prints.

    Returns
    -------
    dict
        ``parts``: by name, each with command, figures, cpu_seconds, version, processor and python;
        ``missing``: why a part is not among them.
    """
    missing: dict[str, str] = {}
    done = {row["part"] for row in partial.rows}
    for number, part in enumerate(wanted, 1):
        if part.name in done:
            continue
        show(f"{number}/{len(wanted)} {part.name}")
        tell(f"{number}/{len(wanted)} {part.command}")
        try:
            partial.add(measured(part, tell))
        except BenchError as error:  # a part that fails costs itself alone
            missing[part.name] = f"{error}"
    rows = {row["part"]: {k: v for k, v in row.items() if k != "part"} for row in partial.rows}
    return {"parts": rows, "missing": missing}


def measured(part: Part, tell: Callable[[str], None]) -> Values:
    """Run the command of a part, and return its row.

    Parameters
    ----------
    part : Part
    tell : callable
        Is told each line that the command prints.

    Returns
    -------
    dict
        As :func:`run` says, with the name as ``part``.

    Raises
    ------
    BenchError
        If the command fails, or writes nothing.
    """
    with tempfile.TemporaryDirectory(prefix="zerosum-bench-") as folder:
        out = Path(folder) / "out"
        words = [*part.arguments, *part.private, part.option, f"{out}"]
        before = _children_seconds()
        with _started(words, folder, part.packages) as process:
            last = ""
            for line in process.stdout or ():
                last = line.rstrip() or last
                tell(line.rstrip())
        if process.returncode:
            raise BenchError(last or f"exit code {process.returncode}")
        try:
            figures = part.read(out)
        except (OSError, LookupError, ValueError) as error:
            raise BenchError(f"{part.command} left no figures: {error!r}") from error
    return {
        "part": part.name,
        "command": part.command,
        "figures": figures,
        "cpu_seconds": _children_seconds() - before,
        "version": version("zerosum"),
        "processor": processor(),
        "python": platform.python_version(),
    }


def merged(before: Values, figures: Values, asked: Collection[str]) -> Values:
    """Return the figures of an earlier file with those of parts that were asked for replaced.

    Parameters
    ----------
    before, figures : dict
        As :func:`run` returns them.
    asked : collection of str
        Names of the parts: what an earlier file says of them is out of date, even where they fail.

    Returns
    -------
    dict
        As :func:`run` returns it.
    """
    kept = {
        what: {name: each for name, each in before.get(what, {}).items() if name not in asked}
        for what in ("parts", "missing")
    }
    return {what: kept[what] | figures[what] for what in kept}


@contextmanager
def _started(
    words: Sequence[str], folder: str, packages: Path | None
) -> Iterator["subprocess.Popen[str]"]:
    """Run ``zerosum`` in a folder; it is ended if what reads it is."""
    paths = [*filter(None, sys.path), *([] if packages is None else [str(packages)])]
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    with process:
        try:
            yield process
        except BaseException:
            process.terminate()  # it has processes of its own to end
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_SECONDS)
            process.kill()
            raise


def _children_seconds() -> float:
    """Return the CPU seconds of all processes that were waited for; 0 where nobody tells."""
    times = os.times()
    return times.children_user + times.children_system


def _rows(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _of_a_run(folder: Path) -> Values:
    """Read the accuracy and the epsilons of a run."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    epsilons = {name: bound["value"] for name, bound in summary["epsilon"].items()}
    return {"test_accuracy": summary["metrics"]["test_accuracy"], "epsilon": epsilons}


def _of_an_attack(folder: Path) -> list[Values]:
    """Read the mean PSNR of the best attacker in each setting."""
    best: dict[tuple[str, str], Values] = {}
    with (folder / "results.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["metric"] != "PSNR" or row["seed"] != "pooled" or row["status"] != "value":
                continue
            key = row["setting"], row["protection"]
            mean = {"setting": key[0], "protection": key[1], "psnr_db": float(row["value"])}
            mean["baseline_db"] = float(row["baseline"])
            best[key] = max(best.get(key, mean), mean, key=lambda each: float(each["psnr_db"]))
    return list(best.values())
