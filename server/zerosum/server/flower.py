"""The Flower ServerApp: the same experiment on Flower's deployment engine.

Loaded as ``zerosum.server.flower:app``. Run config keys: ``experiment`` (a TOML file in the app's
folder), ``overrides`` (space-separated ``key=value``), ``out`` (the run folder; ``runs/RUN_ID``
where it is empty).
"""

import logging
import shlex
import sys
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from zerosum.client import wire
from zerosum.client.entropy import SystemEntropy
from zerosum.client.provisioning import ProvisioningError, read_roster
from zerosum.client.task import population, resolve_task
from zerosum.client.training import initial_vector
from zerosum.secagg import Roster
from zerosum.server.checks import prepare
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment, read_toml
from zerosum.server.coordinator import Coordinator, Nodes
from zerosum.server.exchange import poll
from zerosum.server.results import Record
from zerosum.server.runs import RunFolder
from zerosum.server.spec import DeploymentSpec, Experiment
from zerosum.server.training import FederatedTraining

log = logging.getLogger("zerosum.server")

HELLO_SECONDS = 2.0
"""Pause between two looks for nodes."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the nodes, run the experiment, leave a run folder."""
    logging.getLogger("zerosum").setLevel(logging.INFO)
    experiment = _experiment(context)
    if experiment.secagg.protocol != "pairwise":
        raise ConfigError(
            f'secagg.protocol = "{experiment.secagg.protocol}": a deployed client takes part in '
            '"pairwise" alone'
        )
    roster = read_keys(experiment)
    task = resolve_task(experiment.task, experiment.data, experiment.model, experiment.seed)
    by_index = wait_for_nodes(grid, experiment.deployment)
    try:
        nodes = Nodes(by_index, roster)
    except ValueError as error:
        raise ConfigError(
            f"deployment.roster = {experiment.deployment.roster!r}: {error}"
        ) from None
    count = len(nodes)
    wanted = population(task, experiment.data) if experiment.data.clients else count
    if wanted != count:
        raise ConfigError(
            f"data.clients = {wanted}, but {count} nodes said hello: set both to one number"
        )
    dimension = len(initial_vector(task, experiment.seed))
    experiment = prepare(experiment, population=count, dimension=dimension)
    path = str(context.run_config.get("out") or f"runs/{context.run_id}")
    folder = RunFolder.create(Path(path), experiment)
    entropy = SystemEntropy()
    coordinator = Coordinator(
        grid,
        nodes,
        experiment.secagg,
        run_id=context.run_id.to_bytes(8, "little"),
        entropy=entropy,
        timeouts=experiment.deployment,
    )
    training = FederatedTraining(
        experiment, task, count, coordinator, entropy, folder, on_round=_log_round
    )
    result = training.run()
    log.info("run folder: %s", result.folder.resolve())


def read_keys(experiment: Experiment) -> Roster | None:
    """Read the roster of identity keys; None where the server is trusted to follow the protocol.

    Raises
    ------
    ConfigError
        If one is needed and cannot be used.
    """
    spec = experiment.deployment
    if spec.roster is None and spec.authority is None and experiment.secagg.server != "malicious":
        return None
    if spec.roster is None or spec.authority is None:
        raise ConfigError(
            f'secagg.server = "{experiment.secagg.server}": deployment.roster and '
            "deployment.authority are needed, "
            'with keys on the nodes; or write secagg.server = "semi-honest", and name it in each '
            "node's policy"
        )
    try:
        return read_roster(spec.roster, spec.authority)
    except ProvisioningError as error:
        raise ConfigError(f"deployment.{error}") from None


def wait_for_nodes(grid: Grid, spec: DeploymentSpec) -> dict[int, int]:
    """Wait until enough nodes have said which client they are; return node ids by index.

    Raises
    ------
    ConfigError
        If two nodes claim one index, or the indices have gaps.
    """
    found: dict[int, int] = {}
    greeted: set[int] = set()
    while len(found) < spec.min_nodes:
        new = [node for node in grid.get_node_ids() if node not in greeted]
        messages = [Message(wire.pack({}), node, wire.HELLO_TYPE) for node in new]
        for reply in poll(grid, messages, [spec.stage_timeout] * len(messages)):
            if not reply.has_content():
                continue
            node = reply.metadata.src_node_id
            try:
                index = wire.int_field(reply.content, "index")
            except ValueError as error:
                log.warning("node %d is left out: %s", node, error)
                greeted.add(node)
                continue
            if index in found:
                raise ConfigError(
                    f"node config partition-id = {index} is claimed by two nodes: give each its own"
                )
            found[index] = node
            greeted.add(node)
        if len(found) < spec.min_nodes:
            time.sleep(HELLO_SECONDS)
    if sorted(found) != list(range(len(found))):
        raise ConfigError(
            f"node config partition-id: nodes have {sorted(found)}, and the roster needs "
            f"0 to {len(found) - 1}"
        )
    return dict(sorted(found.items()))


def _experiment(context: Context) -> Experiment:
    name = str(context.run_config.get("experiment") or "experiment.toml")
    overrides = shlex.split(str(context.run_config.get("overrides") or ""))
    return parse_experiment(apply_overrides(read_toml(_find(name)), overrides))


def _find(name: str) -> Path:
    """Find a file of the app: Flower puts the app's folder on sys.path, nowhere else."""
    for folder in (Path(), *map(Path, sys.path)):
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(f"run config experiment = {name!r}: no such file in the app's folder")


def _log_round(record: Record) -> None:
    log.info(
        "round %d %s: %d of %d survived, accuracy %s, epsilon %s",
        record["round"],
        record["status"],
        record["survivors"],
        record["cohort"],
        record.get("test_accuracy", "not tested"),
        record["epsilon"],
    )
