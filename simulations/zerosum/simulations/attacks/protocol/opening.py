"""Reconstruct one client's secrets from the shares that a server received, and open its vector.

None of this is the protocol's own server, which never holds both secrets of one client.
"""

from bisect import bisect
from collections.abc import Mapping
from typing import Literal

import numpy as np

from zerosum.secagg import (
    Advert,
    Confirmation,
    ConfirmRequest,
    ContributeRequest,
    Contribution,
    IdentityKey,
    Session,
    UnmaskRequest,
    UnmaskShares,
    decode,
)
from zerosum.secagg.crypto.keys import (
    Channel,
    Hkdf,
    KeyPair,
    PairMasks,
    PartySecrets,
    commitment,
    self_mask,
)
from zerosum.secagg.crypto.prg import accumulate
from zerosum.secagg.crypto.shamir import LIMBS, combine
from zerosum.secagg.messages.all_messages import SEALED_BYTES, SHARE_BYTES, survivors_statement
from zerosum.secagg.messages.exported_state import ClientState
from zerosum.secagg.parties.directory import Directory
from zerosum.secagg.stages import Stage
from zerosum.secagg.wire import bitmap_has, from_bitmap, to_bitmap
from zerosum.simulations.attacks.harness.interface import Masking
from zerosum.simulations.attacks.protocol.sessions import REQUEST, Transcript

Kind = Literal["self", "mask"]
"""Of secret: the self mask's seed, or the private mask key."""

Shares = Mapping[Kind, dict[int, np.ndarray]]
"""By kind and evaluation point: uint32, shape (9,), a share's limbs."""


def shares_of(seen: Transcript) -> Shares:
    """Collect all shares of the victim's two secrets: answers, and those of colluders."""
    session = seen.opened()
    victim = session.position(seen.victim)
    found: Shares = {"self": {}, "mask": {}}
    for said in seen.answers(Stage.UNMASK):
        alive = bitmap_has(decode(said.asked, UnmaskRequest, session).survivors, victim)
        answer = decode(said.answer, UnmaskShares, session)
        dealers = from_bitmap(answer.dealers).tolist()
        if victim in dealers:
            table = np.frombuffer(answer.shares, "<u4").reshape(-1, LIMBS)
            point = session.position(said.client) + 1
            found["self" if alive else "mask"][point] = table[dealers.index(victim)]
    for client, state in seen.states.items():
        pair = colluders_shares(state, seen.victim)
        for kind, share in pair.items():
            found[kind][session.position(client) + 1] = share
    return found


def colluders_shares(state: bytes, dealer: int) -> Mapping[Kind, np.ndarray]:
    """Decrypt both shares that one client dealt to a colluder, from the colluder's exported state.

    Parameters
    ----------
    state : bytes
        Exported after contribute.
    dealer : int
        Roster index of the dealing client.

    Returns
    -------
    mapping of str to ndarray
        By kind: uint32, shape (9,).

    Raises
    ------
    ValueError
        If the state is of before contribute, or the envelope does not open.
    """
    own = ClientState.from_bytes(state)
    session = own.session
    if own.request is None or own.adverts is None:
        raise ValueError("the colluder holds no shares yet: export its state after contribute")
    secrets = PartySecrets.expand(own.seed, Hkdf(session.digest), own.index, None)
    channel = Channel(session.digest, own.index, secrets.channel)
    place = session.position(dealer)
    dealers = from_bitmap(own.request.sharers).tolist()
    dealers.remove(session.position(own.index))
    at = SEALED_BYTES * dealers.index(place)
    envelope = own.request.sealed[at : at + SEALED_BYTES]
    key = Directory.of(own.adverts, session).channel_keys[place]
    plain = channel.open(envelope, dealer, key)
    if plain is None:
        raise ValueError(f"the envelope of client {dealer} does not open: it is for another client")
    mask, seed = plain[:SHARE_BYTES], plain[SHARE_BYTES:]
    return {"mask": np.frombuffer(mask, "<u4"), "self": np.frombuffer(seed, "<u4")}


def secrets_of(seen: Transcript) -> Mapping[Kind, bytes]:
    """Combine those of the victim's secrets that have t shares, and check them against its advert.

    A secret that fits neither the public key nor the commitment is left out: some share of it was
    wrong.
    """
    session, advert = seen.opened(), seen.answer(Stage.ADVERTISE, seen.victim, Advert)
    found: dict[Kind, bytes] = {}
    for kind, shares in shares_of(seen).items():
        points = sorted(shares)[: session.threshold]
        if len(points) < session.threshold:
            continue
        secret = combine(points, np.array([shares[point] for point in points]))
        if secret is not None and _fits(secret, kind, advert, session):
            found[kind] = secret
    return found


def _fits(secret: bytes, kind: Kind, advert: Advert, session: Session) -> bool:
    if kind == "self":
        return commitment(session.digest, advert.index, secret) == advert.commitment
    return KeyPair(secret, Hkdf(session.digest)).public == advert.mask_key


def masked_vector(seen: Transcript) -> np.ndarray:
    """Return the victim's contribution as it was sent, in the ring's container."""
    return np.array(seen.answer(Stage.CONTRIBUTE, seen.victim, Contribution).vector)


def without_pair_masks(seen: Transcript, mask_key: bytes) -> np.ndarray:
    """Remove from the victim's contribution the masks that it shares with its peers.

    Parameters
    ----------
    seen : Transcript
    mask_key : bytes
        The victim's private one.

    Returns
    -------
    ndarray in the ring's container
        Shape (d,).
    """
    session, victim, hkdf = seen.opened(), seen.victim, Hkdf(seen.opened().digest)
    asked = next(each.asked for each in seen.answers(Stage.CONTRIBUTE) if each.client == victim)
    request = decode(asked, ContributeRequest, session)
    masks = PairMasks(KeyPair(mask_key, hkdf), victim, request.request)
    vector = masked_vector(seen)
    peers = [session.cohort[place] for place in from_bitmap(request.sharers).tolist()]
    peers.remove(victim)
    keys = [seen.answer(Stage.ADVERTISE, peer, Advert).mask_key for peer in peers]
    seeds, before = masks.seeds(keys, peers), bisect(peers, victim)
    accumulate(vector, seeds[:before], seeds[before:], version=session.version)
    return session.ring.reduce(vector)


def without_self_mask(seen: Transcript, vector: np.ndarray, seed: bytes) -> np.ndarray:
    """Remove the victim's self mask from a vector.

    Parameters
    ----------
    seen : Transcript
    vector : ndarray in the ring's container
        Shape (d,).
    seed : bytes
        32 bytes, b_u.

    Returns
    -------
    ndarray in the ring's container
        Shape (d,).
    """
    session = seen.opened()
    request = seen.answer(Stage.CONTRIBUTE, seen.victim, Contribution).request
    opened = np.array(vector)
    own = self_mask(Hkdf(session.digest), seed, request, seen.victim)
    accumulate(opened, (), [own], version=session.version)
    return session.ring.reduce(opened)


def opened_vector(seen: Transcript, masking: Masking) -> np.ndarray:
    """Open the victim's vector as far as the shares allow.

    Parameters
    ----------
    seen : Transcript
    masking : str
        Which masks there are to remove.

    Returns
    -------
    ndarray in the ring's container
        Shape (d,): zeros where a mask stays on.
    """
    if masking == "none":
        return masked_vector(seen)
    secrets = secrets_of(seen)
    if "mask" not in secrets or (masking == "double" and "self" not in secrets):
        return np.zeros_like(masked_vector(seen))
    vector = without_pair_masks(seen, secrets["mask"])
    return vector if masking == "single" else without_self_mask(seen, vector, secrets["self"])


def unmask_request(seen: Transcript, survivors: bytes) -> bytes:
    """Return the unmask message for a set, with all available signatures of it.

    Parameters
    ----------
    seen : Transcript
    survivors : bytes
        Bitmap over the cohort's positions.

    Returns
    -------
    bytes
    """
    session = seen.opened()
    if not session.signed:
        return UnmaskRequest(session.digest, survivors).to_bytes()
    statement = survivors_statement(session.digest, REQUEST, survivors)
    by_place = {
        session.position(i): IdentityKey(key).sign(statement) for i, key in seen.identities.items()
    }
    for said in seen.answers(Stage.CONFIRM):
        if decode(said.asked, ConfirmRequest, session).survivors == survivors:
            answer = decode(said.answer, Confirmation, session)
            by_place[session.position(said.client)] = answer.signature
    places = [p for p in from_bitmap(survivors).tolist() if p in by_place]
    signers, signatures = to_bitmap(places, session.size), b"".join(by_place[p] for p in places)
    return UnmaskRequest(session.digest, survivors, signers, signatures).to_bytes()
