"""``zerosum rehearse`` of an experiment: our own app, whose nodes train by its experiment.toml."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.client.flower.node_policy import PolicyError, checked_policy
from zerosum.client.protocol.training_outcomes import FAILED_AT_HOME
from zerosum.server.runs.records import Summary
from zerosum.server.runs.run_folder import SUMMARY, RunFolder
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.rehearsal.app_kind import EXPERIMENT, POLICY
from zerosum.simulations.rehearsal.federation import Federation
from zerosum.simulations.rehearsal.own_files import count_of, linked, paths_of
from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.rehearsal.rehearsal_folder import RehearsalFolder, RehearsedNodes
from zerosum.simulations.rehearsal.run_logs import DECLINED, LINES_SHOWN, first_failures, log_lines
from zerosum.simulations.rehearsal.waiting import modified_ns
from zerosum.simulations.rehearsal.watch import Conclude, Run, TimedLines, Watch
from zerosum.simulations.terminal.printable import shell_command
from zerosum.simulations.terminal.user_errors import NOTHING_LEARNT, user_errors


def prepared_experiment(kept: RehearsalFolder, setting: RehearsedNodes, settings: list[str]) -> Run:
    """Check an experiment against its nodes' policy, and return what runs it on a federation.

    Parameters
    ----------
    kept : RehearsalFolder
        The run folder.
    setting : RehearsedNodes
        Which nodes there are.
    settings : list of str
        Overrides, as ``--set`` takes them.

    Returns
    -------
    callable
        See :func:`run_app`.

    Raises
    ------
    DeploymentError, ConfigError
        If it would be refused.
    """
    # Accountant and torch take seconds to import, and every command reads this file.
    from zerosum.simulations.rehearsal.policy_check import check_policy

    policy = policy_for(Path(setting.app) / POLICY, setting.server)
    check_policy(kept, setting, policy, settings)

    def run(built: Federation, seconds: float, tell: TimedLines) -> Conclude:
        summary = run_app(built, kept, setting, settings, seconds, tell)
        return partial(conclude, kept=kept, setting=setting, summary=summary)

    return run


def conclude(
    console: Console, kept: RehearsalFolder, setting: RehearsedNodes, summary: Summary
) -> None:
    """Print what came of it; end with an error if no node's training is in the model.

    Parameters
    ----------
    console : rich.console.Console
    kept : RehearsalFolder
        Of a run that ended.
    setting : RehearsedNodes
        Which nodes there are.
    summary : Summary
        Of the run.

    Raises
    ------
    typer.Exit
        With 1, after a line, if nothing was learnt.
    """
    rounds, lost = summary.rounds, summary.rounds_abandoned
    # All nodes are this owner's here: no server learns it, in a rehearsal neither.
    by_node = log_lines(kept.nodes, FAILED_AT_HOME)
    failed = [line for lines in by_node for line in lines]
    console.print(
        f"{setting.nodes} nodes, protected against a {setting.server} server: "
        f"{rounds} round{'s' * (rounds != 1)}, {lost} abandoned, "
        f"{summary.seconds / rounds:.1f} s a round{_metrics(summary)}\n"
        f"Run folder  {kept.run}\nNode logs   {kept.nodes}/supernode*.log\n"
        f"Report      {shell_command(['zerosum', 'report', str(kept.run)])}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    with user_errors(NothingLearntError, code=NOTHING_LEARNT):
        if lost == rounds:
            raise NothingLearntError(_nothing_completed(kept, summary))
        if why := summary.nothing_learnt:
            raise NothingLearntError(why)
        # One node may log more than a line a round, as for each step of DP-SGD.
        if failed and all(len(lines) >= rounds - lost for lines in by_node):
            raise NothingLearntError(_nothing_trained(kept, len(failed), rounds))
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
    Summary
        ``summary.json``.

    Raises
    ------
    DeploymentError
        If it does not end well; the message ends with the server's log.
    """
    app, out = Path(setting.app), kept.path
    policy = built.folder / POLICY
    policy.write_text(policy_for(app / POLICY, setting.server), encoding="utf-8", newline="\n")
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
        given, done = [*given, *data_setting(app, kept.nodes, setting.data)], 0
    before = modified_ns(out / SUMMARY)
    run = built.submit(app, [*given, *built.keys_of_server, *settings], out)
    status = Watch(built, run, kept, tell, done).until_end(seconds)
    written = modified_ns(out / SUMMARY) != before
    summary = RunFolder(out).read_summary() if written else Summary()
    # A run that learnt nothing ends as failed, after everything of it was written.
    if not written or (status != "finished:completed" and not summary.nothing_learnt):
        raise DeploymentError(f"the run ended as {status}:\n{built.run_log(run)}")
    return summary


def data_setting(app: Path, folder: Path, own: Sequence[str] = ()) -> list[str]:
    """Return the setting that names the experiment's data from any folder: nodes run in others.

    Parameters
    ----------
    app : Path
        The app's folder.
    folder : Path
        Where links are made to several files, or to the nodes' own.
    own : sequence of str
        The nodes' own files.

    Returns
    -------
    list of str
        One word of a command line, or none.
    """
    data = written(app).get("data")
    path = data.get("path") if isinstance(data, dict) else None
    files = tuple(map(Path, own)) or paths_of(path, app)
    if not files:
        return []  # none is named; what is wrong with the file the run itself will say
    several = len(files) > 1 or bool(own)
    return [shlex.quote(f"data.path={linked(files, folder) if several else files[0]}")]


def written(app: Path) -> dict[str, Any]:
    """Return an app's experiment as it is written; nothing of one that cannot be read."""
    try:
        return read_toml(app / EXPERIMENT)
    except TomlError:
        return {}


def clients_of(app: Path) -> int | None:
    """Return how many files the experiment names, where each is a client."""
    return count_of(written(app), app.absolute())


def _nothing_completed(kept: RehearsalFolder, summary: Summary) -> str:
    """Say why every round was abandoned, in the words of server and nodes."""
    records = RunFolder(kept.run).read_rounds()
    reason = records[0].reason if records else ""
    lines = [line for own in log_lines(kept.nodes, DECLINED) for line in own]
    why = summary.nothing_learnt or reason
    return "\n".join([f"no round was completed: {why}", *dict.fromkeys(lines[:LINES_SHOWN])])


def _nothing_trained(kept: RehearsalFolder, failures: int, rounds: int) -> str:
    return (
        f"no node trained in any of {rounds} rounds, as their logs say: {failures} failures; "
        f"the first: {first_failures(kept.nodes)[0]}"
    )


def policy_for(file: Path, server: str) -> str:
    """Return an app's policy, for nodes that take part under one kind of server.

    Parameters
    ----------
    file : Path
        The app's own; absent is an empty one.
    server : str
        What the server is trusted with; empty leaves what the file has.

    Returns
    -------
    str
        TOML.

    Raises
    ------
    DeploymentError
        If it is no policy.
    """
    try:
        given = read_toml(file) if file.is_file() else {}
    except TomlError as error:
        raise DeploymentError(str(error)) from None
    given |= {"servers": [server]} if server else {}
    try:
        checked_policy(given, f"the nodes' policy {file}")
    except PolicyError as error:
        raise DeploymentError(str(error)) from None
    return tomli_w.dumps(given)
