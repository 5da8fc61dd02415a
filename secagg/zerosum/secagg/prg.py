"""Seeds to mask streams, added to or taken from an accumulator chunk by chunk.

A stream is AES-128 in counter mode (NIST SP 800-38A) over zeros, under 16 bytes of key and 16 of
initial counter, read as little-endian words of the ring's container. Modulo a power of two
every word is uniform as it stands, so none is rejected.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from zerosum.secagg.ring import Ring

SEED_BYTES = 32
CHUNK_BYTES = 1 << 18

_AT_ONCE = 256


class Stream:
    """The keystream of one 32-byte seed, which can be run from its start more than once."""

    __slots__ = ("_counter", "context")

    def __init__(self, seed: bytes) -> None:
        self._counter = seed[16:]
        self.context: CipherContext = Cipher(
            algorithms.AES(seed[:16]), modes.CTR(self._counter)
        ).encryptor()

    def rewind(self) -> None:
        """Go back to the start: cheaper than opening the stream again."""
        self.context.reset_nonce(self._counter)


def accumulate(
    total: NDArray[Any],
    added: Iterable[Stream],
    subtracted: Iterable[Stream] = (),
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> None:
    """Add and subtract many streams, in place, modulo the container's size.

    For each chunk of the accumulator all streams are run, so that the chunk and one reused
    buffer stay in cache.

    Parameters
    ----------
    total : ndarray of uint16, uint32 or uint64, shape (d,)
        Contiguous.
    added, subtracted : iterable of Stream
        At their starts; taken a few hundred at a time, so that a generator opens no more.
    chunk_bytes : int
        How much of the accumulator is treated at a time; the result does not depend on it.
    """
    words = max(1, min(len(total), chunk_bytes // total.itemsize))
    zeros = memoryview(bytes(words * total.itemsize))
    buffer = bytearray(len(zeros) + 16)
    stream_words = np.frombuffer(buffer, total.dtype.newbyteorder("<"), words)
    for streams, apply in ((iter(added), np.add), (iter(subtracted), np.subtract)):
        while group := [stream.context.update_into for stream in islice(streams, _AT_ONCE)]:
            for start in range(0, len(total), words):
                chunk = total[start : start + words]
                plain = zeros[: chunk.nbytes]
                drawn = stream_words[: len(chunk)]
                for update_into in group:
                    update_into(plain, buffer)
                    apply(chunk, drawn, out=chunk)


def expand(seed: bytes, length: int, ring: Ring) -> NDArray[Any]:
    """Return the mask of one seed: ``length`` uniform elements of the ring."""
    mask = ring.zeros(length)
    accumulate(mask, [Stream(seed)])
    return ring.reduce(mask)
