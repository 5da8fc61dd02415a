"""Bound a run that ended before its last planned round, by the rounds that it was planned for.

Whether a run ends after round 12 is read off the models of twelve rounds, and so it tells of data.
An epsilon of twelve rounds promises nothing for a run whose length was not known beforehand: it is
the reading of an odometer (Rogers et al., "Privacy odometers and filters", 2016). What was released
is a function of what all planned rounds would have released, and their epsilon holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from zerosum.client.spec import PrivacySpec
from zerosum.server.privacy.calibration import (
    PlannedRun,
    planned_cohort,
    planned_participations,
    smallest_opened,
)
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.guarantees import Participation, Worst
from zerosum.server.privacy.run_ledger import Figures, RunLedger


@dataclass(frozen=True)
class UnrunRounds:
    """Private sums that a run was planned for and did not ask for.

    Attributes
    ----------
    done, planned : int
        Rounds.
    sums : mapping of str to int
        Sums left, by kind.
    by_caller : bool
        Whether the program that runs it ended it, and not a rule on public metrics.
    """

    done: int
    planned: int
    sums: Mapping[str, int]
    by_caller: bool = False


def unrun_rounds(
    done: int, planned: int, evaluated_every: int, *, by_caller: bool = False
) -> UnrunRounds:
    """Count the private sums of the rounds that are left.

    Parameters
    ----------
    done, planned : int
        Rounds that are over; rounds of the whole run.
    evaluated_every : int
        Rounds between federated evaluations; 0 is never.
    by_caller : bool
        Whether the program that runs it ended it.

    Returns
    -------
    UnrunRounds
        Components are read before the first round, and so never left.
    """
    left = {"train": planned - done}
    if evaluated_every:
        left["evaluate"] = planned // evaluated_every - done // evaluated_every
    return UnrunRounds(done, planned, left, by_caller)


def whole_run_figures(
    ledger: RunLedger, privacy: PrivacySpec, run: PlannedRun, unrun: UnrunRounds
) -> Figures:
    """Compute the bounds of a run as if it had gone on to its last planned round.

    To what the ledger was charged come the sums that are left: every one as opened, with the
    cohorts that a plan reckons with, at the dropout that the ledger charges by now. Of a client's
    contributions in them as many count as a plan counts: all under ``everyone``, none but the one
    under ``once``, and under ``poisson`` and ``fixed`` a number that nearly every run keeps to, as
    an assumption of the figure says.

    Parameters
    ----------
    ledger : RunLedger
        What was charged.
    privacy : PrivacySpec
        With its noise resolved.
    run : PlannedRun
        The plan.
    unrun : UnrunRounds
        What is left of it.

    Returns
    -------
    mapping of str to EpsilonBound
        By observer, each at least the ledger's own figure.
    """
    if not privacy.private:
        return ledger.figures()
    tally = _with_unrun(ledger, privacy, run, unrun)
    spent = ledger.figures()
    whole = ledger.figures_of(tally)
    amplified = privacy.model != "local"
    # Two counts that each kind of sum may exceed, each with the plan's own probability.
    surprise = 2 * run.surprise * sum(left > 0 for left in unrun.sums.values())
    return {
        name: _noted(_larger(whole[name], spent[name]), run, unrun, surprise, amplified=amplified)
        for name in spent
    }


def _larger(whole: EpsilonBound, spent: EpsilonBound) -> EpsilonBound:
    """Return the bound of more sums; of two accountants' figures the one that promises less."""
    return whole if whole.value >= spent.value else replace(whole, value=spent.value)


def _noted(
    bound: EpsilonBound, run: PlannedRun, unrun: UnrunRounds, surprise: float, *, amplified: bool
) -> EpsilonBound:
    if not bound.finite:
        return bound
    notes = [
        f"counted as if all {unrun.planned} planned rounds were run: the run ended after "
        f"{unrun.done}, and when it ends tells of its models"
    ]
    if unrun.by_caller and bound.observer == "release":
        notes.append("its caller ended it for nothing that this observer does not see, as counts")
    # Poisson samples that an observer does not know are counted by the sums, not by clients.
    by_sums = bound.observer == "release" and run.sampling.kind == "poisson" and amplified
    if run.sampling.kind in ("poisson", "fixed") and not by_sums:
        notes.append(
            f"in all planned rounds no client would have been asked more than "
            f"{bound.participations} times, as all but {surprise:g} of runs keep to"
        )
    return replace(bound, assumptions=(*bound.assumptions, *notes))


def _with_unrun(
    ledger: RunLedger, privacy: PrivacySpec, run: PlannedRun, unrun: UnrunRounds
) -> Participation:
    """Add the sums that are left to what was asked for and opened."""
    tally, groups = ledger.tally(), run.secagg.groups
    planned = run.sampling, run.population, run.rounds, groups, run.surprise
    cohort, smallest = planned_cohort(*planned), smallest_opened(privacy, run)
    left = [unrun.sums.get(kind, 0) for kind in ledger.kinds]
    none: Worst = ((0, 0),) * len(left)
    worst = tally.worst or (none,)
    for at, kind in enumerate(ledger.kinds):
        if left[at]:
            asked = ledger.rounds_asked(kind)
            size = max(tally.largest[at], cohort)
            worst = _with_contributions(worst, at, asked, left[at], run, size)
    return Participation(
        worst=worst,
        opened=tuple(n + more for n, more in zip(tally.opened, left, strict=True)),
        largest=tuple(
            max(n, cohort) if more else n for n, more in zip(tally.largest, left, strict=True)
        ),
        smallest=tuple(
            min(n or smallest, smallest) if more else n
            for n, more in zip(tally.smallest, left, strict=True)
        ),
        draws=tuple(
            n + more * groups * (cohort + 1) for n, more in zip(tally.draws, left, strict=True)
        ),
    )


def _with_contributions(
    worst: tuple[Worst, ...], at: int, asked: int, left: int, run: PlannedRun, largest: int
) -> tuple[Worst, ...]:
    """Add one client's contributions in the rounds that are left, to each client of the front.

    At most as many as a plan of the rounds that are left counts, and together at most as many as a
    plan of all, each exceeded with the plan's probability. Where a client was asked more often than
    the latter already, this run is that one, and the former alone is counted on.

    Every session counts as the largest: who was asked less often so far, and so is not on the
    front, may end at as many contributions as the front, more of them in large sessions.
    """
    whole = planned_participations(run.sampling, run.population, asked + left, run.surprise)
    more = planned_participations(run.sampling, run.population, left, run.surprise)
    if max(client[at][0] for client in worst) > whole:
        whole = asked + left
    added = []
    for client in worst:
        count, _ = client[at]
        total = max(count, min(count + more, whole))
        added.append((*client[:at], (total, total * largest), *client[at + 1 :]))
    return tuple(added)
