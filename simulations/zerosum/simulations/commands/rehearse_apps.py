"""``zerosum rehearse`` of anybody's Flower app, which has two lines of ours and no more."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import tomli_w
from rich.console import Console

from zerosum.client.files.toml_file import parse_toml
from zerosum.client.flower.node_policy import checked_policy
from zerosum.client.privacy.spending import Spending
from zerosum.client.protocol.stored_counters import read_spending
from zerosum.client.spec import ClientPolicy
from zerosum.server.analytics.query_files import QUERY_LEDGER
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.records import Summary
from zerosum.server.runs.run_folder import SUMMARY, RunFolder
from zerosum.simulations.commands.rehearse_experiments import conclude, policy_for
from zerosum.simulations.commands.rehearse_queries import own_budget
from zerosum.simulations.rehearsal.app_bundle import Bundle, check_loads, packed
from zerosum.simulations.rehearsal.app_folder import AppRehearsal, answer_in_words
from zerosum.simulations.rehearsal.app_kind import POLICY, answers_queries, check_private
from zerosum.simulations.rehearsal.federation import Federation
from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.rehearsal.rehearsal_folder import RehearsedNodes
from zerosum.simulations.rehearsal.run_config import overridden
from zerosum.simulations.rehearsal.run_logs import first_failures, server_error
from zerosum.simulations.rehearsal.watch import Conclude, Run, TimedLines, Watch

NUMBERS_SHOWN: Final = 8
"""Of each sum that a query answered."""

RUN_CONFIG: Final = "run-config.toml"

_NOT_WRITTEN: Final = frozenset(
    {"protocols", "max_openings_per_run", "max_openings_per_day", "tasks", "queries", "app_queries"}
)
"""Keys of a simulated node's policy that a rehearsed node leaves at their defaults."""


def prepared_app(kept: AppRehearsal, setting: RehearsedNodes, settings: list[str]) -> Run:
    """Pack an app as Flower does, check all that can be known, and return what runs it.

    Parameters
    ----------
    kept : AppRehearsal
        The run folder.
    setting : RehearsedNodes
        Which nodes there are.
    settings : list of str
        Overrides of the run config, as ``--set`` takes them.

    Returns
    -------
    callable
        Starts all nodes, runs the app, and returns what prints the end.

    Raises
    ------
    DeploymentError
        If Flower refuses the app, its code does not load, or it lacks our lines.
    """
    app = Path(setting.app)
    bundle = packed(app)
    check_private(bundle)
    check_loads(bundle)
    config = overridden(bundle.config, settings)
    own = (app / POLICY).is_file()
    policy = policy_for(app / POLICY, setting.server) if own else open_policy(bundle, setting)

    def run(built: Federation, seconds: float, tell: TimedLines) -> Conclude:
        _start_nodes(built, setting, policy, own, tell)
        bundle.unpack(kept.app)
        file = built.folder / RUN_CONFIG
        file.write_text(tomli_w.dumps(config), encoding="utf-8", newline="\n")
        number = built.submit_config(kept.app, str(file) if config else "")
        status = Watch(built, number, kept, tell).until_end(seconds)
        if status != "finished:completed":
            raise DeploymentError(_why(kept, status))
        summary = None if kept.answers and not kept.begun else _summary(kept)
        checked = checked_policy(parse_toml(policy.encode(), POLICY), POLICY)
        return partial(_conclude, kept=kept, setting=setting, summary=summary, policy=checked)

    return run


def open_policy(bundle: Bundle, setting: RehearsedNodes) -> str:
    """Return a policy that admits whatever an app asks, for nodes whose owner wrote none.

    Parameters
    ----------
    bundle : Bundle
        Of the app.
    setting : RehearsedNodes
        Whose ``server``, if any, is the only one that nodes accept.

    Returns
    -------
    str
        TOML.
    """
    from zerosum.client.flower.simulated_node import OPEN_POLICY  # which imports flwr

    given = OPEN_POLICY.model_dump(mode="python", exclude=set(_NOT_WRITTEN), exclude_none=True)
    if setting.server:
        given["servers"] = [setting.server]
    if answers_queries(bundle) and OPEN_POLICY.app_queries is not None:
        given["app_queries"] = OPEN_POLICY.app_queries.model_dump(exclude_none=True)
    return tomli_w.dumps(given)


def _start_nodes(
    built: Federation, setting: RehearsedNodes, policy: str, own: bool, tell: TimedLines
) -> None:
    file = built.folder / POLICY
    file.write_text(policy, encoding="utf-8", newline="\n")
    tell.line(
        f"each node has the app's own {POLICY}"
        if own
        else f"each node accepts anything: {file} was made for this rehearsal; an owner writes "
        "min_cohort, corruption and max_epsilon (docs/deployment.md, 5)"
    )
    for index in range(setting.nodes):
        more = [each.replace("{}", str(index)) for each in setting.config]
        built.start_supernode(index, " ".join([f'policy="{file}"', *more]))
        tell.line(f"started node {index}; its log: {built.folder}/supernode{index}.log")


def _why(kept: AppRehearsal, status: str) -> str:
    """Say why a run failed: the ServerApp's last error, and what nodes logged of their own."""
    said = server_error(kept.nodes) or status
    lines = first_failures(kept.nodes)
    return "\n".join([f"the ServerApp failed: {said}", *lines])


def _summary(kept: AppRehearsal) -> Summary:
    """Read what PrivateStrategy wrote, with the seconds that its rounds took."""
    if not (kept.run / SUMMARY).is_file():
        raise DeploymentError(
            "the run completed without a private sum: nothing called start() of a "
            "PrivateStrategy in its ServerApp, and no PrivateQueries answered"
        )
    folder = RunFolder(kept.run)
    seconds = sum(record.seconds for record in folder.read_rounds())
    return folder.read_summary().model_copy(update={"seconds": seconds})


def _conclude(
    console: Console,
    kept: AppRehearsal,
    setting: RehearsedNodes,
    summary: Summary | None,
    policy: ClientPolicy,
) -> None:
    """Print the run's end, its epsilons, and what each node's own record holds.

    Without a summary there were queries alone.
    """
    # The accountant takes seconds to import, and every command reads this file.
    from zerosum.server.analytics.query_spending import read_spending_of

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    if summary is None:
        count = len(kept.answers)
        say(f"{setting.nodes} nodes: {count} answer{'s' * (count != 1)}")
        for answer in kept.answers:
            say(f"{answer_in_words(answer)}: {_shown(answer['values'])}")
        if kept.queries is not None and (kept.queries / QUERY_LEDGER).is_file():
            say(f"Budget      {read_spending_of(kept.queries).sentence()}")
        say(f"Folder      {kept.queries}\nNode logs   {kept.nodes}/supernode*.log")
    else:
        conclude(console, kept, replace(setting, server=summary.server), summary)
    epsilon = {} if summary is None else summary.epsilon
    known = [bound for bound in epsilon.values() if bound.finite]
    if known:
        figures = ", ".join(f"{epsilon_text(bound.value)} ({bound.observer})" for bound in known)
        say(f"Epsilon     {figures} at delta {known[0].delta:g}")
    states = [kept.nodes / f"state{index}" for index in range(setting.nodes)]
    for index, state in enumerate(states):
        say(f"Node {index}      {own_budget(state, policy)}")
    if math.isinf(policy.max_epsilon):
        least = max(_least_budget(read_spending(state), policy) for state in states)
        if math.isfinite(least):
            say(f"Policy      max_epsilon = {least:g} in a node's policy admits this run")


def _shown(values: Mapping[str, list[float]]) -> str:
    """Return the first numbers of each sum."""
    return ", ".join(
        f"{name} {' '.join(f'{number:.6g}' for number in numbers[:NUMBERS_SHOWN])}"
        + (" ..." if len(numbers) > NUMBERS_SHOWN else "")
        for name, numbers in values.items()
    )


def _least_budget(spent: Spending, policy: ClientPolicy) -> float:
    """Return the least ``max_epsilon`` that admits what a node spent; inf where none does."""
    from zerosum.server.planning.policy_fit import least_max_epsilon

    own = spent.of(policy.budget_unit)
    if not own.bounds(spent.contributions, "renyi") or not own.divergences:
        return math.inf
    return least_max_epsilon(np.asarray(own.divergences), policy.budget_delta)
