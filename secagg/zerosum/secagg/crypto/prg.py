"""Seeds to mask streams, added to or taken from accumulators chunk by chunk.

A stream is AES-128 in counter mode (NIST SP 800-38A) over zeros, under 16 bytes of key and 16 of
initial counter, read as little-endian words of the ring's container. Modulo a power of two
every word is uniform as it stands, so none is rejected.
"""

import mmap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from zerosum.secagg.errors import LocalProtocolError
from zerosum.secagg.vectors.packing import CONTAINERS
from zerosum.secagg.vectors.ring import Ring

# So small that a chunk of the accumulator and the drawn keystream stay in a core's own cache.
CHUNK_BYTES = 256 << 10
# Smaller, since here the same chunk of many accumulators shares that cache.
SHARED_CHUNK_BYTES = 64 << 10

# Streams and pairs that are open at a time, where a generator gives thousands.
_STREAMS_AT_ONCE = 256
_PAIRS_AT_ONCE = 4096
_BLOCK_BYTES = 16
_LINE_BYTES = 64
# A thread with less than this to do costs more than it saves.
_THREAD_BYTES = 256 << 10
_reused = threading.local()


class Stream:
    """The keystream of one 32-byte seed, which can be run from its start more than once."""

    __slots__ = ("_counter", "_key", "context")

    def __init__(self, seed: bytes) -> None:
        self._key, self._counter = seed[:16], seed[16:]
        self.context: CipherContext = _context(self._key, self._counter)

    def rewind(self) -> None:
        """Go back to the start: cheaper than opening the stream again."""
        self.context.reset_nonce(self._counter)

    def opened_at(self, offset: int) -> CipherContext:
        """Return another context of the stream, ``offset`` bytes, whole blocks, from its start."""
        counter = int.from_bytes(self._counter, "big") + offset // _BLOCK_BYTES
        return _context(self._key, (counter % (1 << 128)).to_bytes(16, "big"))


def _context(key: bytes, counter: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()


Pair = tuple[int, int, Stream]


class _Pad:
    """One reused buffer that keystream is drawn into, and the zeros that it is drawn from.

    A cipher writes up to a block more than it was given, so the buffer is a block longer. It
    starts at a cache line: vector additions that straddle lines take up to a third longer. Each
    thread keeps its own between calls, since fresh pages cost as much as a few streams.
    """

    def __init__(self, chunk: int, dtype: np.dtype[Any]) -> None:
        self._zeros = _zeros(max(chunk, 4 * CHUNK_BYTES))
        self._bytes = _buffer(chunk + _BLOCK_BYTES)
        self._words = np.frombuffer(self._bytes, dtype.newbyteorder("<"), chunk // dtype.itemsize)

    def cut(self, chunk: NDArray[Any]) -> tuple[memoryview, memoryview, NDArray[Any]]:
        """Return zeros, buffer and the buffer's words, for a chunk of an accumulator."""
        return self._zeros[: chunk.nbytes], self._bytes, self._words[: len(chunk)]

    def wipe(self) -> None:
        """Leave nothing of the keystream behind."""
        self._words.fill(0)


def _buffer(size: int) -> memoryview:
    buffer: memoryview | None = getattr(_reused, "buffer", None)
    if buffer is None or len(buffer) < size:
        buffer = _aligned(size).data
        if size <= CHUNK_BYTES + _BLOCK_BYTES:
            _reused.buffer = buffer
    return buffer[:size]


@lru_cache(maxsize=4)
def _zeros(size: int) -> memoryview:
    """Return zeros to encrypt.

    Where the system maps what was never written to its one page of zeros, they take none of the
    cache that the accumulator and the buffer need.
    """
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return memoryview(bytes(size))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return memoryview(mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ))


def _aligned(size: int) -> NDArray[np.uint8]:
    spare = np.empty(size + _LINE_BYTES, np.uint8)
    start = -spare.ctypes.data % _LINE_BYTES
    return spare[start : start + size]


def _chunks(total: NDArray[Any], chunk_bytes: int) -> list[NDArray[Any]]:
    """Cut an accumulator into chunks of about one size, all but the first at a cache line."""
    line = _LINE_BYTES // total.itemsize
    # What precedes the first line counts as a whole one, and is cut off the first chunk.
    before = total.ctypes.data % _LINE_BYTES // total.itemsize
    lines = -(-(before + len(total)) // line)
    count = max(1, -(-lines * _LINE_BYTES // chunk_bytes))
    words = max(1, -(-lines // count)) * line
    cuts = [0, *range(words - before, len(total), words), len(total)]
    return [total[start:stop] for start, stop in pairwise(cuts)]


def accumulate(
    total: NDArray[Any],
    added: Iterable[Stream],
    subtracted: Iterable[Stream] = (),
    *,
    chunk_bytes: int = CHUNK_BYTES,
    threads: int = 1,
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
        How much of the accumulator is treated at a time, at least a cache line; the result does
        not depend on it.
    threads : int
        How many threads share the accumulator, each with a part of its own. The cipher and the
        additions release the interpreter's lock. Short vectors take one thread.
    """
    _check_accumulators(total)
    parts = _parts(total, threads)
    if len(parts) == 1:
        _accumulate_part(total, added, subtracted, lambda stream: stream.context, chunk_bytes)
        return
    signs = ((iter(added), True), (iter(subtracted), False))
    with ThreadPoolExecutor(len(parts)) as pool:
        for streams, positive in signs:
            while group := list(islice(streams, _STREAMS_AT_ONCE)):
                plus, minus = (group, ()) if positive else ((), group)
                jobs = [
                    pool.submit(_accumulate_part, part, plus, minus, _opening(offset), chunk_bytes)
                    for offset, part in parts
                ]
                for job in jobs:
                    job.result()


def _quickest(total: NDArray[Any]) -> NDArray[Any]:
    """Return the same words as those that numpy adds fastest.

    Modulo the container's size signs change nothing, but numpy's loops for 32 bits with sign are
    up to half again as fast as those without.
    """
    return total.view(np.int32) if total.dtype == np.uint32 else total


def _parts(total: NDArray[Any], threads: int) -> list[tuple[int, NDArray[Any]]]:
    """Return (offset in bytes, part) of the accumulator for each thread, at whole blocks."""
    count = max(1, min(threads, total.nbytes // _THREAD_BYTES))
    line = _LINE_BYTES // total.itemsize
    words = max(1, -(-len(total) // (count * line)) * line)
    return [(i * total.itemsize, total[i : i + words]) for i in range(0, len(total), words)] or [
        (0, total)
    ]


def _opening(offset: int) -> Callable[[Stream], CipherContext]:
    return lambda stream: stream.opened_at(offset)


def _accumulate_part(
    total: NDArray[Any],
    added: Iterable[Stream],
    subtracted: Iterable[Stream],
    opened: Callable[[Stream], CipherContext],
    chunk_bytes: int,
) -> None:
    words = _quickest(total)
    chunks = _chunks(words, chunk_bytes)
    pad = _Pad(max((chunk.nbytes for chunk in chunks), default=0), words.dtype)
    for streams, positive in ((iter(added), True), (iter(subtracted), False)):
        while group := [opened(stream).update_into for stream in islice(streams, _STREAMS_AT_ONCE)]:
            for chunk in chunks:
                zeros, buffer, drawn = pad.cut(chunk)
                if positive:
                    for update_into in group:
                        update_into(zeros, buffer)
                        chunk += drawn
                else:
                    for update_into in group:
                        update_into(zeros, buffer)
                        chunk -= drawn
    pad.wipe()


def _check_accumulators(*totals: NDArray[Any]) -> None:
    """Refuse what streams of words cannot be added to word by word."""
    first = totals[0]
    for total in totals:
        words = total.dtype in CONTAINERS and total.ndim == 1 and total.flags.c_contiguous
        if not words or (total.dtype, len(total)) != (first.dtype, len(first)):
            raise LocalProtocolError(
                "an accumulator is a contiguous array of uint16, uint32 or uint64, all of one "
                f"length and type: not {total.dtype.str} of shape {total.shape}"
            )


def accumulate_pairs(
    totals: Sequence[NDArray[Any]],
    pairs: Iterable[Pair],
    *,
    chunk_bytes: int = SHARED_CHUNK_BYTES,
    threads: int = 1,
) -> None:
    """Add each stream to one accumulator and subtract it from another, running it once.

    Half the cipher work of :func:`accumulate` for parties that live in one process. Chunks are
    small, so that the same chunk of many accumulators stays in cache.

    Parameters
    ----------
    totals : sequence of ndarray of uint16, uint32 or uint64, shape (d,)
        Contiguous, all of one length and type.
    pairs : iterable of (int, int, Stream)
        Where in ``totals`` to add, where to subtract, and a stream at its start; taken a few
        thousand at a time.
    chunk_bytes : int
        How much of each accumulator is treated at a time; the result does not depend on it.
    threads : int
        As for :func:`accumulate`.
    """
    if not totals:
        return
    _check_accumulators(*totals)
    parts = _parts(totals[0], threads)
    remaining: Iterator[Pair] = iter(pairs)
    if len(parts) == 1:
        while some := list(islice(remaining, _PAIRS_AT_ONCE)):
            _accumulate_pairs_part(totals, some, lambda stream: stream.context, chunk_bytes)
        return
    # Threads that hand the lock over every few microseconds lose more by it than the cache gives.
    chunk_bytes = max(chunk_bytes, CHUNK_BYTES)
    cuts = [(offset, offset // totals[0].itemsize, len(part)) for offset, part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        while some := list(islice(remaining, _PAIRS_AT_ONCE)):
            jobs = [
                pool.submit(
                    _accumulate_pairs_part,
                    [total[start : start + length] for total in totals],
                    some,
                    _opening(offset),
                    chunk_bytes,
                )
                for offset, start, length in cuts
            ]
            for job in jobs:
                job.result()


def _accumulate_pairs_part(
    totals: Sequence[NDArray[Any]],
    pairs: Sequence[Pair],
    opened: Callable[[Stream], CipherContext],
    chunk_bytes: int,
) -> None:
    totals = [_quickest(total) for total in totals]
    words = max(1, min(len(totals[0]), chunk_bytes // totals[0].itemsize))
    pad = _Pad(words * totals[0].itemsize, totals[0].dtype)
    group = [(plus, minus, opened(stream).update_into) for plus, minus, stream in pairs]
    for start in range(0, len(totals[0]), words):
        chunks = [total[start : start + words] for total in totals]
        zeros, buffer, drawn = pad.cut(chunks[0])
        for plus, minus, update_into in group:
            update_into(zeros, buffer)
            chunks[plus] += drawn
            chunks[minus] -= drawn
    pad.wipe()


def expand(seed: bytes, length: int, ring: Ring) -> NDArray[Any]:
    """Expand one seed into a mask.

    Parameters
    ----------
    seed : bytes
        32 bytes.
    length : int
        Coordinates d.
    ring : Ring

    Returns
    -------
    ndarray in the ring's container, shape (d,)
        Uniform elements of the ring.
    """
    mask = ring.zeros(length)
    accumulate(mask, [Stream(seed)])
    return ring.reduce(mask)
