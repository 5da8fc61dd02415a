"""``zerosum budget``: what a run, queries or a node has spent of privacy, and what is left."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from zerosum.client import renyi_filter
from zerosum.client.files.private_files import OpenToOthersError
from zerosum.client.flower.node_policy import PolicyError, read_policy
from zerosum.client.privacy.spending import BudgetUnit, Spending
from zerosum.client.protocol.decision_store import DamagedStoreError
from zerosum.client.protocol.own_log import spent_epsilon
from zerosum.client.protocol.stored_counters import (
    COUNTERS,
    SESSIONS,
    read_counters,
    spending_of,
)
from zerosum.client.spec import BUDGET_DELTA, ClientPolicy
from zerosum.server.analytics.query_files import QUERY_LEDGER
from zerosum.server.config import ConfigError
from zerosum.server.privacy.observers import OBSERVERS, observer_title
from zerosum.server.privacy.rounding import epsilon_text, remainder_text
from zerosum.server.runs.run_folder import CONFIG, RunFolder
from zerosum.simulations.commands.completions import RUN_FOLDERS
from zerosum.simulations.terminal.user_errors import (
    JsonFile,
    check_writable,
    user_errors,
    write_json,
)

if TYPE_CHECKING:  # a node's own count needs no accountant
    from zerosum.server.analytics.query_spending import QuerySpending
    from zerosum.server.planning.spent_budget import RunSpending


def budget(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run, or of queries, or a node's state-dir.", show_default=False
        ),
        RUN_FOLDERS,
    ],
    policy: Annotated[
        Path | None,
        typer.Option(help="The node's policy: max_epsilon, budget_delta, max_contributions."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Say what a run, queries or a node has spent of privacy, and what is left; read only."""
    with user_errors(ConfigError):
        if json_file is not None:
            check_writable(json_file)
        spent = spending_in(folder, policy)
        if json_file is not None:
            write_json(json_file, spent if isinstance(spent, dict) else spent.document())
    for table in _tables(spent):
        Console().print(table)


def spending_in(
    folder: Path, policy: Path | None = None
) -> "RunSpending | QuerySpending | dict[str, Any]":
    """Compute what a run or queries have spent, or read what a node says of itself.

    Parameters
    ----------
    folder : Path
        Either.
    policy : Path, optional
        The node's policy: the limits in force. Default: those that its record was last held to.

    Returns
    -------
    RunSpending, QuerySpending or dict
        Typed of a run and of queries; a node's own count in plain values.

    Raises
    ------
    ConfigError
        If the folder is none of them, or its record is damaged.
    """
    of_queries = (folder / QUERY_LEDGER).is_file()
    if ((folder / CONFIG).is_file() or of_queries) and policy is not None:
        raise ConfigError(f"--policy {policy}: {folder} is a run's folder, not a node's")
    if of_queries:
        from zerosum.server.analytics.query_spending import read_spending_of

        return read_spending_of(folder)
    if (folder / CONFIG).is_file():
        from zerosum.server.planning.spent_budget import run_spending

        return run_spending(RunFolder.open(folder))
    if not ((folder / COUNTERS).is_file() or (folder / SESSIONS).is_dir()):
        raise ConfigError(
            f"{folder} is neither the folder of a run (no {CONFIG}), nor of queries (no "
            f"{QUERY_LEDGER}), nor a node's state-dir (no {COUNTERS}): name one of them"
        )
    try:
        counters = read_counters(folder)
        named = {"flower_runs": counters["flower_runs"]}
        return node_spending(spending_of(counters), _read_policy(policy)) | named
    except (DamagedStoreError, OpenToOthersError, OSError) as error:
        raise ConfigError(str(error)) from None


def node_spending(spent: Spending, policy: ClientPolicy | None) -> dict[str, Any]:
    """Return what a node has spent, in plain values.

    Parameters
    ----------
    spent : Spending
        Its record.
    policy : ClientPolicy or None
        The limits in force. None: those that the record was last held to.

    Returns
    -------
    dict
        ``epsilon`` is None where something that was sent has no bound, for the unit that the policy
        limits: one record where it answers queries of such. Of an open budget it is that of its
        one order, 0 before anything was sent; ``used`` is the part of the budget, in Renyi
        divergence at that order. Under the rule "sum" it is the sum of pure epsilons. Without a
        budget it is the least over all orders, which holds for requests that were fixed
        beforehand.
    """
    most, delta = spent.max_epsilon, spent.delta or BUDGET_DELTA
    unit, rule = _unit(spent, policy), spent.rule or (policy.budget_rule if policy else "renyi")
    if policy is not None:
        most = policy.max_epsilon if math.isfinite(policy.max_epsilon) else None
        delta = policy.budget_delta
    order = spent.order
    if order is None and most is not None and rule == "renyi":
        order = renyi_filter.fixed_order(most, delta)
    return {
        "kind": "node",
        "contributions": spent.contributions,
        "max_contributions": None if policy is None else policy.max_contributions,
        "by_run": dict(spent.by_run),
        "delta": delta,
        "max_epsilon": most,
        "unit": unit,
        "rule": rule,
        "order": order,
        "epsilon": spent_epsilon(spent, unit, rule, order, delta),
        **_part_used(spent, unit, order, most, delta),
    }


def further_contributions(spent: Mapping[str, Any]) -> int | None:
    """Return how many more contributions the limits admit, if each costs the mean so far.

    Parameters
    ----------
    spent : mapping
        As :func:`node_spending` returns it.

    Returns
    -------
    int or None
        None where no limit is known, or nothing was sent by which to reckon.
    """
    sent, used, most = spent["contributions"], spent["used"], spent["max_contributions"]
    left = [max(0, most - sent)] if most is not None else []
    if sent and used:
        # A part that floats round up must not count as one more: it would be refused.
        left.append(max(0, math.floor(sent * (1 - used) / used - 1e-9)))
    elif spent["max_epsilon"] is not None:
        return None
    return min(left) if left else None


def _unit(spent: Spending, policy: ClientPolicy | None) -> BudgetUnit:
    """Return the unit that a policy limits; without one, the unit of which there is a bound."""
    if policy is not None:
        return policy.budget_unit
    rule, sent = spent.rule or "renyi", spent.contributions
    client, record = (each.bounds(sent, rule) for each in (spent.client, spent.record))
    return "record" if record and not client else "client"


def _part_used(
    spent: Spending, unit: BudgetUnit, order: int | None, most: float | None, delta: float
) -> dict[str, float | None]:
    if order is None or most is None:
        used = None
        if spent.rule == "sum" and most and spent.of(unit).bounds(spent.contributions, "sum"):
            used = spent.of(unit).pure / most
        return {"divergence": None, "limit": None, "used": used}
    limit = renyi_filter.divergence_limit(most, delta, order)
    of_unit = spent.of(unit)
    if not of_unit.bounds(spent.contributions, "renyi"):
        return {"divergence": None, "limit": limit, "used": None}
    at = renyi_filter.ORDERS.index(order)
    divergence = of_unit.divergences[at] if of_unit.divergences else 0.0
    used = divergence / limit if limit > 0 else None
    return {"divergence": divergence, "limit": limit, "used": used}


def _read_policy(path: Path | None) -> ClientPolicy | None:
    if path is None:
        return None
    try:
        return read_policy(str(path))
    except PolicyError as error:
        raise ConfigError(f"--policy: {error}") from None


def _tables(spent: "RunSpending | QuerySpending | dict[str, Any]") -> Iterator[Table]:
    if isinstance(spent, dict):
        return _node_tables(spent)
    from zerosum.server.analytics.query_spending import QuerySpending

    if isinstance(spent, QuerySpending):
        return _query_tables(spent.document())
    return _run_tables(spent)


def _query_tables(spent: Mapping[str, Any]) -> Iterator[Table]:
    """Yield what queries cost, in the measure of their rule."""
    measure = "epsilon" if spent["order"] is None else f"divergence at order {spent['order']}"
    limit, used = epsilon_text(spent["limit"]), epsilon_text(spent["used"])
    title = f"{spent['clients']} clients, rule {spent['rule']}: {used} of {limit} is spent"
    table = Table(title=title, title_justify="left")
    for name in ("Query", "Kind", "Sums opened", "Given up", f"Costs alone ({measure})"):
        table.add_column(name)
    for each in spent["queries"]:
        kind, cost = each["query"]["kind"], epsilon_text(each["used"])
        table.add_row(each["name"], kind, str(each["sums"]), str(each["abandoned"]), cost)
    yield table
    whole = Table(title="The budget", title_justify="left", show_header=False)
    of = f"one {spent['unit']}, {spent['adjacency']}, against the observer {spent['observer']}"
    whole.add_row("protects", of)
    whole.add_row("spent", f"epsilon = {epsilon_text(spent['spent'])} at {spent['delta']:g}")
    whole.add_row("left", f"{remainder_text(spent['left'])} of {limit} ({measure})")
    yield whole


def _run_tables(spent: "RunSpending") -> Iterator[Table]:
    rounds = f"{spent.rounds} of {spent.planned_rounds} rounds"
    rounds += "; it ended, and all that were planned are spent" if spent.ended else ""
    table = Table(title=f"{spent.name}: {rounds}", title_justify="left")
    for name in ("Observer", "Spent", "Planned", "Left", "Delta", "Participations"):
        table.add_column(name)
    for observer in OBSERVERS:
        against, title = spent.observers[observer], observer_title(observer, spent.protocol)
        if not against.bound.finite:
            table.add_row(title, f"none: {against.bound.reason}")
            continue
        table.add_row(
            title,
            epsilon_text(against.bound.value),
            epsilon_text(against.planned),
            "unknown" if against.left is None else remainder_text(against.left),
            f"{against.bound.delta:g}",
            str(against.bound.participations),
        )
    yield table
    kinds = Table(title="By kind of sum, each as if it were alone", title_justify="left")
    for column in ("Kind", "Sums opened", "Worst client's part in", *map(str.title, OBSERVERS)):
        kinds.add_column(column)
    for kind, alone in spent.kinds.items():
        epsilons = (epsilon_text(alone.epsilon[observer]) for observer in OBSERVERS)
        kinds.add_row(kind, str(alone.sums), str(alone.participations), *epsilons)
    yield kinds


def _node_tables(spent: Mapping[str, Any]) -> Iterator[Table]:
    table = Table(title="A node's own record", title_justify="left", show_header=False)
    most = spent["max_contributions"]
    table.add_row("contributions", str(spent["contributions"]) + (f" of {most}" if most else ""))
    limit = "" if spent["max_epsilon"] is None else f" of max_epsilon = {spent['max_epsilon']:g}"
    if spent["epsilon"] is None:
        epsilon = "no bound: something sent had none, or an earlier version counted it otherwise"
    else:
        at = "pure" if spent["rule"] == "sum" else f"at budget_delta = {spent['delta']:g}"
        epsilon = f"{epsilon_text(spent['epsilon'])}{limit} {at}"
    of = ", of one record" if spent["unit"] == "record" else ""
    table.add_row(f"epsilon of its own count{of}", epsilon)
    if spent["limit"] is not None:
        used = "" if spent["used"] is None else f" ({100 * spent['used']:.1f} % used)"
        spent_so_far = "unknown" if spent["divergence"] is None else f"{spent['divergence']:.4g}"
        divergence = f"{spent_so_far} of {spent['limit']:.4g}{used}"
        table.add_row(f"Renyi divergence at order {spent['order']}", divergence)
    if (further := further_contributions(spent)) is not None:
        table.add_row("further contributions, each at the mean cost so far", str(further))
    for run, count in spent["by_run"].items():
        known = spent["flower_runs"].get(run)
        name = f"run {run[:12]}" if known is None else f"run {known}"
        table.add_row(name, f"{count} contributions")
    yield table
