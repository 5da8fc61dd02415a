"""What is refused, or warned of, before a strategy is run with private sums for replies."""

import logging
from collections.abc import Mapping
from math import ceil

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import (
    Bulyan,
    FedMedian,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from zerosum.client.spec.section import LEAST_SCALE, MOST_SCALE
from zerosum.server.config import ConfigError
from zerosum.server.flower.app_words import in_words
from zerosum.server.flower.wrapping_strategy import WrappingStrategy
from zerosum.server.planning.signal import round_noise, whole_run
from zerosum.server.privacy.calibration import planned_figures, planned_run
from zerosum.server.spec import Experiment

log = logging.getLogger("flwr")

_NO_AVERAGES = (
    Bulyan,
    FedMedian,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    Krum,
    MultiKrum,
    QFedAvg,
)
"""Strategies that look at single clients' replies, or at anything but float arrays."""


def check_averages(strategy: object) -> None:
    """Refuse a strategy that is known to look at single replies, or to add noise of its own.

    Parameters
    ----------
    strategy : object
        To be wrapped: what is no strategy of the Message API is refused.

    Raises
    ------
    ConfigError
        By the strategy's name, with those that average.
    """
    if isinstance(strategy, type):
        name = strategy.__name__
        raise ConfigError(f"PrivateStrategy({name}, ...): give an instance, {name}()")
    name = type(strategy).__name__
    if not isinstance(strategy, Strategy):
        raise ConfigError(
            f"PrivateStrategy({name}(...)): {name} of {type(strategy).__module__} is no strategy "
            "of flwr.serverapp.strategy, as private sums need: an app of the older API, with "
            "NumPyClient and flwr.server.strategy, is ported to the Message API first"
        )
    if isinstance(strategy, _NO_AVERAGES):
        raise ConfigError(
            f"PrivateStrategy({name}(...)): {name} looks at each client's reply, and a private sum "
            "shows none; use FedAvg, FedProx, FedAvgM, FedAdam, FedAdagrad or FedYogi"
        )
    if name.startswith("DifferentialPrivacy") or isinstance(strategy, WrappingStrategy):
        raise ConfigError(
            f"PrivateStrategy({name}(...)): clipping and noise are PrivateStrategy's; give it the "
            "strategy within"
        )


def nodes_wanted(strategy: Strategy) -> int:
    """Return the nodes that a strategy waits for, two at least."""
    return max(2, _wanted(strategy)[1])


def _wanted(strategy: Strategy) -> tuple[str, int]:
    """Return the attribute by which a strategy waits for most nodes, and their number.

    Flower's strategies wait for those that they sample, too, in what they do at all.
    """
    keys = ["min_available_nodes"]
    keys += [f"min_{of}_nodes" for of in ("train", "evaluate") if _does(strategy, of)]
    counts = {key: int(getattr(strategy, key, 0)) for key in keys}
    return max(counts.items(), key=lambda item: item[1])


def _does(strategy: Strategy, of: str) -> bool:
    return bool(getattr(strategy, f"fraction_{of}", 0.0))


def check_enough(strategy: Strategy, count: int, whose: str) -> None:
    """Refuse a strategy that would wait for more nodes than there will be, without an end.

    Parameters
    ----------
    strategy : Strategy
        What it samples at least counts, and ``min_available_nodes``.
    count : int
        Nodes that take part.
    whose : str
        Where they are counted, for the message.

    Raises
    ------
    ConfigError
        If they are fewer.
    """
    key, wanted = _wanted(strategy)
    if count < wanted:
        raise ConfigError(
            f"{key} = {wanted} of the strategy: {whose} {count} clients, and no others are asked; "
            "set it to their number or fewer"
        )


def check_metrics(metrics: object) -> None:
    """Refuse metrics of which no largest magnitude is said.

    Parameters
    ----------
    metrics : object
        As a ServerApp gave it.

    Raises
    ------
    ConfigError
        If it is no mapping to numbers above 0.
    """
    if metrics is None or (
        isinstance(metrics, Mapping) and all(_is_magnitude(bound) for bound in metrics.values())
    ):
        return
    raise ConfigError(
        f"metrics={metrics!r}: give each name its largest magnitude, above 0, as "
        'metrics={"eval_loss": 10.0, "eval_acc": 1.0}'
    )


def _is_magnitude(bound: object) -> bool:
    number = isinstance(bound, int | float) and not isinstance(bound, bool)
    return number and LEAST_SCALE <= float(bound) <= MOST_SCALE  # type: ignore[arg-type]


def nodes_asked(strategy: Strategy, population: int) -> int:
    """Return how many nodes a strategy asks to train, as Flower's strategies count them.

    Parameters
    ----------
    strategy : Strategy
        With ``fraction_train`` and ``min_train_nodes``; all nodes are asked where it has none.
    population : int
        Nodes that there are.

    Returns
    -------
    int
        From 2 to all of them.
    """
    if not _does(strategy, "train"):
        return population
    part = int(population * float(strategy.fraction_train))  # type: ignore[attr-defined]
    return max(2, min(population, max(part, int(getattr(strategy, "min_train_nodes", 0)))))


def check_accounted(experiment: Experiment, population: int, dimension: int) -> None:
    """Refuse noise that no accountant knows; say what the run is going to cost.

    Parameters
    ----------
    experiment : Experiment
        With its noise resolved.
    population, dimension : int
        Clients, and coordinates of the model.

    Raises
    ------
    ConfigError
        If no observer's epsilon is finite, though noise was asked for.
    """
    if not experiment.privacy.private:
        log.warning('PrivateStrategy: privacy.model = "none": masks, but no noise and no epsilon')
        return
    planned = planned_figures(experiment.privacy, planned_run(experiment, population, dimension))
    if not any(bound.finite for bound in planned.values()):
        raise ConfigError(
            f'privacy.model = "{experiment.privacy.model}": {in_words(planned)}; for no privacy '
            'write privacy={"model": "none"}'
        )
    log.info("PrivateStrategy plans for %d rounds: %s", experiment.rounds, in_words(planned))


def tell_noise(experiment: Experiment, asked: int, dimension: int) -> None:
    """Say how long the noise of a mean is beside the clip, and warn where it drowns the run.

    Parameters
    ----------
    experiment : Experiment
        With its noise resolved.
    asked, dimension : int
        Nodes that a round asks, or draws its cohort from; coordinates of the model.
    """
    if not experiment.privacy.private:
        return
    noise = round_noise(experiment, asked, dimension)
    log.info(
        "PrivateStrategy: the noise of a round's mean has norm %.3g, and a clipped mean at most "
        "the clip, %.3g",
        noise.norm_average,
        noise.clip,
    )
    whole = whole_run(noise, experiment.rounds, experiment.privacy)
    if whole.hopeless:
        nodes = experiment.sampling.cohort or asked
        # A mean's noise falls as one over the nodes; where each adds its own, as the root of it.
        falls = 2 if experiment.privacy.model == "local" else 1
        log.warning(
            "PrivateStrategy: %s: at this noise try about %d nodes a round in place of %d, or "
            'masks alone, privacy={"model": "none"} in place of noise',
            whole.why_hopeless,
            ceil(nodes / whole.margin**falls),
            nodes,
        )


def warn_of_statistics(experiment: Experiment, arrays: ArrayRecord) -> None:
    """Warn of running statistics, which noise spoils.

    Parameters
    ----------
    experiment : Experiment
        Of which only noise matters.
    arrays : flwr.app.ArrayRecord
        The first model.
    """
    kept = [name for name in arrays if name.endswith("running_var")]
    if kept and experiment.privacy.private:
        log.warning(
            "PrivateStrategy: %s and the like take up much of the clip, and noise can make them "
            "negative: use GroupNorm or LayerNorm, or track_running_stats=False",
            kept[0],
        )
