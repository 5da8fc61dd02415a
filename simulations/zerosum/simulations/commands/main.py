"""The ``zerosum`` command."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer
from rich.console import Console

from zerosum.client.task import TaskError
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.commands.attack import attack
from zerosum.simulations.commands.bench import bench_app
from zerosum.simulations.commands.budget import budget
from zerosum.simulations.commands.compare import compare
from zerosum.simulations.commands.completions import (
    DATA_SETTINGS,
    EXPERIMENTS,
    RUN_FOLDERS,
    SETTINGS,
    words,
)
from zerosum.simulations.commands.export import export
from zerosum.simulations.commands.keys import keys_app, roster_app
from zerosum.simulations.commands.listing import list_
from zerosum.simulations.commands.new import new_queries, say_made
from zerosum.simulations.commands.query import query_app
from zerosum.simulations.commands.rehearse import rehearse
from zerosum.simulations.commands.root_options import root_options
from zerosum.simulations.commands.schema import schema
from zerosum.simulations.commands.sweep import sweep
from zerosum.simulations.new import Kind
from zerosum.simulations.terminal.command_line import CommandApp, CommandGroup
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.shell_completion import FILES, FOLDERS, answer_shell
from zerosum.simulations.terminal.signals import continue_with, interruptible, start_again
from zerosum.simulations.terminal.streams import take_any_text
from zerosum.simulations.terminal.user_errors import (
    NOTHING_LEARNT,
    JsonFile,
    check_writable,
    is_standard_output,
    user_errors,
    write_json,
)

if TYPE_CHECKING:
    from zerosum.server.runs.results import Result
    from zerosum.server.spec import Experiment
    from zerosum.simulations.partial_results import PartialRows

# torch and dp_accounting take seconds to import: each command imports what it needs.

ExperimentName = Annotated[
    str | None,
    typer.Argument(help="A shipped experiment's name or a TOML file. [default: mnist5k]"),
    EXPERIMENTS,
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key, as privacy.clip=1.0."),
    SETTINGS,
]


IN_ORDER = (
    *("new", "run", "sweep", "compare", "report", "export", "plan", "budget", "audit", "attack"),
    *("query", "schema", "rehearse", "keys", "roster", "bench", "list"),
)
"""Of the commands in the help: what a first hour needs comes first."""


class Commands(CommandGroup):
    """The commands; one that keeps nothing of its work says so when a signal ends it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, as the help has them."""
        known = [name for name in IN_ORDER if name in self.commands]
        return [*known, *(name for name in self.commands if name not in IN_ORDER)]

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the program, or answer a shell that completes a word of it."""
        code = answer_shell(self)
        if code is not None:
            sys.exit(code)
        return super().main(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; if a signal ends it, print how to start it again."""
        with interruptible(lambda: start_again("Nothing is kept.")):
            return super().invoke(ctx)


app = CommandApp(
    "Federated learning with secure aggregation and differential privacy.",
    Commands,
)
app.callback()(root_options)
app.add_typer(bench_app, name="bench")
app.add_typer(query_app, name="query")
app.add_typer(keys_app, name="keys")
app.add_typer(roster_app, name="roster")
app.command()(rehearse)
app.command()(attack)
app.command()(budget)
app.command()(schema)
app.command()(sweep)
app.command()(compare)
app.command()(export)
app.command("list")(list_)


@app.command()
def run(
    experiment: ExperimentName = None,
    overrides: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the experiment.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder: new or empty."), FOLDERS] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the run in this folder."), RUN_FOLDERS
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the configuration, stop.")
    ] = False,
) -> None:
    """Simulate an experiment; by default, private training on 5,000 real digits."""
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
    more: Annotated[
        list[str] | None,
        typer.Argument(hidden=True, help="Files that a shell put in place of --data's pattern."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Your CSV, Parquet or NPZ file, or folder of images; else a sample. Several "
            "tables, or a pattern as 'heart_*.csv', are a client each."
        ),
        FILES,
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="Format, if no ending says it.")] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column or array of the labels, or a comparison as 'num > 0'."
        ),
    ] = None,
    client_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of one table that names each record's client."),
    ] = None,
    privacy: Annotated[
        str | None,
        typer.Option(metavar="WHO", help="Who is hidden in noise: patient, client or none."),
        words("patient", "client", "none"),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="epsilon_sum of all rounds, with --privacy.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help='Read a table so, as data.decimal=",".'),
        DATA_SETTINGS,
    ] = None,
    queries: Annotated[
        bool,
        typer.Option("--queries", help="Ask queries of tables: a plan and node files, no code."),
    ] = False,
) -> None:
    """Make a Flower app for your own data: a model, data loading, an experiment; or queries."""
    given = (*(data or ()), *(more or ()))
    if queries:
        others = {"--kind": kind, "--label": label, "--set": settings, "--privacy": privacy}
        new_queries(name, given, {**others, "--epsilon": epsilon, "--client-column": client_column})
        return
    with user_errors(ConfigError):
        if more and not data:
            raise ConfigError(f"{more[0]}: one NAME is allowed; data are given by --data {more[0]}")
        from zerosum.simulations.new.app import Asked, make_app

        options = tuple(settings or ())
        made = make_app(name, Asked(given, kind, label, options, privacy, epsilon, client_column))
    say_made(made)


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
    json_file: JsonFile = None,
    board: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write two A4 pages for an ethics board here, as HTML."),
    ] = None,
) -> None:
    """Compute what a setting costs before it runs: every epsilon, noise against clip, bytes."""
    from zerosum.simulations.config import DEFAULT_EXPERIMENT, load_experiment

    with user_errors(ConfigError, TaskError):
        if json_file is not None:
            check_writable(json_file)
        if board is not None:
            check_writable(board, "--board")
        load_experiment(experiment or DEFAULT_EXPERIMENT, overrides or [])  # a mistyped key
        with loading():
            from zerosum.simulations.commands.plan import nearest_lines, plan, plan_table

        outlook = plan(
            experiment,
            overrides or [],
            population=population,
            dimension=dimension,
            epsilon=epsilon,
        )
        if json_file is not None:  # first: printing fails where the reader has closed the pipe
            write_json(json_file, outlook.values | {"warnings": list(outlook.warnings)})
        if board is not None:
            from zerosum.simulations.report import write_planned_board

            write_planned_board(board, outlook)
            Console().print(f"Board pages  {board}", soft_wrap=True, markup=False)
        Console().print(plan_table(outlook))
        if "data" in outlook.values:
            Console().print(f"Data: {outlook.values['data']['line']}", soft_wrap=True, markup=False)
        for warning in outlook.warnings:
            Console().print(f"Warning: {warning}", style="yellow", markup=False, soft_wrap=True)
            if warning == outlook.hopeless:
                for near in nearest_lines(outlook):
                    Console().print(near, highlight=False, markup=False, soft_wrap=True)


@app.command()
def audit(
    experiment: ExperimentName = None,
    overrides: Overrides = None,
    canaries: Annotated[int, typer.Option(help="Clients that send a canary or zero.")] = 1000,
    repetitions: Annotated[int, typer.Option(help="Audited rounds.")] = 20,
    noise_multiplier: Annotated[float, typer.Option(help="Noise of the audited round.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Delta of both bounds, at most 1e-5.")] = 1e-5,
    confidence: Annotated[float, typer.Option(help="Confidence of each lower bound.")] = 0.95,
    dropout: Annotated[float, typer.Option(help="Fraction of clients that drop out.")] = 0.0,
    folder: Annotated[
        Path | None,
        typer.Option("--run", help="Audit the run in this folder and put it into its report."),
        RUN_FOLDERS,
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Audit the protection with canaries; exit with 1 if an observer beats the ledger's epsilon."""
    from zerosum.server.runs.run_folder import RunFolder
    from zerosum.simulations.config import DEFAULT_EXPERIMENT, load_experiment
    from zerosum.simulations.terminal.progress import ProgressBar

    with user_errors(ConfigError, TaskError):
        if folder is not None and experiment is not None:
            raise ConfigError(f"{experiment} and --run {folder}: give one of them")
        run_folder = None if folder is None else RunFolder.open(folder)
        source: Any = (
            run_folder.experiment if run_folder is not None else experiment or DEFAULT_EXPERIMENT
        )
        if json_file is not None:
            check_writable(json_file)
        audited = load_experiment(source, overrides or [])  # a mistyped key: before torch
        with loading():
            from zerosum.simulations.audit import AuditPlan, run_audit, verdict
            from zerosum.simulations.partial_results import PartialRows
            from zerosum.simulations.report import write_report
            from zerosum.simulations.report.audited import AUDIT

        asked = AuditPlan(canaries, repetitions, noise_multiplier, delta, confidence, dropout)
        target = None if run_folder is None else run_folder.path / AUDIT
        if json_file is not None and not is_standard_output(json_file):
            target = json_file
        rows = PartialRows(target, f"{asked} {audited.canonical().hex()}")
        with (
            interruptible(lambda: _audit_left(rows, repetitions), ()),
            ProgressBar(repetitions, "repetition", Console(stderr=True)) as bar,
        ):
            result = run_audit(audited, asked, bar.step, bar.line, rows)
        if json_file is not None:
            write_json(json_file, result)
        if run_folder is not None:
            run_folder.write_json(AUDIT, result)
            write_report(run_folder)
        rows.remove()
    style = "bold red" if result["violations"] else None
    Console().print(verdict(result), style=style, highlight=False, soft_wrap=True)
    if result["violations"]:
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[
        Path,
        typer.Argument(help="The folder of a run, finished or not, of queries, or of attacks."),
        RUN_FOLDERS,
    ],
    public: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            help="Write what outsiders may read into this new folder: no sizes of cohorts, no "
            "ledger, no seed.",
        ),
        FOLDERS,
    ] = None,
    board: Annotated[
        bool, typer.Option("--board", help="Write two A4 pages for an ethics board: board.html.")
    ] = False,
    plots: Annotated[
        Literal["pdf", "svg", "png"] | None,
        typer.Option(help="Of attacks: each figure as a file for a paper, and a LaTeX table."),
    ] = None,
) -> None:
    """Draw a run's report again from the files in its folder."""
    from zerosum.server.analytics.query_files import ANSWERS, CELLS, QUERIES, QUERY_LEDGER
    from zerosum.simulations.attacks.harness.partial_results import ASKED
    from zerosum.simulations.commands.attack import redraw
    from zerosum.simulations.report import write_board, write_public_report, write_report
    from zerosum.simulations.report.queries import write_query_report

    with user_errors(ConfigError, TaskError):
        if board and public is not None:
            raise ConfigError(f"--board and --public {public}: give one of them")
        if (folder / ASKED).is_file():
            if board or public is not None:
                option = "--board" if board else "--public"
                raise ConfigError(f"{option}: {folder} holds attacks; that page is of a run")
            redraw(folder, plots)
            return
        if plots is not None:
            raise ConfigError(
                f"--plots {plots}: {folder} holds no attacks; figures of runs are drawn by zerosum "
                f"compare {folder} --plots {plots}"
            )
        if (folder / QUERIES).is_file():
            if board:
                raise ConfigError(f"--board: {folder} holds queries; the pages are of training")
            if public is not None:
                raise ConfigError(
                    f"--public {public}: {folder} holds queries, whose page is public"
                )
            Console().print(f"Report  {write_query_report(folder)}", soft_wrap=True, markup=False)
            return
        if (folder / QUERY_LEDGER).is_file() or (folder / ANSWERS).is_file():
            raise ConfigError(
                f"{folder} holds an app's queries, of which there is no page: their answers are in "
                f"{ANSWERS} and {CELLS}/, and zerosum budget {folder} says what they cost"
            )
        if board:
            Console().print(f"Board pages  {write_board(folder)}", soft_wrap=True, markup=False)
            return
        if public is not None:
            made = write_public_report(folder, public)
            Console().print(f"Public report  {made}", soft_wrap=True, markup=False)
            return
        Console().print(f"Report  {write_report(folder)}", soft_wrap=True, markup=False)


def _audit_left(rows: "PartialRows", repetitions: int) -> str:
    done = f"{len(rows.rows)} of {repetitions} repetitions are done"
    if rows.path is None:
        return start_again(f"{done}; none is kept without --json or --run.")
    return continue_with(f"{done} and kept in {rows.path}; no verdict yet.")


def main() -> None:
    """Run the command line; the console script."""
    take_any_text()
    app()


def _dry_run(
    experiment: str | None, settings: list[str], resume: Path | None, out: Path | None
) -> None:
    from zerosum.server.config import to_toml
    from zerosum.server.runs.run_folder import RunFolder, check_unused
    from zerosum.simulations.config import DEFAULT_EXPERIMENT, attempt, load_experiment

    source: Any = experiment or DEFAULT_EXPERIMENT
    if resume is not None:
        source = experiment or RunFolder.open(resume).experiment
    if out is not None:
        check_unused(out)
    _begun(load_experiment(source, settings), "# ")  # a comment of what is printed
    with loading():
        from zerosum.server.runs.resume import check_same, warn_of_more_rounds
        from zerosum.server.runs.run_summary import data_summary
        from zerosum.simulations.api import plan

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
    from zerosum.server.runs.run_folder import RunFolder
    from zerosum.simulations.config import DEFAULT_EXPERIMENT, load_experiment

    source: Any = experiment or DEFAULT_EXPERIMENT
    if resume is not None:
        source = experiment or RunFolder.open(resume).experiment
    wanted = load_experiment(source, settings)
    _begun(wanted)
    with loading():
        from zerosum.simulations import api
        from zerosum.simulations.commands.continuation import run_left
        from zerosum.simulations.terminal.round_lines import progress

    folder, rounds = resume or out or api.new_folder(wanted.name), wanted.rounds

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


def _begun(experiment: "Experiment", mark: str = "") -> None:
    """Say what was asked for, once it is known to be an experiment.

    torch and the accountant are imported after it: a mistyped key is told at once, and a run has
    its first line while they load.
    """
    rounds = f"{experiment.rounds} round{'' if experiment.rounds == 1 else 's'}"
    line = f"{mark}{experiment.name}: {rounds} of the task {experiment.task}"
    Console().print(line, highlight=False, markup=False, soft_wrap=True)


def _print_result(result: "Result") -> None:
    from zerosum.server.runs.run_folder import CLIENT_LOG, SERVER_LOG
    from zerosum.simulations.commands.summary import after_run, summary_table

    console = Console(markup=False)  # brackets are of paths and columns
    console.print(summary_table(result.summary))
    for caution in after_run(result):
        console.print(f"Caution     {caution}", style="yellow", soft_wrap=True)
    if result.summary["data"] is not None:
        console.print(f"Data        {result.summary['data']['line']}", soft_wrap=True)
    console.print(f"Run folder  {result.folder}", soft_wrap=True)
    for name in (CLIENT_LOG, SERVER_LOG):
        if (result.folder / name).exists():
            console.print(f"Warnings    {result.folder / name}", soft_wrap=True)
    console.print(f"Report      {result.folder / 'report.html'}", soft_wrap=True)


if __name__ == "__main__":
    main()
