"""Search the seed of one self mask: try every seed of some bits until one explains the vector.

The mask of a seed b_u is a keystream of AES-128 under KDF(b_u, "zerosum self", request, index), as
``docs/secagg-wire.md`` defines it. The first block of its stream alone tests a candidate.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from zerosum.secagg import Advert, Contribution
from zerosum.secagg.crypto.keys import Hkdf, commitment
from zerosum.secagg.crypto.prg import FIRST_BLOCK
from zerosum.secagg.randomness import SEED_BYTES
from zerosum.secagg.session import COUNTER_MASKS
from zerosum.secagg.stages import Stage
from zerosum.secagg.wire import u64
from zerosum.simulations.attacks.protocol.aes import encrypt_blocks
from zerosum.simulations.attacks.protocol.opening import without_self_mask
from zerosum.simulations.attacks.protocol.sessions import Transcript

AT_ONCE = 1 << 14
"""Seeds in a batch: as many as have arrays that stay in cache."""

HIGH_BITS = 6
"""Highest bits of a ring word, which all equal the sign in a coordinate of a small update.

Six bits of each word in a block leave few wrong seeds for the full check.
"""

FLOWER_RANGE = 1 << 32
"""Flower's default ``modulus_range``."""

_TIMED = 2000


@dataclass(frozen=True)
class SearchOutcome:
    """Hold the result and the cost of a search.

    Attributes
    ----------
    seed : bytes or None
        None where no seed of so many bits explains the vector.
    tried : int
        Seeds.
    cpu_seconds : float
    """

    seed: bytes | None
    tried: int
    cpu_seconds: float


def search(
    bits: int, hits: Callable[[list[bytes]], list[bytes]], confirms: Callable[[bytes], bool]
) -> SearchOutcome:
    """Try all seeds of some bits, in ascending order.

    Parameters
    ----------
    bits : int
    hits : callable
        Of many seeds, returns those that pass a quick test.
    confirms : callable
        Whether a seed passes the full test.

    Returns
    -------
    SearchOutcome
    """
    started = time.process_time()
    tried = 0
    for seeds in _seeds(bits):
        tried += len(seeds)
        for seed in hits(seeds):
            if confirms(seed):
                return SearchOutcome(seed, tried, time.process_time() - started)
    return SearchOutcome(None, tried, time.process_time() - started)


def _seeds(bits: int) -> Iterator[list[bytes]]:
    for start in range(0, 1 << bits, AT_ONCE):
        stop = min(start + AT_ONCE, 1 << bits)
        yield [value.to_bytes(SEED_BYTES, "little") for value in range(start, stop)]


def by_plaintext(seen: Transcript, vector: np.ndarray, bits: int) -> SearchOutcome:
    """Search the seed that leaves a small vector, whose words' high bits all equal the sign.

    Parameters
    ----------
    seen : Transcript
    vector : ndarray in the ring's container
        Shape (d,): the victim's, under its self mask alone.
    bits : int

    Returns
    -------
    SearchOutcome
    """
    session = seen.opened()
    request = seen.answer(Stage.CONTRIBUTE, seen.victim, Contribution).request
    label = b"zerosum self\0" + request + u64(seen.victim)
    derive = Hkdf(session.digest).derive
    words = 16 // session.ring.dtype.itemsize
    limit = 1 << (session.ring_bits - HIGH_BITS)

    def small(rest: np.ndarray) -> np.ndarray:
        return np.abs(session.ring.centre(rest)) < limit

    def hits(seeds: list[bytes]) -> list[bytes]:
        derived = b"".join([derive(seed, label) for seed in seeds])
        keys = np.frombuffer(derived, np.uint8).reshape(len(seeds), 2, 16)
        counters = keys[:, 1].copy()
        if session.version != COUNTER_MASKS:
            counters[:, 8:] = np.frombuffer(FIRST_BLOCK, np.uint8)
        stream = encrypt_blocks(keys[:, 0], counters)
        masks = stream.view(session.ring.dtype.newbyteorder("<"))
        left = session.ring.reduce(vector[:words] - masks)
        return [seeds[i] for i in np.flatnonzero(small(left).all(axis=1)).tolist()]

    return search(bits, hits, lambda seed: bool(small(without_self_mask(seen, vector, seed)).all()))


def by_commitment(seen: Transcript, vector: np.ndarray, bits: int) -> SearchOutcome:
    """Search the seed that the victim committed to in its advert: one hash each, and no mask.

    Parameters
    ----------
    seen : Transcript
    vector : ndarray in the ring's container
        Shape (d,); not used, as :func:`by_plaintext` has it.
    bits : int

    Returns
    -------
    SearchOutcome
    """
    digest, advert = seen.opened().digest, seen.answer(Stage.ADVERTISE, seen.victim, Advert)
    committed = partial(commitment, digest, seen.victim)

    def hits(seeds: list[bytes]) -> list[bytes]:
        return [seed for seed in seeds if committed(seed) == advert.commitment]

    return search(bits, hits, lambda seed: True)


def extrapolated(outcome: SearchOutcome) -> str:
    """Return the rate of a search, and the time of all seeds of 28 and 32 bits at it."""
    seconds = outcome.cpu_seconds / outcome.tried
    ended = "found" if outcome.seed is not None else "none fits"
    return f"{outcome.tried:,} seeds tried, {ended}: {_hours(seconds)}"


def flower_hours(rng: np.random.Generator) -> str:
    """Return the rate and the time for Flower's mask expansion, measured on a few thousand seeds.

    ``pseudo_rand_gen`` of flwr 1.42, ``common/secure_aggregation/secaggplus_utils.py``, takes the
    exclusive or of a seed's 32-bit words, and seeds numpy's ``RandomState`` with it. A pair's key
    comes to it in base64, no byte of which has its highest bit set: 28 bits.
    """
    state = np.random.RandomState(0)
    seeds = rng.integers(0, 1 << 32, _TIMED).tolist()
    started = time.process_time()
    for seed in seeds:
        flower_words(state, seed, 4)
    seconds = (time.process_time() - started) / _TIMED
    return f"Flower's masks, of 28 bits for a pair and 32 for oneself: {_hours(seconds)}"


def flower_words(state: np.random.RandomState, seed: int, count: int) -> np.ndarray:
    """Return the first words of Flower's mask of a folded seed.

    Parameters
    ----------
    state : numpy.random.RandomState
        Seeded anew in place: creating one costs far more than seeding it.
    seed, count : int
        The folded seed, below 2^32; words to return.

    Returns
    -------
    ndarray of int64
        Shape (count,).
    """
    state.seed(seed)
    return state.randint(0, FLOWER_RANGE - 1, count, dtype=np.int64)


def _hours(seconds: float) -> str:
    whole = ", ".join(f"{bits} bits {2**bits * seconds / 3600:.2g} core-hours" for bits in (28, 32))
    return f"{1 / seconds:,.0f} a core-second, {whole}"
