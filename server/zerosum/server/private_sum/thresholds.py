"""Least number of survivors of a cohort: one rule for sessions, the ledger and the checks."""

from dataclasses import dataclass
from functools import lru_cache

from zerosum.client.protocol.survivors import CohortTooSmallError, min_survivors
from zerosum.client.spec import PrivacySpec, SecAggSpec
from zerosum.client.spec.sum_privacy import CountPrivacy
from zerosum.secagg import GraphParameters, LocalProtocolError, RemoteProtocolError, ServerMode
from zerosum.secagg.graph.auto_degree import LARGE, auto_parameters
from zerosum.secagg.graph.failure_bounds import colluders_in, share_of
from zerosum.secagg.graph.parameters import check, graph_parameters, is_feasible

SMALLEST_COHORT = 2
"""A sum of fewer has nothing to hide in."""


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of a session of one cohort size.

    Attributes
    ----------
    colluders : int
        c: clients assumed to collude with the server.
    degree : int
        k: neighbours of each client; the cohort's size less one is the complete graph.
    threshold : int
        t: shares that recover a secret.
    min_survivors : int
        Survivors at which the session is opened: ceil(f n) + c under DP, and never fewer than
        t + 1, with which a survivor can still find t neighbours, or than leave two honest clients
        in the sum; where the graph is chosen by itself for fewer than 500, never fewer than on the
        complete one; on the sparse graph of a semi-honest server all but those whose dropping out
        leaves that graph connected.
    """

    colluders: int
    degree: int
    threshold: int
    min_survivors: int

    @classmethod
    def of(
        cls, cohort: int, *, roster: int, secagg: SecAggSpec, privacy: PrivacySpec | CountPrivacy
    ) -> "Thresholds":
        """Compute the thresholds of a cohort, or of one group of it.

        Parameters
        ----------
        cohort : int
            Clients of the session.
        roster : int
            Clients of the run, of whom a fraction colludes.
        secagg : SecAggSpec
            Server, graph, dropout and corruption.
        privacy : PrivacySpec, QueryPrivacy or SumPrivacy
            Says how many honest clients the noise needs.

        Returns
        -------
        Thresholds
            The smallest that are safe.

        Raises
        ------
        CohortTooSmallError
            If no number of survivors would do.
        """
        if cohort < SMALLEST_COHORT:
            raise CohortTooSmallError(f"a cohort of {cohort} has no sum to hide in")
        graph = _graph(cohort, roster, secagg)
        threshold = _threshold(graph, roster, secagg)
        needed = max(threshold + 1, graph.colluders + 2)
        if _chosen_for_its_cost(cohort, secagg):
            needed = max(needed, _graph(cohort, roster, _complete(secagg)).threshold + 1)
        if graph.server is ServerMode.SEMI_HONEST and not graph.complete:
            needed = max(needed, cohort - graph.dropped)
        if privacy.private:
            needed = max(
                needed, min_survivors(privacy.honest_part(cohort), cohort, graph.colluders)
            )
        if needed > cohort:
            raise CohortTooSmallError(
                f"{needed} survivors are needed of a cohort of {cohort} (threshold {threshold})"
            )
        return cls(graph.colluders, graph.degree, threshold, needed)


def survivors_needed(cohort: int, *, roster: int, secagg: SecAggSpec, privacy: PrivacySpec) -> int:
    """Compute ``min_survivors`` of a cohort; one more than the cohort where nothing is safe.

    Where some degree below the noise's own limit has a graph, no threshold is above that limit,
    and the graph itself, which takes twenty times as long to find, is not needed.

    Parameters
    ----------
    cohort : int
        Clients of the session.
    roster : int
        Clients of the run.
    secagg : SecAggSpec
        Server, graph, dropout and corruption.
    privacy : PrivacySpec, QueryPrivacy or SumPrivacy
        Says how many honest clients the noise needs.

    Returns
    -------
    int
        Clients.
    """
    if _chosen_for_its_cost(cohort, secagg):
        secagg = _complete(secagg)
    try:
        if privacy.private and secagg.degree == "auto" and cohort >= LARGE:
            mode = ServerMode(secagg.server)
            colluders = colluders_in(cohort, roster, secagg.corruption, mode, secagg.security)
            limit = min_survivors(privacy.honest_part(cohort), cohort, colluders)
            degree = min(limit - 1, cohort - 2)
            degree -= mode is ServerMode.SEMI_HONEST and degree * cohort % 2
            if (
                secagg.threshold == "auto"
                and limit >= colluders + 2
                and is_feasible(
                    cohort,
                    degree,
                    secagg.dropout,
                    secagg.corruption,
                    mode,
                    roster,
                    security=secagg.security,
                )
            ):
                left = cohort - share_of(secagg.dropout, cohort, "secagg.dropout")
                return limit if mode is ServerMode.MALICIOUS else max(limit, left)
        limits = Thresholds.of(cohort, roster=roster, secagg=secagg, privacy=privacy)
    except CohortTooSmallError:
        return cohort + 1
    return limits.min_survivors


def _chosen_for_its_cost(cohort: int, secagg: SecAggSpec) -> bool:
    """Return whether a graph may be sparse only because that is cheaper than the complete one.

    Then a session opens no sum that it would not open on the complete graph, whose threshold is
    two thirds of the cohort where a sparse one's is a fifth: what a server learns, and the share
    of opened rounds that the ledger charges for, do not follow from which graph is cheaper.
    """
    return secagg.degree == secagg.threshold == "auto" and cohort < LARGE


def _complete(secagg: SecAggSpec) -> SecAggSpec:
    return secagg.model_copy(update={"degree": "complete"})


@lru_cache(maxsize=4096)
def _graph(cohort: int, roster: int, secagg: SecAggSpec) -> GraphParameters:
    """Return the graph that the experiment asks for, at the smallest safe threshold."""
    degree = _degree(cohort, secagg)
    assumed = (cohort, secagg.dropout, secagg.corruption, secagg.server, roster)
    try:
        if secagg.degree == "auto" and (cohort >= LARGE or secagg.threshold == "auto"):
            return auto_parameters(*assumed, security=secagg.security)
        # A written threshold is one of the complete graph.
        return graph_parameters(
            *assumed, security=secagg.security, complete_below=cohort + 1, degree=degree
        )
    except LocalProtocolError as error:
        key = f"secagg.degree = {secagg.degree}: " if degree is not None else ""
        raise CohortTooSmallError(f"{key}{error}") from None


def _degree(cohort: int, secagg: SecAggSpec) -> int | None:
    """Return the configured degree, capped by the cohort; None for "auto".

    A regular graph with both its size and its degree odd does not exist: the server that permutes
    one takes a neighbour more.
    """
    if not isinstance(secagg.degree, int):
        return None
    odd = secagg.server == "semi-honest" and cohort * secagg.degree % 2
    return min(secagg.degree + odd, cohort - 1)


def _threshold(graph: GraphParameters, roster: int, secagg: SecAggSpec) -> int:
    """Return the configured threshold if it is safe, or else the graph's own."""
    if secagg.threshold == "auto":
        return graph.threshold
    if secagg.threshold > graph.largest_threshold:
        # Rounds would end for want of neighbours, which the ledger's share of opened rounds
        # does not know.
        raise CohortTooSmallError(
            f"secagg.threshold = {secagg.threshold}: dropouts leave a client with "
            f"{graph.largest_threshold} neighbours at times; write at most that, or less dropout"
        )
    try:
        check(
            graph.n,
            roster,
            graph.degree,
            secagg.threshold,
            corruption=secagg.corruption,
            dropout=secagg.dropout,
            server=graph.server,
            security=secagg.security,
        )
    except RemoteProtocolError as error:
        raise CohortTooSmallError(f"secagg.threshold = {secagg.threshold}: {error}") from None
    return secagg.threshold
