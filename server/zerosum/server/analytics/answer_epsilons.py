"""What one answer costs against each observer, as typed bounds."""

import math
from collections.abc import Mapping

from zerosum.client.privacy.counts import counting_mechanism
from zerosum.client.queries.moves import moves
from zerosum.server.analytics.costs import Costed
from zerosum.server.privacy.accountant import Ledger
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import ObserverName

GUARANTEED = "charged is the guaranteed noise, whoever dropped out; all clients are asked"
TOPPED_UP = "every contributing client adds its share; the server tops up to the constant noise"
OWN_REPORT = "each client's report is random by itself"


def epsilons(costed: Costed) -> Mapping[str, EpsilonBound]:
    """Return the bounds of one answer, all of its sums together.

    Parameters
    ----------
    costed : Costed
        What was asked.

    Returns
    -------
    mapping of str to EpsilonBound
        By observer: "release", "sum" and "local". The last one is of a single share, under
        replace, as if masks were broken.
    """
    budget = costed.terms.budget
    if costed.privacy.noise_inside:
        return {
            name: _composed(costed, name, (OWN_REPORT,)) for name in ("release", "sum", "local")
        }
    return {
        "release": _composed(costed, "release", (TOPPED_UP,)),
        "sum": _composed(costed, "sum", (GUARANTEED,)),
        "local": _one_share(costed, budget.delta),
    }


def _composed(costed: Costed, observer: ObserverName, assumed: tuple[str, ...]) -> EpsilonBound:
    """Compose the receipts of an answer's sums."""
    budget = costed.terms.budget
    ledger = Ledger(budget.adjacency).compose(costed.event(observer), count=costed.sums)
    return EpsilonBound(
        value=ledger.epsilon(budget.delta),
        delta=budget.delta,
        slack=0.0,
        adjacency=budget.adjacency,
        unit=budget.unit,
        observer=observer,
        accountant="pld",
        participations=costed.sums,
        assumptions=(*assumed, *costed.terms.assumed),
    )


def _one_share(costed: Costed, delta: float) -> EpsilonBound:
    """Bound what one client's share hides by itself, for whoever sees it unmasked."""
    terms, privacy = costed.terms, costed.privacy
    blocks = costed.query.blocks(terms.schema, b"")
    replaced = moves(blocks, unit=privacy.unit, adjacency="replace", cap=terms.cap)
    mechanism = counting_mechanism(
        privacy.law,
        privacy.scale,
        terms.smallest_cohort,
        privacy.honest_fraction,
        replaced,
    )
    note = "each contribution carries one client's share of the noise"
    pure = mechanism.share_epsilon(replaced)
    if math.isfinite(pure):
        value, accountant = costed.sums * pure, "pure"
        note = f"{note}: {mechanism.share_caveat}"
    else:
        ledger = Ledger("replace").compose(mechanism.event(1), count=costed.sums)
        value, accountant = ledger.epsilon(delta), "pld"
    return EpsilonBound(
        value=value,
        delta=delta,
        slack=0.0,
        adjacency="replace",
        unit=privacy.unit,
        observer="local",
        accountant=accountant,
        participations=costed.sums,
        assumptions=(note, *terms.assumed),
    )
