"""The server of a session: collects, routes, adds up, and opens the sum or nothing."""

from bisect import bisect
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray

from zerosum.secagg.crypto.cache import SharedCache
from zerosum.secagg.crypto.identity import Roster
from zerosum.secagg.crypto.keys import (
    Hkdf,
    KeyPair,
    PairMasks,
    check_public_key,
    commitment,
    self_mask,
)
from zerosum.secagg.crypto.prg import accumulate, aligned_zeros
from zerosum.secagg.crypto.reconstruction import Recovered, recover
from zerosum.secagg.crypto.shamir import LIMBS, PRIME
from zerosum.secagg.crypto.share_tables import DenseShares, EdgeShares
from zerosum.secagg.errors import (
    BadShare,
    BadSignature,
    DuplicateKey,
    LocalProtocolError,
    ReconstructionFailed,
)
from zerosum.secagg.graph.graphs import Graph, SparseGraph, crowders
from zerosum.secagg.messages.all_messages import (
    SEALED_BYTES,
    Advert,
    Adverts,
    Confirmation,
    ConfirmRequest,
    ContributeRequest,
    Contribution,
    Message,
    Shares,
    UnmaskRequest,
    UnmaskShares,
    accept,
    advert_statement,
    survivors_statement,
)
from zerosum.secagg.parties.interface import Incoming, Outbox
from zerosum.secagg.parties.routing import Envelopes
from zerosum.secagg.parties.server_stages import StagedServer
from zerosum.secagg.parties.verdict import Verdict, judge
from zerosum.secagg.randomness import system_keystream
from zerosum.secagg.session import Session
from zerosum.secagg.stages import MessageCode, Stage
from zerosum.secagg.wire import from_positions, to_bitmap, to_mask


class ServerParty(StagedServer):
    """The server of one session.

    It keeps one accumulator: contributions are added as they arrive and not kept. A client whose
    message is refused, or does not come, is a dropout from that stage on.

    Parameters
    ----------
    session : Session
    roster : Roster, optional
        Whose keys sign: required where clients do not trust the server, so that one client
        cannot speak, or spoil the session, in another's name.
    cache : SharedCache, optional
        For parties of one process.
    threads : int
        How many threads remove masks.
    colluders : int, optional
        The most clients that are assumed to lie together: liars are named only where nothing else
        is possible with so few (:func:`zerosum.secagg.parties.verdict.judge`). Without it nobody
        is.

    Raises
    ------
    LocalProtocolError
        If the roster is missing, or ``colluders`` is negative.
    WrongRoster
        If the session is bound to another.
    """

    def __init__(
        self,
        session: Session,
        *,
        roster: Roster | None = None,
        cache: SharedCache | None = None,
        threads: int = 1,
        colluders: int | None = None,
    ) -> None:
        super().__init__(session)
        if colluders is not None and colluders < 0:
            raise LocalProtocolError(f"colluders = {colluders} is negative: write 0 or more")
        if not session.masked:
            raise LocalProtocolError(
                f'a server of masked sessions was given one with protocol = "{session.protocol}"'
            )
        if session.signed and roster is None:
            raise LocalProtocolError("a session whose clients sign needs the roster")
        if roster is not None:
            roster.check_session(session)
        self._roster = roster
        self._cache = None if cache is None else cache.of(session.digest)
        self._threads = threads
        self._colluders = colluders
        self._hkdf = Hkdf(session.digest)
        self._adverts: dict[int, Advert] = {}
        self._keys: set[bytes] = set()
        self._sealed: dict[int, NDArray[np.uint8]] = {}
        self._confirmed: dict[int, bytes] = {}
        self._statement = b""
        self._total = aligned_zeros(session.vector_length, session.ring.dtype)
        self._shares: dict[int, tuple[NDArray[np.intp], NDArray[np.uint32]]] = {}
        self._crowders: tuple[int, ...] = ()

    @property
    def crowders(self) -> tuple[int, ...]:
        """Roster indices of clients whose drawn neighbours are no chance: known after advertise.

        They add to the work of those whom they name, and are left in: see
        :func:`~zerosum.secagg.graph.graphs.crowders`.
        """
        return self._crowders

    def _take(self, code: MessageCode, position: int, message: Incoming) -> None:
        take = {
            MessageCode.ADVERT: self._take_advert,
            MessageCode.SHARES: self._take_shares,
            MessageCode.CONTRIBUTION: self._take_contribution,
            MessageCode.CONFIRMATION: self._take_confirmation,
            MessageCode.UNMASK_SHARES: self._take_unmask,
        }
        take[code](position, message)

    def _ask(self, code: MessageCode | None, live: list[int]) -> Mapping[int, Message]:
        match code:
            case MessageCode.ADVERTS:
                return self._adverts_for(live)
            case MessageCode.CONTRIBUTE_REQUEST:
                return self._contribute_requests(live)
            case MessageCode.CONFIRM_REQUEST:
                return self._confirm_requests(live)
            case _:
                return self._unmask_requests(live)

    def _take_advert(self, position: int, message: Incoming) -> None:
        advert = accept(message, Advert, self._session)
        self._check_sender(position, advert.index)
        keys = (advert.channel_key, advert.mask_key)
        for key in keys:
            check_public_key(key)
        if keys[0] == keys[1] or not self._keys.isdisjoint(keys):
            raise DuplicateKey("a key of this advert was advertised before")
        if self._session.signed:
            statement = advert_statement(self._session.digest, advert.index, advert.fields)
            self._check_signature(advert.index, advert.signature, statement)
        self._keys.update(keys)
        self._adverts[position] = advert

    def _take_shares(self, position: int, message: Incoming) -> None:
        shares = accept(message, Shares, self._session)
        self._check_sender(position, shares.index)
        expected = self._holders(position)
        if shares.recipients != to_bitmap(expected, self._session.size):
            raise BadShare("shares are sealed for others than the neighbours that advertised")
        self._sealed[position] = np.frombuffer(shares.sealed, np.uint8).reshape(-1, SEALED_BYTES)

    def _take_contribution(self, position: int, message: Incoming) -> None:
        contribution = accept(message, Contribution, self._session)
        self._check_contribution(position, contribution)
        self._session.ring.add_into(self._total, contribution.vector)

    def _take_confirmation(self, position: int, message: Incoming) -> None:
        confirmation = accept(message, Confirmation, self._session)
        self._check_sender(position, confirmation.index)
        self._check_signature(confirmation.index, confirmation.signature, self._statement)
        self._confirmed[position] = confirmation.signature

    def _check_signature(self, index: int, signature: bytes, statement: bytes) -> None:
        if self._roster is None or not self._roster.verifies(
            index, signature, statement, self._cache
        ):
            raise BadSignature(f"client {index} did not sign this")

    def _take_unmask(self, position: int, message: Incoming) -> None:
        answer = accept(message, UnmaskShares, self._session)
        self._check_sender(position, answer.index)
        given = to_mask(answer.dealers, self._session.size)
        if (given & ~self._dealers(position)).any():
            raise BadShare("a share of a dealer who gave none")
        table = np.frombuffer(answer.shares, "<u4").reshape(-1, LIMBS)
        if len(table) and table.max() >= PRIME:
            raise BadShare("a share is not a field element")
        self._shares[position] = (np.flatnonzero(given), table)

    def _dealers(self, position: int) -> NDArray[np.bool_]:
        """Return, by position, whose shares a client holds."""
        if self._session.complete:
            dealt = self._alive[1].copy()
            dealt[position] = False
            return dealt
        dealt = np.zeros(self._session.size, bool)
        dealt[self._edges.naming(position)] = True
        dealt &= self._alive[1]
        return dealt

    @property
    def _edges(self) -> Graph:
        if self._graph is None:
            raise LocalProtocolError("the clients' neighbours are not known before advertise ends")
        return self._graph

    def _holders(self, position: int) -> NDArray[np.intp]:
        """Return who of N(u) advertised: they got shares."""
        named = self._edges.named_by(position)
        return named[self._alive[0][named]]

    def _well_connected(self, stage: Stage, live: list[int]) -> list[int]:
        if stage is Stage.ADVERTISE and self._session.drawn:
            # Read anew: what is left out now must not count as anybody's neighbour.
            size = self._session.size
            nobody = np.empty(0, np.intp)
            named = [nobody] * size
            for p in live:
                named[p] = from_positions(self._adverts[p].neighbours, size)
            self._graph = SparseGraph(named)
            self._crowders = tuple(self._indices(crowders(named, self._session.degree).tolist()))
        return super()._well_connected(stage, live)

    def _adverts_for(self, live: list[int]) -> Mapping[int, Message]:
        session = self._session
        if session.complete:
            entries = b"".join(self._adverts[p].entry for p in live)
            return self._to_all(
                live, Adverts(session.digest, to_bitmap(live, session.size), entries)
            )
        alive, edges, adverts = self._alive[-1], self._edges, self._adverts

        def adverts_around(position: int) -> Message:
            peers = edges.masking(position)
            present = np.union1d(peers[alive[peers]], position)
            entries = b"".join(adverts[p].entry for p in present.tolist())
            return Adverts(session.digest, to_bitmap(present, session.size), entries)

        return Outbox(self._indices(live), live, adverts_around)

    def _contribute_requests(self, live: list[int]) -> Mapping[int, Message]:
        session, request = self._session, self._request
        sharers = to_bitmap(live, session.size)
        envelopes = Envelopes(session.size)
        for sender in live:
            envelopes.add(self._holders(sender), self._sealed.pop(sender))
        self._sealed.clear()
        envelopes.sort()

        def contribute_request(position: int) -> Message:
            sealed = envelopes.to(position)
            index = session.cohort[position]
            return ContributeRequest(session.digest, index, request, sharers, sealed)

        outbox = Outbox(self._indices(live), live, contribute_request)
        return dict(outbox) if session.complete else outbox

    def _confirm_requests(self, live: list[int]) -> Mapping[int, Message]:
        self._end_contribute()
        digest, survivors = self._session.digest, to_bitmap(self._survivors, self._session.size)
        self._statement = survivors_statement(digest, self._request, survivors)
        return self._to_all(live, ConfirmRequest(digest, survivors))

    def _end_contribute(self) -> None:
        if self._cache is not None:
            self._cache.end_contribute()

    def _unmask_requests(self, live: list[int]) -> Mapping[int, Message]:
        session, confirmed, edges = self._session, self._confirmed, self._edges
        survivors, alive = to_bitmap(self._survivors, session.size), self._alive[-1]
        if not session.signed:
            self._end_contribute()
            return self._to_all(live, UnmaskRequest(session.digest, survivors))

        def unmask_request(signers: NDArray[np.intp]) -> Message:
            signatures = b"".join(confirmed[p] for p in signers.tolist())
            bitmap = to_bitmap(signers, session.size)
            return UnmaskRequest(session.digest, survivors, bitmap, signatures)

        def own_request(position: int) -> Message:
            named = edges.named_by(position)
            return unmask_request(named[alive[named]][: session.threshold])

        if session.complete:
            # One more than the threshold, so that enough are left where one is the reader's own.
            return self._to_all(live, unmask_request(np.array(live[: session.threshold + 1])))
        return Outbox(self._indices(live), live, own_request)

    def _open(self) -> tuple[NDArray[Any], Verdict]:
        session, sharers = self._session, self._live[1]
        kind = DenseShares if session.complete else EdgeShares
        table = kind(session.size, self._shares)
        self._shares.clear()
        # Drawn only now: who knew the coefficients before answering could make wrong shares cancel.
        recovered = recover(
            sharers, table, session.threshold, self._check_secret, system_keystream()
        )
        counts = table.counts().tolist()
        verdict = judge(recovered, counts, session.threshold, self._colluders)
        self._refuse_failures(recovered, verdict)
        self._remove_masks(recovered.secrets)
        return session.ring.reduce(self._total), verdict

    def _check_secret(self, dealer: int, secret: bytes) -> bool:
        """Tell whether a secret is what its dealer advertised: b_u inside U3, s_sk outside."""
        advert = self._adverts[dealer]
        if self._alive[2][dealer]:
            return commitment(self._session.digest, advert.index, secret) == advert.commitment
        return KeyPair(secret, self._hkdf).public == advert.mask_key

    def _refuse_failures(self, recovered: Recovered, verdict: Verdict) -> None:
        if not recovered.failed:
            return
        dealer, holders = min(recovered.failed.items())
        silent = not holders
        if silent:
            named = self._edges.named_by(dealer)
            holders = tuple(named[self._alive[-1][named]].tolist())
        reason = "has too few shares that open" if silent else "does not match its commitment"
        raise ReconstructionFailed(
            self._session.cohort[dealer],
            self._indices(sorted({dealer, *holders})),
            reason,
            liars=self._indices(verdict.liars),
            wrong_shares=self._pairs(verdict),
        )

    def _remove_masks(self, secrets: dict[int, bytes]) -> None:
        session, request, survivors = self._session, self._request, self._survivors
        remove = partial(accumulate, self._total, version=session.version, threads=self._threads)
        cohort, hkdf, alive = session.cohort, self._hkdf, self._alive[2]
        remove((), (self_mask(hkdf, secrets[p], request, cohort[p]) for p in survivors))
        public = {p: self._adverts[p].mask_key for p in survivors}
        parsed: dict[bytes, X25519PublicKey] = {}
        for gone in (p for p in secrets if not alive[p]):
            pair = KeyPair(secrets[gone], hkdf, self._cache, parsed)
            around = self._edges.masking(gone)
            peers = around[alive[around]].tolist()
            masks = PairMasks(pair, cohort[gone], request)
            seeds = masks.seeds([public[p] for p in peers], [cohort[p] for p in peers])
            # A survivor that comes before the one that is gone had added their stream.
            before = bisect(peers, gone)
            remove(seeds[before:], seeds[:before])
