"""The ``zerosum`` command."""

import shlex
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from typer.core import TyperGroup

from zerosum.client.task import TaskError
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.commands.attack import attack
from zerosum.simulations.commands.bench import bench_app
from zerosum.simulations.commands.budget import budget
from zerosum.simulations.commands.keys import keys_app, roster_app
from zerosum.simulations.commands.rehearse import rehearse
from zerosum.simulations.new import Kind
from zerosum.simulations.terminal.signals import interruptible, typed
from zerosum.simulations.terminal.streams import take_any_text
from zerosum.simulations.terminal.user_errors import (
    NOTHING_LEARNT,
    check_writable,
    user_errors,
    write_json,
)

if TYPE_CHECKING:
    from zerosum.server.runs.results import Result
    from zerosum.simulations.audit_rows import KeptRows

# torch and dp_accounting take seconds to import: each command imports what it needs.

ExperimentName = Annotated[
    str | None, typer.Argument(help="A shipped experiment's name or a TOML file.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key, as privacy.clip=1.0."),
]


class Commands(TyperGroup):
    """The commands, each ended in order: those that keep something say themselves what."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and say how to start it again where a signal ends it."""
        with interruptible(lambda: f"Nothing is kept. Start again with:\n{typed()}"):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    help="Federated learning with secure aggregation and differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)
app.add_typer(bench_app, name="bench")
app.add_typer(keys_app, name="keys")
app.add_typer(roster_app, name="roster")
app.command()(rehearse)
app.command()(attack)
app.command()(budget)


def _print_version(asked: bool) -> None:
    """Print the installed version, that of pyproject.toml, and end."""
    if asked:
        typer.echo(version("zerosum"))
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Federated learning with secure aggregation and differential privacy."""


@app.command()
def run(
    experiment: ExperimentName = None,
    overrides: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="The experiment's seed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder: new or empty.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the configuration, stop.")
    ] = False,
) -> None:
    """Simulate an experiment; without arguments, private training on 5,000 real digits."""
    settings = list(overrides or [])
    if seed is not None:
        settings.append(f"seed={seed}")
    with user_errors(ConfigError, TaskError):
        if resume is not None and out is not None:
            raise ConfigError(f"--out {out} and --resume {resume}: give one of them")
        if dry_run:
            _dry_run(experiment, settings, resume, out)
            return
        _run(experiment, settings, out, resume)


@app.command()
def new(
    name: Annotated[Path, typer.Argument(help="Folder to make: letters, digits and hyphens.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Your CSV, Parquet or NPZ file, or folder of images; else a sample."),
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="Of the data, if no ending says.")] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column, or array, of the labels.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help='Read a table so, as data.decimal=",".'),
    ] = None,
) -> None:
    """Make a Flower app to edit, for data of your own: a model, data loading, an experiment."""
    with user_errors(ConfigError):
        from zerosum.simulations.new.app import make_app

        made = make_app(name, data, kind, label, settings or ())
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"Made {made.folder}, a Flower app for {made.data}: {made.found.described}.")
    if made.found.left_out:
        left_out = (f"{name} ({reason})" for name, reason in made.found.left_out.items())
        console.print(f"Left out: {', '.join(left_out)}")
    console.print(f"\n  cd {shlex.quote(str(made.folder))}\n  zerosum run experiment.toml\n")
    console.print(
        f"{made.package}/task.py has the model and {made.package}/data.py reads the records: edit "
        "both. README.md has the commands that run it across nodes."
    )


@app.command()
def plan(
    experiment: ExperimentName = None,
    overrides: Overrides = None,
    population: Annotated[
        int | None, typer.Option(help="Clients; with --dimension, no data are read.", min=1)
    ] = None,
    dimension: Annotated[int | None, typer.Option(help="Trainable parameters.", min=1)] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Find the noise for this epsilon (privacy.epsilon_for).")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write figures here.")] = None,
) -> None:
    """Say what a setting buys and costs: every epsilon, the noise against the clip, the bytes."""
    from zerosum.simulations.commands.plan import plan, plan_table

    with user_errors(ConfigError, TaskError):
        if json_file is not None:
            check_writable(json_file)
        found = plan(
            experiment,
            overrides or [],
            population=population,
            dimension=dimension,
            epsilon=epsilon,
        )
        if json_file is not None:  # first: whoever reads the table may be gone
            write_json(json_file, found.values | {"warnings": list(found.warnings)})
        Console().print(plan_table(found))
        if "data" in found.values:
            Console().print(f"Data: {found.values['data']['line']}", soft_wrap=True, markup=False)
        for warning in found.warnings:
            Console().print(f"Warning: {warning}", style="yellow", markup=False, soft_wrap=True)


@app.command()
def audit(
    experiment: ExperimentName = None,
    overrides: Overrides = None,
    canaries: Annotated[int, typer.Option(help="Clients that send a canary or zero.")] = 1000,
    repetitions: Annotated[int, typer.Option(help="Audited rounds.")] = 20,
    noise_multiplier: Annotated[float, typer.Option(help="Noise of the audited round.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Delta of both bounds, at most 1e-5.")] = 1e-5,
    confidence: Annotated[float, typer.Option(help="Of each lower bound.")] = 0.95,
    dropout: Annotated[float, typer.Option(help="Fraction of clients that vanish.")] = 0.0,
    folder: Annotated[
        Path | None,
        typer.Option("--run", help="Audit the run in this folder and put it into its report."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write figures here.")] = None,
) -> None:
    """Try to tell who took part, with canaries; exit with 1 if that contradicts the ledger."""
    from zerosum.server.runs.run_folder import RunFolder
    from zerosum.simulations.audit import AuditPlan, run_audit, verdict
    from zerosum.simulations.audit_rows import KeptRows
    from zerosum.simulations.config import DEFAULT_EXPERIMENT, load_experiment
    from zerosum.simulations.report import write_report
    from zerosum.simulations.report.audited import AUDIT

    with user_errors(ConfigError, TaskError):
        if folder is not None and experiment is not None:
            raise ConfigError(f"{experiment} and --run {folder}: give one of them")
        kept = None if folder is None else RunFolder.open(folder)
        source: Any = kept.experiment if kept is not None else experiment or DEFAULT_EXPERIMENT
        asked = AuditPlan(canaries, repetitions, noise_multiplier, delta, confidence, dropout)
        if json_file is not None:
            check_writable(json_file)
        audited = load_experiment(source, overrides or [])
        target = json_file or (None if kept is None else kept.path / AUDIT)
        rows = KeptRows(target, f"{asked} {audited.canonical().hex()}")
        with interruptible(lambda: _audit_left(rows, repetitions), ()):
            result = run_audit(audited, asked, _told(repetitions), _say, rows)
        if json_file is not None:
            write_json(json_file, result)
        if kept is not None:
            kept.write_json(AUDIT, result)
            write_report(kept)
        rows.forget()
    style = "bold red" if result["violations"] else None
    Console().print(verdict(result), style=style, highlight=False, soft_wrap=True)
    if result["violations"]:
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, finished or not.")],
    public: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            help="Write what outsiders may read into this new folder: no counts of clients, no "
            "ledger, no seed.",
        ),
    ] = None,
) -> None:
    """Draw a run's report anew from the files in its folder."""
    from zerosum.simulations.report import write_public_report, write_report

    with user_errors(ConfigError, TaskError):
        if public is not None:
            made = write_public_report(folder, public)
            Console().print(f"Public report  {made}", soft_wrap=True, markup=False)
            return
        Console().print(f"Report  {write_report(folder)}", soft_wrap=True, markup=False)


@app.command("list")
def list_() -> None:
    """Name the experiments, tasks, models and mechanisms that there are."""
    from rich.table import Table

    from zerosum.simulations.commands.listing import catalog

    console = Console()
    for title, rows in catalog().items():
        table = Table(
            title=title, title_justify="left", show_header=False, box=None, padding=(0, 2)
        )
        for name, meaning in rows:
            table.add_row(f"[bold]{name}[/bold]", meaning)
        console.print(table)
        console.print()


def _audit_left(rows: "KeptRows", repetitions: int) -> str:
    done = f"{len(rows.rows)} of {repetitions} repetitions are done"
    if rows.path is None:
        return f"{done}; none is kept without --json or --run. Start again with:\n{typed()}"
    return f"{done} and kept in {rows.path}; no verdict yet.\nContinue with:\n{typed()}"


def _told(repetitions: int) -> Callable[[int], None]:
    console = Console(stderr=True)
    return lambda number: console.print(f"repetition {number}/{repetitions}", highlight=False)


def _say(words: str) -> None:
    Console(stderr=True).print(words, highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """Run the command line; the console script."""
    take_any_text()
    app()


def _dry_run(
    experiment: str | None, settings: list[str], resume: Path | None, out: Path | None
) -> None:
    from zerosum.server.config import to_toml
    from zerosum.server.runs.results import data_summary
    from zerosum.server.runs.resume import check_same, warn_of_more_rounds
    from zerosum.server.runs.run_folder import RunFolder, check_unused
    from zerosum.simulations.api import plan
    from zerosum.simulations.config import DEFAULT_EXPERIMENT, attempt

    source: Any = experiment or DEFAULT_EXPERIMENT
    if resume is not None:
        source = experiment or RunFolder.open(resume).experiment
    if out is not None:
        check_unused(out)
    planned = attempt(source, settings, plan)
    if resume is not None:
        earlier = RunFolder.open(resume)
        before = earlier.experiment
        check_same(before, planned.experiment, earlier)
        warn_of_more_rounds(before, planned.experiment, planned.population, planned.dimension)
    sys.stdout.write(to_toml(planned.experiment))
    console = Console(stderr=True)
    read = data_summary(planned.task)
    if read is not None:
        console.print(read["line"], soft_wrap=True, markup=False, highlight=False)
    console.print(
        f"{planned.population} clients, {planned.dimension:,} parameters: nothing is wrong with it."
    )


def _run(
    experiment: str | None, settings: list[str], out: Path | None, resume: Path | None
) -> None:
    from zerosum.simulations import api
    from zerosum.simulations.commands.continuation import run_left
    from zerosum.simulations.config import DEFAULT_EXPERIMENT, load_experiment
    from zerosum.simulations.terminal.progress import progress

    source = experiment or DEFAULT_EXPERIMENT
    if resume is not None:
        folder, rounds = resume, _rounds(resume, experiment, settings)
    else:
        wanted = load_experiment(source, settings)
        folder, rounds = out if out is not None else api.new_folder(wanted.name), wanted.rounds

    def left() -> str:
        if resume is None:
            return run_left(folder, rounds)
        return run_left(folder, rounds, settings, experiment)

    with interruptible(left, failures=()):
        try:
            with progress(rounds) as on_round:
                if resume is not None:
                    result = api.resume(
                        resume, overrides=settings, config=experiment, on_round=on_round
                    )
                else:
                    result = api.run(source, overrides=settings, out=folder, on_round=on_round)
        except NothingLearntError as error:
            _print_result(error.result)
            with user_errors(NothingLearntError, code=NOTHING_LEARNT):
                raise
        _print_result(result)


def _rounds(folder: Path, experiment: str | None, settings: list[str]) -> int:
    from zerosum.server.runs.run_folder import RunFolder
    from zerosum.simulations.config import load_experiment

    kept = RunFolder.open(folder)
    return load_experiment(kept.experiment if experiment is None else experiment, settings).rounds


def _print_result(result: "Result") -> None:
    from zerosum.server.runs.run_folder import CLIENT_LOG, SERVER_LOG
    from zerosum.simulations.commands.summary import summary_table

    console = Console(markup=False)  # brackets are of paths and columns
    console.print(summary_table(result.summary))
    if result.summary["data"] is not None:
        console.print(f"Data        {result.summary['data']['line']}", soft_wrap=True)
    console.print(f"Run folder  {result.folder}", soft_wrap=True)
    for name in (CLIENT_LOG, SERVER_LOG):
        if (result.folder / name).exists():
            console.print(f"Warnings    {result.folder / name}", soft_wrap=True)
    console.print(f"Report      {result.folder / 'report.html'}", soft_wrap=True)


if __name__ == "__main__":
    main()
