"""The session and the request: parameters that every key, share and message is bound to."""

import enum
import hashlib
import itertools
import struct
from dataclasses import dataclass
from functools import cached_property

from zerosum.secagg.errors import (
    LocalProtocolError,
    MalformedMessage,
    UnknownVersion,
    WrongParty,
)
from zerosum.secagg.stages import (
    MASKED_PHASES,
    TRUSTED_PHASES,
    PhaseTable,
    ServerMode,
    Stage,
)
from zerosum.secagg.vectors.ring import Ring
from zerosum.secagg.wire import Reader, prefixed, u64

PROTOCOL_VERSION = 3
"""Of new sessions. Masks are cut into segments that AES-GCM makes."""
COUNTER_MASKS = 2
"""Of older sessions, which differ in this alone: masks are one run of a counter."""
VERSIONS = frozenset((COUNTER_MASKS, PROTOCOL_VERSION))
DIGEST_BYTES = 32

_SESSION_TAG = b"zerosum session\0"
_REQUEST_TAG = b"zerosum request\0"
_U64_LIMIT = 1 << 64


class Protocol(enum.StrEnum):
    """The hiding of vectors from the server: by masks, or by its promise alone.

    ``ideal`` trusts the server to keep the sum only; under ``none`` it keeps every vector.
    """

    PAIRWISE = "pairwise"
    IDEAL = "ideal"
    NONE = "none"


class NoiseDraw(enum.StrEnum):
    """Draw the noise of a sum at each client, or once at a trusted server."""

    PER_CLIENT = "per_client"
    SUMMED = "summed"


_MODE_CODES = {ServerMode.SEMI_HONEST: 0, ServerMode.MALICIOUS: 1}
_MODES = {code: mode for mode, code in _MODE_CODES.items()}
_PROTOCOLS = tuple(Protocol)
_NOISE_DRAWS = tuple(NoiseDraw)


@dataclass(frozen=True, kw_only=True)
class Session:
    """One attempt at one private sum, agreed before its first stage.

    Parameters
    ----------
    run_id : bytes
        Names the run; not empty.
    round, attempt, roster_version : int
        Below 2^64.
    cohort : tuple of int
        Roster indices of the clients asked, strictly ascending, each below 2^64; at least two.
    threshold : int
        t: how many shares recover a secret, from 1 to ``degree``.
    min_survivors : int
        Fewest contributions that may be summed, from 1 to the cohort's size.
    ring_bits : int
        Sums are modulo 2^ring_bits; 1 to 64.
    vector_length : int
        Coordinates of each vector; at least 1.
    degree : int
        k: neighbours that each client gives shares to, at most the cohort's size less one, which
        is the complete graph.
    bounds : bytes
        Canonical bytes of the encoding and privacy parameters; opaque here.
    mode : ServerMode
        What the server is trusted with: malicious, which is not at all, or semi-honest.
    protocol : Protocol
        Whether vectors are masked. A party serves sessions of its own protocol only.
    noise_draw : NoiseDraw
        Who draws the noise; summed by a trusted server under ``ideal`` alone.
    roster_digest : bytes
        SHA-256 of the roster whose keys sign, 32 bytes; may be empty under a semi-honest server.
    graph_seed : bytes
        32 bytes that permute the sparse graph of a semi-honest server; empty otherwise, since
        the graph is then complete, or drawn by the clients.
    version : int
        The protocol's version, 2 or 3: says how seeds become masks.

    Raises
    ------
    LocalProtocolError
        If a value is outside what is said above.
    """

    run_id: bytes
    round: int
    attempt: int
    roster_version: int
    cohort: tuple[int, ...]
    threshold: int
    min_survivors: int
    ring_bits: int
    vector_length: int
    degree: int
    bounds: bytes = b""
    mode: ServerMode = ServerMode.MALICIOUS
    protocol: Protocol = Protocol.PAIRWISE
    noise_draw: NoiseDraw = NoiseDraw.PER_CLIENT
    roster_digest: bytes = b""
    graph_seed: bytes = b""
    version: int = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "cohort", tuple(map(int, self.cohort)))
        for name, kind in (("mode", ServerMode), ("protocol", Protocol), ("noise_draw", NoiseDraw)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.version not in VERSIONS:
            spoken = " and ".join(map(str, sorted(VERSIONS)))
            raise LocalProtocolError(
                f"protocol version {self.version} is not spoken here, only {spoken}"
            )
        self._check_names()
        self._check_noise()
        self._check_cohort()
        self._check_sizes()
        self._check_graph()

    def _check_names(self) -> None:
        if not self.run_id:
            raise LocalProtocolError("run_id is empty")
        for name in ("round", "attempt", "roster_version"):
            value = getattr(self, name)
            if not 0 <= value < _U64_LIMIT:
                raise LocalProtocolError(f"{name} = {value} is not in 0 .. 2^64 - 1")

    def _check_noise(self) -> None:
        """Refuse server noise in a masked sum.

        A server that sees only masked vectors is not trusted, so nobody would add the noise.
        """
        if self.noise_draw is NoiseDraw.SUMMED and self.protocol is not Protocol.IDEAL:
            raise LocalProtocolError(
                f'noise_draw = "{self.noise_draw}" under protocol = "{self.protocol}": only a '
                'trusted sum ("ideal") has its noise drawn once; write "per_client"'
            )

    def _check_cohort(self) -> None:
        cohort = self.cohort
        if len(cohort) < 2:
            raise LocalProtocolError(f"a cohort has at least two clients, not {len(cohort)}")
        if any(a >= b for a, b in itertools.pairwise(cohort)):
            raise LocalProtocolError("the cohort's roster indices are not strictly ascending")
        if cohort[0] < 0 or cohort[-1] >= _U64_LIMIT:
            raise LocalProtocolError("a roster index of the cohort is not in 0 .. 2^64 - 1")

    def _check_sizes(self) -> None:
        if not 1 <= self.degree < self.size:
            raise LocalProtocolError(
                f"degree = {self.degree} is not in 1 .. {self.size - 1}, where a cohort of "
                f"{self.size} has the complete graph"
            )
        if not 1 <= self.threshold <= self.degree:
            raise LocalProtocolError(
                f"threshold = {self.threshold} is not in 1 .. {self.degree} (the degree)"
            )
        if not 1 <= self.min_survivors <= self.size:
            raise LocalProtocolError(
                f"min_survivors = {self.min_survivors} is not in 1 .. {self.size} (the cohort)"
            )
        if not 1 <= self.vector_length < 1 << 40:
            raise LocalProtocolError(f"vector_length = {self.vector_length} is not positive")
        _ = self.ring

    def _check_graph(self) -> None:
        malicious = self.mode is ServerMode.MALICIOUS
        if len(self.roster_digest) not in ((32,) if malicious else (0, 32)):
            raise LocalProtocolError(
                f"roster_digest has {len(self.roster_digest)} bytes: 32 are needed against a "
                f"malicious server, none or 32 otherwise"
            )
        permuted = not (malicious or self.complete)
        if len(self.graph_seed) != (32 if permuted else 0):
            raise LocalProtocolError(
                f"graph_seed has {len(self.graph_seed)} bytes: a sparse graph under a semi-honest "
                f"server has 32, every other graph none"
            )
        if permuted and self.size * self.degree % 2:
            raise LocalProtocolError(
                f"no graph has {self.size} clients of degree {self.degree}: one must be even"
            )

    @property
    def size(self) -> int:
        """The number of clients in the cohort."""
        return len(self.cohort)

    @property
    def complete(self) -> bool:
        """Return whether all clients are neighbours of each other."""
        return self.degree == self.size - 1

    @property
    def masked(self) -> bool:
        """Return whether vectors are masked, so that the server sees no more than their sum."""
        return self.protocol is Protocol.PAIRWISE

    @property
    def signed(self) -> bool:
        """Return whether clients sign: the server is not trusted to show all of them the same."""
        return self.mode is ServerMode.MALICIOUS

    @property
    def drawn(self) -> bool:
        """Return whether each client draws its own neighbours."""
        return self.signed and not self.complete

    @property
    def phases(self) -> PhaseTable:
        """The phase table: what is read and sent at each stage, and what comes next."""
        return (MASKED_PHASES if self.masked else TRUSTED_PHASES)[self.mode]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in order."""
        return tuple(self.phases)

    @cached_property
    def ring(self) -> Ring:
        """The ring that sums are taken in."""
        return Ring(self.ring_bits)

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {index: position for position, index in enumerate(self.cohort)}

    def position(self, index: int) -> int:
        """Return a client's place in the cohort.

        Parameters
        ----------
        index : int
            Roster index.

        Returns
        -------
        int
            From 0.

        Raises
        ------
        WrongParty
            If the client is not in the cohort.
        """
        position = self._positions.get(index)
        if position is None:
            raise WrongParty(f"client {index} is not in this session's cohort")
        return position

    def to_bytes(self) -> bytes:
        """Return the canonical bytes: equal sessions, and only those, have equal bytes."""
        kinds = (_PROTOCOLS.index(self.protocol), _NOISE_DRAWS.index(self.noise_draw))
        head = (self.version, _MODE_CODES[self.mode], *kinds, self.round, self.attempt)
        graph = (self.roster_version, self.degree, self.threshold, self.min_survivors)
        vector = (self.ring_bits, self.vector_length)
        cohort = struct.pack(f">{self.size}Q", *self.cohort)
        numbers = b"".join(map(u64, head + graph + vector))
        fields = (self.run_id, self.bounds, cohort, self.roster_digest, self.graph_seed)
        return _SESSION_TAG + numbers + b"".join(map(prefixed, fields))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Session":
        """Read canonical bytes that came from a peer.

        Parameters
        ----------
        data : bytes

        Returns
        -------
        Session

        Raises
        ------
        RemoteProtocolError
            ``UnknownVersion`` or ``MalformedMessage``, on anything that is not a valid session.
        """
        reader = Reader(bytes(data))
        if reader.take(len(_SESSION_TAG)) != _SESSION_TAG:
            raise MalformedMessage("these are not the bytes of a session")
        version = reader.u64()
        if version not in VERSIONS:
            raise UnknownVersion(f"a session of protocol version {version}")
        mode, protocol, draw = (reader.u64() for _ in range(3))
        round_, attempt, roster, degree, threshold, survivors, bits, length = (
            reader.u64() for _ in range(8)
        )
        run_id, bounds, cohort, digest, seed = (reader.prefixed() for _ in range(5))
        reader.finish()
        if mode not in _MODES or len(cohort) % 8:
            raise MalformedMessage("a session with an unknown server mode or a torn cohort")
        if protocol >= len(_PROTOCOLS) or draw >= len(_NOISE_DRAWS):
            raise MalformedMessage("a session with an unknown protocol or draw of noise")
        members = (cohort[at : at + 8] for at in range(0, len(cohort), 8))
        try:
            return cls(
                run_id=run_id,
                round=round_,
                attempt=attempt,
                roster_version=roster,
                roster_digest=digest,
                graph_seed=seed,
                cohort=tuple(int.from_bytes(member, "big") for member in members),
                threshold=threshold,
                min_survivors=survivors,
                ring_bits=bits,
                vector_length=length,
                degree=degree,
                bounds=bounds,
                mode=_MODES[mode],
                protocol=_PROTOCOLS[protocol],
                noise_draw=_NOISE_DRAWS[draw],
                version=version,
            )
        except LocalProtocolError as error:
            raise MalformedMessage(f"a session that is not valid: {error}") from error

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes, which begin with a domain tag."""
        return hashlib.sha256(self.to_bytes()).digest()


def request_digest(*parts: bytes) -> bytes:
    """Return the 32-byte name of what is asked.

    Parameters
    ----------
    *parts : bytes
        Everything that a contribution depends on: model bytes, training configuration, clip,
        scale, noise multiplier, encoding. Each is length-prefixed, so their borders count.
    """
    digest = hashlib.sha256(_REQUEST_TAG + u64(len(parts)))
    for part in parts:
        digest.update(u64(len(part)))
        digest.update(part)
    return digest.digest()
