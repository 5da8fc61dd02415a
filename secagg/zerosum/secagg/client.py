"""The client of a session: one answer to each of the server's messages."""

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.cache import SessionCache, SharedCache
from zerosum.secagg.decisions import Decisions
from zerosum.secagg.directory import Directory
from zerosum.secagg.errors import (
    AdvertMismatch,
    ConflictingMessage,
    LocalProtocolError,
    OutOfOrder,
    StateLost,
    WrongParty,
)
from zerosum.secagg.graph import Positions, draw_neighbours, public_graph
from zerosum.secagg.identity import IdentityKey, Roster
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
    Confirmation,
    ConfirmRequest,
    ContributeRequest,
    Contribution,
    Shares,
    UnmaskRequest,
    UnmaskShares,
    accept,
    advert_statement,
    survivors_statement,
)
from zerosum.secagg.neighbourhood import Neighbourhood
from zerosum.secagg.party import Incoming, Step
from zerosum.secagg.policy import Policy
from zerosum.secagg.prg import SEED_BYTES, accumulate
from zerosum.secagg.randomness import Keystream, RandomSource, SystemRandomness
from zerosum.secagg.session import Session
from zerosum.secagg.shamir import LIMBS, PRIME, split
from zerosum.secagg.state import ClientState
from zerosum.secagg.wire import to_bitmap, to_mask, to_positions

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
        What the server proposes.
    index : int
        The client's roster index.
    identity : IdentityKey, optional
        The client's signing key: required against a malicious server.
    roster : Roster, optional
        The one that the client holds, never the server's: required against a malicious server.
    policy : Policy, optional
        What the client takes part in; without one, the caller has checked the session.
    source : RandomSource, optional
        Gives the one 32-byte seed; the operating system by default.
    cache : SharedCache, optional
        For parties of one process.
    record : iterable of bytes
        Every line of the durable record.

    Raises
    ------
    LocalProtocolError
        If ``index`` is not in the cohort, the record is damaged, or identity and roster are
        missing or do not fit each other.
    WrongRoster
        If the session is bound to another roster.
    PolicyRefusal
        Or one of its kinds, if the policy does not take part in the session.
    StateLost
        If the record shows that the session was begun: go on with :meth:`restore`, or not at all.
    """

    def __init__(
        self,
        session: Session,
        index: int,
        *,
        identity: IdentityKey | None = None,
        roster: Roster | None = None,
        policy: Policy | None = None,
        source: RandomSource | None = None,
        cache: SharedCache | None = None,
        record: Iterable[bytes] = (),
    ) -> None:
        self._begin(session, index, cache, Decisions(session.digest, record))
        self._identify(identity, roster)
        if policy is not None:
            policy.admit(session, roster)
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
        self._phases = (*session.stages, "done")
        self._phase = 0
        self._seed = b""
        self._secrets: PartySecrets | None = None
        self._channel: Channel | None = None
        self._adverts: Adverts | None = None
        self._directory: Directory | None = None
        self._around: Neighbourhood | None = None
        self._request: ContributeRequest | None = None
        self._answer: UnmaskShares | None = None
        self._wiped = False

    def _identify(self, identity: IdentityKey | None, roster: Roster | None) -> None:
        self._identity, self._roster = identity, roster
        if self._session.signed and (identity is None or roster is None):
            raise LocalProtocolError(
                "against a malicious server a client needs its identity key and the roster"
            )
        if roster is not None:
            roster.check_session(self._session)
        if identity is None or roster is None:
            return
        if roster.entries.get(self._index) != identity.public:
            raise LocalProtocolError(
                f"the identity key is not the one that the roster holds for {self._index}"
            )

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
        """The stage that comes next: one of the session's, or done."""
        return self._phases[self._phase]

    def advertise(self) -> Step:
        """Return the advert: two public keys and the commitment to the self mask's seed.

        On a sparse graph against a malicious server it says which neighbours were drawn.
        """
        self._require_phase("advertise", last="unmask")
        decision = self._decisions.decide("advertise", _NOTHING)
        advert = self._own_advert()
        return Step(self._advance("share", self._decisions.commit(decision)), advert)

    def share(self, message: Incoming) -> Step:
        """Return the shares of both secrets, sealed for each neighbour that advertised.

        Raises
        ------
        RemoteProtocolError
            If keys are bad or equal, an advert is not signed, the own advert is missing or
            changed, fewer than t neighbours advertised, or other adverts were answered before.
        """
        self._require_phase("share", last="unmask")
        adverts = accept(message, Adverts, self._session)
        decision = self._decisions.decide("share", adverts.digest)
        directory, around = self._check_adverts(adverts)
        sealed = self._seal_shares(directory, around)
        bitmap = to_bitmap(around.holders, self._session.size)
        send = Shares(self._session.digest, self._index, bitmap, sealed)
        self._adverts, self._directory, self._around = adverts, directory, around
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
        following = self._phases[self._phases.index("contribute") + 1]
        return Step(self._advance(following, self._decisions.commit(decision)), send)

    def confirm(self, message: Incoming) -> Step:
        """Return the signature of the set of survivors, U3; of one set only.

        Raises
        ------
        RemoteProtocolError
            If U3 breaks the rules, another U3 was signed before, or the session has no such
            stage.
        """
        self._require_phase("confirm", last="unmask")
        request = accept(message, ConfirmRequest, self._session)
        decision = self._decisions.decide("confirm", request.digest, request.survivors)
        self._check_survivors(request.survivors)
        signature = self._own_identity().sign(self._survivors_statement(request.survivors))
        send = Confirmation(self._session.digest, self._index, signature)
        return Step(self._advance("unmask", self._decisions.commit(decision)), send)

    def unmask(self, message: Incoming) -> Step:
        """Return one share of each dealer: of the self mask in U3, of the mask key outside.

        The party's secrets are forgotten; the answer is kept, and given again for the same U3.

        Raises
        ------
        RemoteProtocolError
            If U3 breaks the rules, is not what was signed at confirm, is not signed by enough
            neighbours, or another U3 was answered before.
        """
        self._require_phase("unmask", last="done")
        request = accept(message, UnmaskRequest, self._session)
        decision = self._decisions.decide("unmask", request.digest, request.survivors)
        if self._answer is None:
            survivors = self._check_survivors(request.survivors)
            self._check_signatures(request)
            self._answer = self._open_shares(survivors)
        persist = self._advance("done", self._decisions.commit(decision))
        self._forget()
        return Step(persist, self._answer)

    def export(self) -> bytes:
        """Return the volatile state: secret until the session ends, and to be deleted then."""
        if self._wiped:
            raise LocalProtocolError("the party was wiped")
        return ClientState(
            self._session,
            self._index,
            self._phase,
            self._seed,
            self._decisions.lines(),
            self._adverts,
            self._request,
            self._answer,
        ).to_bytes()

    @classmethod
    def restore(
        cls,
        data: bytes,
        *,
        identity: IdentityKey | None = None,
        roster: Roster | None = None,
        source: RandomSource | None = None,
        cache: SharedCache | None = None,
        record: Iterable[bytes] = (),
    ) -> "ClientParty":
        """Rebuild a party from :meth:`export` and the durable record.

        Parameters
        ----------
        data : bytes
            What ``export`` returned, at this or an earlier stage.
        identity, roster, cache
            As for the constructor; a policy admitted the session when it began.
        source : RandomSource, optional
            Not drawn from: everything expands from the exported seed.
        record : iterable of bytes
            Every line of the durable record; it overrules an older state.

        Raises
        ------
        LocalProtocolError
            If ``data`` is damaged, or contradicts the record.
        WrongRoster
            If the session is bound to another roster.
        """
        state = ClientState.from_bytes(data)
        party = cls.__new__(cls)
        decisions = Decisions(state.session.digest, (*state.lines, *record))
        party._begin(state.session, state.index, cache, decisions)
        party._identify(identity, roster)
        party._phase, party._seed = state.phase, state.seed
        party._adverts, party._request = state.adverts, state.request
        party._answer = state.answer
        return party

    def wipe(self) -> None:
        """Forget all secrets and refuse everything from now on (best effort in Python)."""
        self._forget()
        self._answer = None
        self._wiped = True

    def _forget(self) -> None:
        self._seed = b""
        self._secrets = self._channel = None
        self._adverts = self._request = self._directory = self._around = None

    def _require_phase(self, first: str, last: str) -> None:
        if self._wiped:
            raise LocalProtocolError("the party was wiped")
        if first not in self._phases:
            raise OutOfOrder(f"a session under a {self._session.mode} server has no {first}")
        if not self._phases.index(first) <= self._phase <= self._phases.index(last):
            raise OutOfOrder(f"{first} is not possible: the next stage is {self.stage}")

    def _advance(self, stage: str, persist: tuple[bytes, ...]) -> tuple[bytes, ...]:
        self._phase = max(self._phase, self._phases.index(stage))
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

    def _own_identity(self) -> IdentityKey:
        if self._identity is None:
            raise LocalProtocolError("the party was made without an identity key")
        return self._identity

    def _own_neighbours(self) -> Positions:
        graph = public_graph(self._session)
        if graph is not None:
            return graph.named_by(self._position)
        return draw_neighbours(self._session, self._position, self._own_secrets().neighbours)

    def _own_advert(self) -> Advert:
        session, secrets = self._session, self._own_secrets()
        advert = Advert(
            session.digest,
            self._index,
            secrets.channel.public,
            secrets.mask.public,
            commitment(session.digest, self._index, secrets.self_seed),
            to_positions(self._own_neighbours(), session.size) if session.drawn else b"",
        )
        if not session.signed:
            return advert
        statement = advert_statement(session.digest, self._index, advert.fields)
        return dataclasses.replace(advert, signature=self._own_identity().sign(statement))

    def _check_adverts(self, adverts: Adverts) -> tuple[Directory, Neighbourhood]:
        session, directory = self._session, self._read_directory(adverts)
        if directory.entries.get(self._position) != self._own_advert().entry:
            raise AdvertMismatch("the adverts do not hold this client's own as it was sent")
        around = self._look_around(directory)
        if session.signed and self._roster is not None:
            directory.check_signatures(session, self._roster, self._cache)
        return directory, around

    def _look_around(self, directory: Directory) -> Neighbourhood:
        named = self._own_neighbours()
        return Neighbourhood.of(self._session, self._position, named, directory)

    def _read_directory(self, adverts: Adverts) -> Directory:
        if self._cache is None or not self._session.complete:
            return Directory.of(adverts, self._session)
        known: Directory | None = self._cache.broadcasts.get(adverts.digest)
        if known is None:
            known = Directory.of(adverts, self._session)
            self._cache.broadcasts[adverts.digest] = known
        return known

    def _known(self) -> tuple[Directory, Neighbourhood]:
        """Return what was checked at share, read again in a new process."""
        if self._directory is None or self._around is None:
            if self._adverts is None:
                raise OutOfOrder("no adverts were answered in this session")
            self._directory = self._read_directory(self._adverts)
            self._around = self._look_around(self._directory)
        return self._directory, self._around

    def _seal_shares(self, directory: Directory, around: Neighbourhood) -> bytes:
        session, secrets, channel = self._session, self._own_secrets(), self._own_channel()
        holders = around.holders.tolist()
        # On the complete graph all clients evaluate at the same points, whoever advertised.
        places = range(session.size) if session.complete else holders
        table = split(
            [secrets.mask.private, secrets.self_seed],
            session.threshold,
            [place + 1 for place in places],
            Keystream(secrets.polynomials),
        )
        shares = table.astype("<u4").reshape(len(places), -1)
        plain = shares[holders] if session.complete else shares
        cohort, keys = session.cohort, directory.channel_keys
        return b"".join(
            channel.seal(row.tobytes(), cohort[p], keys[p])
            for row, p in zip(plain, holders, strict=True)
        )

    def _check_contribute(self, message: Incoming) -> ContributeRequest:
        request = accept(message, ContributeRequest, self._session)
        self._decisions.decide("contribute", request.digest)
        if request.recipient != self._index:
            raise WrongParty(f"the message is for client {request.recipient}")
        self._known()[1].check_sharers(request)
        return request

    def _mask(self, vector: NDArray[Any], request: ContributeRequest) -> None:
        session, secrets = self._session, self._own_secrets()
        cohort, own, asked = session.cohort, self._index, request.request
        directory, around = self._known()
        keys, masks = directory.mask_keys, PairMasks(secrets.mask, asked, self._cache)
        sharers = to_mask(request.sharers, session.size)
        peers = around.masking[sharers[around.masking]].tolist()
        added = [self_mask(self._hkdf, secrets.self_seed, asked, own)]
        added += [masks.stream(keys[p], own, cohort[p]) for p in peers if cohort[p] > own]
        subtracted = [masks.stream(keys[p], cohort[p], own) for p in peers if cohort[p] < own]
        accumulate(vector, added, subtracted)
        masks.pass_on()
        session.ring.reduce(vector)

    def _answered(self) -> ContributeRequest:
        if self._request is None:
            raise OutOfOrder("no contribution was made in this session")
        return self._request

    def _check_survivors(self, survivors: bytes) -> NDArray[np.bool_]:
        return self._known()[1].check_survivors(survivors, self._answered().sharers)

    def _survivors_statement(self, survivors: bytes) -> bytes:
        return survivors_statement(self._session.digest, self._answered().request, survivors)

    def _check_signatures(self, request: UnmaskRequest) -> None:
        if not self._session.signed or self._roster is None:
            return
        if not self._decisions.has_signed(request.survivors):
            raise ConflictingMessage("U3 is not the set that was signed at confirm")
        statement, around = self._survivors_statement(request.survivors), self._known()[1]
        around.check_signatures(request, statement, self._roster, self._cache)

    def _open_shares(self, survivors: NDArray[np.bool_]) -> UnmaskShares:
        request, (directory, around) = self._answered(), self._known()
        sharers = to_mask(request.sharers, self._session.size)
        dealers = around.naming[sharers[around.naming]].tolist()
        keys, cohort, alive = directory.channel_keys, self._session.cohort, survivors.tolist()
        channel, sealed, opened = self._own_channel(), request.sealed, {}
        for i, p in enumerate(dealers):
            envelope = sealed[i * SEALED_BYTES : (i + 1) * SEALED_BYTES]
            plain = channel.open(envelope, cohort[p], keys[p])
            if plain is not None:
                opened[p] = plain[SHARE_BYTES:] if alive[p] else plain[:SHARE_BYTES]
        return self._answer_with(opened)

    def _answer_with(self, opened: dict[int, bytes]) -> UnmaskShares:
        """Build the answer, leaving out what a dealer sealed that is no share."""
        table = np.frombuffer(b"".join(opened.values()), "<u4").reshape(-1, LIMBS)
        sound = np.all(table < PRIME, axis=1).tolist()
        dealers = [p for p, good in zip(opened, sound, strict=True) if good]
        bitmap = to_bitmap(dealers, self._session.size)
        shares = table[np.array(sound, bool)].tobytes()
        return UnmaskShares(self._session.digest, self._index, bitmap, shares)
