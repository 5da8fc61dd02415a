"""The adverts of a session as a client reads them: by cohort position, and checked."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.cache import SessionCache
from zerosum.secagg.crypto.identity import Roster
from zerosum.secagg.crypto.keys import check_public_key
from zerosum.secagg.errors import BadSignature, DuplicateKey, MalformedMessage
from zerosum.secagg.messages.all_messages import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Adverts,
    advert_bytes,
    advert_statement,
    neighbours_bytes,
)
from zerosum.secagg.session import DIGEST_BYTES, Session
from zerosum.secagg.wire import from_bitmap, from_positions

_NEIGHBOURS_AT = 2 * KEY_BYTES + DIGEST_BYTES


@dataclass(frozen=True, eq=False)
class Directory:
    """The adverts of one message, by cohort position.

    Attributes
    ----------
    digest : bytes
        The message's.
    entries, channel_keys, mask_keys : dict
        Position to bytes, in ascending order.
    drawn : ndarray of int, shape (len(entries), degree) or (0, 0)
        Whom each of them drew as neighbours, where clients draw.
    """

    digest: bytes
    entries: dict[int, bytes]
    channel_keys: dict[int, bytes]
    mask_keys: dict[int, bytes]
    drawn: NDArray[np.intp]

    @classmethod
    def of(cls, message: Adverts, session: Session) -> "Directory":
        """Read the adverts and check all but their signatures.

        Parameters
        ----------
        message : Adverts
        session : Session

        Returns
        -------
        Directory

        Raises
        ------
        RemoteProtocolError
            ``BadKey`` or one of its kinds, if a key is not canonical, has low order, or occurs
            twice; ``MalformedMessage`` if neighbours are impossible.
        """
        raw, positions = message.entries, from_bitmap(message.present)
        size = advert_bytes(session)
        entries = {p: raw[i * size : (i + 1) * size] for i, p in enumerate(positions.tolist())}
        channel = {p: entry[:KEY_BYTES] for p, entry in entries.items()}
        mask = {p: entry[KEY_BYTES : 2 * KEY_BYTES] for p, entry in entries.items()}
        keys = [*channel.values(), *mask.values()]
        for key in keys:
            check_public_key(key)
        if len(set(keys)) != len(keys):
            raise DuplicateKey("two keys of the adverts are equal")
        drawn = _read_drawn(raw, positions, session)
        return cls(message.digest, entries, channel, mask, drawn)

    def naming(self, position: int) -> NDArray[np.intp]:
        """Return the clients in here that drew ``position`` as a neighbour; ascending."""
        positions: NDArray[np.intp] = np.array(list(self.entries), np.intp)
        naming: NDArray[np.intp] = positions[(self.drawn == position).any(axis=1)]
        return naming

    def check_signatures(
        self, session: Session, roster: Roster, cache: SessionCache | None = None
    ) -> None:
        """Verify that each advert is signed by the client that the roster names.

        Parameters
        ----------
        session : Session
        roster : Roster
        cache : SessionCache, optional
            Remembers broadcasts whose signatures are good, for parties of one process.

        Raises
        ------
        BadSignature
            If one is not.
        """
        if cache is not None and (self.digest,) in cache.verified:
            return
        digest, cohort = session.digest, session.cohort
        for p, entry in self.entries.items():
            statement = advert_statement(digest, cohort[p], entry[:-SIGNATURE_BYTES])
            if not roster.verifies(cohort[p], entry[-SIGNATURE_BYTES:], statement, cache):
                raise BadSignature(f"the advert of client {cohort[p]} is not signed by it")
        if cache is not None:
            cache.verified.add((self.digest,))


def _read_drawn(raw: bytes, positions: NDArray[np.intp], session: Session) -> NDArray[np.intp]:
    if not session.drawn:
        return np.empty((0, 0), np.intp)
    rows = np.frombuffer(raw, np.uint8).reshape(len(positions), -1)
    columns = slice(_NEIGHBOURS_AT, _NEIGHBOURS_AT + neighbours_bytes(session))
    drawn = from_positions(rows[:, columns].tobytes(), session.size).reshape(len(positions), -1)
    ordered = (drawn[:, 1:] > drawn[:, :-1]).all() and (drawn < session.size).all()
    if not ordered or (drawn == positions[:, None]).any():
        raise MalformedMessage("a client's neighbours are not a set of others in the cohort")
    return drawn
