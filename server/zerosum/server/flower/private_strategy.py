"""Privacy around other people's Flower strategies.

One line of a ServerApp changes::

    strategy = PrivateStrategy(FedAvg(), clip=1.0, noise_multiplier=2.0)

and one of its ClientApp (:mod:`zerosum.client.flower.private_mod`). The strategy samples clients,
configures their training and steps the global model as ever; what it aggregates is one reply, whose
model is the mean of the clients', read from a sum that nobody could look into.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    MessageType,
    MetricRecord,
    RecordDict,
    UserConfig,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    Result,
    Strategy,
)

from zerosum.client.flower.app_request import TASK
from zerosum.client.flower.arrays import ArrayLayout, UnusableArraysError
from zerosum.client.flower.flower_internals import fused_config
from zerosum.client.protocol.noise_source import Entropy, SystemEntropy
from zerosum.client.protocol.protection import Protection
from zerosum.secagg.randomness import SystemRandomness
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.flower.app_grid import AppGrid, StrategyGrid
from zerosum.server.flower.app_records import integers_of, with_integers
from zerosum.server.flower.app_rounds import AppRounds, evaluation_privacy
from zerosum.server.flower.app_run import AppRun
from zerosum.server.flower.app_words import in_words
from zerosum.server.flower.argument_words import in_arguments, sections
from zerosum.server.flower.first_type import first_type
from zerosum.server.flower.hello_refusals import NoFunctionError
from zerosum.server.flower.metrics_trial import try_functions
from zerosum.server.flower.node_registry import meet
from zerosum.server.flower.serving import (
    ONE_PROCESS,
    is_simulation,
    keep_from_others,
    page_words,
    read_deployment_keys,
    simulated_app_nodes,
    warn_of_packing,
)
from zerosum.server.flower.strategy_checks import (
    check_accounted,
    check_averages,
    check_enough,
    check_metrics,
    nodes_asked,
    nodes_wanted,
    tell_noise,
    warn_of_statistics,
)
from zerosum.server.flower.strategy_words import Said, corrected_words, told_functions
from zerosum.server.flower.wrapping_strategy import WrappingStrategy
from zerosum.server.planning.preflight import prepare
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.protections import evaluation_protection, planned_protections
from zerosum.server.privacy.run_ledger import Figures, RunLedger
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.left_out import LeftOut
from zerosum.server.runs.resume import (
    check_same,
    claimed,
    held,
    rounds_before,
    warn_of_more_rounds,
)
from zerosum.server.runs.run_folder import CONFIG, LEDGER, PUBLISH, RunFolder
from zerosum.server.runs.run_outcome import NODE_LOGS, NothingLearntError
from zerosum.server.spec import Experiment

log = logging.getLogger("flwr")

Section = Mapping[str, Any]

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_RUN_ID_BYTES = 8


class PrivateStrategy(WrappingStrategy):
    """A Message-API strategy whose clients' updates are only ever seen as a noised sum.

    Sections have the keys of an experiment file (docs/configuration.md). Clients weigh the same,
    unless ``weighting = "examples"``, which needs ``privacy.model = "none"``: their numbers of
    examples are private too.

    Parameters
    ----------
    strategy : Strategy
        FedAvg, FedProx, FedAvgM, FedAdam, FedAdagrad, FedYogi, or one of your own that averages.
    clip, noise_multiplier, epsilon, delta : float, optional
        Short for the keys of ``privacy``.
    privacy, encoding, secagg, deployment : mapping
        Further keys of these sections. Without noise: ``privacy={"model": "none"}``.
    sampling : mapping, optional
        Draw cohorts by this section, so that epsilon_release is amplified. Default: the cohorts of
        ``strategy``, which are accounted as known to everybody.
    metrics : mapping of str to float, optional
        Metrics of the app's evaluation that are summed under the mask, and their largest
        magnitudes. Default: no federated evaluation.
    evaluation_noise : float, optional
        Noise multiplier of such a sum; required under privacy.
    weighting : {"uniform", "examples"}
        What a client's update counts for.
    max_examples : int
        Largest number of examples of a client under ``weighting = "examples"``.
    run_config : mapping, optional
        The run config that the nodes' apps are handed, to which their masks are bound. Default:
        that of the run's FAB with its overrides, which is ``context.run_config`` of the ServerApp.
    out : str or Path, optional
        Run folder, with ledger and records. Default: ``runs/RUN_ID``. A folder of the same
        settings is gone on with: its ledger counts, and its rounds are numbered on.
    averages : bool
        Whether a strategy's own code that reads replies does nothing but average: its one reply is
        the mean then. Default: such a strategy is refused where it reads one.

    Attributes of the strategy that this class does not have are read and set through it.

    Raises
    ------
    ConfigError
        If a setting is wrong, or the strategy does not average.
    """

    entropy: Entropy = SystemEntropy()

    def __init__(
        self,
        strategy: Strategy,
        *,
        clip: float | None = None,
        noise_multiplier: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        privacy: Section | None = None,
        encoding: Section | None = None,
        secagg: Section | None = None,
        deployment: Section | None = None,
        sampling: Section | None = None,
        metrics: Mapping[str, float] | None = None,
        evaluation_noise: float | None = None,
        weighting: str = "uniform",
        max_examples: int = 10_000,
        run_config: UserConfig | None = None,
        out: str | Path | None = None,
        averages: bool = False,
    ) -> None:
        super().__init__(strategy)
        check_averages(strategy)
        given = {
            "privacy": privacy,
            "encoding": encoding,
            "secagg": secagg,
            "deployment": deployment,
            "sampling": sampling,
        }
        own = sections("PrivateStrategy", given)
        self._averages = averages
        check_metrics(metrics)
        self._metrics = dict(metrics or {})
        self._out = out
        self._run_config = run_config
        self._own_cohorts = sampling is None
        self._waits = "train_timeout" not in own["deployment"]
        short = {
            "clip": clip,
            "noise_multiplier": noise_multiplier,
            "epsilon": epsilon,
            "delta": delta,
        }
        own["privacy"] |= {key: value for key, value in short.items() if value is not None}
        if sampling is None:
            own["sampling"] = {"kind": "everyone"}
        self._values: dict[str, Any] = {
            "name": f"PrivateStrategy of {type(strategy).__name__}",
            "task": TASK,
            **own,
            "training": {"weighting": weighting, "max_examples": max_examples},
            "evaluation": {
                "federated_every": int(bool(self._metrics)),
                "federated_noise_multiplier": evaluation_noise,
            },
        }
        self._figures: Figures = {}
        if self._metrics and evaluation_noise is None and own["privacy"].get("model") != "none":
            raise ConfigError(
                "evaluation_noise is required with metrics: a sum of clients' metrics is noised "
                "and accounted like any other; write its noise multiplier, as evaluation_noise=2.1"
            )
        with in_arguments():
            self._check(self._experiment(1))

    @property
    def epsilon(self) -> Figures:
        """The figures of the last run, by observer: each with value, delta and assumptions."""
        return self._figures

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        **further: Any,
    ) -> Result:
        """Wait for the nodes, then let the strategy run, with private sums for replies.

        Parameters
        ----------
        grid : flwr.serverapp.Grid
            Of a deployment.
        initial_arrays : flwr.app.ArrayRecord
            The first model.
        num_rounds : int
            Rounds of training.
        timeout : float
            Seconds that clients may train, unless ``deployment`` has a ``train_timeout``.
        train_config, evaluate_config : flwr.app.ConfigRecord, optional
            The strategy's, for apps.
        evaluate_fn : callable, optional
            Tests the model on the server.
        **further
            Whatever else the strategy's own ``start`` takes.

        Returns
        -------
        Result
            The strategy's own; arrays that were integers in ``initial_arrays`` are so in it.

        Raises
        ------
        ConfigError
            If nodes, model and settings do not fit together, or nothing would bound the loss of
            privacy.
        NothingLearntError
            If every round was abandoned, or its average zero, when all is written: its ``result``
            is the strategy's, with ``initial_arrays`` for the model where no round was completed.
            After three rounds that every client refused no other is played, and it has no metrics.
        """
        self._figures = {}
        path = Path(self._out or f"runs/{grid.run.run_id}")
        usual = {
            "num_rounds": num_rounds,
            "timeout": timeout,
            "train_config": train_config,
            "evaluate_config": evaluate_config,
            "evaluate_fn": evaluate_fn,
        }
        passed = _passed(self._strategy, usual) | further
        configs = train_config, evaluate_config
        if not is_simulation(grid):
            keep_from_others(path)
        with held(claimed(path)) as folder:
            with in_arguments():
                run = self._open(grid, folder, initial_arrays, num_rounds, timeout, configs)
            rounds = AppRounds(run, initial_arrays)
            ended: str | None = None
            around = StrategyGrid(grid, set(run.nodes.by_index.values()), rounds.answer)
            try:
                with self._told(run.experiment, lambda: rounds.summed):
                    result = self._strategy.start(around, initial_arrays, **passed)
            except NothingLearntError as early:
                result, ended = Result(), str(early)
            finally:
                self._figures = rounds.finish()
                log.info("PrivateStrategy, the whole run: %s", in_words(self._figures))
                log.info("PrivateStrategy, run folder: %s", run.folder.path.resolve())
                log.info("PrivateStrategy: %s", page_words(run.folder.path.resolve()))
                if run.experiment.privacy.private:
                    log.info("PrivateStrategy: %s", PUBLISH)
                if run.simulated:
                    log.warning("PrivateStrategy: %s", ONE_PROCESS)
            if not result.arrays:  # Flower's result is empty until a round was completed
                result.arrays = initial_arrays
            result.arrays = with_integers(result.arrays, integers_of(initial_arrays))
            if why := ended or rounds.nothing_learnt:
                said = f"{why}; the clients' reasons are in {NODE_LOGS}"
                raise NothingLearntError(f"{said}, the run folder is {path}", result)
            return result

    def summary(self) -> None:
        """Log the strategy's own summary."""
        with self._told(self._experiment(1)):
            self._strategy.summary()

    @contextmanager
    def _told(
        self, experiment: Experiment, summed: Callable[[], int] | None = None
    ) -> Iterator[None]:
        """Let the strategy speak for itself, but of what is no longer so."""
        said = Said(
            uniform=experiment.training.weighting == "uniform",
            drawn=not self._own_cohorts,
            summed=summed,
        )
        with told_functions(self._strategy), corrected_words(said):
            yield

    def _experiment(self, rounds: int) -> Experiment:
        # Now: a strategy may be changed after it was wrapped.
        deployment = {"min_nodes": nodes_wanted(self._strategy), **self._values["deployment"]}
        return parse_experiment({**self._values, "deployment": deployment, "rounds": rounds})

    def _check(self, experiment: Experiment) -> None:
        privacy, encoding = experiment.privacy, experiment.encoding
        if experiment.secagg.protocol != "pairwise":
            raise ConfigError(
                f'secagg.protocol = "{experiment.secagg.protocol}": a deployed client takes part '
                'in "pairwise" alone: write secagg.protocol=pairwise, or leave it out'
            )
        if privacy.by_example or privacy.clipping == "per-layer":
            raise ConfigError(
                f'privacy.unit = "{privacy.unit}", privacy.clipping = "{privacy.clipping}": an '
                'app\'s update is clipped as a whole: write privacy={"unit": "client", '
                '"clipping": "flat"}, or "adaptive"'
            )
        if privacy.noise_draw == "summed":
            raise ConfigError(
                'privacy.noise_draw = "summed" is for a trusted sum, and here each client draws '
                "its own noise: write privacy.noise_draw=per_client, or leave it out"
            )
        weighted = experiment.training.weighting == "examples"
        if weighted and (privacy.clip is not None or (encoding.range or 0.0) < 1.0):
            raise ConfigError(
                'weighting="examples" sends a weight of up to 1 beside the update: write '
                'privacy={"model": "none", "clip": "none"}, encoding={"range": 1.0}, or a larger '
                "range, and leave clip out"
            )
        if self._metrics and privacy.epsilon is not None:
            raise ConfigError(
                "epsilon is the target of a run without metrics: with them write the noise of "
                "either sum instead, as noise_multiplier=2.0, evaluation_noise=2.1"
            )

    def _open(
        self,
        grid: Grid,
        folder: RunFolder,
        initial: ArrayRecord,
        rounds: int,
        timeout: float,
        configs: tuple[ConfigRecord | None, ConfigRecord | None],
    ) -> AppRun:
        """Find out who is there, check everything against it, and open ledger and run folder."""
        earlier = folder.experiment if (folder.path / CONFIG).is_file() else None
        before = rounds_before(folder)
        experiment = self._experiment(max(before + rounds, earlier.rounds if earlier else 0))
        if self._waits:
            deployment = experiment.deployment.model_copy(update={"train_timeout": timeout})
            experiment = experiment.model_copy(update={"deployment": deployment})
        try:
            dimension = ArrayLayout.of(initial).length
        except UnusableArraysError as error:
            raise ConfigError(f"initial_arrays: {error}") from None
        self._try_functions(initial, private=experiment.privacy.private)
        app_grid = AppGrid(grid, MessageType.TRAIN)
        log.info("PrivateStrategy waits for its nodes; run folder: %s", folder.path.resolve())
        warn_of_packing(folder.path, log)
        simulated = is_simulation(grid)
        if simulated:
            log.warning("PrivateStrategy: %s", ONE_PROCESS)
        met = self._simulated if simulated else self._met
        try:
            nodes = met(app_grid, experiment)
        except NoFunctionError:
            # Flower asks the app for a function before any mod: hello goes by the strategy's type.
            kind = first_type(self._strategy, grid, initial, *configs)
            if kind is None or kind == MessageType.TRAIN:
                raise
            app_grid.carry(RecordDict(), kind)
            nodes = met(app_grid, experiment)
        check_enough(self._strategy, len(nodes), "the run has")
        experiment = prepare(experiment, population=len(nodes), dimension=dimension)
        check_accounted(experiment, len(nodes), dimension)
        asked = nodes_asked(self._strategy, len(nodes)) if self._own_cohorts else len(nodes)
        tell_noise(experiment, asked, dimension)
        warn_of_statistics(experiment, initial)
        if earlier is not None:
            check_same(earlier, experiment, folder)
            warn_of_more_rounds(earlier, experiment, len(nodes), dimension)
        if before and experiment.sampling.kind == "once":
            raise ConfigError(
                f'sampling.kind = "once": clients were asked already in {folder.path}, and another '
                "start would not know whom: give another out"
            )
        ledger = self._ledger(experiment, folder, len(nodes), dimension)
        folder.write_config(experiment)
        return AppRun(
            experiment=experiment,
            nodes=nodes,
            grid=app_grid,
            coordinator=self._coordinator(app_grid, nodes, experiment, simulated),
            ledger=ledger,
            folder=folder,
            entropy=self.entropy,
            weight_key=self._weight_key,
            left_out=LeftOut.of(folder, experiment.deployment, nodes.roster),
            rounds=rounds,
            guarded="" if self._averages else type(self._strategy).__name__,
            metrics=self._metrics,
            run_config=_run_config(grid) if self._run_config is None else self._run_config,
            own_cohorts=self._own_cohorts,
            simulated=simulated,
        )

    def _try_functions(self, initial: ArrayRecord, *, private: bool) -> None:
        """Refuse functions of metrics that no reply of a private sum will suit."""
        names: dict[str, Iterable[str]] = {}
        epsilons = [f"epsilon-{name}" for name in OBSERVERS] if private else []
        names["train"] = ["survivors", *epsilons]
        if self._metrics:
            deviations = [name + NOISE_STD for name in self._metrics] if private else []
            names["evaluate"] = [*self._metrics, *deviations]
        try_functions(self._strategy, initial, self._weight_key, names)

    @property
    def _weight_key(self) -> str:
        return str(getattr(self._strategy, "weighted_by_key", "num-examples"))

    def _met(self, grid: AppGrid, experiment: Experiment) -> Nodes:
        """Wait for the nodes of a deployment."""
        spec = experiment.deployment
        roster = read_deployment_keys(spec, experiment.secagg.server, "secagg.server")
        if roster is not None:
            check_enough(self._strategy, len(roster), "the roster has")
        return meet(grid, spec, roster)

    def _simulated(self, grid: AppGrid, experiment: Experiment) -> Nodes:
        """Greet the nodes that Flower's simulation runtime plays."""
        return simulated_app_nodes(grid, experiment.deployment.min_nodes)

    def _coordinator(
        self, grid: AppGrid, nodes: Nodes, experiment: Experiment, simulated: bool
    ) -> Coordinator:
        return Coordinator(
            grid,
            nodes,
            experiment.secagg,
            # A ServerApp that starts again opens other sessions than before.
            run_id=grid.run.run_id.to_bytes(_RUN_ID_BYTES, "little")
            + SystemRandomness().take(_RUN_ID_BYTES),
            entropy=self.entropy,
            # Simulated nodes take turns on a few actors: all answer in the end, by an error if need
            # be. They keep the lines of one session at a time, so nothing may ride along.
            timeouts=None if simulated else experiment.deployment,
            pipeline=experiment.deployment.pipeline and not simulated,
        )

    def _ledger(
        self, experiment: Experiment, folder: RunFolder, population: int, dimension: int
    ) -> RunLedger:
        return RunLedger(
            folder.path / LEDGER,
            privacy=experiment.privacy,
            secagg=experiment.secagg,
            sampling=experiment.sampling,
            population=population,
            protections=self._protections(experiment, population, dimension),
            seeded=False,
        )

    def _protections(
        self, experiment: Experiment, population: int, dimension: int
    ) -> dict[str, Protection]:
        protections = planned_protections(experiment, population, dimension)
        if self._metrics:
            _, encoding = evaluation_protection(experiment)
            protections["evaluate"] = Protection.build(
                evaluation_privacy(experiment, self._metrics),
                encoding,
                cohort=protections["train"].cohort,
                dimension=len(self._metrics) + 1,
                rotation_seed=bytes(32),
            )
        return protections


def _passed(strategy: Strategy, usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a strategy's ``start`` is given: one of somebody's own may take fewer."""
    # What differs from Flower's defaults was asked for, and is for the strategy to refuse.
    defaults = {key: each.default for key, each in signature(Strategy.start).parameters.items()}
    taken = signature(strategy.start).parameters
    everything = any(each.kind is Parameter.VAR_KEYWORD for each in taken.values())
    return {
        key: value
        for key, value in usual.items()
        if everything or key in taken or value != defaults[key]
    }


def _run_config(grid: Grid) -> UserConfig:
    """Return the run config that Flower hands every app of a run."""
    config = fused_config(grid.run)
    if config is None:
        raise ConfigError(
            "this version of Flower does not tell a strategy the run config, to which masks are "
            "bound: give it, PrivateStrategy(..., run_config=context.run_config)"
        )
    return config
