"""Find the smallest noise multiplier that meets a target epsilon, for a planned run."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from scipy.stats import binom

from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.epsilons import all_figures
from zerosum.server.privacy.guarantees import ExampleUnit, Participation, Sampling, terms_of
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.protections import example_units, other_protections
from zerosum.server.privacy.release_sampling import sampling_terms
from zerosum.server.private_sum.thresholds import SMALLEST_COHORT, survivors_needed
from zerosum.server.sampling import group_sizes
from zerosum.server.spec import Experiment, SamplingSpec

SURPRISE = 1e-3
"""Probability that some client of a planned Poisson or fixed-size run takes part more often than
is planned for: a plan is kept by all but one run in a thousand."""

TYPICAL = math.log(2)
"""Expected number of clients above what half of all runs do not exceed: a Poisson count of this
mean is 0 with probability 1/2."""

_PRECISION = 1e-3
"""Relative precision of a multiplier and of its epsilon, where both can be had: three digits are
printed."""

_FINEST = 1e-9
"""Relative width of an interval that is not halved again. Epsilon may jump, as between two
accountants, and then no multiplier brings it to within :data:`_PRECISION` of a target."""

_LARGEST = 2.0**20
"""Largest multiplier that is tried: about the limit of ``privacy.noise_multiplier``."""

ExamplesOf = Callable[[PrivacySpec], Mapping[str, ExampleUnit]]
"""How each kind of sum draws examples, at the noise that is asked about."""


class UnreachableEpsilonError(ValueError):
    """No noise multiplier in reach meets the target."""


def planned_participations(
    sampling: SamplingSpec, population: int, rounds: int, surprise: float = SURPRISE
) -> int:
    """Plan how often the most unlucky client contributes.

    Exact for "everyone" and "once"; under "poisson" and "fixed" the number that, with probability
    1 - ``surprise``, no client of the population exceeds (binomial tail, union bound).

    Parameters
    ----------
    sampling : SamplingSpec
        How cohorts are drawn.
    population : int
        Clients.
    rounds : int
        Training rounds.
    surprise : float
        Probability that some client contributes more often.

    Returns
    -------
    int
        At most ``rounds``.
    """
    if sampling.kind == "everyone":
        return rounds
    if sampling.kind == "once":
        return 1
    cohort = sampling.cohort or population
    q = min(1.0, cohort / population)
    return min(rounds, int(binom.isf(surprise / population, rounds, q)) + 1)


def planned_cohort(
    sampling: SamplingSpec,
    population: int,
    rounds: int,
    groups: int = 1,
    surprise: float = SURPRISE,
) -> int:
    """Plan for the largest cohort, or group of one.

    Exact but under "poisson", where it is the size that, with probability 1 - ``surprise``, no
    session exceeds: a share of the noise is the smaller the larger the cohort.

    Parameters
    ----------
    sampling : SamplingSpec
        How cohorts are drawn.
    population : int
        Clients.
    rounds : int
        Training rounds.
    groups : int
        Sessions of a round.
    surprise : float
        Probability that some session is larger.

    Returns
    -------
    int
        Clients in a session.
    """
    if sampling.kind == "everyone" or sampling.cohort is None:
        return group_sizes(population, groups)[1]
    if sampling.kind != "poisson":
        return group_sizes(sampling.cohort, groups)[1]
    q = sampling.cohort / population / groups
    return min(population, int(binom.isf(surprise / (rounds * groups), population, q)) + 1)


def planned_smallest(
    sampling: SamplingSpec,
    population: int,
    rounds: int,
    groups: int = 1,
    surprise: float = SURPRISE,
) -> int:
    """Plan for the smallest cohort, or group of one.

    Exact but under "poisson", where it is the size that, with probability 1 - ``surprise``, no
    session falls below: a fellow client's own share is the larger a part the smaller the cohort.

    Parameters
    ----------
    sampling : SamplingSpec
        How cohorts are drawn.
    population : int
        Clients.
    rounds : int
        Training rounds.
    groups : int
        Sessions of a round.
    surprise : float
        Probability that some session is smaller.

    Returns
    -------
    int
        Clients in a session.
    """
    if sampling.kind == "everyone" or sampling.cohort is None:
        return group_sizes(population, groups)[0]
    if sampling.kind != "poisson":
        return group_sizes(sampling.cohort, groups)[0]
    q = sampling.cohort / population / groups
    smallest = int(binom.ppf(min(1.0, surprise / (rounds * groups)), population, q))
    return max(SMALLEST_COHORT, smallest)


@dataclass(frozen=True)
class Others:
    """Private sums of a planned run beside those of training: how each is protected, how many."""

    protection: Protection
    count: int


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A planned run without its noise.

    Attributes
    ----------
    sampling, secagg, encoding
        The other sections of the experiment.
    population, rounds, dimension : int
        Clients, training rounds, model parameters.
    others : mapping of str to Others
        By kind, the sums that are charged to the same ledger: evaluations, components.
    examples : callable
        From the privacy section, how each kind of sum draws examples: where those are the unit.
    surprise : float
        Expected number of clients, and of sessions, that exceed what is planned for.
    """

    sampling: SamplingSpec
    secagg: SecAggSpec
    encoding: EncodingSpec
    population: int
    rounds: int
    dimension: int
    others: Mapping[str, Others] = field(default_factory=dict)
    examples: ExamplesOf = lambda privacy: {}
    surprise: float = SURPRISE


def planned_figures(privacy: PrivacySpec, run: PlannedRun) -> dict[ObserverName, EpsilonBound]:
    """Evaluate the figures that a run is going to report.

    Parameters
    ----------
    privacy : PrivacySpec
        Private, with ``noise_multiplier`` given.
    run : PlannedRun
        All but its noise.

    Returns
    -------
    dict
        By observer.
    """
    return _figures(privacy, run, _how(privacy, run))


def find_noise_multiplier(privacy: PrivacySpec, run: PlannedRun) -> float:
    """Find the noise multiplier at which ``privacy.epsilon_for`` sees ``privacy.epsilon``.

    By bisection: epsilon falls with the noise.

    Parameters
    ----------
    privacy : PrivacySpec
        With ``epsilon`` given.
    run : PlannedRun
        All but its noise.

    Returns
    -------
    float
        At which epsilon is at or below the target, by at most 0.1 % of it and what 0.1 % more
        noise buys.

    Raises
    ------
    UnreachableEpsilonError
        If the figure is refused, or would need a multiplier above a million.
    ValueError
        If ``privacy.epsilon`` is not given.
    """
    target, observer = privacy.epsilon, privacy.epsilon_for
    if target is None:
        raise ValueError("privacy.epsilon is needed to find a noise multiplier")
    how = _how(privacy, run)

    def epsilon(z: float) -> float:
        spec = privacy.model_copy(update={"epsilon": None, "noise_multiplier": z})
        figure = _figures(spec, run, how, (observer,))[observer]
        if not figure.finite and figure.accountant is None:
            raise UnreachableEpsilonError(f"epsilon_{observer}: {figure.reason}")
        return figure.value

    return _smallest(epsilon, target, observer)


def _how(privacy: PrivacySpec, run: PlannedRun) -> Sampling:
    return sampling_terms(privacy, run.secagg, run.sampling, run.population)


def _smallest(epsilon: Callable[[float], float], target: float, observer: str) -> float:
    """Return the smallest noise that meets the target: epsilon falls with it.

    Between two multipliers epsilon is nearly a power of the multiplier, so that a straight line in
    logarithms finds the target in a few steps, each a composition of a whole run. Every third step
    halves the interval, whatever the line says.
    """
    low, above, high, reached = 0.0, math.inf, 1.0, epsilon(1.0)
    while reached > target:
        low, above, high = high, reached, 2 * high
        if high > _LARGEST:
            raise UnreachableEpsilonError(
                f"epsilon_{observer} = {target:g} needs a noise multiplier above {_LARGEST:g}: "
                "raise privacy.epsilon or privacy.delta, or lower rounds"
            )
        reached = epsilon(high)
    for step in count():
        if _close(low, high, reached, target):
            break
        middle = _between(low, above, high, reached, target, by_line=step % 3 < 2)
        value = epsilon(middle)
        if value > target:
            low, above = middle, value
        else:
            high, reached = middle, value
    return high


def _between(
    low: float, above: float, high: float, reached: float, target: float, *, by_line: bool
) -> float:
    """Return the next multiplier to try, inside the interval.

    The line aims at just below the target; where that is met, at the end that is left to move.
    """
    if not (by_line and low > 0 and math.isfinite(above) and 0 < reached < above):
        return (low + high) / 2
    if reached >= target * (1 - _PRECISION):
        return max((low + high) / 2, high * (1 - 0.9 * _PRECISION))
    slope = math.log(above / reached) / math.log(high / low)
    aim = target * (1 - 0.4 * _PRECISION)
    middle = high * (reached / aim) ** (1 / slope)
    return middle if low < middle < high else (low + high) / 2


def _close(low: float, high: float, reached: float, target: float) -> bool:
    """Return whether noise and epsilon are exact to 0.1 %, or as exact as floats make sense."""
    if high < 1e-6 or high <= low * (1 + _FINEST):
        return True
    return high <= low * (1 + _PRECISION) and reached >= target * (1 - _PRECISION)


def smallest_opened(privacy: PrivacySpec, run: PlannedRun) -> int:
    """Return the smallest planned session that can be opened: no other is charged.

    Parameters
    ----------
    privacy : PrivacySpec
    run : PlannedRun

    Returns
    -------
    int
        Clients.
    """
    planned = run.sampling, run.population, run.rounds, run.secagg.groups, run.surprise
    smallest, largest = planned_smallest(*planned), planned_cohort(*planned)
    needed = partial(survivors_needed, roster=run.population, secagg=run.secagg, privacy=privacy)
    return next((n for n in range(smallest, largest) if needed(n) <= n), largest)


def _figures(
    privacy: PrivacySpec,
    run: PlannedRun,
    how: Sampling,
    observers: Collection[ObserverName] = OBSERVERS,
) -> dict[ObserverName, EpsilonBound]:
    groups = run.secagg.groups
    planned = run.sampling, run.population, run.rounds, groups, run.surprise
    cohort, smallest = planned_cohort(*planned), smallest_opened(privacy, run)
    # The seed of a rotation changes no figure.
    protection = Protection.build(
        privacy,
        run.encoding,
        cohort=cohort,
        dimension=run.dimension,
        rotation_seed=bytes(32),
    )
    sums = {"train": (protection, run.rounds)}
    sums |= {kind: (other.protection, other.count) for kind, other in run.others.items()}
    protections = {kind: protection for kind, (protection, _) in sums.items()}
    examples = run.examples(privacy)
    guarantees = terms_of(protections, privacy, run.secagg, examples, population=run.population)
    if len(guarantees) < len(sums):
        raise ValueError('privacy.model = "none" has no figures')
    counts = [count for _, count in sums.values()]
    times = [planned_participations(run.sampling, run.population, n, run.surprise) for n in counts]
    tally = Participation(
        worst=(tuple((n, n * cohort) for n in times),),
        opened=tuple(counts),
        largest=(cohort,) * len(counts),
        smallest=(smallest,) * len(counts),
        draws=tuple(n * groups * (cohort + 1) for n in counts),
    )
    masked = run.secagg.protocol != "none"
    return all_figures(guarantees, tally, how, privacy.delta, masked=masked, observers=observers)


def planned_run(experiment: Experiment, population: int, dimension: int) -> PlannedRun:
    """Collect an experiment's plan, all but its noise.

    Parameters
    ----------
    experiment : Experiment
        Its noise may be missing.
    population : int
        Clients.
    dimension : int
        Trainable parameters.

    Returns
    -------
    PlannedRun
        The plan.
    """
    return PlannedRun(
        sampling=experiment.sampling,
        secagg=experiment.secagg,
        encoding=experiment.encoding,
        population=population,
        rounds=experiment.rounds,
        dimension=dimension,
        others=_others(experiment, population),
        examples=lambda privacy: example_units(experiment, privacy),
    )


def _others(experiment: Experiment, population: int) -> dict[str, Others]:
    """Return the sums beside those of training that a target epsilon has to leave room for."""
    every = experiment.evaluation.federated_every
    counts = {"evaluate": experiment.rounds // every if every else 0, "components": 1}
    return {
        kind: Others(protection, counts[kind])
        for kind, protection in other_protections(experiment, population).items()
        if counts[kind]
    }
