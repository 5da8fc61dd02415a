"""A client's own conditions for taking part in a session."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from zerosum.secagg.crypto.identity import Roster
from zerosum.secagg.errors import (
    BoundsRefused,
    CohortTooSmall,
    LocalProtocolError,
    MinSurvivorsTooLow,
    ProtocolRefused,
    ServerModeRefused,
    VectorTooLong,
)
from zerosum.secagg.graph.failure_bounds import SECURITY, as_written
from zerosum.secagg.graph.parameters import check
from zerosum.secagg.session import Protocol, Session
from zerosum.secagg.stages import ServerMode


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Conditions that a client checks before it advertises.

    Budgets and the order of sessions (:class:`~zerosum.secagg.messages.durable_record.HighWater`)
    are durable matters of the caller.

    Parameters
    ----------
    corruption : float
        Fraction of the roster that may collude with the server.
    dropout : float
        Fraction of a cohort that may drop out.
    server_modes : frozenset of ServerMode
        How far the server may be trusted; by default it is not.
    protocols : frozenset of Protocol
        What may hide the vectors; by default masks alone.
    smallest_cohort : int
        Fewest clients in a cohort, 2 or more: who is content with a pair says so.
    longest_vector : int, optional
        Most coordinates of a vector.
    min_survivors : float
        Fraction of the cohort that a session's ``min_survivors`` must at least be.
    accepts : callable, optional
        Tells whether the session's ``bounds`` (encoding and privacy) are acceptable; by default
        all are.
    security : float
        Most that secrecy or connectivity may fail with in one session. A server that lies begins
        sessions until one suits it: the caller bounds their number, and divides
        (:func:`~zerosum.secagg.graph.failure_bounds.security_of`).

    Raises
    ------
    LocalProtocolError
        If a value is outside what is said above, or no server mode is accepted.
    """

    corruption: float
    smallest_cohort: int
    dropout: float = 0.0
    server_modes: frozenset[ServerMode] = frozenset({ServerMode.MALICIOUS})
    protocols: frozenset[Protocol] = frozenset({Protocol.PAIRWISE})
    longest_vector: int | None = None
    min_survivors: float = 0.0
    accepts: Callable[[bytes], bool] | None = None
    security: float = SECURITY

    def __post_init__(self) -> None:
        object.__setattr__(self, "server_modes", frozenset(map(ServerMode, self.server_modes)))
        object.__setattr__(self, "protocols", frozenset(map(Protocol, self.protocols)))
        if not self.server_modes or not self.protocols:
            raise LocalProtocolError("a policy accepts at least one server mode and one protocol")
        for name in ("corruption", "dropout", "min_survivors"):
            if not 0 <= getattr(self, name) <= 1:
                raise LocalProtocolError(f"{name} = {getattr(self, name)} is not in 0 .. 1")
        if self.smallest_cohort < 2:
            raise LocalProtocolError(
                f"smallest_cohort = {self.smallest_cohort}: a sum of fewer than 2 has one in it"
            )
        if not 0 < self.security < 1:
            raise LocalProtocolError(f"security = {self.security} is not between 0 and 1")

    def admit(
        self, session: Session, roster: Roster | None = None, *, population: int | None = None
    ) -> None:
        """Refuse a session that this client does not take part in.

        Parameters
        ----------
        session : Session
        roster : Roster, optional
            Whose size counts for corruption.
        population : int, optional
            The roster's size where there is none at hand; by default the cohort is all there is.

        Raises
        ------
        PolicyRefusal
            ``ServerModeRefused``, ``ProtocolRefused``, ``CohortTooSmall``, ``VectorTooLong``,
            ``MinSurvivorsTooLow``, ``BoundsRefused`` or ``UnsafeGraph``.
        WrongRoster
            If the session is bound to another roster.
        """
        self.admit_protocol(session)
        if session.mode not in self.server_modes:
            accepted = " or ".join(sorted(self.server_modes))
            raise ServerModeRefused(
                f"the session is for a {session.mode} server; this client's policy takes {accepted}"
            )
        if roster is not None:
            roster.check_session(session)
        if session.size < self.smallest_cohort:
            raise CohortTooSmall(
                f"the cohort has {session.size} clients; this client's policy asks for "
                f"{self.smallest_cohort}"
            )
        if self.longest_vector is not None and session.vector_length > self.longest_vector:
            raise VectorTooLong(
                f"the vector has {session.vector_length} coordinates; this client's policy takes "
                f"{self.longest_vector} at most"
            )
        if session.min_survivors < math.ceil(as_written(self.min_survivors) * session.size):
            raise MinSurvivorsTooLow(
                f"min_survivors = {session.min_survivors} of {session.size}; this client's policy "
                f"asks for {self.min_survivors:.0%}"
            )
        if self.accepts is not None and not self.accepts(session.bounds):
            raise BoundsRefused(
                "this client's policy does not accept the session's encoding and privacy parameters"
            )
        self._check_graph(session, len(roster) if roster is not None else population)

    def admit_protocol(self, session: Session) -> None:
        """Refuse a session under a protocol that this client does not take part in.

        Parameters
        ----------
        session : Session
            From a message, or from a state that was kept of it.

        Raises
        ------
        ProtocolRefused
            If the policy does not accept its protocol.
        """
        if session.protocol not in self.protocols:
            accepted = " or ".join(sorted(self.protocols))
            raise ProtocolRefused(
                f"the session's protocol is {session.protocol}; this client's policy takes "
                f"{accepted}"
            )

    def _check_graph(self, session: Session, population: int | None) -> None:
        # A sparse session that opens with fewer survivors may lose more than the policy assumes.
        lost = 0 if session.complete else 1 - Fraction(session.min_survivors, session.size)
        _check(
            session.size,
            max(session.size, population or 0),
            session.degree,
            session.threshold,
            self.corruption,
            max(self.dropout, float(lost)),
            session.mode,
            self.security,
        )


@lru_cache(maxsize=256)
def _check(
    n: int,
    roster: int,
    degree: int,
    threshold: int,
    corruption: float,
    dropout: float,
    server: ServerMode,
    security: float,
) -> None:
    """Check once what the clients of one process, and the rounds of a run, ask again."""
    check(
        n,
        roster,
        degree,
        threshold,
        corruption=corruption,
        dropout=dropout,
        server=server,
        security=security,
    )
