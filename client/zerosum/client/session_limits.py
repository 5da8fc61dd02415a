"""Count the sessions that a node lets begin, and decide when a run is over for it.

Each session that begins draws an advert: keys and, on a sparse graph, neighbours. A server that
lies can begin sessions until a draw suits it, so that what fails with 2^-40 in one fails with as
many times 2^-40 in all. Their number is bounded here, in a run and in a day, and the client
divides 2^-40 by it (:attr:`~zerosum.client.spec.policy.ClientPolicy.security`).

The functions work on the counters of a store, a JSON object: ``runs`` holds, by the hash of a run,
when its last session began and how many did; ``day`` when the day began and how many sessions did
in it. Times are whole seconds of this node's clock.

A clock that goes back shortens nothing: a day or a run that began in the future begins now, with
what was counted in it. One that goes forward ends days and runs early, by which no session begins
twice, and a run whose time is wrongly up has to be started anew.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DAY = 86_400


class TooManyOpeningsError(Exception):
    """No session may begin: the policy's number of them has begun."""


@dataclass(frozen=True)
class Openings:
    """A policy's limits on sessions that begin.

    Parameters
    ----------
    per_run, per_day : int
        Most sessions that begin in a run, and in a day, which begins with its first.
    run_timeout : float
        Seconds without a new session after which a run is over.
    """

    per_run: int
    per_day: int
    run_timeout: float


def count_opening(counters: dict[str, Any], run: str, now: int) -> None:
    """Count one more session of a run, in its run and its day.

    Parameters
    ----------
    counters : dict
        The node's counts of sessions; changed in place.
    run : str
        Whose session begins.
    now : int
        Seconds since the epoch.
    """
    begun = counters["runs"].get(run, [now, 0])[1]
    counters["runs"][run] = [now, begun + 1]
    counters["day"][1] += 1


def turn_back(counters: dict[str, Any], now: int) -> None:
    """Begin the day that is due, and bring times that lie in the future back to now.

    Parameters
    ----------
    counters : dict
        The node's counts of sessions; changed in place.
    now : int
        Seconds since the epoch.
    """
    # Runs of an older version's record have no time: theirs begins to run now.
    for run in counters["high_water"]:
        last, begun = counters["runs"].get(run, [now, 0])
        counters["runs"][run] = [min(last, now), begun]
    began, begun = counters["day"] or [now, 0]
    over = now - began >= DAY
    counters["day"] = [now, 0] if over else [min(began, now), begun]


def check_openings(counters: Mapping[str, Any], run: str, most: Openings) -> None:
    """Refuse a session beyond what a policy allows.

    Parameters
    ----------
    counters : mapping
        The node's counts of sessions.
    run : str
        Whose session would begin.
    most : Openings
        The policy's limits.

    Raises
    ------
    TooManyOpeningsError
    """
    _, in_run = counters["runs"].get(run, [0, 0])
    began, in_day = counters["day"]
    if in_run >= most.per_run:
        raise TooManyOpeningsError(
            f"{in_run} sessions of this run began here, the policy's max_openings_per_run = "
            f"{most.per_run}: a longer run needs a larger number there, and secagg.openings of the "
            "experiment as large"
        )
    if in_day >= most.per_day:
        ends = datetime.datetime.fromtimestamp(began + DAY, datetime.UTC)
        raise TooManyOpeningsError(
            f"{in_day} sessions began here in a day, the policy's max_openings_per_day = "
            f"{most.per_day}: the next begins after {ends:%Y-%m-%d %H:%M} UTC"
        )


def expired_runs(counters: Mapping[str, Any], run: str, now: int, most: Openings) -> list[str]:
    """Find the runs, other than one that goes on, in which no session began for too long.

    Parameters
    ----------
    counters : mapping
        The node's counts of sessions.
    run : str
        The one that goes on.
    now : int
        Seconds since the epoch.
    most : Openings
        The policy's limits.

    Returns
    -------
    list of str
        Runs that are over here.
    """
    return [
        each
        for each, (last, _) in counters["runs"].items()
        if each != run and now - last > most.run_timeout
    ]


def are_openings(found: Mapping[str, Any]) -> bool:
    """Return whether the counters hold of openings what is written here, or nothing."""
    runs, day, closed = found.get("runs", {}), found.get("day"), found.get("closed", 0)
    return (
        isinstance(runs, dict)
        and all(_is_time_and_count(each) for each in runs.values())
        and (day is None or _is_time_and_count(day))
        and type(closed) is int
        and closed >= 0
    )


def _is_time_and_count(value: object) -> bool:
    """Return whether this is [seconds, sessions]."""
    return isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value)
