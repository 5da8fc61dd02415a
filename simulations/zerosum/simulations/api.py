"""Plan, run and resume simulations: the calls behind ``zerosum run``."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from zerosum.client.privacy.clipping import layer_clips
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.training_outcomes import quoted
from zerosum.client.task import ClientInfo, Task, population, resolve_task
from zerosum.client.training.devices import repeatable
from zerosum.client.training.examples import as_examples
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.seeded_task import client_records, public_records, seeded_resolution
from zerosum.client.training.threads import one_thread
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed
from zerosum.server.config import ConfigError
from zerosum.server.loggers.installed import check_loggers
from zerosum.server.loggers.round_logs import RoundLogs
from zerosum.server.planning.preflight import check_device, check_precision, prepare
from zerosum.server.privacy.protections import planned_protections
from zerosum.server.runs.records import OnRound
from zerosum.server.runs.results import Result as Result
from zerosum.server.runs.results import check_learnt
from zerosum.server.runs.resume import check_same, held, warn_of_more_rounds
from zerosum.server.runs.run_folder import CLIENT_LOG, SERVER_LOG, RunFolder
from zerosum.server.runs.run_folder import new_folder as new_folder
from zerosum.server.runs.run_outcome import NothingLearntError as NothingLearntError
from zerosum.server.spec import Experiment
from zerosum.server.training.averaging import held_out
from zerosum.server.training.best_model import check_best
from zerosum.server.training.federated_metrics import Sample, with_metrics
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations.config import DEFAULT_EXPERIMENT, attempt, load_experiment, with_task
from zerosum.simulations.data.edited_modules import read_again
from zerosum.simulations.data.task_records import (
    check_fingerprint,
    given_again,
    keep_fingerprint,
)
from zerosum.simulations.engine.baselines import Setting, check_baselines, with_baselines
from zerosum.simulations.engine.choice import started, workers_of
from zerosum.simulations.engine.one_at_a_time import alone
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment
from zerosum.simulations.engine.trial_client import take_trial_step
from zerosum.simulations.engine.work import Contributor
from zerosum.simulations.report.run_snapshot import write_sight
from zerosum.simulations.terminal.logs import logged
from zerosum.simulations.terminal.notebook import rounds_shown

MOST_COUNTED = 1000
"""Most clients whose records are counted one by one, where the task has no num_examples().

Counting loads every client's records: seconds for a thousand small ones, too long for a million."""

MOST_SAMPLED = 10
"""Most clients whose evaluation records are loaded to see which metrics a task has.

Some clients may hold none: ten in a row without any are taken to mean that nobody does."""

log = logging.getLogger("zerosum.simulations")


@dataclass(frozen=True)
class Plan:
    """An experiment that was checked and can be run.

    Parameters
    ----------
    experiment : Experiment
        With its noise resolved.
    task : Task
        Resolved.
    population, dimension : int
        Number of clients; trainable parameters.
    """

    experiment: Experiment
    task: Task
    population: int
    dimension: int


def plan(experiment: Experiment) -> Plan:
    """Resolve the task and check everything that can be checked before a run.

    Raises
    ------
    ConfigError, TaskError
        One line that names the key, its value, what is allowed and the cure.
    """
    # Seeded, whatever the task draws as it is made and tried out: it is that of every run.
    # One thread: torch's others do not survive a fork, and a worker of the user's would wait for
    # them for ever.
    with alone("plan"), one_thread(), seeded(derive_seed(experiment.seed, "plan")):
        return _planned(experiment)


def _planned(experiment: Experiment) -> Plan:
    check_loggers(experiment)
    check_device(experiment)
    check_precision(experiment)
    workers_of(experiment)
    with seeded_resolution(experiment.seed), read_again(experiment.task):
        task = resolve_task(experiment.task, experiment.data, experiment.model, experiment.seed)
    count = population(task, experiment.data)
    trainer = take_trial_step(task, count, experiment)
    dimension = trainer.layout.dimension
    _check_layers(trainer, experiment)
    _check_examples(task, count, experiment)
    if experiment.server.rule_examples is not None:
        held_out(public_records(task, experiment.seed), experiment.server, experiment.seed)
    check_best(experiment, task)
    check_baselines(experiment, task)
    experiment = with_metrics(experiment, task, _samples(task, count, experiment.seed))
    experiment = prepare(experiment, population=count, dimension=dimension)
    return Plan(experiment, task, count, dimension)


def _check_layers(trainer: LocalTrainer, experiment: Experiment) -> None:
    """Refuse clips of layers that do not fit the model, before every client refuses them."""
    privacy = experiment.privacy
    if privacy.clipping == "per-layer" and privacy.clip is not None:
        try:
            layer_clips(privacy.clip, len(trainer.layout.layers), privacy.clip_fractions)
        except ValueError as error:
            raise ConfigError(str(error)) from None


def _samples(task: Task, count: int, seed: int) -> Iterator[Sample]:
    """Yield loaders of the first clients' evaluation records, then of the public ones."""
    for index in range(min(count, MOST_SAMPLED)):
        client = ClientInfo(index=index, count=count, split="test", seed=seed)
        yield partial(client_records, task, client)
    yield partial(public_records, task, seed)


def _check_examples(task: Task, count: int, experiment: Experiment) -> None:
    """Refuse more training records than privacy.examples says.

    Delta was checked against the inverse of that public figure: with more records it is too large.
    """
    privacy = experiment.privacy
    if not privacy.private or not privacy.by_example or privacy.examples is None:
        return
    counted = count_examples(task, count, experiment.seed)
    if counted is None:
        log.warning(
            "privacy.examples = %d is taken on trust: the records of %d clients are not counted; "
            "give the task num_examples()", privacy.examples, count,
        )  # fmt: skip
    elif counted > privacy.examples:
        raise ConfigError(
            f"privacy.examples = {privacy.examples}: the clients of task = {experiment.task!r} "
            f"hold {counted} training records together; write {counted} or more, and a delta below "
            "its inverse"
        )


def count_examples(task: Task, count: int, seed: int) -> int | None:
    """Count the training records of all clients; None where that would take too long.

    Parameters
    ----------
    task : Task
    count : int
        Clients.
    seed : int
        Of the experiment.

    Returns
    -------
    int or None
        Records that cannot be read count as none.
    """
    known = getattr(task, "num_examples", None)
    if known is not None:
        return int(known(count))
    if count > MOST_COUNTED:
        return None
    counted = 0
    for index in range(count):
        try:
            data = client_records(task, ClientInfo(index=index, count=count, seed=seed))
            counted += len(as_examples(data, torch.float32, torch.device("cpu")))
        except Exception as error:  # such a client contributes no examples
            log.warning("the records of client %d cannot be counted: %s", index, quoted(error))
    return counted


def run(
    config: str | Path | Mapping[str, Any] | Experiment = DEFAULT_EXPERIMENT,
    *,
    task: Task | type[Task] | Callable[[], Task] | str | None = None,
    overrides: Iterable[str] = (),
    out: str | Path | None = None,
    on_round: OnRound = lambda record: None,
    report: bool = True,
) -> Result:
    """Simulate an experiment and write its run folder.

    Parameters
    ----------
    config : str, Path, mapping or Experiment
        A shipped experiment's name, a TOML file, plain values or a spec.
    task : Task, class, function or str, optional
        What is trained, in place of the experiment's own: a task, what makes one, or the name of
        either. Plain values may have an object under ``"task"``, too.
    overrides : iterable of str
        As ``--set`` takes them: ``"privacy.clip=1.0"``.
    out : str or Path, optional
        The run folder, new or empty. Default: a new one under ``runs/``.
    on_round : callable, optional
        Called after each round with its record, when all of the round is written. Where it returns
        True, the run ends with it: ``result.summary.ended_by`` is "caller", and under DP the
        epsilons are those of all planned rounds, for when a run ends tells of its models. Any other
        value changes nothing.
    report : bool
        Whether to draw ``report.html`` at the end.

    Returns
    -------
    Result
        Summary, rounds, model and the folder.

    Raises
    ------
    ConfigError, TaskError
        Before anything is written.
    BusyError
        If something else simulates in this process.
    NothingLearntError
        After everything is, if all rounds were abandoned or no client ever trained: its ``result``
        is what would have been returned, its message says why.
    """
    with alone("run", nests=True):
        planned = attempt(with_task(config, task), overrides, plan)
        path = Path(out) if out is not None else new_folder(planned.experiment.name)
        folder = RunFolder.create(path, planned.experiment)
        keep_fingerprint(folder, planned.experiment, planned.task, planned.population)
        with _resumable(folder), rounds_shown(planned.experiment.rounds, on_round) as shown:
            return simulate(planned, folder, shown, report=report)


def resume(
    path: str | Path,
    *,
    task: Task | type[Task] | Callable[[], Task] | None = None,
    overrides: Iterable[str] = (),
    config: str | Path | Mapping[str, Any] | Experiment | None = None,
    on_round: OnRound = lambda record: None,
    report: bool = True,
) -> Result:
    """Continue a run from its last checkpoint, to the result it would have had.

    Parameters
    ----------
    path : str or Path
        The run folder.
    task : Task, class or function, optional
        The task of a run that was given an object: nothing else finds it. One with other records,
        or a model of other shapes, is refused.
    overrides : iterable of str
        ``rounds`` and ``evaluation.patience`` may only grow; ``data.path``, ``engine``, ``workers``
        and ``log`` may change. A round that was begun is done again with the same noise, and so on
        the same records alone. A run that patience ended has come to its end, until that is
        raised; one that its caller ended goes on.
    config : optional
        The experiment, to check that it is the one in the folder.
    on_round, report
        As for :func:`run`.

    Returns
    -------
    Result
        As of :func:`run`, of all rounds.

    Raises
    ------
    ConfigError, TaskError
        If the folder holds no run, or another configuration's.
    BusyError
        If something else simulates in this process.
    NothingLearntError
        As :func:`run`, of all rounds, those before included.
    """
    with alone("resume", nests=True):
        folder = RunFolder.open(Path(path))
        before = folder.experiment
        source = before if config is None else config
        wanted = load_experiment(with_task(source, given_again(before, task)), overrides)
        planned = plan(wanted)
        check_same(before, planned.experiment, folder)
        check_fingerprint(folder, planned.experiment, planned.task, planned.population)
        warn_of_more_rounds(before, planned.experiment, planned.population, planned.dimension)
        with _resumable(folder), rounds_shown(planned.experiment.rounds, on_round) as shown:
            return simulate(planned, folder, shown, report=report)


@contextmanager
def _resumable(folder: RunFolder) -> Iterator[None]:
    """Say in an interrupt how the run goes on: in a notebook its traceback is all there is."""
    try:
        yield
    except KeyboardInterrupt as ended:
        ended.add_note(f"The run goes on with resume({str(folder.path)!r}).")
        raise


def simulate(
    planned: Plan,
    folder: RunFolder,
    on_round: OnRound = lambda record: None,
    *,
    report: bool = True,
) -> Result:
    """Run a plan in this process and draw the report.

    Parameters
    ----------
    planned : Plan
        From :func:`plan`.
    folder : RunFolder
        Where it is written.
    on_round : callable, optional
        As for :func:`run`.
    report : bool
        Whether to draw the report.

    Returns
    -------
    Result
        What the run produced.

    Raises
    ------
    NothingLearntError
        As :func:`run`.
    """
    experiment = planned.experiment
    entropy = SeededEntropy(experiment.seed)
    environment = SimulatedEnvironment.of(
        planned.task, entropy, experiment.secagg, planned.population
    )
    contributor = Contributor(
        planned.task, entropy, device=experiment.device, trainer=experiment.trainer
    )
    with (
        alone("run"),  # closes the door on what a callback might begin
        held(folder),
        one_thread(),
        logged("zerosum.client", folder.path / CLIENT_LOG),
        logged("zerosum.server", folder.path / SERVER_LOG),
        repeatable(experiment.device),
        started(experiment, contributor, capacity(planned)) as engine,
    ):
        coordinator = environment.coordinator(
            experiment, planned.population, _run_id(experiment), engine
        )
        logs = RoundLogs(
            experiment,
            folder,
            planned.population,
            noise_from_seed=entropy.reproducible and not experiment.privacy.exact,
        )
        training = FederatedTraining(
            experiment,
            planned.task,
            planned.population,
            coordinator,
            entropy,
            folder,
            logs.after(on_round),
            engine={"name": engine.name, "workers": engine.workers},
            take_tally=engine.take_tally,
        )
        if experiment != folder.experiment:
            folder.write_config(experiment)
        with logs:
            result = training.run()
        if experiment.baselines:
            rounds, count = len(result.rounds), planned.population
            setting = Setting(planned.task, experiment, count, rounds, training.components)
            result = with_baselines(result, setting, folder)
        if report:
            from zerosum.simulations.report import write_report  # which imports matplotlib

            write_sight(folder, training, planned.task)
            write_report(folder)
    reasons = folder.path / CLIENT_LOG
    check_learnt(result, str(reasons) if reasons.exists() else None)
    return result


def capacity(planned: Plan) -> tuple[int, int]:
    """Return the entries of a request's model and the length of the longest encoded vector."""
    experiment = planned.experiment
    protections = planned_protections(experiment, planned.population, planned.dimension)
    longest = max(protection.length for protection in protections.values())
    return experiment.model.public + planned.dimension, longest


def _run_id(experiment: Experiment) -> bytes:
    """Derive the run id from the configuration: equal runs open equal sessions."""
    update = {"rounds": 1, "engine": "auto", "workers": "auto", "log": [], "baselines": False}
    update |= {"evaluation": experiment.evaluation.without_best}  # which changes no round
    same = experiment.model_copy(update=update)
    return hashlib.sha256(b"zerosum/1 simulated run\0" + same.canonical()).digest()[:16]
