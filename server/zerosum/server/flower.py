"""The Flower ServerApp: the same experiment on Flower's deployment engine.

Loaded as ``zerosum.server.flower:app``. Run config keys: ``experiment`` (a TOML file in the app's
folder), ``overrides`` (space-separated ``key=value``), ``out`` (the run folder; ``runs/RUN_ID``
where it is empty), ``resume`` (the folder of a run to go on with; so is an ``out`` that holds a
checkpoint). What is resumed has its own configuration: ``experiment`` is not read, and overrides
may only give it more rounds, another data path, or another way to meet nodes.
"""

import logging
import shlex
import sys
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from zerosum.client import wire
from zerosum.client.entropy import Entropy, SystemEntropy
from zerosum.client.provisioning import ProvisioningError, read_roster
from zerosum.client.task import population, resolve_task
from zerosum.client.training import initial_vector
from zerosum.secagg import Roster
from zerosum.secagg.randomness import SystemRandomness
from zerosum.server.checks import prepare
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment, read_toml
from zerosum.server.coordinator import Coordinator, Nodes
from zerosum.server.exchange import poll
from zerosum.server.results import Record, Result
from zerosum.server.resuming import check_same, continued, has_checkpoint, held
from zerosum.server.runs import RunFolder
from zerosum.server.spec import DeploymentSpec, Experiment
from zerosum.server.training import FederatedTraining

log = logging.getLogger("zerosum.server")

HELLO_SECONDS = 2.0
"""Pause between two looks for nodes."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the nodes, run or continue the experiment, leave a run folder."""
    logging.getLogger("zerosum").setLevel(logging.INFO)
    serve(grid, context, SystemEntropy())


def serve(grid: Grid, context: Context, entropy: Entropy) -> Result:
    """Run the experiment that a run config names, or go on with the one in its folder.

    Raises
    ------
    ConfigError
        If it cannot be run with these nodes, or continued.
    """
    path, earlier = run_folder(context)
    asked = _experiment(context) if earlier is None else continued(earlier, _overrides(context))
    if asked.secagg.protocol != "pairwise":
        raise ConfigError(
            f'secagg.protocol = "{asked.secagg.protocol}": a deployed client takes part in '
            '"pairwise" alone'
        )
    roster = read_keys(asked)
    task = resolve_task(asked.task, asked.data, asked.model, asked.seed)
    nodes = _nodes(grid, asked, roster)
    count = len(nodes)
    wanted = population(task, asked.data) if asked.data.clients else count
    if wanted != count:
        raise ConfigError(
            f"data.clients = {wanted}, but {count} nodes said hello: set both to one number"
        )
    dimension = len(initial_vector(task, asked.seed))
    experiment = prepare(asked, population=count, dimension=dimension)
    folder = RunFolder.create(path, experiment) if earlier is None else earlier
    with held(folder):
        if earlier is not None:
            check_same(earlier.experiment, experiment, earlier)
            earlier.write_config(experiment)
            log.info("going on with %s", path)
        coordinator = Coordinator(
            grid,
            nodes,
            experiment.secagg,
            # A ServerApp that begins anew in the same run opens other sessions than before.
            run_id=context.run_id.to_bytes(8, "little") + SystemRandomness().take(8),
            entropy=entropy,
            timeouts=experiment.deployment,
            pipeline=experiment.deployment.pipeline,
        )
        training = FederatedTraining(
            experiment, task, count, coordinator, entropy, folder, on_round=_log_round
        )
        result = training.run()
    log.info("run folder: %s", result.folder.resolve())
    return result


def run_folder(context: Context) -> tuple[Path, RunFolder | None]:
    """Return where a run is written, and the run to go on with: one that has a checkpoint.

    Raises
    ------
    ConfigError
        If the folder to resume holds no run, or ``out`` is another one.
    """
    resume = str(context.run_config.get("resume") or "")
    out = str(context.run_config.get("out") or "")
    if resume and out and Path(resume) != Path(out):
        raise ConfigError(f"run config resume = {resume!r} and out = {out!r}: give one of them")
    path = Path(resume or out or f"runs/{context.run_id}")
    if resume or has_checkpoint(RunFolder(path)):
        return path, RunFolder.open(path)
    return path, None


def _nodes(grid: Grid, experiment: Experiment, roster: Roster | None) -> Nodes:
    by_index = wait_for_nodes(grid, experiment.deployment)
    try:
        return Nodes(by_index, roster)
    except ValueError as error:
        raise ConfigError(
            f"deployment.roster = {experiment.deployment.roster!r}: {error}"
        ) from None


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
    return parse_experiment(apply_overrides(read_toml(_find(name)), _overrides(context)))


def _overrides(context: Context) -> list[str]:
    return shlex.split(str(context.run_config.get("overrides") or ""))


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
