"""The Flower ServerApp: the same experiment on Flower's deployment engine, and its simulation.

Loaded as ``zerosum.server.flower:app``. Run config keys: ``experiment`` (a TOML file in the app's
folder), ``overrides`` (space-separated ``key=value``), ``out`` (the run folder; ``runs/RUN_ID``
where it is empty).
"""

import logging
import shlex
import sys
import time
from pathlib import Path
from typing import Final

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from zerosum.client import wire
from zerosum.client.entropy import SeededEntropy, SystemEntropy
from zerosum.client.provisioning import ProvisioningError, read_roster
from zerosum.client.simulated import simulated_roster
from zerosum.client.task import population, resolve_task
from zerosum.client.training import initial_vector
from zerosum.secagg import Roster
from zerosum.server.checks import check_device, prepare
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment, read_toml
from zerosum.server.coordinator import Coordinator, Nodes
from zerosum.server.exchange import POLL_SECONDS, poll
from zerosum.server.runs import RunFolder
from zerosum.server.spec import DeploymentSpec, Experiment, FaultSpec
from zerosum.server.training import DEPLOYED, FederatedTraining, Record

log = logging.getLogger("zerosum.server")

HELLO_SECONDS = 2.0
"""Pause between two looks for nodes."""

SIMULATED: Final = {"name": "flower"}
"""Engine of a run in Flower's simulation runtime."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the nodes, run the experiment, leave a run folder."""
    _show_log()
    experiment = _experiment(context)
    simulated = is_simulation(grid)
    _check_deployable(experiment, simulated)
    check_device(experiment)
    task = resolve_task(experiment.task, experiment.data, experiment.model, experiment.seed)
    nodes = _simulated(grid, context) if simulated else _deployed(grid, experiment)
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
    entropy = SeededEntropy(experiment.seed) if simulated else SystemEntropy()
    coordinator = Coordinator(
        grid,
        nodes,
        experiment.secagg,
        run_id=context.run_id.to_bytes(8, "little"),
        entropy=entropy,
        timeouts=None if simulated else experiment.deployment,
    )
    training = FederatedTraining(
        experiment,
        task,
        count,
        coordinator,
        entropy,
        folder,
        on_round=_log_round,
        engine=SIMULATED if simulated else DEPLOYED,
    )
    result = training.run()
    log.info("run folder: %s", result.folder.resolve())


def is_simulation(grid: Grid) -> bool:
    """Return whether this is the grid of Flower's simulation runtime: our own process says so.

    What nodes say of themselves does not count: a seed is no noise in a deployment.
    """
    module = sys.modules.get("flwr.superlink.grid.inmemory_grid")
    return module is not None and isinstance(grid, module.InMemoryGrid)


def _show_log() -> None:
    """Let rounds be seen: Flower passes on what this process prints, and knows no other log."""
    ours = logging.getLogger("zerosum")
    ours.setLevel(logging.INFO)
    if not ours.hasHandlers():
        shown = logging.StreamHandler()
        shown.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        ours.addHandler(shown)


def _check_deployable(experiment: Experiment, simulated: bool) -> None:
    if experiment.faults != FaultSpec():
        log.warning("[faults] are of zerosum run alone: here clients vanish by themselves")
    if not simulated and experiment.secagg.protocol != "pairwise":
        raise ConfigError(
            f'secagg.protocol = "{experiment.secagg.protocol}": a deployed client takes part in '
            '"pairwise" alone'
        )


def _simulated(grid: Grid, context: Context) -> Nodes:
    by_index = simulated_nodes(grid)
    return Nodes(by_index, simulated_roster(context.run_id, len(by_index)))


def _deployed(grid: Grid, experiment: Experiment) -> Nodes:
    roster = read_keys(experiment)
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
        for reply in poll(grid, messages, spec.stage_timeout) if messages else ():
            if reply.has_content():
                _greet(reply, found)
                greeted.add(reply.metadata.src_node_id)
        if len(found) < spec.min_nodes:
            time.sleep(HELLO_SECONDS)
    return _complete(found)


def simulated_nodes(grid: Grid) -> dict[int, int]:
    """Greet every node of Flower's simulation runtime; return node ids by index.

    The runtime has made all of them before the first one answers.

    Raises
    ------
    ConfigError
        If one does not answer as it should: it says why in the log.
    """
    found: dict[int, int] = {}
    greeted: set[int] = set()
    while new := [node for node in _present(grid) if node not in greeted]:
        messages = [Message(wire.pack({}), node, wire.HELLO_TYPE) for node in new]
        for reply in grid.send_and_receive(messages):
            if reply.has_content():
                _greet(reply, found)
        greeted.update(new)
    if len(found) < len(greeted):
        raise ConfigError(
            f"{len(greeted) - len(found)} of {len(greeted)} simulated nodes said no hello: the log "
            "above has their reasons"
        )
    return _complete(found)


def _present(grid: Grid) -> list[int]:
    """Return the nodes, as soon as there are any."""
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(POLL_SECONDS)
    return nodes


def _greet(reply: Message, found: dict[int, int]) -> None:
    """Enter a node that said which client it is."""
    node = reply.metadata.src_node_id
    try:
        index = wire.int_field(reply.content, "index")
    except ValueError as error:
        log.warning("node %d is left out: %s", node, error)
        return
    if index in found:
        raise ConfigError(
            f"node config partition-id = {index} is claimed by two nodes: give each its own"
        )
    found[index] = node


def _complete(found: dict[int, int]) -> dict[int, int]:
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
