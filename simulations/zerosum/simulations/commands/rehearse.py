"""``zerosum rehearse``."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

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
from zerosum.simulations.rehearsal.own_files import (
    check_count,
    count_of,
    linked,
    own_files,
    paths_of,
)
from zerosum.simulations.rehearsal.policy_check import EXPERIMENT, POLICY, check_policy
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

LOG_LINES_SHOWN = 6
"""Lines of the nodes' logs in an error."""

SERVERS = ("malicious", "semi-honest")

DEFAULT_NODES = 3

DEFAULT_SECONDS = 600.0


def rehearse(
    app: Annotated[
        Path, typer.Argument(help="Folder of a Flower app, as zerosum new makes it."), FOLDERS
    ],
    more: Annotated[
        list[str] | None,
        typer.Argument(hidden=True, help="Further nodes' files, after the first of --data."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE=FILE",
            help="Give each node a file of its own: --data 0=a.csv 1=b.csv 2=c.csv.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the experiment."),
        SETTINGS,
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="SuperNodes; 3 by default, or one a file.", min=2, max=64),
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

    With --data each node trains on a file of its own, less the public records that the server tests
    on. Without it, all read the experiment's data.

    An app of queries has a plan.toml in place of an experiment, and in nodes/0, nodes/1, ... each
    node's own zerosum-node.toml.
    """
    console = Console()
    with user_errors(DeploymentError, ConfigError):
        files = _files(app, data or [], more or [], nodes, resume)
        if resume is None:
            count = nodes or len(files) or _clients_of(app) or DEFAULT_NODES
            kept, setting = _begun(app, count, server or SERVERS[0], namespaces, out)
            setting = replace(setting, data=files)
        else:
            kept = kept_of(app, resume.resolve())
            setting = _continued(
                kept, app, RehearsedNodes(str(app), nodes or 0, server or "", namespaces)
            )
            if out is not None:
                raise DeploymentError(f"--out {out} and --resume {resume}: give one of them")
        if not isinstance(kept, QueryRehearsal):
            check_policy(
                kept, setting, _policy(Path(setting.app) / POLICY, setting.server), settings
            )
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
        own = "server-paths=true"
        if setting.data:  # the server tests on records of the same files
            own = f'data-path="{setting.data[index]}" hold-out=true'
        built.start_supernode(index, f'policy="{policy}" {own}')
        tell.line(f"started node {index}; its log: {built.folder}/supernode{index}.log")
    given = [f"secagg.server={setting.server}", f"deployment.min_nodes={setting.nodes}"]
    if kept.begun:  # its folder has the rest of the configuration
        done = kept.completed()
        tell.line(f"going on after round {done} of {kept.rounds_asked()}")
    else:
        given, done = [*given, *_data_of(app, kept.nodes, setting.data)], 0
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


def _data_of(app: Path, folder: Path, own: Sequence[str] = ()) -> list[str]:
    """Return the setting that names the experiment's data from any folder: nodes run in others.

    Of several files, or of the nodes' own, links are made in a folder.
    """
    data = _written(app).get("data")
    path = data.get("path") if isinstance(data, dict) else None
    files = tuple(map(Path, own)) or paths_of(path, app)
    if not files:
        return []  # none is named; what is wrong with the file the run itself will say
    several = len(files) > 1 or bool(own)
    return [shlex.quote(f"data.path={linked(files, folder) if several else files[0]}")]


def _written(app: Path) -> dict[str, Any]:
    """Return an app's experiment as it is written; nothing of one that cannot be read."""
    try:
        return read_toml(app / EXPERIMENT)
    except TomlError:
        return {}


def _clients_of(app: Path) -> int | None:
    """Return how many files the experiment names, where each is a client."""
    return count_of(_written(app), app.absolute())


def _files(
    app: Path, data: list[str], more: list[str], nodes: int | None, resume: Path | None
) -> tuple[str, ...]:
    """Return the nodes' own files, checked; none where none is named."""
    if more and not data:
        raise DeploymentError(f"{more[0]}: one APP is allowed; files are given by --data")
    if not data:
        return ()
    if resume is not None:
        raise DeploymentError(f"--data {data[0]} and --resume {resume}: the nodes have their files")
    if not (app / EXPERIMENT).is_file():
        raise DeploymentError(
            f"--data {data[0]}: APP {app} has no {EXPERIMENT}; of an app of queries, "
            "nodes/I/zerosum-node.toml names a node's table"
        )
    files = own_files([*data, *more])
    if nodes is not None and nodes != len(files):
        raise DeploymentError(f"--nodes {nodes}: --data names {len(files)} files; leave it out")
    if len(files) < 2:
        raise DeploymentError(f"--data {data[0]}: a rehearsal takes two nodes or more")
    check_count(files, _written(app), app.absolute())
    return files


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
