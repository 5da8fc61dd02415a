"""The Flower ServerApp: the same experiment on Flower's deployment engine.

Loaded as ``zerosum.server.flower.server_app:app``. Run config keys: ``experiment`` (a TOML file in
the app's folder), ``overrides`` (space-separated ``key=value``), ``out`` (the run folder;
``runs/RUN_ID`` where it is empty), ``resume`` (the folder of a run to go on with; so is an ``out``
that holds a checkpoint). What is resumed has its own configuration: ``experiment`` is not read, and
overrides may only give it more rounds, another data path, or another way to meet nodes.
"""

import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from zerosum.client.files.operating_system import NOT_DEPLOYABLE
from zerosum.client.flower.simulated_node import simulated_roster
from zerosum.client.protocol.noise_source import Entropy, SeededEntropy, SystemEntropy
from zerosum.client.task import Task, population, resolve_task
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.seeded_task import public_records, seeded_resolution
from zerosum.client.training.trial_step import TrialStep, task_named, try_whole_set
from zerosum.secagg import Roster
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment, read_toml
from zerosum.server.flower.node_registry import simulated_nodes
from zerosum.server.flower.serving import (
    SIMULATED,
    find_file,
    is_simulation,
    keep_from_others,
    met_nodes,
    named_folder,
    overrides_of,
    page_words,
    read_deployment_keys,
    session_run_id,
    show_log,
    warn_of_packing,
)
from zerosum.server.loggers.installed import check_loggers
from zerosum.server.loggers.round_logs import RoundLogs
from zerosum.server.planning.preflight import check_device, prepare
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.reference_words import not_better
from zerosum.server.runs.results import Result, check_learnt
from zerosum.server.runs.resume import (
    check_same,
    completed_rounds,
    continued,
    has_checkpoint,
    held,
    warn_of_more_rounds,
)
from zerosum.server.runs.round_line import lies_in_words
from zerosum.server.runs.run_folder import PUBLISH, RunFolder
from zerosum.server.runs.run_outcome import (
    NODE_LOGS,
    UNTRAINED,
    charged_in_words,
    declined_in_words,
    epsilons_in_words,
)
from zerosum.server.runs.run_summary import DEPLOYED
from zerosum.server.spec import Experiment, FaultSpec
from zerosum.server.training.averaging import held_out
from zerosum.server.training.best_model import check_best
from zerosum.server.training.federated_metrics import with_metrics
from zerosum.server.training.loop import FederatedTraining
from zerosum.server.training.saturation_watch import cuts_in_words

log = logging.getLogger("zerosum.server")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the nodes, run or continue the experiment, leave a run folder.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of a deployment, or of Flower's simulation runtime.
    context : flwr.app.Context
        Of the run.
    """
    show_log()
    serve(grid, context)


def serve(grid: Grid, context: Context, entropy: Entropy | None = None) -> Result:
    """Run the experiment that a run config names, or go on with the one in its folder.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of a deployment, or of Flower's simulation runtime.
    context : flwr.app.Context
        Of the run.
    entropy : Entropy, optional
        The server's; by default the operating system's, or in a simulation the seed's.

    Returns
    -------
    Result
        As written in the run folder.

    Raises
    ------
    ConfigError
        If it cannot be run with these nodes, or continued.
    NothingLearntError
        If all rounds were abandoned, after everything was written.
    """
    path, earlier = run_folder(context)
    warn_of_packing(path)
    asked = _experiment(context) if earlier is None else continued(earlier, overrides_of(context))
    simulated = is_simulation(grid)
    _check_deployable(asked, simulated)
    check_loggers(asked)
    check_device(asked)
    if entropy is None:
        entropy = SeededEntropy(asked.seed) if simulated else SystemEntropy()
    with seeded_resolution(asked.seed):
        task = resolve_task(asked.task, asked.data, asked.model, asked.seed)
    attendance, nodes = (
        _simulated(grid, context)
        if simulated
        else met_nodes(grid, asked.deployment, read_keys(asked))
    )
    experiment = _prepared(asked, task, len(nodes))
    if not simulated:
        keep_from_others(path)
    folder = RunFolder.create(path, experiment) if earlier is None else earlier

    def on_round(record: RoundRecord) -> None:
        _log_round(record, experiment.rounds)
        if attendance is not None:
            attendance.welcome_back()

    with held(folder):
        if earlier is not None:
            check_same(earlier.experiment, experiment, earlier)
            dimension = _dimension(task, experiment)
            warn_of_more_rounds(earlier.experiment, experiment, len(nodes), dimension)
        logs = RoundLogs(
            experiment,
            folder,
            len(nodes),
            noise_from_seed=entropy.reproducible and not experiment.privacy.exact,
        )
        training = FederatedTraining(
            experiment,
            task,
            len(nodes),
            _coordinator(grid, context, nodes, experiment, entropy, simulated=simulated),
            entropy,
            folder,
            on_round=logs.after(on_round),
            engine=SIMULATED if simulated else DEPLOYED,
        )
        if earlier is not None:
            earlier.write_config(experiment)
            log.info("going on with %s", path)
        with _going_on_is_told(folder, experiment), logs:
            result = training.run()
    log.info("run folder: %s", result.folder.resolve())
    log.info("%s", page_words(result.folder.resolve()))
    if caution := not_better(result.summary):
        log.warning("%s", caution)
    if experiment.privacy.private:
        log.info(PUBLISH)
    check_learnt(result, NODE_LOGS)
    return result


@contextmanager
def _going_on_is_told(folder: RunFolder, experiment: Experiment) -> Iterator[None]:
    """Say, where something ends the rounds, what is kept and which command goes on."""
    try:
        yield
    except BaseException:  # of Flower's own exits as well
        log.error("%s", _left(folder, experiment))
        raise


def _left(folder: RunFolder, experiment: Experiment) -> str:
    """Return what ended rounds left, and the command that goes on."""
    try:
        done = completed_rounds(folder)
    except (ConfigError, OSError) as error:  # what ended the rounds is raised, not this
        return f"ended: what is kept in {folder.path.resolve()} cannot be read: {error}"
    if not done:
        return "ended before the first round was over: start anew, with another folder"
    words = shlex.quote(f'resume="{folder.path}"')
    return (
        f"ended: {done} of {experiment.rounds} rounds are over and kept in "
        f"{folder.path.resolve()}; go on with: flwr run . --run-config {words}"
    )


def _prepared(asked: Experiment, task: Task, count: int) -> Experiment:
    """Check an experiment against the nodes that are there, and resolve its noise."""
    wanted = population(task, asked.data) if asked.data.clients else count
    if wanted != count:
        raise ConfigError(
            f"data.clients = {wanted}, but {count} nodes said hello: set both to one number"
        )
    if asked.server.rule_examples is not None:
        held_out(public_records(task, asked.seed), asked.server, asked.seed)
    _take_trial_step(asked, task)
    check_best(asked, task)
    asked = with_metrics(asked, task, [partial(public_records, task, asked.seed)])
    return prepare(asked, population=count, dimension=_dimension(task, asked))


def _dimension(task: Task, experiment: Experiment) -> int:
    return len(initial_vector(task, experiment.seed, experiment.training.batchnorm))


def _take_trial_step(asked: Experiment, task: Task) -> None:
    """Refuse a task that takes no step of training on the server's own test data, if it has any.

    Its clients would send zero and noise, of which the server never learns the reason.
    """
    public = public_records(task, asked.seed)
    if public is None:
        return
    with task_named(asked.task, "its model or loss() fails on test_data()"):
        trial = TrialStep(task, asked.training, asked.privacy, seed=asked.seed)
        trial.take(public)
    try_whole_set(trial, asked.task, public, asked.evaluation.batch_size)


def _coordinator(
    grid: Grid,
    context: Context,
    nodes: Nodes,
    experiment: Experiment,
    entropy: Entropy,
    *,
    simulated: bool,
) -> Coordinator:
    return Coordinator(
        grid,
        nodes,
        experiment.secagg,
        run_id=session_run_id(context),
        entropy=entropy,
        timeouts=None if simulated else experiment.deployment,
        pipeline=experiment.deployment.pipeline and not simulated,
    )


def run_folder(context: Context) -> tuple[Path, RunFolder | None]:
    """Return where a run is written, and the run to go on with: one that has a checkpoint.

    Parameters
    ----------
    context : flwr.app.Context
        Whose run config names ``out`` and ``resume``.

    Returns
    -------
    tuple of Path and RunFolder or None
        The folder, and the run in it that has a checkpoint.

    Raises
    ------
    ConfigError
        If the folder to resume holds no run, or ``out`` is another one.
    """
    path, resume = named_folder(context)
    if resume or has_checkpoint(RunFolder(path)):
        return path, RunFolder.open(path)
    return path, None


def _check_deployable(experiment: Experiment, simulated: bool) -> None:
    if experiment.faults != FaultSpec():
        log.warning("[faults] are of zerosum run alone: here clients vanish by themselves")
    if experiment.baselines:
        raise ConfigError(
            "baselines = true is of zerosum run alone: they are trained on the clients' records, "
            "and a server has none; write baselines=false"
        )
    if not simulated and experiment.secagg.protocol != "pairwise":
        raise ConfigError(
            f'secagg.protocol = "{experiment.secagg.protocol}": a deployed client takes part in '
            '"pairwise" alone'
        )
    if not simulated:
        if NOT_DEPLOYABLE is not None:
            raise ConfigError(NOT_DEPLOYABLE)
        _check_openings(experiment)


def _check_openings(experiment: Experiment) -> None:
    """Refuse a run that is longer than the nodes' policies can be, where all are always asked."""
    rounds, every = experiment.rounds, experiment.evaluation.federated_every
    sessions = rounds + (rounds // every if every else 0)
    if experiment.sampling.kind == "everyone" and sessions > experiment.secagg.openings:
        raise ConfigError(
            f"secagg.openings = {experiment.secagg.openings}: {rounds} rounds ask each node "
            f"{sessions} times, evaluations included; write at least {sessions}, and as much in "
            "each node's policy as max_openings_per_run"
        )


def _simulated(grid: Grid, context: Context) -> tuple[None, Nodes]:
    by_index = simulated_nodes(grid)
    return None, Nodes(by_index, simulated_roster(context.run_id, len(by_index)))


def read_keys(experiment: Experiment) -> Roster | None:
    """Read the roster of identity keys.

    Parameters
    ----------
    experiment : Experiment
        Whose ``deployment`` names the roster.

    Returns
    -------
    Roster or None
        None where the server is trusted to follow the protocol.

    Raises
    ------
    ConfigError
        If one is needed and cannot be used.
    """
    return read_deployment_keys(experiment.deployment, experiment.secagg.server, "secagg.server")


def _experiment(context: Context) -> Experiment:
    name = str(context.run_config.get("experiment") or "experiment.toml")
    values = read_toml(find_file("experiment", name))
    if "extends" in values:  # shipped experiments are simulations' own, which no server needs
        raise ConfigError(
            f"extends = {values['extends']!r}: a deployed server reads whole experiments; replace "
            f"{name} by what `zerosum run {name} --dry-run` prints"
        )
    return parse_experiment(apply_overrides(values, overrides_of(context)))


def _measured(record: RoundRecord) -> str:
    """Return the first figure that a round has of the model, by its name, and of which model."""
    whose = f" {UNTRAINED}" if record.untrained else ""
    for key in ("test_accuracy", "test_loss", "federated_accuracy", "federated_loss"):
        if key in record.metrics:
            return f"{key.removeprefix('test_').replace('_', ' ')} {record.metrics[key]:.4g}{whose}"
    return "not tested"


def _log_round(record: RoundRecord, rounds: int) -> None:
    rate, cost = record.dropout_charged, charged_in_words(record)
    declined = declined_in_words(record.refused)
    log.info(
        "round %d/%d %s: %d of %d survived%s%s, %s, epsilon %s%s%s",
        record.round,
        rounds,
        record.status,
        record.survivors,
        record.cohort,
        f", {declined}" if declined else "",
        lies_in_words(record) + cuts_in_words(record),
        _measured(record),
        epsilons_in_words(record.epsilon) or "∞",
        f", {cost} for it" if cost else "",
        f", dropouts charged at up to {rate:g}" if rate else "",
    )
