"""Key agreement, key derivation, envelopes and the commitment of one session.

X25519 (RFC 7748), HKDF with SHA-256 (RFC 5869) salted with the session's digest, AES-GCM
(NIST SP 800-38D). Every derivation has a label of its own.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zerosum.secagg.crypto.cache import MaskKey, SessionCache
from zerosum.secagg.errors import LowOrderKey, NonCanonicalKey
from zerosum.secagg.wire import u64

_FIELD: Final = (1 << 255) - 19
_BLOCK = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_SHARE = b"zerosum share\0"
_MASK = b"zerosum mask\0"
_SELF = b"zerosum self\0"
_PARTY = b"zerosum party\0"
_COMMIT = b"zerosum commitment\0"
_ENVELOPE = b"zerosum envelope\0"
# A key serves one envelope, or the same one again, so that its nonce can be constant.
_NONCE = bytes(12)
# The canonical u-coordinates of the points whose order divides 8 (RFC 7748, section 6.1).
_LOW_ORDER = frozenset(
    value.to_bytes(32, "little")
    for value in (
        0,
        1,
        _FIELD - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
)


class Hkdf:
    """HKDF-SHA256 under one salt, which is hashed once."""

    def __init__(self, salt: bytes) -> None:
        if len(salt) > _BLOCK:
            salt = hashlib.sha256(salt).digest()
        padded = salt.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(padded.translate(_INNER))
        self._outer = hashlib.sha256(padded.translate(_OUTER))

    def extract(self, secret: bytes) -> bytes:
        """Return the pseudorandom key of ``secret``: HMAC(salt, secret)."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(secret)
        outer.update(inner.digest())
        return outer.digest()

    def derive(self, secret: bytes, info: bytes, length: int = 32) -> bytes:
        """Extract and expand: the whole of HKDF.

        Parameters
        ----------
        secret, info : bytes
        length : int
            Bytes wanted.

        Returns
        -------
        bytes
        """
        return expand(self.extract(secret), info, length)


def expand(key: bytes, info: bytes, length: int = 32) -> bytes:
    """Expand a 32-byte extracted key: HKDF-Expand.

    Parameters
    ----------
    key : bytes
        32 bytes, as :meth:`Hkdf.extract` returns them.
    info : bytes
        The label of what is derived.
    length : int
        Bytes wanted.

    Returns
    -------
    bytes
    """
    padded = key.ljust(_BLOCK, b"\0")
    inner, outer = padded.translate(_INNER), padded.translate(_OUTER)
    sha256 = hashlib.sha256
    block = out = sha256(outer + sha256(inner + info + b"\x01").digest()).digest()
    counter = 1
    while len(out) < length:
        counter += 1
        message = inner + block + info + bytes((counter,))
        block = sha256(outer + sha256(message).digest()).digest()
        out += block
    return out[:length]


def expand_all(keys: Iterable[bytes], infos: Iterable[bytes]) -> list[bytes]:
    """Expand many extracted keys to 32 bytes each, as :func:`expand` does one.

    Parameters
    ----------
    keys, infos : iterable of bytes
        Extracted keys of 32 bytes, and the label of what is derived from each.

    Returns
    -------
    list of bytes
        32 bytes each.
    """
    sha256, rest = hashlib.sha256, bytes(_BLOCK - 32)
    out = []
    for key, info in zip(keys, infos, strict=True):
        padded = key + rest
        inner = sha256(padded.translate(_INNER) + info + b"\x01").digest()
        out.append(sha256(padded.translate(_OUTER) + inner).digest())
    return out


def check_public_key(key: bytes) -> None:
    """Refuse an X25519 key that is not canonical, or is of low order.

    Parameters
    ----------
    key : bytes
        32 bytes.

    Raises
    ------
    NonCanonicalKey
        If bit 255 is set or the value is not below 2^255 - 19.
    LowOrderKey
        If the order of the point divides 8.
    """
    if int.from_bytes(key, "little") >= _FIELD:
        raise NonCanonicalKey("a public key is not the canonical encoding of a field element")
    if key in _LOW_ORDER:
        raise LowOrderKey("a public key has low order")


class KeyPair:
    """An X25519 key of one party in one session.

    Parameters
    ----------
    private : bytes
        32 bytes.
    hkdf : Hkdf
        Salted with the session's digest.
    cache : SessionCache, optional
        Shared with other parties of this process.
    parsed : dict, optional
        Peers' public bytes to key objects, for whoever holds several keys and has the same peers
        for each; the cache's, where there is one.
    """

    def __init__(
        self,
        private: bytes,
        hkdf: Hkdf,
        cache: SessionCache | None = None,
        parsed: dict[bytes, X25519PublicKey] | None = None,
    ) -> None:
        self.private = private
        self._key = X25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()
        self._hkdf = hkdf
        self._cache = cache
        self._parsed = parsed if cache is None else cache.public_keys

    def agree_all(self, peers: Sequence[bytes]) -> list[bytes]:
        """Return the keys extracted from the agreements with peers' public keys.

        Raises
        ------
        LowOrderKey
            If an agreement is all zeros.
        """
        if self._cache is None:
            return self._exchange(peers)
        agreed, public = self._cache.agreed, self.public
        pairs = [public + peer if public < peer else peer + public for peer in peers]
        missing = {
            pair: peer for pair, peer in zip(pairs, peers, strict=True) if pair not in agreed
        }
        agreed.update(zip(missing, self._exchange(missing.values()), strict=True))
        return [agreed[pair] for pair in pairs]

    def _exchange(self, peers: Iterable[bytes]) -> list[bytes]:
        exchange = self._key.exchange
        keys = map(self._parse, peers)
        try:
            # The library holds the interpreter's lock here: threads would gain nothing.
            return [*map(self._hkdf.extract, map(exchange, keys))]
        except ValueError as error:
            raise LowOrderKey("an agreement gives zero") from error

    def _parse(self, peer: bytes) -> X25519PublicKey:
        if self._parsed is None:
            return X25519PublicKey.from_public_bytes(peer)
        key = self._parsed.get(peer)
        if key is None:
            key = self._parsed[peer] = X25519PublicKey.from_public_bytes(peer)
        return key


@dataclass(frozen=True)
class PartySecrets:
    """Secrets of one party in a session, expanded from its one seed."""

    channel: KeyPair
    mask: KeyPair
    self_seed: bytes = field(repr=False)
    polynomials: bytes = field(repr=False)
    neighbours: bytes = field(repr=False)

    @classmethod
    def expand(
        cls, seed: bytes, hkdf: Hkdf, index: int, cache: SessionCache | None
    ) -> "PartySecrets":
        """Expand a client's seed into all that it draws for a session.

        Parameters
        ----------
        seed : bytes
            32 bytes, fresh for each session.
        hkdf : Hkdf
            Salted with the session's digest.
        index : int
            The client's roster index.
        cache : SessionCache or None
            Shared with other parties of this process.

        Returns
        -------
        PartySecrets
        """
        key = hkdf.extract(seed)
        labels = (b"channel key", b"mask key", b"self mask", b"polynomials", b"neighbours")
        channel, mask, *others = (expand(key, _PARTY + u64(index) + label) for label in labels)
        return cls(KeyPair(channel, hkdf, cache), KeyPair(mask, hkdf, cache), *others)


def commitment(session: bytes, index: int, self_seed: bytes) -> bytes:
    """Commit a client to the seed of its self mask.

    Parameters
    ----------
    session : bytes
        Digest of the session.
    index : int
        Roster index.
    self_seed : bytes
        b_u, 32 bytes: as many as there are, so that the hash alone hides it.

    Returns
    -------
    bytes
        32 bytes.
    """
    return hashlib.sha256(_COMMIT + session + u64(index) + self_seed).digest()


def self_mask(hkdf: Hkdf, self_seed: bytes, request: bytes, index: int) -> bytes:
    """Derive the seed of the stream that is a client's self mask.

    Parameters
    ----------
    hkdf : Hkdf
        Salted with the session's digest.
    self_seed : bytes
        b_u, 32 bytes.
    request : bytes
        The request's digest.
    index : int
        The client's roster index.

    Returns
    -------
    bytes
        32 bytes.
    """
    return hkdf.derive(self_seed, _SELF + request + u64(index))


class PairMasks:
    """The seeds of the streams that one party shares with its peers, under one request.

    Parameters
    ----------
    own : KeyPair or MaskKey
        The party's mask keys.
    index : int
        The party's roster index.
    request : bytes
        The request's digest.
    """

    def __init__(self, own: MaskKey, index: int, request: bytes) -> None:
        self._own = own
        self._index = u64(index)
        self._label = _MASK + request

    def seeds(self, peers: Sequence[bytes], indices: Sequence[int]) -> list[bytes]:
        """Derive the seeds shared with some peers.

        Parameters
        ----------
        peers : sequence of bytes
            Public mask keys.
        indices : sequence of int
            The peers' roster indices.

        Returns
        -------
        list of bytes
            32 bytes each.
        """
        own, label = self._index, self._label
        others = map(u64, indices)
        # Big-endian bytes are in the order of the numbers.
        infos = [label + (own + u if own < u else u + own) for u in others]
        return expand_all(self._own.agree_all(peers), infos)


class Channel:
    """Envelopes between one client and its peers.

    Parameters
    ----------
    session : bytes
        Digest of the session.
    index : int
        The client's roster index.
    own : KeyPair or MaskKey
        The client's channel keys.
    cache : SessionCache, optional
        Keeps what was sealed until it is opened.
    """

    def __init__(
        self, session: bytes, index: int, own: KeyPair, cache: SessionCache | None = None
    ) -> None:
        self._associated = _ENVELOPE + session
        self._index = u64(index)
        self._own = own
        self._cache = cache
        self._agreed: dict[bytes, bytes] = {}

    def seal_all(
        self, plain: Sequence[bytes], recipients: Sequence[int], peers: Sequence[bytes]
    ) -> bytes:
        """Seal a message to each of some clients.

        Parameters
        ----------
        plain : sequence of bytes
            The pairs of shares: one for each recipient and session, since the nonce is constant.
        recipients : sequence of int
            Roster indices.
        peers : sequence of bytes
            The recipients' public channel keys.

        Returns
        -------
        bytes
            One after another, each 16 more than its plain text.
        """
        own, associated, nonce = self._index, self._associated, _NONCE
        directions = [own + u for u in map(u64, recipients)]
        agreed = self._agree(peers)
        keys = expand_all(agreed, [_SHARE + each for each in directions])
        sealed = [
            AESGCM(key).encrypt(nonce, each, associated + direction)
            for key, each, direction in zip(keys, plain, directions, strict=True)
        ]
        if self._cache is not None:
            names = zip(agreed, directions, sealed, strict=True)
            self._cache.envelopes.update(zip(names, plain, strict=True))
        return b"".join(sealed)

    def open_all(
        self, sealed: Sequence[bytes], senders: Sequence[int], peers: Sequence[bytes]
    ) -> list[bytes | None]:
        """Open a message of each of some clients.

        Parameters
        ----------
        sealed : sequence of bytes
        senders : sequence of int
            Roster indices.
        peers : sequence of bytes
            The senders' public channel keys.

        Returns
        -------
        list of (bytes or None)
            None where an envelope is forged or damaged.
        """
        own, associated = self._index, self._associated
        directions = [u + own for u in map(u64, senders)]
        agreed = self._agree(peers)
        if self._cache is not None:
            kept = self._cache.envelopes
            names = [*zip(agreed, directions, sealed, strict=True)]
            # An envelope that was sealed here, under this key, opens to what was sealed.
            if all(name in kept for name in names):
                return [kept[name] for name in names]
        keys = expand_all(agreed, [_SHARE + each for each in directions])
        return [
            _opened(AESGCM(key), each, associated + direction)
            for key, each, direction in zip(keys, sealed, directions, strict=True)
        ]

    def open(self, sealed: bytes, sender: int, peer: bytes) -> bytes | None:
        """Open the message of one client, as :meth:`open_all` does those of many.

        Parameters
        ----------
        sealed : bytes
        sender : int
            Roster index.
        peer : bytes
            The sender's public channel key.

        Returns
        -------
        bytes or None
            None if the envelope is forged or damaged.
        """
        return self.open_all([sealed], [sender], [peer])[0]

    def _agree(self, peers: Sequence[bytes]) -> list[bytes]:
        agreed = self._agreed
        missing = [peer for peer in peers if peer not in agreed]
        agreed.update(zip(missing, self._own.agree_all(missing), strict=True))
        return [agreed[peer] for peer in peers]


def _opened(cipher: AESGCM, sealed: bytes, associated: bytes) -> bytes | None:
    try:
        return cipher.decrypt(_NONCE, sealed, associated)
    except InvalidTag:
        return None
