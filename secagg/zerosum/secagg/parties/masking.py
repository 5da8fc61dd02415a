"""A client's masks: its own, and one that it shares with each peer.

Parties that live in one process can have the net masks of a whole cohort made at once, each
pair's stream run a single time: the same bits for half the work of the cipher.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from zerosum.secagg.crypto.cache import MaskKey, SessionCache
from zerosum.secagg.crypto.keys import KeyPair, PairMasks
from zerosum.secagg.crypto.prg import (
    Pair,
    accumulate,
    accumulate_pairs,
    aligned_zeros,
)
from zerosum.secagg.messages.all_messages import ContributeRequest
from zerosum.secagg.parties.directory import Directory
from zerosum.secagg.parties.neighbourhood import Neighbourhood
from zerosum.secagg.session import Session
from zerosum.secagg.wire import from_bitmap, to_mask

SHARED_BYTES = 256 << 20
"""Most memory that the net masks of a cohort may take; where they would take more, each party
expands its own."""


@dataclass(frozen=True)
class MaskInputs:
    """Inputs of one client's masks, besides its keys."""

    session: Session
    directory: Directory
    around: Neighbourhood
    request: ContributeRequest

    @property
    def digests(self) -> tuple[bytes, bytes, bytes]:
        """Adverts, request and U2: on the complete graph, equal where all masks fit together."""
        return self.directory.digest, self.request.request, self.request.sharers


def add_masks(
    vector: NDArray[Any],
    inputs: MaskInputs,
    own: bytes,
    pair: KeyPair,
    cache: SessionCache | None = None,
    threads: int = 1,
) -> None:
    """Mask a vector in place: with one's own stream, and with those shared with M(u) in U2.

    Parameters
    ----------
    vector : ndarray in the ring's container, shape (vector_length,)
    inputs : MaskInputs
    own : bytes
        Seed of the self mask.
    pair : KeyPair
        The client's mask keys.
    cache : SessionCache, optional
        Shared with other parties of this process.
    threads : int
        How many threads expand masks.

    Raises
    ------
    LocalProtocolError
        If the vector is not one of the ring's container, reduced, of the session's length.
    """
    session, u = inputs.session, inputs.around.position
    session.ring.check(vector, session.vector_length)
    add = partial(accumulate, vector, version=session.version, threads=threads)
    net = None if cache is None else _net_mask(inputs, cache, threads)
    if net is not None:
        add([own])
        session.ring.add_into(vector, net)
        return
    sharers, around = to_mask(inputs.request.sharers, session.size), inputs.around.masking
    peers = around[sharers[around]].tolist()
    seeds = _pair_seeds(pair, u, peers, inputs)
    after = bisect(peers, u)
    add([own, *seeds[after:]], seeds[:after])


def _pair_seeds(own: MaskKey, u: int, peers: Sequence[int], inputs: MaskInputs) -> list[bytes]:
    """Return the seeds that a client, by position, shares with some peers."""
    cohort, keys = inputs.session.cohort, inputs.directory.mask_keys
    masks = PairMasks(own, cohort[u], inputs.request.request)
    return masks.seeds([keys[p] for p in peers], [cohort[p] for p in peers])


def _net_mask(inputs: MaskInputs, cache: SessionCache, threads: int) -> NDArray[Any] | None:
    """Return the sum of a client's pair masks, if it could be made with all others' of U2.

    They are made once in a session, for what the first client was asked: whoever is asked
    something else, and whoever comes again, is left to its own.
    """
    session = inputs.session
    if cache.netted is None and session.complete:
        size = session.vector_length * session.ring.dtype.itemsize * session.size
        members = from_bitmap(inputs.request.sharers).tolist()
        if size <= SHARED_BYTES and _all_here(members, inputs.directory, cache):
            cache.nets = _net_masks(members, inputs, cache, threads)
            cache.netted = inputs.digests
    if cache.netted != inputs.digests:
        return None
    return cache.nets.pop(inputs.around.position, None)


def _all_here(members: list[int], directory: Directory, cache: SessionCache) -> bool:
    """Tell whether all parties of U2 are in this process, with the keys of the adverts."""
    here, keys = cache.maskers, directory.mask_keys
    return all(p in here and here[p].public == keys[p] for p in members)


def _net_masks(
    members: list[int], inputs: MaskInputs, cache: SessionCache, threads: int
) -> dict[int, NDArray[Any]]:
    session = inputs.session
    totals = [aligned_zeros(session.vector_length, session.ring.dtype) for _ in members]

    def pairs() -> Iterator[Pair]:
        for a, low in enumerate(members):
            seeds = _pair_seeds(cache.maskers[low], low, members[a + 1 :], inputs)
            for b, seed in enumerate(seeds, a + 1):
                yield a, b, seed

    accumulate_pairs(totals, pairs(), version=session.version, threads=threads)
    return dict(zip(members, totals, strict=True))
