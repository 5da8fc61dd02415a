"""From a plan to the terms that all of its queries are costed by."""

from zerosum.server.analytics.asks import QueryTerms
from zerosum.server.analytics.budget import Budget
from zerosum.server.analytics.query_plan import PlanFile, QueryPlan
from zerosum.server.privacy.assumptions import MASKED

SECRET_SEED = "simulated: noise follows from the seed, which must be secret"

TRUSTED_SUM = "simulated without masks: the sum is trusted to be all that anybody sees"


def terms_of(file: PlanFile, clients: int) -> QueryTerms:
    """Return what all queries of a plan have in common.

    Parameters
    ----------
    file : PlanFile
        Settings and domains.
    clients : int
        Of the roster.

    Returns
    -------
    QueryTerms
        Checked.

    Raises
    ------
    QueryError
        If they do not go together.
    """
    plan, spec = file.plan, file.plan.budget
    budget = Budget(
        observer=spec.observer,
        unit=spec.unit,
        adjacency=spec.adjacency,
        epsilon=spec.epsilon,
        delta=spec.delta,
        rule=spec.rule,
    )
    return QueryTerms(
        file.domains,
        budget,
        clients,
        cap=plan.cap,
        max_records=plan.max_records,
        records=plan.records,
        honest_fraction=plan.honest_fraction,
        seed=plan.seed,
        allow_large_delta=spec.allow_large_delta,
        assumed=_assumed(plan),
    )


def _assumed(plan: QueryPlan) -> tuple[str, ...]:
    """Return what must hold for every epsilon, beside what its observer sees."""
    if plan.deployment is not None:
        return (MASKED,)
    return SECRET_SEED, MASKED if plan.protocol == "pairwise" else TRUSTED_SUM
