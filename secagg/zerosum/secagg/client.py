"""The client of a session: one answer to each of the server's messages."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.cache import SessionCache, SharedCache
from zerosum.secagg.decisions import STAGES, Decisions
from zerosum.secagg.directory import Directory
from zerosum.secagg.errors import (
    AdvertMismatch,
    BadSurvivorSet,
    LocalProtocolError,
    OutOfOrder,
    StateLost,
    WrongParty,
)
from zerosum.secagg.graph import mask_neighbours, share_neighbours
from zerosum.secagg.keys import (
    Channel,
    Hkdf,
    PairMasks,
    PartySecrets,
    commitment,
    self_mask,
)
from zerosum.secagg.messages import (
    SEALED_BYTES,
    SHARE_BYTES,
    Advert,
    Adverts,
    ContributeRequest,
    Contribution,
    Shares,
    UnmaskRequest,
    UnmaskShares,
    accept,
    decode,
)
from zerosum.secagg.party import Incoming, Step
from zerosum.secagg.prg import SEED_BYTES, accumulate
from zerosum.secagg.randomness import Keystream, RandomSource, SystemRandomness
from zerosum.secagg.session import Session
from zerosum.secagg.shamir import LIMBS, PRIME, split
from zerosum.secagg.wire import Reader, from_bitmap, prefixed, to_bitmap, u64

_STATE_TAG = b"zerosum client state 1\0"
_PHASES = (*STAGES, "done")
_NOTHING = hashlib.sha256(b"").digest()


class ClientParty:
    """One client in one session: messages in, messages out.

    Each stage's method checks the server's message, and returns what to make durable and what to
    send. It raises :class:`~zerosum.secagg.errors.RemoteProtocolError` and leaves the state as
    it was when the message is not acceptable. The same message again gets the same bytes, except
    at contribute, which is answered once.

    Parameters
    ----------
    session : Session
        What the caller has checked against its own policy.
    index : int
        The client's roster index.
    source : RandomSource, optional
        Gives the one 32-byte seed; the operating system by default.
    cache : SharedCache, optional
        For parties of one process.
    record : iterable of bytes
        Every line of the durable record.

    Raises
    ------
    LocalProtocolError
        If ``index`` is not in the cohort, or the record is damaged.
    StateLost
        If the record shows that the session was begun: go on with :meth:`restore`, or not at all.
    """

    def __init__(
        self,
        session: Session,
        index: int,
        *,
        source: RandomSource | None = None,
        cache: SharedCache | None = None,
        record: Iterable[bytes] = (),
    ) -> None:
        self._begin(session, index, cache, Decisions(session.digest, record))
        if len(self._decisions):
            raise StateLost("the record shows that this session was begun with another seed")
        self._seed = (source or SystemRandomness()).take(SEED_BYTES)

    def _begin(
        self, session: Session, index: int, cache: SharedCache | None, decisions: Decisions
    ) -> None:
        try:
            self._position = session.position(index)
        except WrongParty as error:
            raise LocalProtocolError(str(error)) from error
        self._session = session
        self._index = index
        self._cache: SessionCache | None = None if cache is None else cache.of(session.digest)
        self._decisions = decisions
        self._hkdf = Hkdf(session.digest)
        self._neighbours = frozenset(share_neighbours(session, self._position))
        self._phase = 0
        self._seed = b""
        self._secrets: PartySecrets | None = None
        self._channel: Channel | None = None
        self._adverts: Adverts | None = None
        self._directory: Directory | None = None
        self._request: ContributeRequest | None = None
        self._answer: UnmaskShares | None = None
        self._wiped = False

    @property
    def session(self) -> Session:
        """The session that the party takes part in."""
        return self._session

    @property
    def index(self) -> int:
        """The client's roster index."""
        return self._index

    @property
    def stage(self) -> str:
        """The stage that comes next: advertise, share, contribute, unmask or done."""
        return _PHASES[self._phase]

    def advertise(self) -> Step:
        """Return the advert: two public keys and the commitment to the self mask's seed."""
        self._require_phase("advertise", last="unmask")
        decision = self._decisions.decide("advertise", _NOTHING)
        advert = self._own_advert()
        return Step(self._advance("share", self._decisions.commit(decision)), advert)

    def share(self, message: Incoming) -> Step:
        """Return the shares of both secrets, sealed for each neighbour that advertised.

        Raises
        ------
        RemoteProtocolError
            If keys are bad or equal, the own advert is missing or changed, fewer than t
            neighbours advertised, or other adverts were answered before.
        """
        self._require_phase("share", last="unmask")
        adverts = accept(message, Adverts, self._session)
        decision = self._decisions.decide("share", adverts.digest)
        directory = self._check_adverts(adverts)
        recipients = self._neighbours_in(directory.entries)
        if len(recipients) < self._session.threshold:
            raise BadSurvivorSet("fewer neighbours advertised than the threshold")
        sealed = self._seal_shares(directory, recipients)
        bitmap = to_bitmap(recipients, self._session.size)
        send = Shares(self._session.digest, self._index, bitmap, sealed)
        self._adverts, self._directory = adverts, directory
        return Step(self._advance("contribute", self._decisions.commit(decision)), send)

    def admit(self, message: Incoming) -> bytes:
        """Check the contribute message without answering it, and return its request digest.

        The caller compares the digest with that of what it was asked, and then trains.

        Raises
        ------
        RemoteProtocolError
            If the message is not for this client, U2 breaks the rules, or a contribution was
            made before (``AlreadyContributed``).
        """
        self._require_phase("contribute", last="unmask")
        return self._check_contribute(message).request

    def contribute(self, message: Incoming, vector: NDArray[Any]) -> Step:
        """Return the masked vector; once.

        Parameters
        ----------
        message : bytes or ContributeRequest
        vector : ndarray, shape (vector_length,)
            Integers: int64 of any sign, or the ring's own container.

        Raises
        ------
        RemoteProtocolError
            As :meth:`admit`.
        LocalProtocolError
            If the vector is of another shape or type.
        """
        self._require_phase("contribute", last="unmask")
        request = self._check_contribute(message)
        decision = self._decisions.decide("contribute", request.digest)
        masked = self._session.ring.contain(vector, self._session.vector_length)
        self._mask(masked, request)
        send = Contribution(
            self._session.digest, self._index, request.request, masked, self._session.ring_bits
        )
        self._request = request
        return Step(self._advance("unmask", self._decisions.commit(decision)), send)

    def unmask(self, message: Incoming) -> Step:
        """Return one share of each dealer: of the self mask in U3, of the mask key outside.

        The party's secrets are forgotten; the answer is kept, and given again for the same U3.

        Raises
        ------
        RemoteProtocolError
            If U3 breaks the rules, or another U3 was answered before.
        """
        self._require_phase("unmask", last="done")
        request = accept(message, UnmaskRequest, self._session)
        decision = self._decisions.decide("unmask", request.digest, request.survivors)
        if self._answer is None:
            self._answer = self._open_shares(request)
        persist = self._advance("done", self._decisions.commit(decision))
        self._forget()
        return Step(persist, self._answer)

    def export(self) -> bytes:
        """Return the volatile state: secret until the session ends, and to be deleted then."""
        if self._wiped:
            raise LocalProtocolError("the party was wiped")
        kept = (self._adverts, self._request, self._answer)
        messages = (b"" if message is None else message.to_bytes() for message in kept)
        lines = b"\n".join(self._decisions.lines())
        parts = (self._session.to_bytes(), u64(self._index), bytes((self._phase,)), self._seed)
        body = _STATE_TAG + b"".join(map(prefixed, (*parts, lines, *messages)))
        return body + hashlib.sha256(body).digest()

    @classmethod
    def restore(
        cls,
        data: bytes,
        *,
        source: RandomSource | None = None,
        cache: SharedCache | None = None,
        record: Iterable[bytes] = (),
    ) -> "ClientParty":
        """Rebuild a party from :meth:`export` and the durable record.

        Parameters
        ----------
        data : bytes
            What ``export`` returned, at this or an earlier stage.
        source : RandomSource, optional
            Not drawn from: everything expands from the exported seed.
        cache : SharedCache, optional
            For parties of one process.
        record : iterable of bytes
            Every line of the durable record; it overrules an older state.

        Raises
        ------
        LocalProtocolError
            If ``data`` is damaged, or contradicts the record.
        """
        body, checksum = data[:-32], data[-32:]
        if not body.startswith(_STATE_TAG) or hashlib.sha256(body).digest() != checksum:
            raise LocalProtocolError("the exported state is damaged")
        reader = Reader(body[len(_STATE_TAG) :])
        encoded, index, phase, seed, lines, *messages = (reader.prefixed() for _ in range(8))
        session = Session.from_bytes(encoded)
        party = cls.__new__(cls)
        decisions = Decisions(session.digest, (*lines.split(b"\n"), *record))
        party._begin(session, int.from_bytes(index, "big"), cache, decisions)
        party._phase, party._seed = phase[0], seed
        party._resume(*messages)
        return party

    def _resume(self, adverts: bytes, request: bytes, answer: bytes) -> None:
        if adverts:
            self._adverts = decode(adverts, Adverts, self._session)
        if request:
            self._request = decode(request, ContributeRequest, self._session)
        if answer:
            self._answer = decode(answer, UnmaskShares, self._session)

    def wipe(self) -> None:
        """Forget all secrets and refuse everything from now on (best effort in Python)."""
        self._forget()
        self._answer = None
        self._wiped = True

    def _forget(self) -> None:
        self._seed = b""
        self._secrets = self._channel = None
        self._adverts = self._request = self._directory = None

    def _require_phase(self, first: str, last: str) -> None:
        if self._wiped:
            raise LocalProtocolError("the party was wiped")
        if not _PHASES.index(first) <= self._phase <= _PHASES.index(last):
            raise OutOfOrder(f"{first} is not possible: the next stage is {self.stage}")

    def _advance(self, stage: str, persist: tuple[bytes, ...]) -> tuple[bytes, ...]:
        self._phase = max(self._phase, _PHASES.index(stage))
        return persist

    def _own_secrets(self) -> PartySecrets:
        if self._secrets is None:
            self._secrets = PartySecrets.expand(self._seed, self._hkdf, self._index, self._cache)
        return self._secrets

    def _own_channel(self) -> Channel:
        if self._channel is None:
            own = self._own_secrets().channel
            self._channel = Channel(self._session.digest, self._index, own, self._cache)
        return self._channel

    def _own_advert(self) -> Advert:
        secrets, digest = self._own_secrets(), self._session.digest
        committed = commitment(digest, self._index, secrets.self_seed)
        return Advert(digest, self._index, secrets.channel.public, secrets.mask.public, committed)

    def _neighbours_in(self, positions: Iterable[int]) -> list[int]:
        """Return the share neighbours among ``positions``, ascending."""
        return sorted(self._neighbours.intersection(positions))

    def _check_adverts(self, adverts: Adverts) -> Directory:
        directory = self._read_directory(adverts)
        if directory.entries.get(self._position) != self._own_advert().entry:
            raise AdvertMismatch("the broadcast does not hold this client's own advert")
        return directory

    def _read_directory(self, adverts: Adverts) -> Directory:
        if self._cache is None:
            return Directory.of(adverts)
        known: Directory | None = self._cache.broadcasts.get(adverts.digest)
        if known is None:
            known = self._cache.broadcasts[adverts.digest] = Directory.of(adverts)
        return known

    def _known_directory(self) -> Directory:
        if self._directory is None:
            if self._adverts is None:
                raise OutOfOrder("no adverts were answered in this session")
            self._directory = self._read_directory(self._adverts)
        return self._directory

    def _seal_shares(self, directory: Directory, recipients: list[int]) -> bytes:
        session, secrets, channel = self._session, self._own_secrets(), self._own_channel()
        table = split(
            [secrets.mask.private, secrets.self_seed],
            session.threshold,
            range(1, session.size + 1),
            Keystream(secrets.polynomials),
        )
        plain = table.astype("<u4").reshape(session.size, -1)
        cohort, keys = session.cohort, directory.channel_keys
        return b"".join(channel.seal(plain[p].tobytes(), cohort[p], keys[p]) for p in recipients)

    def _check_contribute(self, message: Incoming) -> ContributeRequest:
        request = accept(message, ContributeRequest, self._session)
        self._decisions.decide("contribute", request.digest)
        if request.recipient != self._index:
            raise WrongParty(f"the message is for client {request.recipient}")
        sharers = set(from_bitmap(request.sharers).tolist())
        if self._position not in sharers:
            raise BadSurvivorSet("U2 does not hold this client")
        if not sharers <= self._known_directory().entries.keys():
            raise BadSurvivorSet("U2 holds a client that did not advertise")
        if len(self._neighbours_in(sharers)) < self._session.threshold:
            raise BadSurvivorSet("U2 holds fewer neighbours than the threshold")
        return request

    def _mask(self, vector: NDArray[Any], request: ContributeRequest) -> None:
        session, secrets = self._session, self._own_secrets()
        cohort, own, asked = session.cohort, self._index, request.request
        keys, masks = self._known_directory().mask_keys, PairMasks(secrets.mask, asked, self._cache)
        sharers = set(from_bitmap(request.sharers).tolist())
        peers = [p for p in mask_neighbours(session, self._position) if p in sharers]
        added = [self_mask(self._hkdf, secrets.self_seed, asked, own)]
        added += [masks.stream(keys[p], own, cohort[p]) for p in peers if cohort[p] > own]
        subtracted = [masks.stream(keys[p], cohort[p], own) for p in peers if cohort[p] < own]
        accumulate(vector, added, subtracted)
        masks.pass_on()
        session.ring.reduce(vector)

    def _check_survivors(self, request: UnmaskRequest, sharers: set[int]) -> set[int]:
        survivors = set(from_bitmap(request.survivors).tolist())
        if self._position not in survivors:
            raise BadSurvivorSet("U3 does not hold this client")
        if not survivors <= sharers:
            raise BadSurvivorSet("U3 holds a client that is not in U2")
        if len(self._neighbours_in(survivors)) < self._session.threshold:
            raise BadSurvivorSet("U3 holds fewer neighbours than the threshold")
        if len(survivors) < self._session.min_survivors:
            raise BadSurvivorSet("U3 holds fewer clients than min_survivors")
        return survivors

    def _open_shares(self, request: UnmaskRequest) -> UnmaskShares:
        if self._request is None:
            raise OutOfOrder("no contribution was made in this session")
        sharers = from_bitmap(self._request.sharers).tolist()
        survivors = self._check_survivors(request, set(sharers))
        dealers = [p for p in sharers if p != self._position]
        keys, cohort = self._known_directory().channel_keys, self._session.cohort
        channel, sealed, opened = self._own_channel(), self._request.sealed, {}
        for i, p in enumerate(dealers):
            envelope = sealed[i * SEALED_BYTES : (i + 1) * SEALED_BYTES]
            plain = channel.open(envelope, cohort[p], keys[p])
            if plain is not None:
                opened[p] = plain[SHARE_BYTES:] if p in survivors else plain[:SHARE_BYTES]
        return self._answer_with(opened)

    def _answer_with(self, opened: dict[int, bytes]) -> UnmaskShares:
        """Build the answer, leaving out what a dealer sealed that is no share."""
        table = np.frombuffer(b"".join(opened.values()), "<u4").reshape(-1, LIMBS)
        sound = np.all(table < PRIME, axis=1).tolist()
        dealers = [p for p, good in zip(opened, sound, strict=True) if good]
        bitmap = to_bitmap(dealers, self._session.size)
        shares = table[np.array(sound, bool)].tobytes()
        return UnmaskShares(self._session.digest, self._index, bitmap, shares)
