"""The masking client of a session: one answer to each of the server's messages."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.cache import SharedCache
from zerosum.secagg.crypto.identity import IdentityKey, Roster
from zerosum.secagg.crypto.keys import commitment, self_mask
from zerosum.secagg.errors import (
    AdvertMismatch,
    ConflictingMessage,
    LocalProtocolError,
    StateLost,
    WrongParty,
)
from zerosum.secagg.messages.all_messages import (
    Advert,
    Adverts,
    Confirmation,
    ConfirmRequest,
    ContributeRequest,
    Contribution,
    Shares,
    UnmaskRequest,
    UnmaskShares,
    advert_statement,
    survivors_statement,
)
from zerosum.secagg.messages.durable_record import NO_MESSAGE, Decisions
from zerosum.secagg.messages.exported_state import ClientState
from zerosum.secagg.parties.client_stages import StagedClient
from zerosum.secagg.parties.directory import Directory
from zerosum.secagg.parties.interface import Incoming, Step
from zerosum.secagg.parties.masking import MaskInputs, add_masks
from zerosum.secagg.parties.neighbourhood import Neighbourhood
from zerosum.secagg.parties.policy import Policy
from zerosum.secagg.parties.share_dealing import open_shares, seal_shares
from zerosum.secagg.randomness import SEED_BYTES, RandomSource, SystemRandomness
from zerosum.secagg.session import Session
from zerosum.secagg.stages import Phase, Stage
from zerosum.secagg.wire import to_bitmap, to_positions


class ClientParty(StagedClient):
    """Mask one client's vector in one session: messages in, messages out.

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
    threads : int
        How many threads expand masks.

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
        threads: int = 1,
    ) -> None:
        self._begin(session, index, cache, Decisions(session.digest, record), threads)
        self._identify(identity, roster)
        if policy is not None:
            policy.admit(session, roster)
        if len(self._decisions):
            raise StateLost("the record shows that this session was begun with another seed")
        self._seed = (source or SystemRandomness()).take(SEED_BYTES)

    def advertise(self) -> Step:
        """Advertise two public keys and the commitment to the self mask's seed.

        On a sparse graph against a malicious server it says which neighbours were drawn.
        """
        phase = self._enter(Stage.ADVERTISE)
        decision = self._decisions.decide(phase, NO_MESSAGE)
        advert = self._own_advert()
        return Step(self._advance(phase, self._decisions.commit(decision)), advert)

    def share(self, message: Incoming) -> Step:
        """Share both secrets, sealed for each neighbour that advertised.

        Raises
        ------
        RemoteProtocolError
            If keys are bad or equal, an advert is not signed, the own advert is missing or
            changed, fewer than t neighbours advertised, or other adverts were answered before.
        """
        phase = self._enter(Stage.SHARE)
        adverts = self._read(phase, Adverts, message)
        decision = self._decisions.decide(phase, adverts.digest)
        directory, around = self._check_adverts(adverts)
        sealed = seal_shares(
            self._session, self._own_secrets(), self._own_channel(), directory, around
        )
        bitmap = to_bitmap(around.holders, self._session.size)
        send = Shares(self._session.digest, self._index, bitmap, sealed)
        self._adverts = adverts
        self._keep_view(directory, around)
        return Step(self._advance(phase, self._decisions.commit(decision)), send)

    def admit(self, message: Incoming) -> bytes:
        """Check the contribute message without answering it, and return its request digest.

        The caller compares the digest with that of what it was asked, and then trains.

        Raises
        ------
        RemoteProtocolError
            If the message is not for this client, U2 breaks the rules, or a contribution was
            made before (``AlreadyContributed``).
        """
        return self._check_contribute(self._enter(Stage.CONTRIBUTE), message).request

    def contribute(self, message: Incoming, vector: NDArray[Any]) -> Step:
        """Mask the vector and return it; once.

        Parameters
        ----------
        message : bytes or ContributeRequest
        vector : ndarray, shape (vector_length,)
            In the ring: centred int64 or int32, or of the ring's own container; as
            :meth:`~zerosum.secagg.vectors.ring.Ring.contain` takes it.

        Returns
        -------
        Step

        Raises
        ------
        RemoteProtocolError
            As :meth:`admit`.
        LocalProtocolError
            If the vector is of another shape or type, or not in the ring; nothing is decided, so
            that the right vector can follow.
        """
        phase = self._enter(Stage.CONTRIBUTE)
        request = self._check_contribute(phase, message)
        decision = self._decisions.decide(phase, request.digest)
        masked = self._session.ring.contain(vector, self._session.vector_length)
        self._mask(masked, request)
        send = Contribution(
            self._session.digest, self._index, request.request, masked, self._session.ring_bits
        )
        self._request = request
        return Step(self._advance(phase, self._decisions.commit(decision)), send)

    def confirm(self, message: Incoming) -> Step:
        """Sign the set of survivors, U3; one set only.

        Raises
        ------
        RemoteProtocolError
            If U3 breaks the rules, another U3 was signed before, or the session has no such
            stage.
        """
        phase = self._enter(Stage.CONFIRM)
        request = self._read(phase, ConfirmRequest, message)
        decision = self._decisions.decide(phase, request.digest, request.survivors)
        self._check_survivors(request.survivors)
        signature = self._own_identity().sign(self._survivors_statement(request.survivors))
        send = Confirmation(self._session.digest, self._index, signature)
        return Step(self._advance(phase, self._decisions.commit(decision)), send)

    def unmask(self, message: Incoming) -> Step:
        """Release one share of each dealer: of the self mask in U3, of the mask key outside.

        The party's secrets are forgotten; the answer is kept, and given again for the same U3.

        Raises
        ------
        RemoteProtocolError
            If U3 breaks the rules, is not what was signed at confirm, is not signed by enough
            neighbours, or another U3 was answered before.
        """
        phase = self._enter(Stage.UNMASK)
        request = self._read(phase, UnmaskRequest, message)
        decision = self._decisions.decide(phase, request.digest, request.survivors)
        if self._answer is None:
            survivors = self._check_survivors(request.survivors)
            self._check_signatures(request)
            self._answer = self._open_shares(survivors)
        persist = self._advance(phase, self._decisions.commit(decision))
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
        threads: int = 1,
    ) -> "ClientParty":
        """Rebuild a party from :meth:`export` and the durable record.

        Parameters
        ----------
        data : bytes
            What ``export`` returned, at this or an earlier stage.
        identity, roster, cache, threads
            As for the constructor; a policy admitted the session when it began.
        source : RandomSource, optional
            Not drawn from: everything expands from the exported seed.
        record : iterable of bytes
            Every line of the durable record; it overrules an older state.

        Returns
        -------
        ClientParty
            At the exported stage.

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
        party._begin(state.session, state.index, cache, decisions, threads)
        party._identify(identity, roster)
        party._phase, party._seed = state.phase, state.seed
        party._adverts, party._request = state.adverts, state.request
        party._answer = state.answer
        return party

    def _own_advert(self) -> Advert:
        if self._advert is None:
            self._advert = self._make_advert()
        return self._advert

    def _make_advert(self) -> Advert:
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

    def _check_contribute(self, phase: Phase, message: Incoming) -> ContributeRequest:
        request = self._read(phase, ContributeRequest, message)
        self._decisions.decide(phase, request.digest)
        if request.recipient != self._index:
            raise WrongParty(f"the message is for client {request.recipient}")
        self._known()[1].check_sharers(request)
        return request

    def _mask(self, vector: NDArray[Any], request: ContributeRequest) -> None:
        session, secrets = self._session, self._own_secrets()
        own = self_mask(self._hkdf, secrets.self_seed, request.request, self._index)
        inputs = MaskInputs(session, *self._known(), request)
        add_masks(vector, inputs, own, secrets.mask, self._cache, self._threads)
        session.ring.reduce(vector)

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
        session, (directory, around) = self._session, self._known()
        dealers, shares = open_shares(
            session, self._own_channel(), directory, around, self._answered(), survivors
        )
        return UnmaskShares(session.digest, self._index, to_bitmap(dealers, session.size), shares)
