"""The Flower ServerApp of queries: a plan, asked of nodes that hold tables of their own.

Loaded as ``zerosum.server.flower.query_app:app``. Run config keys: ``plan`` (a TOML file in the
app's folder: ``[budget]``, ``[schema]``, ``[[queries]]``, ``[deployment]``), ``overrides``
(space-separated ``key=value`` of the plan), ``out`` (the folder of queries; ``runs/RUN_ID`` where
it is empty), ``resume`` (a folder of queries to go on with; so is an ``out`` that holds some). What
is resumed has its own plan, of which overrides may change ``[deployment]`` alone.

All but the grid is what ``zerosum query PLAN`` does in a simulation: the same terms, costs, ledger,
stored answers and folder. Keys and shares of a query's first sum ride along with the last sum of
the query before it, as in training; those of further rounds of ``words`` cannot, for how many cells
these have follows from the round before.
"""

import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from zerosum.client.files.durable_append import replace_file
from zerosum.client.files.operating_system import NOT_DEPLOYABLE
from zerosum.client.protocol.noise_source import Entropy, SystemEntropy
from zerosum.client.queries.errors import QueryError
from zerosum.server.analytics.analyst import Analyst
from zerosum.server.analytics.answers import Answer
from zerosum.server.analytics.plan_terms import terms_of
from zerosum.server.analytics.query_files import ENDED
from zerosum.server.analytics.query_folder import (
    create_folder,
    is_query_folder,
    read_folder,
    write_plan,
)
from zerosum.server.analytics.query_plan import PlanFile, parse_plan, plan_of, read_document
from zerosum.server.analytics.query_setting import check_costs, secagg_of
from zerosum.server.config import ConfigError, apply_overrides
from zerosum.server.flower.serving import (
    find_file,
    is_simulation,
    keep_from_others,
    met_nodes,
    named_folder,
    overrides_of,
    read_deployment_keys,
    session_run_id,
    show_log,
    warn_of_packing,
)
from zerosum.server.private_sum.coordinator import Coordinator
from zerosum.server.runs.plain_json import dumps
from zerosum.server.spec import DeploymentSpec

log = logging.getLogger("zerosum.server")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the nodes, ask all queries of the plan that have no answer yet, keep the answers.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of a deployment.
    context : flwr.app.Context
        Of the run.
    """
    show_log()
    serve(grid, context)


def serve(grid: Grid, context: Context, entropy: Entropy | None = None) -> list[Answer]:
    """Answer the plan that a run config names, or go on with the one in its folder.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of a deployment.
    context : flwr.app.Context
        Of the run.
    entropy : Entropy, optional
        The server's; by default the operating system's.

    Returns
    -------
    list of Answer
        One for each query, as kept in the folder.

    Raises
    ------
    ConfigError, QueryError
        If these nodes cannot be asked these queries, or the folder cannot be gone on with.
    BudgetExceeded
        If the plan costs more than its budget.
    QueryAbandoned
        If too few nodes were left for an answer; what came before is kept.
    """
    _check_deployed(grid)
    entropy = SystemEntropy() if entropy is None else entropy
    path, resume = named_folder(context)
    warn_of_packing(path)
    earlier = resume or is_query_folder(path)
    asked = _continued(path, overrides_of(context)) if earlier else _plan(context)
    spec = _deployment(asked)
    roster = read_deployment_keys(spec, asked.plan.server, "server")
    attendance, nodes = met_nodes(grid, spec, roster)
    file = _of_nodes(asked, len(nodes))
    terms = terms_of(file, len(nodes))
    secagg = secagg_of(file.plan, terms)
    if not earlier:
        check_costs(file, terms)
        keep_from_others(path)
        create_folder(path, file)
    coordinator = Coordinator(
        grid,
        nodes,
        secagg,
        run_id=session_run_id(context),
        entropy=entropy,
        timeouts=spec,
        pipeline=spec.pipeline,
    )
    # A session that was begun is begun once: done again, a sum is another, with other noise.
    analyst = Analyst(
        file,
        terms,
        coordinator,
        path,
        reproducible=False,
        before=attendance.welcome_back,
        prepare=coordinator.prepare if coordinator.pipelined else None,
    )
    with analyst, _going_on_is_told(analyst, path):
        write_plan(path, file)
        answers = analyst.run(lambda answer: log.info("%s", answer.sentence()))
        log.info("budget: %s", analyst.spending.sentence())
        document: dict[str, Any] = {
            "answers": len(answers),
            "clients": len(nodes),
            "budget": analyst.spending.document(),
        }
        replace_file(path / ENDED, (dumps(document, indent=1) + "\n").encode())
    log.info("folder of queries: %s", path.resolve())
    return answers


@contextmanager
def _going_on_is_told(analyst: Analyst, path: Path) -> Iterator[None]:
    """Say, where something ends the queries, what is kept and which command goes on."""
    try:
        yield
    except BaseException:  # of Flower's own exits as well
        words = shlex.quote(f'resume="{path}"')
        done = len({entry["ask"] for entry in analyst.answers.entries})
        log.error(
            "ended: %d of %d queries are answered; what was paid for is kept in %s and is not paid "
            "for again; go on with: flwr run . --run-config %s",
            *(done, len(analyst.queries), path.resolve(), words),
        )
        raise


def _check_deployed(grid: Grid) -> None:
    if is_simulation(grid):
        raise ConfigError(
            "nodes of Flower's simulation runtime have no tables: simulate with zerosum query PLAN"
        )
    if NOT_DEPLOYABLE is not None:
        raise ConfigError(NOT_DEPLOYABLE)


def _plan(context: Context) -> PlanFile:
    """Read the app's plan, with the run config's overrides."""
    path = find_file("plan", str(context.run_config.get("plan") or "plan.toml"))
    document = apply_overrides(read_document(path), overrides_of(context))
    file = parse_plan(document, path.name)
    if not file.queries:
        raise QueryError(f"{path.name} has no [[queries]]: write one at least")
    if file.plan.protocol == "ideal" and "protocol" in document:
        raise ConfigError(
            'protocol = "ideal": a deployed client takes part in "pairwise" alone; take it out'
        )
    for key in ("by", "fingerprint"):
        if getattr(file.plan, key) is not None:
            raise ConfigError(f"{key} = {getattr(file.plan, key)!r}: it is for simulations alone")
    return file.changed(protocol="pairwise", data=None, rename={})


def _continued(path: Path, overrides: list[str]) -> PlanFile:
    """Read the plan of a folder, with other ways to meet the nodes."""
    file = read_folder(path)
    if file.plan.deployment is None:
        raise ConfigError(f"resume = {str(path)!r}: it is a simulation's; zerosum query goes on")
    before = {"deployment": file.plan.deployment.model_dump(mode="json", exclude_none=True)}
    after = apply_overrides(before, overrides)
    if others := sorted(after.keys() - before.keys()):
        raise ConfigError(
            f"overrides: {others[0]} of {path} stays as it was begun; only deployment.* may change"
        )
    changed = plan_of({"budget": {"epsilon": 1.0}, **after}, "overrides: ").deployment
    return file.changed(deployment=changed)


def _deployment(file: PlanFile) -> DeploymentSpec:
    """Return how nodes are met."""
    spec = file.plan.deployment or DeploymentSpec()
    if spec.left_out is not None:
        raise ConfigError(
            f"deployment.left_out = {spec.left_out!r}: it is for training; queries are asked of "
            "every node of the roster, and a sum without a liar's vector is given up"
        )
    return spec


def _of_nodes(file: PlanFile, count: int) -> PlanFile:
    """Return a plan that is resolved for the nodes that are there."""
    wanted = file.plan.clients
    if wanted is not None and wanted != count:
        raise ConfigError(
            f"clients = {wanted}, but there are {count} nodes: set both to one number"
        )
    return file.changed(clients=count, deployment=_deployment(file))
