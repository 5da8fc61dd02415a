"""Searching the seed of one self mask: every seed of so many bits, until one explains what is seen.

The mask that a seed b_u expands to is AES-128-CTR under KDF(b_u, "zerosum self", request, index),
as ``docs/secagg-wire.md`` writes it. A candidate is told by the first block of its stream alone.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from zerosum.secagg import Advert, Contribution
from zerosum.secagg.crypto.keys import Hkdf, commitment
from zerosum.secagg.stages import Stage
from zerosum.secagg.wire import u64
from zerosum.simulations.attacks.protocol.aes import encrypt_blocks
from zerosum.simulations.attacks.protocol.opening import without_self_mask
from zerosum.simulations.attacks.protocol.sessions import Transcript

AT_ONCE = 1 << 14
"""Seeds whose arrays stay in cache."""

HIGH_BITS = 6
"""Of a ring word: equal in every coordinate of an update, which is small, but for its sign."""

_SEED_BYTES = 32
FLOWER_RANGE = 1 << 32
"""Flower's default ``modulus_range``."""

_TIMED = 2000


@dataclass(frozen=True)
class SearchOutcome:
    """How a search ended.

    Attributes
    ----------
    seed : bytes or None
        None where no seed of so many bits explains what is seen.
    tried : int
    cpu_seconds : float
    """

    seed: bytes | None
    tried: int
    cpu_seconds: float


def search(
    bits: int, hits: Callable[[list[bytes]], list[bytes]], confirms: Callable[[bytes], bool]
) -> SearchOutcome:
    """Try all seeds of so many bits, in ascending order.

    Parameters
    ----------
    bits : int
    hits : callable
        Of many seeds, those that pass a first look.
    confirms : callable
        Whether a seed is the one.
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
        yield [value.to_bytes(_SEED_BYTES, "little") for value in range(start, stop)]


def by_plaintext(seen: Transcript, vector: np.ndarray, bits: int) -> SearchOutcome:
    """Search the seed that leaves a small vector: no word's high bits but all alike.

    Parameters
    ----------
    seen : Transcript
    vector : ndarray in the ring's container, shape (d,)
        The victim's, under its self mask alone.
    bits : int
    """
    session = seen.opened()
    request = seen.answer(Stage.CONTRIBUTE, seen.victim, Contribution).request
    label = b"zerosum self\0" + request + u64(seen.victim)
    derive = Hkdf(session.digest).derive
    words = 16 // session.ring.dtype.itemsize
    limit = 1 << (session.ring_bits - HIGH_BITS)

    def small(found: np.ndarray) -> np.ndarray:
        return np.abs(session.ring.centre(found)) < limit

    def hits(seeds: list[bytes]) -> list[bytes]:
        derived = b"".join([derive(seed, label) for seed in seeds])
        keys = np.frombuffer(derived, np.uint8).reshape(len(seeds), 2, 16)
        stream = encrypt_blocks(keys[:, 0], keys[:, 1])
        masks = stream.view(session.ring.dtype.newbyteorder("<"))
        left = session.ring.reduce(vector[:words] - masks)
        return [seeds[i] for i in np.flatnonzero(small(left).all(axis=1)).tolist()]

    return search(bits, hits, lambda seed: bool(small(without_self_mask(seen, vector, seed)).all()))


def by_commitment(seen: Transcript, vector: np.ndarray, bits: int) -> SearchOutcome:
    """Search the seed that the victim committed to in its advert: a hash each, and no mask."""
    digest, advert = seen.opened().digest, seen.answer(Stage.ADVERTISE, seen.victim, Advert)
    committed = partial(commitment, digest, seen.victim)

    def hits(seeds: list[bytes]) -> list[bytes]:
        return [seed for seed in seeds if committed(seed) == advert.commitment]

    return search(bits, hits, lambda seed: True)


def extrapolated(found: SearchOutcome) -> str:
    """Return the rate of a search, and what all seeds of 28 and 32 bits take at it."""
    each = found.cpu_seconds / found.tried
    ended = "found" if found.seed is not None else "none fits"
    return f"{found.tried:,} seeds tried, {ended}: {_hours(each)}"


def flower_hours(rng: np.random.Generator) -> str:
    """Return the same of Flower's mask expansion, at the rate of a few thousand seeds.

    ``pseudo_rand_gen`` of flwr 1.42, ``common/secure_aggregation/secaggplus_utils.py``, takes the
    exclusive or of a seed's 32-bit words, and seeds numpy's ``RandomState`` with it. A pair's key
    comes to it in base64, of which no byte has its highest bit: 28 bits.
    """
    state = np.random.RandomState(0)
    seeds = rng.integers(0, 1 << 32, _TIMED).tolist()
    started = time.process_time()
    for seed in seeds:
        flower_words(state, seed, 4)
    each = (time.process_time() - started) / _TIMED
    return f"Flower's masks, of 28 bits for a pair and 32 for oneself: {_hours(each)}"


def flower_words(state: np.random.RandomState, seed: int, count: int) -> np.ndarray:
    """Return the first words of Flower's mask of a folded seed; one object serves all seeds."""
    state.seed(seed)
    return state.randint(0, FLOWER_RANGE - 1, count, dtype=np.int64)


def _hours(each: float) -> str:
    whole = ", ".join(f"{bits} bits {2**bits * each / 3600:.2g} core-hours" for bits in (28, 32))
    return f"{1 / each:,.0f} a core-second, {whole}"
