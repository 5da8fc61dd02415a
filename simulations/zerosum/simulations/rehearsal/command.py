"""``zerosum rehearse``."""

import json
import shlex
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer
from rich.console import Console

from zerosum.client.node_policy import PolicyError, checked_policy
from zerosum.client.outcomes import FAILED_AT_HOME
from zerosum.server.learning import NothingLearntError
from zerosum.server.runs import METRICS, SUMMARY
from zerosum.simulations.mistakes import NOTHING_LEARNT, user_errors
from zerosum.simulations.rehearsal.federation import Federation, federation
from zerosum.simulations.rehearsal.namespaces import can_make_namespaces
from zerosum.simulations.rehearsal.processes import DeploymentError

EXPERIMENT, POLICY = "experiment.toml", "policy.toml"

SAID = 6
"""Lines of the nodes' logs in an error."""

SERVERS = ("malicious", "semi-honest")


def rehearse(
    app: Annotated[Path, typer.Argument(help="Folder of a Flower app, as zerosum new makes it.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the experiment."),
    ] = None,
    nodes: Annotated[int, typer.Option(help="SuperNodes.", min=2, max=64)] = 3,
    server: Annotated[
        str, typer.Option(help=f"What the server is trusted with: {' or '.join(SERVERS)}.")
    ] = "malicious",
    namespaces: Annotated[
        bool, typer.Option("--namespaces", help="A network namespace and address for each.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where to leave the run folder.")] = None,
    seconds: Annotated[float, typer.Option(help="That the run may take.", min=1)] = 600,
) -> None:
    """Run an app on a SuperLink and SuperNodes of this machine, over TLS; leave nothing running.

    Certificates, keys and roster are made for the occasion. Each node takes the app's policy.toml,
    and the server that --server names.
    """
    console = Console()
    with user_errors(DeploymentError):
        app = _checked(app, server, namespaces, out)
        with (
            tempfile.TemporaryDirectory(prefix="zerosum-rehearsal-") as scratch,
            console.status("starting the SuperLink") as status,
            federation(Path(scratch) / "all", nodes, apart=namespaces) as built,
        ):
            status.update("running")
            found = run_app(built, app, server, settings or [], seconds)
            summary = json.loads((found / SUMMARY).read_text(encoding="utf-8"))
            if out is not None:
                _leave(found, built, out)
            rounds, lost = summary["rounds"], summary["rounds_abandoned"]
            failed = _failures(built)
            with user_errors(NothingLearntError, code=NOTHING_LEARNT):
                if lost == rounds:
                    raise NothingLearntError(_nothing_completed(found, built, summary))
                if failed and len(failed) >= nodes * (rounds - lost):
                    raise NothingLearntError(_nothing_trained(failed, rounds))
        console.print(
            f"{nodes} nodes, a {server} server: {rounds} rounds, {lost} abandoned, "
            f"{summary['seconds'] / rounds:.1f} s a round{_metrics(summary['metrics'])}",
            highlight=False,
        )
        if failed:
            console.print(
                f"Failures of training in the nodes' logs: {len(failed)}; the first: {failed[0]}",
                style="yellow",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )


def _metrics(found: Mapping[str, float]) -> str:
    return "".join(f", {name.replace('_', ' ')} {value:.4f}" for name, value in found.items())


def run_app(built: Federation, app: Path, server: str, settings: list[str], seconds: float) -> Path:
    """Start all nodes, run an app of ours on them, and return its run folder.

    The nodes train on their parts of the experiment's own data, as a simulation's clients do.

    Raises
    ------
    DeploymentError
        If it does not end well; the message ends with the server's log.
    """
    count = len(built.hosts)
    policy = built.folder / POLICY
    policy.write_text(_policy(app / POLICY, server), encoding="utf-8")
    for index in range(count):
        # All of them are this owner's: they read the file that the owner's experiment names.
        built.start_supernode(index, f'policy="{policy}" server-paths=true')
    given = [f"secagg.server={server}", f"deployment.min_nodes={count}", *built.keys_of_server]
    out = built.folder / "run"
    run = built.submit(app, [*given, *_data_of(app), *settings], out)
    status = built.wait_for_run(run, seconds, out / SUMMARY)
    # A run that learnt nothing ends as failed, after everything of it was written.
    if status != "finished:completed" and not (out / SUMMARY).exists():
        raise DeploymentError(f"the run ended as {status}:\n{built.run_log(run)}")
    return out


def _data_of(app: Path) -> list[str]:
    """Return the setting that names the experiment's data from any folder: nodes run in others."""
    try:
        given = tomllib.loads((app / EXPERIMENT).read_text(encoding="utf-8-sig"))
        path = given["data"]["path"]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # none is named; what is wrong with the file the run itself will say
    whole = (app / Path(str(path)).expanduser()).resolve()
    return [shlex.quote(f"data.path={whole}")] if whole.exists() else []


def _leave(found: Path, built: Federation, out: Path) -> None:
    """Copy the run folder, and each node's log, to where the user wants them."""
    shutil.copytree(found, out, dirs_exist_ok=True)
    for log in sorted(built.folder.glob("supernode*.log")):
        shutil.copy(log, out / log.name)


def _nothing_completed(found: Path, built: Federation, summary: Mapping[str, Any]) -> str:
    """Say why every round was abandoned, in the words of server and nodes."""
    records = (found / METRICS).read_text(encoding="utf-8").splitlines()
    reason = json.loads(records[0]).get("reason", "") if records else ""
    said = _said(built, ("declined", "drops out"))
    why = summary.get("nothing_learnt") or reason
    return "\n".join([f"no round was completed: {why}", *dict.fromkeys(said[:SAID])])


def _nothing_trained(failed: list[str], rounds: int) -> str:
    return (
        f"no node trained in any of {rounds} rounds, as their logs say: {len(failed)} failures; "
        f"the first: {failed[0]}"
    )


def _failures(built: Federation) -> list[str]:
    """Return what the nodes logged of trainings that failed: all nodes are this owner's here.

    No server learns it, in a rehearsal neither.
    """
    return _said(built, FAILED_AT_HOME)


def _said(built: Federation, what: tuple[str, ...]) -> list[str]:
    """Return the lines of all nodes' logs that hold one of these."""
    return [
        line.strip()
        for log in sorted(built.folder.glob("supernode*.log"))
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if any(part in line for part in what)
    ]


def _policy(file: Path, server: str) -> str:
    """Return an app's policy, for nodes that take part under one kind of server."""
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8-sig")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise DeploymentError(f"{file} is not valid TOML: {error}") from None
    try:
        checked_policy(given | {"servers": [server]}, f"the nodes' policy {file}")
    except PolicyError as error:
        raise DeploymentError(str(error)) from None
    return tomli_w.dumps(given | {"servers": [server]})


def _checked(app: Path, server: str, namespaces: bool, out: Path | None) -> Path:
    if not (app / "pyproject.toml").is_file():
        raise DeploymentError(f"APP {app}: no pyproject.toml there; zerosum new NAME makes an app")
    if server not in SERVERS:
        raise DeploymentError(f"--server {server}: it is {' or '.join(SERVERS)}")
    if namespaces and not can_make_namespaces():
        raise DeploymentError("--namespaces: this user may make none; run it as root, or without")
    if out is not None and out.exists() and any(out.iterdir()):
        raise DeploymentError(f"--out {out}: it is not empty; name a new folder")
    return app.resolve()
