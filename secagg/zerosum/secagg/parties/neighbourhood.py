"""The rules that one client holds the server's sets of clients to, around itself."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.cache import SessionCache
from zerosum.secagg.crypto.identity import Roster
from zerosum.secagg.errors import (
    AdvertMismatch,
    BadSurvivorSet,
    MalformedMessage,
    TooFewSignatures,
)
from zerosum.secagg.graph.graphs import Positions
from zerosum.secagg.messages.all_messages import (
    SEALED_BYTES,
    SIGNATURE_BYTES,
    ContributeRequest,
    UnmaskRequest,
)
from zerosum.secagg.parties.directory import Directory
from zerosum.secagg.session import Session
from zerosum.secagg.wire import to_mask


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Share and mask neighbours of one client, among the adverts it was shown.

    Attributes
    ----------
    session : Session
    position : int
        The client's place in the cohort.
    named : ndarray of int
        N(u), the out-edges, whether they advertised or not; ascending, as all of these.
    holders : ndarray of int
        Those of N(u) that advertised: they get shares.
    naming : ndarray of int
        Those that named the client: they give it shares.
    masking : ndarray of int
        M(u): all that advertised and share in either direction.
    """

    session: Session
    position: int
    named: Positions
    holders: Positions
    naming: Positions
    masking: Positions

    @classmethod
    def of(
        cls, session: Session, position: int, named: Positions, directory: Directory
    ) -> "Neighbourhood":
        """Find the neighbours among those that advertised.

        However many clients drew this one, it takes part. No bound on secrecy or connectivity
        counts in-edges: each client's own secrets lie with N(u), which it drew itself, and a mask
        shared with a colluder takes nothing away. A client that refused where many drew it could
        be left out of any sum by a few colluders who draw the same victims, as 500 of 10,000 could
        do to 186 of 220; at most c of them add work here, never more than the complete graph's.

        Parameters
        ----------
        session : Session
        position : int
            The client's own.
        named : ndarray of int, ascending
            N(u).
        directory : Directory
            The adverts that the client was shown.

        Returns
        -------
        Neighbourhood

        Raises
        ------
        BadSurvivorSet
            If fewer of N(u) advertised than the threshold.
        AdvertMismatch
            If an advert is there of a client that is no neighbour.
        """
        advertised = np.zeros(session.size, bool)
        advertised[list(directory.entries)] = True
        holders = named[advertised[named]]
        naming = directory.naming(position) if session.drawn else holders
        if len(holders) < session.threshold:
            raise BadSurvivorSet("fewer neighbours advertised than the threshold")
        masking = np.union1d(holders, naming) if session.drawn else holders
        if len(masking) + 1 != len(directory.entries):
            raise AdvertMismatch("the adverts hold one of a client that is no neighbour")
        return cls(session, position, named, holders, naming, masking)

    def check_sharers(self, request: ContributeRequest) -> None:
        """Check U2 and that a share of every dealer in it is there.

        Parameters
        ----------
        request : ContributeRequest

        Raises
        ------
        RemoteProtocolError
            ``BadSurvivorSet``, or ``MalformedMessage`` if a share is missing or too many.
        """
        sharers = to_mask(request.sharers, self.session.size)
        if not sharers[self.position]:
            raise BadSurvivorSet("U2 does not hold this client")
        count = np.count_nonzero(sharers[self.holders])
        if count != np.count_nonzero(sharers[self.named]):
            raise BadSurvivorSet("U2 holds a client that did not advertise")
        if count < self.session.threshold:
            raise BadSurvivorSet("U2 holds fewer neighbours than the threshold")
        if len(request.sealed) != SEALED_BYTES * np.count_nonzero(sharers[self.naming]):
            raise MalformedMessage("there is not one sealed share of each dealer in U2")

    def check_survivors(self, survivors: bytes, sharers: bytes) -> NDArray[np.bool_]:
        """Check U3 against U2.

        Parameters
        ----------
        survivors, sharers : bytes
            U3 and U2, bitmaps in cohort order.

        Returns
        -------
        ndarray of bool, shape (cohort size,)
            U3 by position.

        Raises
        ------
        BadSurvivorSet
            If U3 lacks this client, holds one that is not in U2 around it, or is too small.
        """
        session = self.session
        alive, before = to_mask(survivors, session.size), to_mask(sharers, session.size)
        if not alive[self.position]:
            raise BadSurvivorSet("U3 does not hold this client")
        around = np.concatenate([self.named, self.masking])
        if (alive[around] & ~before[around]).any():
            raise BadSurvivorSet("U3 holds a client that is not in U2")
        if np.count_nonzero(alive[self.named]) < session.threshold:
            raise BadSurvivorSet("U3 holds fewer neighbours than the threshold")
        if np.count_nonzero(alive) < session.min_survivors:
            raise BadSurvivorSet("U3 holds fewer clients than min_survivors")
        return alive

    def check_signatures(
        self, request: UnmaskRequest, statement: bytes, roster: Roster, cache: SessionCache | None
    ) -> None:
        """Check that enough neighbours in U3 signed it; one's own signature does not count.

        Parameters
        ----------
        request : UnmaskRequest
            U3, signers and signatures.
        statement : bytes
            What they signed.
        roster : Roster
        cache : SessionCache or None
            Remembers good signatures, for parties of one process.

        Raises
        ------
        TooFewSignatures
            If fewer than the threshold did.
        """
        size, cohort = self.session.size, self.session.cohort
        counted = np.zeros(size, bool)
        counted[self.named] = to_mask(request.survivors, size)[self.named]
        signers = np.flatnonzero(to_mask(request.signers, size))
        good = 0
        for place in np.flatnonzero(counted[signers]).tolist():
            signature = request.signatures[SIGNATURE_BYTES * place : SIGNATURE_BYTES * (place + 1)]
            good += roster.verifies(cohort[signers[place]], signature, statement, cache)
            if good == self.session.threshold:
                return
        raise TooFewSignatures(f"{good} neighbours signed U3, and {self.session.threshold} have to")
