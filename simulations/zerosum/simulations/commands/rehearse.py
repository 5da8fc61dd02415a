"""``zerosum rehearse``."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tomli_w
import typer
from rich.console import Console

from zerosum.client.files.operating_system import NOT_DEPLOYABLE
from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.client.flower.node_policy import PolicyError, checked_policy
from zerosum.client.protocol.training_outcomes import FAILED_AT_HOME
from zerosum.server.config import ConfigError
from zerosum.server.runs.records import Summary
from zerosum.server.runs.run_folder import SUMMARY, RunFolder
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.commands.completions import RUN_FOLDERS, SETTINGS, words
from zerosum.simulations.commands.rehearse_queries import (
    answer_plan,
    conclude_queries,
    kept_of,
    log_lines,
    node_files,
)
from zerosum.simulations.engine.one_at_a_time import alone
from zerosum.simulations.rehearsal.federation import Federation, federation
from zerosum.simulations.rehearsal.namespaces import can_make_namespaces
from zerosum.simulations.rehearsal.processes import DeploymentError, check_programs
from zerosum.simulations.rehearsal.rehearsal_folder import (
    QueryRehearsal,
    RehearsalFolder,
    RehearsedNodes,
    end_left_over,
)
from zerosum.simulations.rehearsal.waiting import modified_ns
from zerosum.simulations.rehearsal.watch import TimedLines, Watch
from zerosum.simulations.terminal.printable import shell_command
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.shell_completion import FOLDERS
from zerosum.simulations.terminal.signals import interruptible
from zerosum.simulations.terminal.user_errors import NOTHING_LEARNT, number, user_errors

EXPERIMENT, POLICY = "experiment.toml", "policy.toml"

LOG_LINES_SHOWN = 6
"""Lines of the nodes' logs in an error."""

SERVERS = ("malicious", "semi-honest")

DEFAULT_NODES = 3

DEFAULT_SECONDS = 600.0


def rehearse(
    app: Annotated[
        Path, typer.Argument(help="Folder of a Flower app, as zerosum new makes it."), FOLDERS
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the experiment."),
        SETTINGS,
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="SuperNodes; 3 by default.", min=2, max=64)
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help=f"What the server is trusted with: {' or '.join(SERVERS)}."),
        words(*SERVERS),
    ] = None,
    namespaces: Annotated[
        bool, typer.Option("--namespaces", help="Give each node a network namespace.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder: new or empty; else a new one under runs/."),
        FOLDERS,
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue the rehearsal in this run folder."),
        RUN_FOLDERS,
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Time limit of the run, in seconds.", min=1, callback=number)
    ] = DEFAULT_SECONDS,
) -> None:
    """Run an app on a SuperLink and SuperNodes of this machine, over TLS; leave nothing running.

    Certificates, keys and roster are made for this rehearsal. Each node has the app's policy.toml,
    for the kind of server that --server names. The run folder keeps every completed round, and in
    rehearsal/ the nodes' records and logs, so that --resume can continue an ended rehearsal.

    An app of queries has a plan.toml in place of an experiment, and in nodes/0, nodes/1, ... each
    node's own zerosum-node.toml.
    """
    console = Console()
    with user_errors(DeploymentError, ConfigError):
        if resume is None:
            kept, setting = _begun(
                app, nodes or DEFAULT_NODES, server or SERVERS[0], namespaces, out
            )
        else:
            kept = kept_of(app, resume.resolve())
            setting = _continued(
                kept, app, RehearsedNodes(str(app), nodes or 0, server or "", namespaces)
            )
            if out is not None:
                raise DeploymentError(f"--out {out} and --resume {resume}: give one of them")
    # A new run's settings are in its folder; those of one that goes on only once it does.
    again = (
        []
        if resume is None
        else [word for setting_text in settings or [] for word in ("--set", setting_text)]
    )
    again += [] if seconds == DEFAULT_SECONDS else ["--seconds", f"{seconds:g}"]
    left = interruptible(lambda: kept.left(app, again), (DeploymentError,))
    queries = isinstance(kept, QueryRehearsal)
    policies = node_files(Path(setting.app), setting) if queries else {}
    with alone("rehearse"), left, ProgressBar(None, kept.unit, console) as bar:
        tell = TimedLines(bar)
        if count := end_left_over(setting):
            tell.line(f"ended {count} processes that the earlier rehearsal left")
        tell.line("starting the SuperLink")
        apart = setting.namespaces
        with federation(kept.nodes, setting.nodes, apart=apart, tell=tell.line) as built:
            kept.write(replace(setting, mark=built.mark))
            if queries:
                answer_plan(built, kept, setting, policies, settings or [], seconds, tell)
            else:
                summary = run_app(built, kept, setting, settings or [], seconds, tell)
    if queries:
        conclude_queries(console, kept, setting)
    else:
        _conclude(console, kept, setting, summary)


def _conclude(
    console: Console, kept: RehearsalFolder, setting: RehearsedNodes, summary: Summary
) -> None:
    """Print what came of it; end with an error if no node's training is in the model."""
    rounds, lost = summary.rounds, summary.rounds_abandoned
    by_node = _failures(kept)
    failed = [line for lines in by_node for line in lines]
    console.print(
        f"{setting.nodes} nodes, protected against a {setting.server} server: "
        f"{rounds} round{'s' * (rounds != 1)}, {lost} abandoned, "
        f"{summary.seconds / rounds:.1f} s a round{_metrics(summary)}\n"
        f"Run folder  {kept.path}\nNode logs   {kept.nodes}/supernode*.log\n"
        f"Report      {shell_command(['zerosum', 'report', str(kept.path)])}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    with user_errors(NothingLearntError, code=NOTHING_LEARNT):
        if lost == rounds:
            raise NothingLearntError(_nothing_completed(kept, summary))
        if why := summary.nothing_learnt:
            raise NothingLearntError(why)
        # One node may log more than a line a round, as for each step of DP-SGD.
        if failed and all(len(lines) >= rounds - lost for lines in by_node):
            raise NothingLearntError(_nothing_trained(failed, rounds))
    if failed:
        console.print(
            f"Failures of training in the nodes' logs: {len(failed)}; the first: {failed[0]}",
            style="yellow", highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip


def _metrics(summary: Summary) -> str:
    """Return each metric, and of which model it is where that is not the trained one."""
    from zerosum.simulations.commands.summary import whose_model

    text = ""
    for name, value in summary.metrics.items():
        whose = ", ".join(whose_model(summary, name))
        text += f", {name.replace('_', ' ')} {value:.4f}" + (f" ({whose})" if whose else "")
    return text


def run_app(
    built: Federation,
    kept: RehearsalFolder,
    setting: RehearsedNodes,
    settings: list[str],
    seconds: float,
    tell: TimedLines,
) -> Summary:
    """Start all nodes, run an app of ours on them or go on with its run, and return its summary.

    The nodes train on their parts of the experiment's own data, as a simulation's clients do.

    Parameters
    ----------
    built : Federation
        With its SuperLink running.
    kept : RehearsalFolder
        The run folder.
    setting : RehearsedNodes
        Which nodes there are.
    settings : list of str
        Overrides, as ``--set`` takes them.
    seconds : float
        That the run may take.
    tell : TimedLines
        Is told what was started.

    Returns
    -------
    mapping
        ``summary.json``.

    Raises
    ------
    DeploymentError
        If it does not end well; the message ends with the server's log.
    """
    app, out = Path(setting.app), kept.path
    policy = built.folder / POLICY
    policy.write_text(_policy(app / POLICY, setting.server), encoding="utf-8", newline="\n")
    for index in range(setting.nodes):
        # All of them are this owner's: they read the file that the owner's experiment names.
        built.start_supernode(index, f'policy="{policy}" server-paths=true')
        tell.line(f"started node {index}; its log: {built.folder}/supernode{index}.log")
    given = [f"secagg.server={setting.server}", f"deployment.min_nodes={setting.nodes}"]
    if kept.begun:  # its folder has the rest of the configuration
        done = kept.completed()
        tell.line(f"going on after round {done} of {kept.rounds_asked()}")
    else:
        given, done = [*given, *_data_of(app)], 0
    before = modified_ns(out / SUMMARY)
    run = built.submit(app, [*given, *built.keys_of_server, *settings], out)
    tell.line(f"started the run; its log: {built.folder}/superlink.log")
    status = Watch(built, run, kept, tell, done).until_end(seconds)
    written = modified_ns(out / SUMMARY) != before
    summary = RunFolder(out).read_summary() if written else Summary()
    # A run that learnt nothing ends as failed, after everything of it was written.
    if not written or (status != "finished:completed" and not summary.nothing_learnt):
        raise DeploymentError(f"the run ended as {status}:\n{built.run_log(run)}")
    return summary


def _data_of(app: Path) -> list[str]:
    """Return the setting that names the experiment's data from any folder: nodes run in others."""
    try:
        path = read_toml(app / EXPERIMENT)["data"]["path"]
    except (TomlError, KeyError, TypeError):
        return []  # none is named; what is wrong with the file the run itself will say
    whole = (app / Path(str(path)).expanduser()).resolve()
    return [shlex.quote(f"data.path={whole}")] if whole.exists() else []


def _nothing_completed(kept: RehearsalFolder, summary: Summary) -> str:
    """Say why every round was abandoned, in the words of server and nodes."""
    records = RunFolder(kept.path).read_rounds()
    reason = records[0].reason if records else ""
    lines = [line for own in log_lines(kept, ("declined", "drops out")) for line in own]
    why = summary.nothing_learnt or reason
    return "\n".join([f"no round was completed: {why}", *dict.fromkeys(lines[:LOG_LINES_SHOWN])])


def _nothing_trained(failed: list[str], rounds: int) -> str:
    return (
        f"no node trained in any of {rounds} rounds, as their logs say: {len(failed)} failures; "
        f"the first: {failed[0]}"
    )


def _failures(kept: RehearsalFolder) -> list[list[str]]:
    """Return what each node logged of trainings that failed: all nodes are this owner's here.

    No server learns it, in a rehearsal neither.
    """
    return log_lines(kept, FAILED_AT_HOME)


def _policy(file: Path, server: str) -> str:
    """Return an app's policy, for nodes that take part under one kind of server."""
    try:
        given = read_toml(file) if file.is_file() else {}
    except TomlError as error:
        raise DeploymentError(str(error)) from None
    try:
        checked_policy(given | {"servers": [server]}, f"the nodes' policy {file}")
    except PolicyError as error:
        raise DeploymentError(str(error)) from None
    return tomli_w.dumps(given | {"servers": [server]})


def _begun(
    app: Path, nodes: int, server: str, namespaces: bool, out: Path | None
) -> tuple[RehearsalFolder, RehearsedNodes]:
    """Check what a new rehearsal is given."""
    from zerosum.simulations.api import new_folder

    whole = _checked(app, server, namespaces)
    if out is not None and out.exists() and any(out.iterdir()):
        raise DeploymentError(f"--out {out}: it is not empty; name a new folder")
    folder = out if out is not None else new_folder(f"rehearsal-{whole.name}")
    return kept_of(whole, folder.resolve()), RehearsedNodes(str(whole), nodes, server, namespaces)


def _continued(kept: RehearsalFolder, app: Path, asked: RehearsedNodes) -> RehearsedNodes:
    """Return the setting that a rehearsal goes on in, if what was asked is no other.

    Raises
    ------
    DeploymentError
        If it cannot go on, or with other nodes: theirs are the records of what was spent.
    """
    setting = kept.read()
    for name in ("nodes", "server", "namespaces"):
        wanted, had = getattr(asked, name), getattr(setting, name)
        if wanted and wanted != had:
            raise DeploymentError(
                f"--{name} {wanted}: the rehearsal in {kept.path} has {had}; leave --{name} out"
            )
    whole = _checked(app, setting.server, setting.namespaces)
    return replace(setting, app=str(whole))


def _checked(app: Path, server: str, namespaces: bool) -> Path:
    if NOT_DEPLOYABLE is not None:
        raise DeploymentError(NOT_DEPLOYABLE)
    check_programs()
    if not (app / "pyproject.toml").is_file():
        raise DeploymentError(f"APP {app}: no pyproject.toml there; zerosum new NAME makes an app")
    if server not in SERVERS:
        raise DeploymentError(f"--server {server}: it is {' or '.join(SERVERS)}")
    if namespaces and not can_make_namespaces():
        raise DeploymentError("--namespaces: this user may make none; run it as root, or without")
    return app.resolve()
