"""What every ServerApp of ours does: find its files, read keys, meet the nodes, show its log.

Importing it imports neither torch nor dp_accounting.
"""

import logging
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from flwr.app import Context
from flwr.serverapp import Grid

from zerosum.client.flower.flower_internals import is_simulation_grid
from zerosum.client.flower.simulated_node import simulated_roster
from zerosum.client.protocol.node_keys import ProvisioningError, read_roster
from zerosum.secagg import Roster
from zerosum.secagg.randomness import SystemRandomness
from zerosum.server.config import ConfigError
from zerosum.server.flower.node_registry import NodeRegistry, meet, simulated_nodes
from zerosum.server.flower.packed_folder import packing_words
from zerosum.server.private_sum.coordinator import Nodes
from zerosum.server.runs.run_folder import REPORT
from zerosum.server.spec import DeploymentSpec

log = logging.getLogger("zerosum.server")

ONE_PROCESS: Final = (
    "this is Flower's simulation runtime: one owner has every client's records and keys, and "
    "nobody is protected; masks, noise and epsilon are those that nodes of their own would have"
)
"""Said at the start of a simulated run of somebody's app, and at its end."""

SIMULATED: Final = {"name": "flower"}
"""Engine of a run in Flower's simulation runtime."""

ROSTER: Final = "ZEROSUM_ROSTER"
AUTHORITY: Final = "ZEROSUM_AUTHORITY"
"""Environment of the SuperLink, which ServerApps inherit: keys of runs whose settings name none."""


def is_simulation(grid: Grid) -> bool:
    """Return whether this is the grid of Flower's simulation runtime: our own process says so.

    What nodes say of themselves does not count: a seed is no noise in a deployment.
    """
    return is_simulation_grid(grid)


def show_log() -> None:
    """Let progress be seen: Flower passes on what this process prints, and knows no other log."""
    ours = logging.getLogger("zerosum")
    ours.setLevel(logging.INFO)
    if not ours.hasHandlers():
        shown = logging.StreamHandler()
        shown.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        ours.addHandler(shown)


def session_run_id(context: Context) -> bytes:
    """Return a run id: a ServerApp that begins anew in one run opens other sessions than before."""
    return context.run_id.to_bytes(8, "little") + SystemRandomness().take(8)


def overrides_of(context: Context) -> list[str]:
    """Return the ``key=value`` words of a run config's ``overrides``."""
    return shlex.split(str(context.run_config.get("overrides") or ""))


def find_file(key: str, name: str) -> Path:
    """Find a file of the app: Flower puts the app's folder on sys.path, nowhere else.

    Parameters
    ----------
    key : str
        Of the run config, for the message.
    name : str
        What it names.

    Returns
    -------
    Path
        The first of that name.

    Raises
    ------
    ConfigError
        If there is none.
    """
    for folder in (Path(), *map(Path, sys.path)):
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(f"run config {key} = {name!r}: no such file in the app's folder")


def named_folder(context: Context) -> tuple[Path, bool]:
    """Return the run folder that a run config names, and whether it must hold a run already.

    Parameters
    ----------
    context : flwr.app.Context
        Whose run config names ``out`` or ``resume``; else it is ``runs/RUN_ID``.

    Returns
    -------
    tuple of Path and bool
        True where it is to be resumed.

    Raises
    ------
    ConfigError
        If both are given and differ.
    """
    resume = str(context.run_config.get("resume") or "")
    out = str(context.run_config.get("out") or "")
    if resume and out and Path(resume) != Path(out):
        raise ConfigError(f"run config resume = {resume!r} and out = {out!r}: give one of them")
    return Path(resume or out or f"runs/{context.run_id}"), bool(resume)


def keep_from_others(folder: Path) -> None:
    """Make a missing folder of a deployment, of mode 0700: it shows who took part.

    One that is there keeps its mode: its owner may share it. The folders above get the umask's.

    Parameters
    ----------
    folder : Path
        Of a run, or of queries.
    """
    with suppress(OSError, ValueError):  # who writes into it says what is amiss
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def page_words(folder: Path) -> str:
    """Return where the page of a deployed run comes from, which no ServerApp draws."""
    return f"no page is drawn here: zerosum report {shlex.quote(str(folder))} makes {REPORT}"


def warn_of_packing(folder: Path, told: logging.Logger = log) -> None:
    """Warn where Flower would send a run folder to every node, as a part of the app.

    Parameters
    ----------
    folder : Path
        Of a run; it need not exist.
    told : logging.Logger
        Of whoever writes it.
    """
    if words := packing_words(folder, "out"):
        told.warning("%s", words)


def read_deployment_keys(spec: DeploymentSpec, server: str, key: str) -> Roster | None:
    """Read the roster of identity keys that a deployment, or else the environment, names.

    Nobody trusts a server for either: each node has its own authority, whose signature it checks.

    Parameters
    ----------
    spec : DeploymentSpec
        ``roster`` and ``authority``.
    server : str
        What the server is trusted with: "malicious" or "semi-honest".
    key : str
        Where that is written, for the message.

    Returns
    -------
    Roster or None
        None where the server is trusted to follow the protocol, and no roster is named.

    Raises
    ------
    ConfigError
        If one is needed and cannot be used.
    """
    if spec.roster is None and spec.authority is None and server != "malicious":
        return None
    roster = spec.roster or os.environ.get(ROSTER)
    authority = spec.authority or os.environ.get(AUTHORITY)
    if not roster or not authority:
        raise ConfigError(
            f'{key} = "{server}": deployment.roster and deployment.authority are needed, with keys '
            f"on the nodes, or {ROSTER} and {AUTHORITY} in the SuperLink's environment; or write "
            f'{key} = "semi-honest", and name it in each node\'s policy'
        )
    try:
        return read_roster(roster, authority)
    except ProvisioningError as error:
        written = spec.roster if str(error).startswith("roster") else spec.authority
        where = "deployment." if written else f"{ROSTER} and {AUTHORITY} of the environment: "
        raise ConfigError(f"{where}{error}") from None


def met_nodes(
    grid: Grid, spec: DeploymentSpec, roster: Roster | None
) -> tuple[NodeRegistry, Nodes]:
    """Wait for the nodes of a deployment.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of a deployment.
    spec : DeploymentSpec
        ``min_nodes``, and how long to wait.
    roster : Roster or None
        Where the clients have keys.

    Returns
    -------
    tuple of NodeRegistry and Nodes
        The registry changes the latter where a client comes back on another node.

    Raises
    ------
    ConfigError
        If somebody is still missing after ``start_timeout``.
    """
    log.info("waiting for nodes, %g s at most", spec.start_timeout)
    met = meet(grid, spec, roster)
    log.info("all %d nodes are there", len(met.by_index))
    registry = NodeRegistry(grid, spec, dict(met.by_index))
    return registry, Nodes(registry.by_index, met.roster)


def simulated_app_nodes(grid: Grid, least: int) -> Nodes:
    """Greet the nodes of Flower's simulation runtime on which somebody's app runs.

    All of them are there at once, and their keys follow from the run's id: no roster is read,
    whatever the settings name.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Carries messages that the app answers.
    least : int
        The fewest nodes that the run is for.

    Returns
    -------
    Nodes
        All clients of the run.

    Raises
    ------
    ConfigError
        If one does not answer as it should, or there are too few.
    """
    by_index = simulated_nodes(grid)
    if len(by_index) < least:
        raise ConfigError(
            f"the simulation has {len(by_index)} nodes, and the run is for {least} and more "
            "(deployment.min_nodes, or min_available_nodes of the strategy): raise num-supernodes "
            "of the federation, or ask for fewer"
        )
    return Nodes(by_index, simulated_roster(grid.run.run_id, len(by_index)))
