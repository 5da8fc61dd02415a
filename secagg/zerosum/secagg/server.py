"""The server of a session: collects, routes, adds up, and opens the sum or nothing."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.cache import SharedCache
from zerosum.secagg.decisions import STAGES
from zerosum.secagg.errors import (
    BadShare,
    DuplicateKey,
    ReconstructionFailed,
)
from zerosum.secagg.graph import mask_neighbours, share_neighbours
from zerosum.secagg.keys import (
    Hkdf,
    KeyPair,
    PairMasks,
    check_public_key,
    commitment,
    self_mask,
)
from zerosum.secagg.messages import (
    SEALED_BYTES,
    Advert,
    Adverts,
    ContributeRequest,
    Contribution,
    Message,
    Shares,
    UnmaskRequest,
    UnmaskShares,
    accept,
)
from zerosum.secagg.party import Incoming
from zerosum.secagg.prg import Stream, accumulate
from zerosum.secagg.recovery import Recovered, recover
from zerosum.secagg.session import Session
from zerosum.secagg.shamir import LIMBS, PRIME
from zerosum.secagg.stages import StagedServer
from zerosum.secagg.wire import from_bitmap, to_bitmap


class ServerParty(StagedServer):
    """The server of one session.

    It keeps one accumulator: contributions are added as they arrive and not kept. A client whose
    message is refused, or does not come, is a dropout from that stage on.

    Parameters
    ----------
    session : Session
    cache : SharedCache, optional
        For parties of one process.
    """

    def __init__(self, session: Session, *, cache: SharedCache | None = None) -> None:
        super().__init__(session)
        self._cache = None if cache is None else cache.of(session.digest)
        self._hkdf = Hkdf(session.digest)
        self._adverts: dict[int, Advert] = {}
        self._keys: set[bytes] = set()
        self._sealed: dict[int, NDArray[np.uint8]] = {}
        self._total = session.ring.zeros(session.vector_length)
        self._shares: dict[int, tuple[NDArray[np.intp], NDArray[np.uint32]]] = {}

    def _take(self, position: int, message: Incoming) -> None:
        match STAGES[self._phase]:
            case "advertise":
                self._take_advert(position, message)
            case "share":
                self._take_shares(position, message)
            case "contribute":
                self._take_contribution(position, message)
            case _:
                self._take_unmask(position, message)

    def _take_advert(self, position: int, message: Incoming) -> None:
        advert = accept(message, Advert, self._session)
        self._check_sender(position, advert.index)
        keys = (advert.channel_key, advert.mask_key)
        for key in keys:
            check_public_key(key)
        if keys[0] == keys[1] or not self._keys.isdisjoint(keys):
            raise DuplicateKey("a key of this advert was advertised before")
        self._keys.update(keys)
        self._adverts[position] = advert

    def _take_shares(self, position: int, message: Incoming) -> None:
        shares = accept(message, Shares, self._session)
        self._check_sender(position, shares.index)
        expected = self._neighbours(position, set(self._live[0]))
        if shares.recipients != to_bitmap(expected, self._session.size):
            raise BadShare("shares are sealed for others than the neighbours that advertised")
        self._sealed[position] = np.frombuffer(shares.sealed, np.uint8).reshape(-1, SEALED_BYTES)

    def _take_contribution(self, position: int, message: Incoming) -> None:
        contribution = accept(message, Contribution, self._session)
        self._check_contribution(position, contribution)
        self._session.ring.add_into(self._total, contribution.vector)

    def _take_unmask(self, position: int, message: Incoming) -> None:
        answer = accept(message, UnmaskShares, self._session)
        self._check_sender(position, answer.index)
        dealers = from_bitmap(answer.dealers)
        allowed = set(self._neighbours(position, set(self._live[1])))
        if not allowed.issuperset(dealers.tolist()):
            raise BadShare("a share of a dealer who gave none")
        table = np.frombuffer(answer.shares, "<u4").reshape(-1, LIMBS)
        if (table >= PRIME).any():
            raise BadShare("a share is not a field element")
        self._shares[position] = (dealers, table)

    def _neighbours(self, position: int, among: set[int]) -> list[int]:
        return [p for p in share_neighbours(self._session, position) if p in among]

    def _after_advertise(self, live: list[int]) -> dict[int, Message]:
        present = to_bitmap(live, self._session.size)
        entries = b"".join(self._adverts[p].entry for p in live)
        return self._to_all(live, Adverts(self._session.digest, present, entries))

    def _after_share(self, live: list[int], request: bytes) -> dict[int, Message]:
        session, sharers = self._session, to_bitmap(live, self._session.size)
        # By sender and recipient; one's own envelope, which does not exist, stays empty.
        table = np.zeros((len(live), session.size, SEALED_BYTES), np.uint8)
        for row, sender in enumerate(live):
            table[row, self._neighbours(sender, set(self._live[0]))] = self._sealed[sender]
        rows = np.arange(len(live))
        messages: dict[int, Message] = {}
        for row, position in enumerate(live):
            sealed = table[rows != row, position].tobytes()
            index = session.cohort[position]
            messages[index] = ContributeRequest(session.digest, index, request, sharers, sealed)
        self._sealed.clear()
        return messages

    def _after_contribute(self, live: list[int]) -> dict[int, Message]:
        survivors = to_bitmap(live, self._session.size)
        return self._to_all(live, UnmaskRequest(self._session.digest, survivors))

    def _after_unmask(self, live: list[int]) -> tuple[NDArray[Any], set[int]]:
        session, sharers, survivors = self._session, self._live[1], self._live[2]
        shares = np.zeros((session.size, session.size, LIMBS), np.uint32)
        given = np.zeros((session.size, session.size), bool)
        for holder, (dealers, table) in self._shares.items():
            shares[holder, dealers] = table
            given[holder, dealers] = True
        self._shares.clear()
        recovered = recover(sharers, shares, given, session.threshold, self._check_secret)
        self._refuse_failures(recovered, live)
        self._remove_masks(recovered.secrets, survivors)
        return session.ring.reduce(self._total), recovered.faulty

    def _check_secret(self, dealer: int, secret: bytes) -> bool:
        """Tell whether a secret is what its dealer advertised: b_u inside U3, s_sk outside."""
        advert = self._adverts[dealer]
        if dealer in self._survivors:
            return commitment(self._session.digest, advert.index, secret) == advert.commitment
        return KeyPair(secret, self._hkdf).public == advert.mask_key

    def _refuse_failures(self, recovered: Recovered, live: list[int]) -> None:
        if not recovered.failed:
            return
        dealer, holders = min(recovered.failed.items())
        cohort = self._session.cohort
        silent = not holders
        candidates = sorted({dealer, *(live if silent else holders)} - recovered.faulty)
        reason = "has too few shares that open" if silent else "does not match its commitment"
        raise ReconstructionFailed(cohort[dealer], [cohort[p] for p in candidates], reason)

    def _remove_masks(self, secrets: dict[int, bytes], survivors: list[int]) -> None:
        session, cohort = self._session, self._session.cohort
        own = (self_mask(self._hkdf, secrets[p], self._request, cohort[p]) for p in survivors)
        accumulate(self._total, (), own)
        for gone in (p for p in secrets if p not in self._survivors):
            pair = KeyPair(secrets[gone], self._hkdf, self._cache)
            masks = PairMasks(pair, self._request, self._cache)
            peers = [p for p in mask_neighbours(session, gone) if p in self._survivors]
            # A survivor that comes before the one that is gone had added their stream.
            before = (self._pair_stream(masks, p, gone) for p in peers if p < gone)
            after = (self._pair_stream(masks, p, gone) for p in peers if p > gone)
            accumulate(self._total, after, before)

    def _pair_stream(self, masks: PairMasks, survivor: int, gone: int) -> Stream:
        low, high = sorted((self._session.cohort[survivor], self._session.cohort[gone]))
        return masks.stream(self._adverts[survivor].mask_key, low, high)
