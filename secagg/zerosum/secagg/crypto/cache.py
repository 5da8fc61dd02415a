"""A cache of agreed keys, signatures and net masks for parties of one process.

The cache holds secrets of many clients side by side: it is for simulations, where one process
plays them all. With it and without, every message has the same bits.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray


class MaskKey(Protocol):
    """The private mask key of a party that lives here: all that is asked of it."""

    public: bytes

    def agree_all(self, peers: Sequence[bytes]) -> list[bytes]:
        """Return the keys extracted from the agreements with peers' public keys."""


class SessionCache:
    """The part of one session.

    Attributes
    ----------
    agreed : dict
        (lower public key || higher public key) to the key extracted from their agreement.
    maskers : dict
        Cohort position to the mask keys of a party that lives here.
    views : dict
        Cohort position to directory and neighbourhood of a party that lives here.
    netted : tuple of bytes, or None
        Request and U2 for which net masks were made, all at once.
    nets : dict
        Cohort position to a party's view and its net mask, until the party takes it or contribute
        is closed.
    envelopes : dict
        (extracted key, sender || recipient, sealed) to what was sealed.
    public_keys : dict
        Public bytes to key object.
    broadcasts : dict
        Digest of a broadcast message to what was decoded and checked of it.
    verified : set
        What was found to be well signed: (identity key, signature, message), and the digests of
        broadcasts of which every signature is good.
    """

    def __init__(self) -> None:
        self.agreed: dict[bytes, bytes] = {}
        self.maskers: dict[int, MaskKey] = {}
        self.views: dict[int, Any] = {}
        self.netted: tuple[bytes, bytes] | None = None
        self.nets: dict[int, tuple[Any, NDArray[Any]]] = {}
        self.envelopes: dict[tuple[bytes, bytes, bytes], bytes] = {}
        self.public_keys: dict[bytes, X25519PublicKey] = {}
        self.broadcasts: dict[bytes, Any] = {}
        self.verified: set[tuple[bytes, ...]] = set()

    def end_contribute(self) -> None:
        """Forget the masks that nobody took: nobody will."""
        self.nets.clear()


class SharedCache:
    """Agreed keys, good signatures and decoded broadcasts of the latest few sessions.

    Parameters
    ----------
    sessions : int
        How many sessions to keep; the one used longest ago is forgotten first. Two are under way
        where rounds are pipelined.
    """

    def __init__(self, sessions: int = 2) -> None:
        self._limit = sessions
        self._sessions: OrderedDict[bytes, SessionCache] = OrderedDict()

    def of(self, session: bytes) -> SessionCache:
        """Return the part of the session with this digest."""
        part = self._sessions.get(session)
        if part is None:
            part = self._sessions[session] = SessionCache()
            while len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)
        else:
            self._sessions.move_to_end(session)
        return part

    def clear(self, session: bytes | None = None) -> None:
        """Forget one session, or all."""
        if session is None:
            self._sessions.clear()
        else:
            self._sessions.pop(session, None)
