"""Check an experiment against its population and model, before anything starts."""

from zerosum.client.privacy.local_dp_noise import noise_inside
from zerosum.client.privacy.noise_range import NoiseOutOfRangeError
from zerosum.client.privacy.opendp import ExactUnavailableError, check_available
from zerosum.client.protocol.survivors import CohortTooSmallError
from zerosum.client.task import TaskError
from zerosum.client.training.devices import here, missing
from zerosum.client.training.optimizers import check_optimizer
from zerosum.client.training.precision import missing_bf16, refuse_bf16
from zerosum.secagg.graph.failure_bounds import share_of
from zerosum.server.config import ConfigError
from zerosum.server.privacy.calibration import find_noise_multiplier, planned_run
from zerosum.server.privacy.protections import planned_protections
from zerosum.server.privacy.run_ledger import check_delta
from zerosum.server.private_sum.thresholds import SMALLEST_COHORT, Thresholds
from zerosum.server.sampling import expected_cohort, group_sizes, largest_session
from zerosum.server.spec import Experiment
from zerosum.server.training import robust_rules
from zerosum.server.training.optimizers import ServerOptimizer

_LITTLE_NOISE = 0.01
"""Noise multiplier with which a ring is tried where no noise was found: if it still does not fit,
the vectors are too large, and the message names their keys instead of the epsilon."""


def prepare(experiment: Experiment, *, population: int, dimension: int) -> Experiment:
    """Check an experiment against its population and model, and resolve its noise.

    Parameters
    ----------
    experiment : Experiment
        As configured.
    population : int
        Number of clients.
    dimension : int
        Trainable parameters of the model.

    Returns
    -------
    Experiment
        With ``noise_multiplier`` in place of a target ``epsilon``.

    Raises
    ------
    ConfigError
        One line that names the key, its value, what is allowed and the cure.
    """
    _check_sampling(experiment, population)
    check_delta(experiment.privacy, experiment.privacy.examples or population)
    _check_threshold(experiment, population)
    _check_rule(experiment, population)
    if experiment.sampling.kind == "once" and experiment.evaluation.federated_every:
        raise ConfigError(
            f"evaluation.federated_every = {experiment.evaluation.federated_every}: under "
            'sampling.kind = "once" nobody is left to be asked again; write '
            "evaluation.federated_every=0"
        )
    if experiment.privacy.noise_draw == "summed" and experiment.secagg.protocol != "ideal":
        raise ConfigError(
            'privacy.noise_draw = "summed" needs secagg.protocol = "ideal": only a trusted sum can '
            "draw the noise of all clients at once"
        )
    if experiment.privacy.noise_draw == "summed" and experiment.privacy.model != "distributed":
        raise ConfigError(
            'privacy.noise_draw = "summed" needs privacy.model = "distributed": local noise is '
            "each client's own"
        )
    if experiment.privacy.exact:
        try:
            check_available(dimension)
        except ExactUnavailableError as error:
            raise ConfigError(str(error)) from None
    if experiment.privacy.epsilon is not None:
        experiment = _resolve_noise(experiment, population, dimension)
    _check_ring(experiment, population, dimension)
    ServerOptimizer.check(experiment.server)
    try:
        check_optimizer(experiment.training)
    except TaskError as error:
        raise ConfigError(str(error)) from None
    return experiment


def check_device(experiment: Experiment) -> None:
    """Raise ConfigError unless this machine has the device that an experiment names.

    Parameters
    ----------
    experiment : Experiment
        Names a device.

    Raises
    ------
    ConfigError
        If this machine has none of that name.
    """
    reason = missing(experiment.device)
    if reason is not None:
        devices = ", ".join(f'"{device}"' for device in here())
        raise ConfigError(
            f'device = "{experiment.device}": {reason}; write one of {devices}, or leave it'
        )


def check_precision(experiment: Experiment) -> None:
    """Raise ConfigError unless this machine can train in the precision that is asked for.

    Parameters
    ----------
    experiment : Experiment
        Whose clients train here.

    Raises
    ------
    ConfigError
        If this processor lacks native bfloat16 products.
    """
    try:
        refuse_bf16(experiment.training, missing_bf16(experiment.device))
    except TaskError as error:
        raise ConfigError(str(error)) from None


def _check_sampling(experiment: Experiment, population: int) -> None:
    if population < 2:
        raise ConfigError(
            f"data.clients = {population}: a sum needs at least 2 clients to hide among"
        )
    cohort, kind = experiment.sampling.cohort, experiment.sampling.kind
    if cohort is None:
        return
    if cohort > population:
        raise ConfigError(
            f"sampling.cohort = {cohort} exceeds the population of {population} clients: lower it, "
            "or raise data.clients"
        )
    if kind != "poisson" and cohort < 2:
        raise ConfigError(f"sampling.cohort = {cohort}: a sum needs at least 2 clients")
    if kind == "once" and experiment.rounds * cohort > population:
        raise ConfigError(
            f'rounds = {experiment.rounds}: with sampling.kind = "once" and sampling.cohort = '
            f"{cohort}, {population} clients last for {population // cohort} rounds"
        )


def _check_threshold(experiment: Experiment, population: int) -> None:
    secagg, whole = experiment.secagg, expected_cohort(experiment, population)
    sizes = group_sizes(whole, secagg.groups)
    if sizes[0] < SMALLEST_COHORT and secagg.groups > 1:
        raise ConfigError(
            f"secagg.groups = {secagg.groups} leaves fewer than {SMALLEST_COHORT} clients of a "
            f"cohort of {whole} in a group: at most {whole // SMALLEST_COHORT} are possible"
        )
    for size in sorted(set(sizes)):
        if size >= SMALLEST_COHORT:
            _check_session(experiment, population, size)


def _check_session(experiment: Experiment, population: int, size: int) -> None:
    """Refuse what a session of this size cannot have."""
    secagg, privacy = experiment.secagg, experiment.privacy
    degree = size - 1 if isinstance(secagg.degree, str) else min(secagg.degree, size - 1)
    if secagg.threshold != "auto" and secagg.threshold > degree:
        raise ConfigError(
            f"secagg.threshold = {secagg.threshold} exceeds the {degree} neighbours of a client "
            f'in a session of {size}: lower it or write "auto"'
        )
    try:
        limits = Thresholds.of(size, roster=population, secagg=secagg, privacy=privacy)
    except CohortTooSmallError as error:
        written = {
            "dropout": secagg.dropout,
            "corruption": secagg.corruption,
            "threshold": secagg.threshold,
            "degree": secagg.degree,
        }
        settings = ", ".join(f"secagg.{k} = {v}" for k, v in written.items() if v != "auto")
        raise ConfigError(
            f"{settings} and privacy.honest_fraction = {privacy.honest_fraction} cannot be had "
            f"together in a session of {size} clients: {error}"
        ) from None
    left = size - share_of(secagg.dropout, size, "secagg.dropout")
    if limits.min_survivors > left:
        raise ConfigError(
            f"privacy.honest_fraction = {privacy.honest_fraction} needs {limits.min_survivors} "
            f"survivors of a session of {size} ({limits.colluders} colluders among them), and "
            f"secagg.dropout = {secagg.dropout} leaves {left}: lower one of the two"
        )


def _check_rule(experiment: Experiment, population: int) -> None:
    """Refuse a rule for which even the largest cohort is too small."""
    spec, sampling = experiment.server, experiment.sampling
    needed = robust_rules.fewest(spec.rule, spec.rule_malicious, spec.rule_selected)
    most = population if sampling.kind == "poisson" else expected_cohort(experiment, population)
    if needed > most:
        raise ConfigError(
            f'server.rule = "{spec.rule}" with {spec.rule_settings} needs {needed} '
            f'contributions, and sampling.kind = "{sampling.kind}" gives a round {most} at most: '
            "assume fewer malicious ones, or raise sampling.cohort or data.clients"
        )


def _resolve_noise(experiment: Experiment, population: int, dimension: int) -> Experiment:
    run = planned_run(experiment, population, dimension)
    try:
        noise = find_noise_multiplier(experiment.privacy, run)
    except (ValueError, OverflowError) as error:
        # No noise is found where none fits: then the vectors are at fault, not the epsilon.
        _check_ring(_with_noise(experiment, _LITTLE_NOISE), population, dimension)
        raise ConfigError(
            f"privacy.epsilon = {experiment.privacy.epsilon} at privacy.delta = "
            f"{experiment.privacy.delta:g}: {error}"
        ) from None
    return _with_noise(experiment, noise)


def _with_noise(experiment: Experiment, noise: float) -> Experiment:
    update = {"noise_multiplier": noise, "epsilon": None}
    return experiment.model_copy(update={"privacy": experiment.privacy.model_copy(update=update)})


def _check_ring(experiment: Experiment, population: int, dimension: int) -> None:
    """Build the protection of the largest plausible session: what cannot be built is refused."""
    cohort = largest_session(experiment, population)
    try:
        planned_protections(experiment, population, dimension, cohort)
        if experiment.privacy.noise_inside:
            noise_inside(experiment.privacy, dimension)
    except NoiseOutOfRangeError as error:
        raise ConfigError(
            f"privacy.noise_multiplier = {experiment.privacy.noise_multiplier}, "
            f"{_sizes(experiment)}: {error}"
        ) from None
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{_sizes(experiment)}: {error}") from None


def _sizes(experiment: Experiment) -> str:
    """Name the keys that say how large integers of a vector are."""
    encoding, clip = experiment.encoding, experiment.privacy.clip
    keys = {
        "encoding.bits": encoding.bits,
        "encoding.ring_bits": encoding.ring_bits or "absent",
        "encoding.range": encoding.range or "absent",
        "privacy.clip": "none" if clip is None else clip,
    }
    return ", ".join(f"{key} = {value}" for key, value in keys.items())
