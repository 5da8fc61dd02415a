"""Deal a client's secrets to its neighbours, and open the shares they dealt to it."""

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.keys import Channel, PartySecrets
from zerosum.secagg.crypto.shamir import LIMBS, PRIME, split
from zerosum.secagg.messages.all_messages import SEALED_BYTES, SHARE_BYTES, ContributeRequest
from zerosum.secagg.parties.directory import Directory
from zerosum.secagg.parties.neighbourhood import Neighbourhood
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.session import Session
from zerosum.secagg.wire import to_mask


def seal_shares(
    session: Session,
    secrets: PartySecrets,
    channel: Channel,
    directory: Directory,
    around: Neighbourhood,
) -> bytes:
    """Split both secrets, and seal a pair of shares for each neighbour that advertised.

    Parameters
    ----------
    session : Session
    secrets : PartySecrets
        b_u, s_sk, and the seed of the polynomials.
    channel : Channel
        The client's own.
    directory : Directory
        The adverts that the client was shown.
    around : Neighbourhood

    Returns
    -------
    bytes
        88 for each, ascending by position.
    """
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
    plain = (shares[holders] if session.complete else shares).tobytes()
    cohort, keys = session.cohort, directory.channel_keys
    return channel.seal_all(
        _cut(plain, 2 * SHARE_BYTES), [cohort[p] for p in holders], [keys[p] for p in holders]
    )


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def open_shares(
    session: Session,
    channel: Channel,
    directory: Directory,
    around: Neighbourhood,
    request: ContributeRequest,
    survivors: NDArray[np.bool_],
) -> tuple[list[int], bytes]:
    """Open one share of each dealer in U2: of its self mask in U3, of its mask key outside.

    Parameters
    ----------
    session : Session
    channel : Channel
        The client's own.
    directory : Directory
        The adverts that the client was shown.
    around : Neighbourhood
    request : ContributeRequest
        U2, and the sealed shares.
    survivors : ndarray of bool, shape (cohort size,)
        U3 by position.

    Returns
    -------
    dealers : list of int
        Positions, ascending, without those whose envelope does not open or holds no share.
    shares : bytes
        36 for each.
    """
    sharers = to_mask(request.sharers, session.size)
    dealers = around.naming[sharers[around.naming]].tolist()
    keys, cohort, alive = directory.channel_keys, session.cohort, survivors.tolist()
    plain = channel.open_all(
        _cut(request.sealed, SEALED_BYTES), [cohort[p] for p in dealers], [keys[p] for p in dealers]
    )
    opened = {
        p: pair[SHARE_BYTES:] if alive[p] else pair[:SHARE_BYTES]
        for p, pair in zip(dealers, plain, strict=True)
        if pair is not None
    }
    table = np.frombuffer(b"".join(opened.values()), "<u4").reshape(-1, LIMBS)
    sound = np.all(table < PRIME, axis=1)
    good = [p for p, is_sound in zip(opened, sound.tolist(), strict=True) if is_sound]
    return good, table[sound].tobytes()
