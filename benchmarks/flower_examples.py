"""Run a folder of Flower's example apps as they are, and with the lines that make them private.

``python benchmarks/flower_examples.py FOLDER [--only NAME ...] [--superlink NAME ...]``

Every folder in FOLDER with a Flower app is copied, run plain and private on Flower's simulation
runtime, those named after ``--superlink`` on a SuperLink with three SuperNodes too, and a table is
printed: what the app itself says of its model, bytes, seconds, and lines that were changed. The
originals are not touched. Data come from no hub, but from ``benchmarks/flower_stand_ins``. Bytes
and seconds are counted where the server has the messages, alike for all runs: from its first
message to its last reply. Needs ``ray`` for simulation and whatever the apps themselves import.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from flower_examples_edits import CannotEditError, Edited, Settings, components, make_private
from flower_examples_reading import (
    evaluation_metrics,
    measured,
    reason,
    said,
)
from zerosum.simulations.rehearsal.federation import federation
from zerosum.simulations.rehearsal.processes import DeploymentError, FlowerPrograms
from zerosum.simulations.rehearsal.waiting import wait_for_end
from zerosum.simulations.terminal.signals import terminable

STAND_INS = Path(__file__).parent / "flower_stand_ins"

CONNECTION = "examples"

SUPERNODES = 3

PLAIN, MASKED, NOISED = "plain", "masked", "noised"

QUERIES = {
    MASKED: 'privacy={"model": "none"}',
    NOISED: "epsilon=1.0, budget=10.0",
}

SETTINGS = {
    MASKED: 'privacy={"model": "none", "clip": "none"}, encoding={"range": 4.0}',
    NOISED: "clip=1.0, noise_multiplier=0.5, delta=1e-3",
}

POLICY = """models = ["none", "distributed"]
servers = ["malicious", "semi-honest"]
max_vector_length = 100_000_000
min_cohort = 2
corruption = 0.0
max_epsilon = inf
[app_queries]
units = ["record", "client"]
max_epsilon_per_query = inf
"""


@dataclass(frozen=True)
class Row:
    """One run of one app.

    Parameters
    ----------
    app, runtime, way : str
        Which; ``simulation`` or ``superlink``; ``plain``, ``masked`` or ``noised``.
    says : str
        What the app itself said of its result; empty where it failed.
    failure : str
        One line that says why it failed; empty where it did not.
    bytes_up : float
        That a client sent in a round, on average.
    seconds : float
        From the server's first message to its last reply.
    lines : int
        That were changed in the app.
    diff : str
        These lines.
    notes : tuple of str
        What was taken away.
    bounds : dict
        What its nodes evaluate, with a bound for each: the metrics of the private runs after it.
    """

    app: str
    runtime: str
    way: str
    says: str = ""
    failure: str = ""
    bytes_up: float = 0.0
    seconds: float = 0.0
    lines: int = 0
    diff: str = ""
    notes: tuple[str, ...] = ()
    bounds: dict[str, float] = field(default_factory=dict)


def main() -> int:
    """Run what the command line asks for, and print the table."""
    given = _arguments()
    apps = [path for path in sorted(given.folder.iterdir()) if (path / "pyproject.toml").is_file()]
    apps = [path for path in apps if not given.only or path.name in given.only]
    unknown = {*given.only, *given.superlink} - {path.name for path in given.folder.iterdir()}
    if unknown or not apps:
        print(f"{given.folder}: no app {', '.join(sorted(unknown)) or 'in it'}", file=sys.stderr)
        return 2
    rows = [Row(**row) for row in json.loads(_read(given.json))] if _there(given.json) else []
    with terminable(), _work(given.work) as work:
        os.environ |= _environment(work)
        for app in apps:
            for row in _runs(app, given, work, rows):
                rows.append(row)
                if given.json:
                    given.json.write_text(json.dumps([asdict(one) for one in rows], indent=1))
    print(table(rows))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of app folders, each with a pyproject.toml")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--superlink", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--no-simulation", action="store_true")
    parser.add_argument("--ways", nargs="+", default=[PLAIN, MASKED, NOISED], metavar="WAY")
    parser.add_argument("--nodes", type=int, default=5, help="simulated")
    parser.add_argument(
        "--nodes-of", nargs=2, action="append", default=[], metavar=("NAME", "NODES")
    )
    parser.add_argument("--rounds", type=int, default=3, help="at most, where an app can be told")
    parser.add_argument("--noised", default=SETTINGS[NOISED], help="arguments of PrivateStrategy")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a run may take")
    parser.add_argument(
        "--run-config", nargs=2, action="append", default=[], metavar=("NAME", "CONFIG")
    )
    parser.add_argument("--query", nargs=2, action="append", default=[], metavar=("NAME", "SUMS"))
    parser.add_argument("--work", type=Path, help="keep copies and logs there")
    parser.add_argument(
        "--json",
        type=Path,
        help="write all rows there, with the changed lines; those that it has are not run again",
    )
    return parser.parse_args()


@contextmanager
def _work(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="flower-examples-") as folder:
        yield Path(folder)


def _environment(work: Path) -> dict[str, str]:
    """Return what gives Flower's programs the stand-ins."""
    (work / "records").mkdir(exist_ok=True)
    (work / "policy.toml").write_text(POLICY)
    paths = [str(STAND_INS)]
    probe = [sys.executable, "-c", "import torchvision.transforms"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        paths.append(str(STAND_INS / "no_torchvision"))
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "FLOWER_EXAMPLES_RECORDS": str(work / "records"),
        "HF_HUB_OFFLINE": "1",
    }


def _there(file: Path | None) -> bool:
    return file is not None and file.is_file()


def _runs(app: Path, given: argparse.Namespace, work: Path, before: list[Row]) -> Iterator[Row]:
    """Yield an app's rows that are not there yet, and tell of each as it is there."""
    runtimes = [] if given.no_simulation else ["simulation"]
    runtimes += ["superlink"] if app.name in given.superlink else []
    mine = [row for row in before if row.app == app.name]
    for runtime in runtimes:
        for way in given.ways:
            if any((row.runtime, row.way) == (runtime, way) for row in mine):
                continue
            folder = work / app.name / f"{runtime}-{way}"
            shutil.rmtree(folder, ignore_errors=True)
            bounds = next((row.bounds for row in mine if row.bounds), {})
            row = _Run(app, runtime, way, folder, given, bounds).done()
            mine.append(row)
            print(f"{app.name}, {runtime}, {way}: {row.failure or row.says}", file=sys.stderr)
            yield row


@dataclass(frozen=True)
class _Run:
    """One run, in a folder of its own."""

    source: Path
    runtime: str
    way: str
    folder: Path
    given: argparse.Namespace
    metrics: dict[str, float]

    def done(self) -> Row:
        """Run it to its end, and return its row."""
        app = self.folder / "app"
        shutil.copytree(self.source, app)
        row = partial(Row, self.source.name, self.runtime, self.way)
        try:
            components(app)
            edited = Edited("", ()) if self.way == PLAIN else self._edited(app)
        except (CannotEditError, SyntaxError, UnicodeDecodeError) as error:
            return row(failure=f"not edited: {error}")
        row = partial(row, lines=edited.lines, diff=edited.diff, notes=edited.notes)
        run = self._simulated if self.runtime == "simulation" else self._deployed
        try:
            number, status, printed = run(app)
        except (DeploymentError, TimeoutError) as error:
            return row(failure=reason(str(error)) or str(error).splitlines()[0])
        (self.folder / "run.log").write_text(printed)
        records, bytes_up, seconds = measured(self._records / f"{number}.jsonl")
        why = reason(printed)
        says = failure = ""
        if status == "finished:completed":
            says = said(records, printed)
            failure = "" if says else why or "it said nothing of a result"
        else:
            failure = why if why and status.startswith("finished") else f"{status}: {why}"
        bounds = evaluation_metrics(records) if self.way == PLAIN else {}
        return row(says=says, failure=failure, bytes_up=bytes_up, seconds=seconds, bounds=bounds)

    @property
    def _records(self) -> Path:
        return Path(os.environ["FLOWER_EXAMPLES_RECORDS"])

    def _edited(self, app: Path) -> Edited:
        settings = self.given.noised if self.way == NOISED else SETTINGS[self.way]
        if self.metrics:
            settings += f", metrics={json.dumps(self.metrics)}"
            settings += ", evaluation_noise=1.0" if self.way == NOISED else ""
        sums = dict(self.given.query).get(self.source.name, "")
        queries = ", ".join(filter(None, (sums, QUERIES[self.way])))
        return make_private(app, Settings(settings, queries))

    def _config(self, app: Path) -> str:
        """Return the run config: fewer rounds, and what the command line gives this app."""
        words = [config for name, config in self.given.run_config if name == self.source.name]
        told = re.search(r"^num-server-rounds\s*=\s*(\d+)", _read(app / "pyproject.toml"), re.M)
        if told and int(told[1]) > self.given.rounds:
            words.append(f"num-server-rounds={self.given.rounds}")
        return " ".join(words)

    def _simulated(self, app: Path) -> tuple[int, str, str]:
        programs = FlowerPrograms(self.folder / "flower", CONNECTION, "127.0.0.1")
        where = ("--host", "127.0.0.1", "--port", str(programs.port))
        options = ("--insecure", "--simulation", "--disable-runtime-dependency-installation")
        nodes = dict(self.given.nodes_of).get(self.source.name, self.given.nodes)
        size = f"num-supernodes={nodes} client-resources-num-cpus=1"
        words = ["run", ".", CONNECTION, "--format", "json", "--federation-config", size]
        if config := self._config(app):
            words += ["--run-config", config]
        try:
            programs.start("superlink", "flower-superlink", *options, *where)
            programs.wait_for_port("superlink")
            number = int(json.loads(programs.flwr(*words, cwd=app))["run-id"])

            def status() -> str:
                words = ("list", CONNECTION, "--run-id", str(number), "--format", "json")
                answer: str = json.loads(programs.flwr(*words))["runs"][0]["status"]
                return answer

            log = partial(programs.flwr, "log", str(number), CONNECTION, "--show")
            return number, *self._ended(number, status, log)
        finally:
            programs.stop()

    def _deployed(self, app: Path) -> tuple[int, str, str]:
        with federation(self.folder / "flower", SUPERNODES) as flower:
            policy = self.folder.parents[1] / "policy.toml"
            for index in range(SUPERNODES):
                flower.start_supernode(index, f'policy="{policy}"')
            number = flower.submit_config(app, self._config(app))
            log = partial(flower.flwr, "log", str(number), "test", "--show")
            return number, *self._ended(number, partial(flower.status, number), log)

    def _ended(self, number: int, status: Any, log: Any) -> tuple[str, str]:
        """Return a run's status at its end, and what it printed."""
        sign = self._records / f"{number}.ended"
        try:
            ended = wait_for_end(status, self.given.limit, sign=sign)
        except TimeoutError as error:
            ended = str(error)
        return ended, log()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def table(rows: list[Row]) -> str:
    """Return the rows in Markdown.

    Parameters
    ----------
    rows : list of Row
        Of all runs.

    Returns
    -------
    str
        A line for each; those that failed say why.
    """
    head = ("app", "run", "what it says at its end", "kB up", "seconds", "lines")
    lines = [head, ("---", "---", "---", "--:", "--:", "--:")]
    for row in rows:
        notes = "".join(f" ({note})" for note in row.notes)
        figures = (f"{row.bytes_up / 1e3:.1f}", f"{row.seconds:.1f}") if row.says else ("", "")
        says = (row.says or f"**{row.failure}**") + notes
        lines.append((row.app, f"{row.runtime}, {row.way}", says, *figures, str(row.lines)))
    return "\n".join(
        "| " + " | ".join(one.replace("|", "\\|") for one in line) + " |" for line in lines
    )


if __name__ == "__main__":
    sys.exit(main())
