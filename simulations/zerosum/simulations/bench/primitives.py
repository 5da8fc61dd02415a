"""The primitives, one by one: rates on one core, and mask expansion against the raw cipher.

Rates are the best of several repetitions; the expansion and the raw cipher take turns, so that
both meet the same machine.
"""

import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from zerosum.secagg import Ring
from zerosum.secagg.crypto import shamir
from zerosum.secagg.crypto.prg import SEGMENT_BYTES, accumulate, keystream_cipher, open_streams
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.session import COUNTER_MASKS, PROTOCOL_VERSION
from zerosum.simulations.bench.process import Values, peak_memory_mb

_WORDS = np.dtype(np.uint32)


def run(
    *,
    lengths: list[int],
    peers: int = 50,
    holders: int = 500,
    threshold: int = 334,
    bits: int = 20,
    repetitions: int = 7,
) -> Values:
    """Measure each primitive.

    Parameters
    ----------
    lengths : list of int
        Accumulators' lengths, in 32-bit words, for mask expansion.
    peers : int
        Streams that are added up in each.
    holders, threshold : int
        Of Shamir's scheme.
    bits : int
        Of packed words.
    repetitions : int
        The best of so many.

    Returns
    -------
    dict
        ``cipher``: what masks are drawn with on this machine; ``expansion``: a row for each
        length; ``rates``: name, value and unit.
    """
    rows = [_expansion(length, peers, repetitions) for length in lengths]
    rates = [
        *_shamir(holders, threshold, repetitions),
        *_curves(repetitions),
        *_packing(bits, repetitions),
    ]
    peak_mb = peak_memory_mb()
    return {
        "cipher": keystream_cipher(),
        "expansion": rows,
        "rates": rates,
        "peak_memory_mb": peak_mb,
    }


def machine() -> Values:
    """Return four rates of this moment, means over a tenth of a second or so.

    Other loads on the machine change what a session takes by half and more: these say by how
    much they changed what everybody knows the cost of.
    """
    own, peer = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    signer = Ed25519PrivateKey.generate()
    signature, verifier = signer.sign(b"message"), signer.public_key()
    size, count = 1 << 28, 1000
    agreeing = _spent(lambda: [own.exchange(peer) for _ in range(count)])
    verifying = _spent(lambda: [verifier.verify(signature, b"message") for _ in range(count)])
    return {
        "aes_gb_s": size * 1e-9 / _spent(_raw(size)),
        "aes_ctr_gb_s": size * 1e-9 / _spent(_raw(size, COUNTER_MASKS)),
        "x25519_per_s": count / agreeing,
        "ed25519_verify_per_s": count / verifying,
    }


def _best(call: Callable[[], object], repetitions: int) -> float:
    return min(_spent(call) for _ in range(repetitions))


def _spent(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _raw(size: int, version: int = PROTOCOL_VERSION) -> Callable[[], None]:
    """Return a call that draws ``size`` bytes of one stream, as masks are drawn, and adds none."""
    # A slice of much more, which the system maps to its page of zeros: the faster of two ways.
    zeros = memoryview(bytes(1 << 24))[:SEGMENT_BYTES]
    buffer = memoryview(bytearray(SEGMENT_BYTES + 16))
    ((fill, _),) = open_streams([os.urandom(32)], version)
    nonces = [bytes(8) + i.to_bytes(4, "big") for i in range(-(-size // SEGMENT_BYTES))]

    def draw() -> None:
        for nonce in nonces:
            fill(nonce, zeros, None, buffer)

    return draw


def _expansion(length: int, peers: int, repetitions: int) -> Values:
    """Measure expansion and the raw cipher in turns, and compare each with the one beside it."""
    total = np.ones(length, _WORDS)
    size = peers * total.nbytes
    raw_size = -(-size // SEGMENT_BYTES) * SEGMENT_BYTES
    raw = _raw(size)
    half = peers // 2
    added = partial(accumulate, total, version=PROTOCOL_VERSION)
    pairs: list[tuple[float, float]] = []
    # Short runs are repeated more often: an undisturbed moment is as short for either.
    for _ in range(max(repetitions, repetitions * 100_000_000 // max(size, 10_000_000))):
        seeds = [os.urandom(32) for _ in range(peers)]
        cipher = _spent(raw) / raw_size
        expansion = _spent(partial(added, seeds[:half], seeds[half:])) / size
        pairs.append((cipher, expansion))
    raws, expansions = np.array(pairs).T
    return {
        "d": length,
        "peers": peers,
        "expansion_gb_s": 1e-9 / expansions.min(),
        "aes_gb_s": 1e-9 / raws.min(),
        "ratio": raws.min() / expansions.min(),
        "ratio_median": float(np.median(raws / expansions)),
    }


def _rate(name: str, value: float, unit: str) -> Values:
    return {"name": name, "value": value, "unit": unit}


def _shamir(holders: int, threshold: int, repetitions: int) -> list[Values]:
    batch, points = 16, range(1, holders + 1)
    secrets = [os.urandom(32) for _ in range(batch)]
    stream = Keystream(os.urandom(32))

    def split() -> None:
        shamir.split(secrets, threshold, points, stream)

    shares = shamir.split(secrets, threshold, points, stream)
    rng = np.random.default_rng(0)
    chosen = [np.sort(rng.permutation(holders)[:threshold]) for _ in secrets]
    given = [
        ([place + 1 for place in places.tolist()], shares[places, dealer])
        for dealer, places in enumerate(chosen)
    ]

    def recover() -> None:
        shamir.lagrange_weights.cache_clear()
        if [shamir.combine(*shares) for shares in given] != secrets:
            raise ArithmeticError("a recovered secret is not the one that was split")

    name = f"Shamir ({threshold} of {holders})"
    return [
        _rate(f"{name}: split, batch of {batch}", _best(split, repetitions) / batch * 1e3, "ms"),
        _rate(f"{name}: recover, cold", batch / _best(recover, repetitions), "1/s"),
    ]


def _curves(repetitions: int) -> list[Values]:
    count = 200
    own, peer = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    signer, message = Ed25519PrivateKey.generate(), os.urandom(64)
    signature, verifier = signer.sign(message), signer.public_key()
    calls: dict[str, Callable[[], object]] = {
        "X25519: exchange": lambda: own.exchange(peer),
        "Ed25519: sign": lambda: signer.sign(message),
        "Ed25519: verify": lambda: verifier.verify(signature, message),
    }

    def repeated(call: Callable[[], object]) -> Callable[[], None]:
        def run_all() -> None:
            for _ in range(count):
                call()

        return run_all

    return [
        _rate(name, count / _best(repeated(call), repetitions), "1/s")
        for name, call in calls.items()
    ]


def _packing(bits: int, repetitions: int) -> list[Values]:
    ring, count = Ring(bits), 1_000_000
    rng = np.random.default_rng(0)
    words = ring.reduce(rng.integers(0, 1 << 64, count, dtype=np.uint64).astype(ring.dtype))
    packed = ring.pack(words)
    pack = _best(lambda: ring.pack(words), repetitions)
    unpack = _best(lambda: ring.unpack(packed, count), repetitions)
    return [
        _rate(f"packing: {bits}-bit words", count / pack / 1e6, "million/s"),
        _rate(f"unpacking: {bits}-bit words", count / unpack / 1e6, "million/s"),
    ]
