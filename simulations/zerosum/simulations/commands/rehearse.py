"""``zerosum rehearse``."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from zerosum.client.files.operating_system import NOT_DEPLOYABLE
from zerosum.server.config import ConfigError
from zerosum.server.flower.packed_folder import packing_words
from zerosum.simulations.commands.completions import RUN_FOLDERS, SETTINGS, words
from zerosum.simulations.commands.rehearse_apps import prepared_app
from zerosum.simulations.commands.rehearse_experiments import (
    clients_of,
    prepared_experiment,
    written,
)
from zerosum.simulations.commands.rehearse_queries import prepared_queries
from zerosum.simulations.engine.one_at_a_time import alone
from zerosum.simulations.rehearsal.app_folder import AppRehearsal
from zerosum.simulations.rehearsal.app_kind import EXPERIMENT, kind_of
from zerosum.simulations.rehearsal.federation import federation
from zerosum.simulations.rehearsal.namespaces import can_make_namespaces
from zerosum.simulations.rehearsal.own_files import check_count, own_files
from zerosum.simulations.rehearsal.processes import DeploymentError, check_programs
from zerosum.simulations.rehearsal.rehearsal_folder import (
    QueryRehearsal,
    RehearsalFolder,
    RehearsedNodes,
    end_left_over,
)
from zerosum.simulations.rehearsal.watch import Run, TimedLines
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.shell_completion import FOLDERS
from zerosum.simulations.terminal.signals import interruptible
from zerosum.simulations.terminal.user_errors import number, user_errors

SERVERS = ("malicious", "semi-honest")

DEFAULT_NODES = 3

DEFAULT_SECONDS = 600.0


def rehearse(
    app: Annotated[
        Path, typer.Argument(help="Folder of a Flower app, with its pyproject.toml."), FOLDERS
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
    node_config: Annotated[
        list[str] | None,
        typer.Option(
            "--node-config",
            metavar="KEY=VALUE",
            help="More node config of an own app's nodes; {} is the node's index: "
            "'data-path=\"/data/{}.csv\"'.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "--run-config",
            metavar="KEY=VALUE",
            help="Change one key of the experiment, or of an own app's run config.",
        ),
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

    Any other Flower app with our two lines runs as it is. Without a policy.toml its nodes accept
    anything. Nothing but the run folder is written, and that by default to runs/ where one stands.
    It cannot be resumed.
    """
    console = Console()
    with user_errors(DeploymentError, ConfigError):
        files = _files(app, data or [], more or [], nodes, resume)
        if resume is None:
            count = nodes or len(files) or clients_of(app) or DEFAULT_NODES
            kept, setting = _begun(app, count, server or "", namespaces, out)
            setting = replace(setting, data=files, config=tuple(node_config or ()))
        else:
            kept = kept_of(app, resume.resolve())
            setting = _continued(
                kept, app, RehearsedNodes(str(app), nodes or 0, server or "", namespaces)
            )
            if out is not None:
                raise DeploymentError(f"--out {out} and --resume {resume}: give one of them")
        if node_config and not isinstance(kept, AppRehearsal):
            raise DeploymentError(
                f"--node-config {node_config[0]}: it is for an app of one's own; this one's nodes "
                "have their files by --data, or by nodes/I/zerosum-node.toml"
            )
        run = _PREPARED[type(kept)](kept, setting, settings or [])
    if packed := packing_words(kept.path, "--out"):
        console.print(f"warning: {packed}", highlight=False, markup=False, soft_wrap=True)
    # A new run's settings are in its folder; those of one that goes on only once it does.
    again = (
        []
        if resume is None
        else [word for setting_text in settings or [] for word in ("--set", setting_text)]
    )
    again += [] if seconds == DEFAULT_SECONDS else ["--seconds", f"{seconds:g}"]
    left = interruptible(lambda: kept.left(app, again), (DeploymentError,))
    with alone("rehearse"), left, ProgressBar(None, kept.unit, console) as bar:
        tell = TimedLines(bar)
        if count := end_left_over(setting):
            tell.line(f"ended {count} processes that the earlier rehearsal left")
        tell.line("starting the SuperLink")
        apart = setting.namespaces
        with federation(kept.nodes, setting.nodes, apart=apart, tell=tell.line) as built:
            kept.write(replace(setting, mark=built.mark))
            conclude = run(built, seconds, tell)
    conclude(console)


_PREPARED: Final[Mapping[type[RehearsalFolder], Callable[..., Run]]] = {
    RehearsalFolder: prepared_experiment,
    QueryRehearsal: prepared_queries,
    AppRehearsal: prepared_app,
}
"""By kind of app: what checks it before anything starts."""


def kept_of(app: Path, folder: Path) -> RehearsalFolder:
    """Return the run folder of an app's rehearsal, of its kind.

    Parameters
    ----------
    app : Path
        The app's folder.
    folder : Path
        Of the run.

    Returns
    -------
    RehearsalFolder
        A QueryRehearsal or AppRehearsal for an app that is no experiment.
    """
    kinds = {"experiment": RehearsalFolder, "queries": QueryRehearsal, "own": AppRehearsal}
    return kinds[kind_of(app)](folder)


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
            "nodes/I/zerosum-node.toml names a node's table; an app of one's own is given files by "
            "--node-config"
        )
    files = own_files([*data, *more])
    if nodes is not None and nodes != len(files):
        raise DeploymentError(f"--nodes {nodes}: --data names {len(files)} files; leave it out")
    if len(files) < 2:
        raise DeploymentError(f"--data {data[0]}: a rehearsal takes two nodes or more")
    check_count(files, written(app), app.absolute())
    return files


def _begun(
    app: Path, nodes: int, server: str, namespaces: bool, out: Path | None
) -> tuple[RehearsalFolder, RehearsedNodes]:
    """Check what a new rehearsal is given."""
    from zerosum.simulations.api import new_folder

    whole = _checked(app, server, namespaces)
    if out is not None and out.exists() and any(out.iterdir()):
        raise DeploymentError(f"--out {out}: it is not empty; name a new folder")
    folder = out if out is not None else new_folder(f"rehearsal-{whole.name}")
    kept = kept_of(whole, folder.resolve())
    # An app of one's own says in its code what it trusts the server with.
    server = server or ("" if isinstance(kept, AppRehearsal) else SERVERS[0])
    return kept, RehearsedNodes(str(whole), nodes, server, namespaces)


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
    if server and server not in SERVERS:
        raise DeploymentError(f"--server {server}: it is {' or '.join(SERVERS)}")
    if namespaces and not can_make_namespaces():
        raise DeploymentError("--namespaces: this user may make none; run it as root, or without")
    return app.resolve()
