"""Compare a rehearsal's run with its nodes' policy before anything is started.

A rehearsal has the files of both sides. What a deployment finds round by round, in logs of nodes
that the server never reads, is said here at once.
"""

import contextlib
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from zerosum.client.flower.node_policy import checked_policy
from zerosum.client.task import TaskError, resolve_task
from zerosum.server.config import apply_overrides, parse_experiment, read_toml
from zerosum.server.planning.policy_fit import PlannedRun, refusals
from zerosum.server.planning.preflight import prepare
from zerosum.server.runs.run_folder import CONFIG
from zerosum.server.spec import Experiment
from zerosum.simulations.data.edited_modules import read_again
from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.rehearsal.rehearsal_folder import RehearsalFolder, RehearsedNodes

EXPERIMENT, POLICY = "experiment.toml", "policy.toml"
"""Files of an app."""


def check_policy(
    kept: RehearsalFolder, setting: RehearsedNodes, policy: str, settings: Sequence[str] | None
) -> None:
    """Refuse a rehearsal that its nodes' policy would decline, in whole or from some round on.

    Parameters
    ----------
    kept : RehearsalFolder
        Of a new run, or of one that goes on: then its configuration is in there.
    setting : RehearsedNodes
        The app and its nodes.
    policy : str
        Of every node, as TOML.
    settings : sequence of str or None
        Overrides, as ``--set`` takes them.

    Raises
    ------
    DeploymentError
        A line for each key that refuses something, with the cure; or why the task cannot be had.
    ConfigError
        If the experiment cannot be run with so many nodes, as the server would say.
    """
    app = Path(setting.app)
    file = kept.path / CONFIG if kept.begun else app / EXPERIMENT
    given = [f"secagg.server={setting.server}", *(settings or [])]
    asked = parse_experiment(apply_overrides(read_toml(file), given))
    checked = checked_policy(tomllib.loads(policy), "the nodes' policy")
    with contextlib.chdir(app):
        try:
            run = _planned(asked, setting.nodes)
        except TaskError as error:
            raise DeploymentError(str(error)) from None
    if found := refusals(run, checked):
        raise DeploymentError("\n".join(f"{app / POLICY}: {refusal}" for refusal in found))


def _planned(asked: Experiment, nodes: int) -> PlannedRun:
    """Return what the server will ask for, once the nodes are there."""
    from zerosum.client.training.initial_model import initial_vector  # imports torch
    from zerosum.client.training.seeded_task import public_records, seeded_resolution
    from zerosum.server.training.federated_metrics import with_metrics

    with seeded_resolution(asked.seed), read_again(asked.task):
        task = resolve_task(asked.task, asked.data, asked.model, asked.seed)
    dimension = len(initial_vector(task, asked.seed, asked.training.batchnorm))
    measured = with_metrics(asked, task, [partial(public_records, task, asked.seed)])
    prepared = prepare(measured, population=nodes, dimension=dimension)
    return PlannedRun(prepared, nodes, dimension, asked)
