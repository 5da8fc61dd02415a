"""``zerosum rehearse`` of an app of queries: each node has a table and a file of its own."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import tomli_w
from rich.console import Console

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.client.flower.node_policy import PolicyError, checked_node_file
from zerosum.client.protocol.stored_counters import read_spending
from zerosum.client.protocol.training_outcomes import FAILED_AT_HOME
from zerosum.client.spec import ClientPolicy
from zerosum.server.analytics.stored_answers import read_answers
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.simulations.commands.budget import node_spending
from zerosum.simulations.rehearsal.federation import Federation
from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.rehearsal.rehearsal_folder import RehearsalFolder, RehearsedNodes
from zerosum.simulations.rehearsal.run_logs import DECLINED, LINES_SHOWN, log_lines
from zerosum.simulations.rehearsal.waiting import modified_ns
from zerosum.simulations.rehearsal.watch import Conclude, Run, TimedLines, Watch

NODES: Final = "nodes"
NODE_FILE: Final = "zerosum-node.toml"


def prepared_queries(kept: RehearsalFolder, setting: RehearsedNodes, settings: list[str]) -> Run:
    """Check each node's own file, and return what asks them the plan on a federation.

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
        See :func:`answer_plan`.

    Raises
    ------
    DeploymentError
        If a file cannot be used.
    """
    files = node_files(Path(setting.app), setting)

    def run(built: Federation, seconds: float, tell: TimedLines) -> Conclude:
        answer_plan(built, kept, setting, files, settings, seconds, tell)
        return partial(conclude_queries, kept=kept, setting=setting)

    return run


def node_files(app: Path, setting: RehearsedNodes) -> dict[int, str]:
    """Return each node's own file, for one kind of server, and check its table.

    Parameters
    ----------
    app : Path
        With ``nodes/0/zerosum-node.toml`` and so on.
    setting : RehearsedNodes
        How many there are, and what the server is trusted with.

    Returns
    -------
    dict of int to str
        TOML that reads the same table from any folder.

    Raises
    ------
    DeploymentError
        If a file is missing, is no node's file, or names a table that is not there.
    """
    return {index: _node_file(app, index, setting) for index in range(setting.nodes)}


def _node_file(app: Path, index: int, setting: RehearsedNodes) -> str:
    file = app / NODES / str(index) / NODE_FILE
    if not file.is_file():
        raise DeploymentError(
            f"{file} is missing: node {index} of {setting.nodes} has no file of its own; make it, "
            "or give --nodes"
        )
    try:
        given = read_toml(file)
    except TomlError as error:
        raise DeploymentError(str(error)) from None
    sections = {name: dict(given[name]) for name in ("policy", "table")
                if isinstance(given.get(name), dict)}  # fmt: skip
    if "path" in sections.get("table", {}):
        sections["table"]["path"] = str((file.parent / str(sections["table"]["path"])).resolve())
    policy = sections.get("policy", given)
    policy["servers"] = [setting.server]
    try:
        checked_node_file(given | sections, str(file), file.parent).check_table()
    except PolicyError as error:
        raise DeploymentError(str(error)) from None
    return tomli_w.dumps(given | sections)


def answer_plan(
    built: Federation,
    kept: RehearsalFolder,
    setting: RehearsedNodes,
    files: Mapping[int, str],
    settings: list[str],
    seconds: float,
    tell: TimedLines,
) -> None:
    """Start all nodes, ask them the plan of an app, or the rest of it.

    Parameters
    ----------
    built : Federation
        With its SuperLink running.
    kept : RehearsalFolder
        The run folder.
    setting : RehearsedNodes
        Which nodes there are.
    files : mapping of int to str
        Of :func:`node_files`.
    settings : list of str
        Overrides, as ``--set`` takes them.
    seconds : float
        That the run may take.
    tell : TimedLines
        Is told what was started, and each answer.

    Raises
    ------
    DeploymentError
        If a query has no answer; the message ends with the logs.
    """
    for index, text in files.items():
        own = _own_file(kept, index)
        own.write_text(text, encoding="utf-8", newline="\n")
        built.start_supernode(index, f'policy="{own}"')
        tell.line(f"started node {index}; its log: {built.folder}/supernode{index}.log")
    given, done = [f"deployment.min_nodes={setting.nodes}"], 0
    if kept.begun:  # its folder has the rest of the plan
        done = kept.completed()
        tell.line(f"going on after {done} of {kept.rounds_asked()} answers")
    else:
        given += [f"clients={setting.nodes}", f"server={setting.server}"]
    before = modified_ns(kept.sign)
    run = built.submit(Path(setting.app), [*given, *built.keys_of_server, *settings], kept.path)
    status = Watch(built, run, kept, tell, done).until_end(seconds)
    if modified_ns(kept.sign) == before or status != "finished:completed":
        said = [line for own in log_lines(kept.nodes, DECLINED) for line in own]
        lines = "\n".join(dict.fromkeys(said[:LINES_SHOWN]))
        raise DeploymentError(f"the run ended as {status}:\n{built.run_log(run)}\n{lines}".strip())


def conclude_queries(console: Console, kept: RehearsalFolder, setting: RehearsedNodes) -> None:
    """Print the answers, what is left of the budget, and what each node says of its own.

    Parameters
    ----------
    console : rich.console.Console
    kept : RehearsalFolder
        Of a run that ended well.
    setting : RehearsedNodes
        Which nodes there are.
    """
    # Accountant and templates take seconds to import, and every command reads this file.
    from zerosum.server.analytics.query_spending import read_spending_of
    from zerosum.simulations.report.queries import write_query_report

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    answers = read_answers(kept.path)
    say(
        f"{setting.nodes} nodes, protected against a {setting.server} server: "
        f"{len(answers)} answer{'s' * (len(answers) != 1)}"
    )
    for answer in answers:
        say(f"{answer['name']}: {answer['sentence']}")
    say(f"Budget      {read_spending_of(kept.path).sentence()}")
    for index in range(setting.nodes):
        say(f"Node {index}      {_own_budget(kept, index)}")
    say(f"Folder      {kept.path}\nNode logs   {kept.nodes}/supernode*.log")
    say(f"Report      {write_query_report(kept.path)}")
    failed = [line for own in log_lines(kept.nodes, FAILED_AT_HOME) for line in own]
    if failed:
        say(f"Failures in the nodes' own logs: {len(failed)}; the first: {failed[0]}", "yellow")


def _own_file(kept: RehearsalFolder, index: int) -> Path:
    return kept.nodes / f"node{index}.toml"


def _own_budget(kept: RehearsalFolder, index: int) -> str:
    """Say what a node's own record holds, by its own policy."""
    own = _own_file(kept, index)
    content = read_toml(own)
    policy = checked_node_file(content, str(own), own.parent).policy
    return own_budget(kept.nodes / f"state{index}", policy)


def own_budget(state: Path, policy: ClientPolicy) -> str:
    """Say what a node's own record holds, by a policy, as ``zerosum budget`` does.

    Parameters
    ----------
    state : Path
        The node's ``state-dir``.
    policy : ClientPolicy
        Its limits.

    Returns
    -------
    str
        A line.
    """
    spent = node_spending(read_spending(state), policy)
    count = spent["contributions"]
    contributions = f"{count} contribution{'s' * (count != 1)}"
    if spent["epsilon"] is None:
        return f"{contributions}, of which nothing bounds one {spent['unit']}'s epsilon"
    at = "pure" if spent["rule"] == "sum" else f"at delta {spent['delta']:g}"
    most = policy.max_epsilon
    limit = "" if math.isinf(most) else f" of max_epsilon = {most:g}"
    return f"{contributions}, epsilon {epsilon_text(spent['epsilon'])}{limit} of one " + (
        f"{spent['unit']}, {at}"
    )
