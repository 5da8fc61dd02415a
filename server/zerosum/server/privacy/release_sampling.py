"""Derive amplification and abandonment, on which epsilon_release alone depends."""

from functools import partial

from zerosum.client.spec import PrivacySpec, SecAggSpec
from zerosum.server.privacy.abandonment import OpeningRule, largest_opened_only_because_of_one
from zerosum.server.privacy.guarantees import Sampling
from zerosum.server.private_sum.thresholds import survivors_needed
from zerosum.server.spec import SamplingSpec


def sampling_terms(
    privacy: PrivacySpec,
    secagg: SecAggSpec,
    sampling: SamplingSpec,
    population: int,
    *,
    observed: float | None = None,
) -> Sampling:
    """Compute what sampling and abandonment contribute to epsilon_release.

    Abandonment is charged at the worst dropout rate up to the assumed one, or up to ``observed``.

    With G groups, each a Poisson sample at q/G, the probability that a client is in the cohort
    and its group opened only because of it, given that the round was opened, is at most G times
    that of one group given that this one was opened. A group that fails is not visible in a
    release, whose noise is the same, so that no more than this changes.

    Parameters
    ----------
    privacy : PrivacySpec
        Whether there is noise, and the fraction of shares that it is guaranteed by.
    secagg : SecAggSpec
        Groups, thresholds, and the dropout that is assumed.
    sampling : SamplingSpec
        How cohorts are drawn.
    population : int
        Clients in the roster.
    observed : float, optional
        The dropout rate that a run's own dropouts call for, in place of the assumed one.

    Returns
    -------
    Sampling
        Without noise, or where cohorts are known, nothing amplifies.

    Raises
    ------
    ValueError
        If the cohort is missing or above the population.
    """
    if sampling.kind != "poisson":
        return Sampling(sampling.kind, 1.0, 0.0, population, sampling.cohort or population)
    if sampling.cohort is None or sampling.cohort > population:
        raise ValueError(f"sampling.cohort = {sampling.cohort} of a population of {population}")
    q = sampling.cohort / population
    if not privacy.private:
        return Sampling("poisson", q, 0.0)

    needed = partial(survivors_needed, roster=population, secagg=secagg, privacy=privacy)
    groups = secagg.groups
    dropout = secagg.dropout if observed is None else observed
    rule = OpeningRule(population, q / groups, dropout, needed)
    p = min(1.0, groups * largest_opened_only_because_of_one(rule))
    return Sampling("poisson", q, p, dropout=dropout, observed=observed is not None)
