"""A client's masks: its own, and one that it shares with each peer.

Parties that live in one process can have the net masks of a whole cohort made at once, each
pair's stream run a single time: the same bits for half the work of the cipher.
"""

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
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
    def asked(self) -> tuple[bytes, bytes]:
        """Request and U2: equal where all masks fit together."""
        return self.request.request, self.request.sharers


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
    seeds = _pair_seeds(pair, u, peers, inputs.directory.mask_keys, inputs)
    after = bisect(peers, u)
    add([own, *seeds[after:]], seeds[:after])


def _pair_seeds(
    own: MaskKey, u: int, peers: Sequence[int], keys: Mapping[int, bytes], inputs: MaskInputs
) -> list[bytes]:
    """Return the seeds that a client, by position, shares with some peers."""
    cohort = inputs.session.cohort
    masks = PairMasks(own, cohort[u], inputs.request.request)
    return masks.seeds([keys[p] for p in peers], [cohort[p] for p in peers])


def _net_mask(inputs: MaskInputs, cache: SessionCache, threads: int) -> NDArray[Any] | None:
    """Return the sum of a client's pair masks, if it could be made with all others' of U2.

    They are made once in a session, for what the first client was asked: whoever is asked
    something else, and whoever comes again, is left to its own.
    """
    session, asked = inputs.session, inputs.asked
    if cache.netted is None:
        size = session.vector_length * session.ring.dtype.itemsize * session.size
        members = from_bitmap(inputs.request.sharers).tolist()
        pairs = _pairs_here(members, cache) if size <= SHARED_BYTES else None
        if pairs is not None:
            cache.nets = _net_masks(members, pairs, inputs, cache, threads)
            cache.netted = asked
    if cache.netted != asked:
        return None
    view, net = cache.nets.pop(inputs.around.position, (None, None))
    return net if view is inputs.around else None


def _pairs_here(members: list[int], cache: SessionCache) -> list[tuple[int, int]] | None:
    """Return the pairs of U2 that mask with each other, the lower position first.

    None unless all parties of U2 are in this process and each of a pair has seen the other as it
    is: with its key, and as a neighbour in both directions. Adverts may be shown to one party and
    kept from another.
    """
    keys, views = cache.maskers, cache.views
    if not all(p in keys and p in views for p in members):
        return None
    inside = set(members)
    peers = {p: inside.intersection(views[p][1].masking.tolist()) for p in members}
    for p, around in peers.items():
        seen, own = views[p][0].mask_keys, keys[p].public
        if not all(p in peers[q] and seen[q] == keys[q].public for q in around):
            return None
        if seen[p] != own:
            return None
    return [(p, q) for p in members for q in sorted(peers[p]) if p < q]


def _net_masks(
    members: list[int],
    pairs: list[tuple[int, int]],
    inputs: MaskInputs,
    cache: SessionCache,
    threads: int,
) -> dict[int, tuple[Neighbourhood, NDArray[Any]]]:
    session, places = inputs.session, {p: place for place, p in enumerate(members)}
    totals = [aligned_zeros(session.vector_length, session.ring.dtype) for _ in members]
    keys = {p: cache.maskers[p].public for p in members}

    def seeded() -> Iterator[Pair]:
        for low, of in groupby(pairs, itemgetter(0)):
            peers = [high for _, high in of]
            seeds = _pair_seeds(cache.maskers[low], low, peers, keys, inputs)
            for high, seed in zip(peers, seeds, strict=True):
                yield places[low], places[high], seed

    accumulate_pairs(totals, seeded(), version=session.version, threads=threads)
    return {p: (cache.views[p][1], total) for p, total in zip(members, totals, strict=True)}
