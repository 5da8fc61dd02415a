"""Seeds to mask streams, added to or taken from accumulators segment by segment.

A stream is AES-128 in counter mode (NIST SP 800-38A) over zeros, read as little-endian words of the
ring's container. Modulo a power of two every word is uniform as it stands, so none is rejected.

Sessions of version 2 count from 16 bytes of the seed. From version 3 on each segment of 256 KiB
has counter blocks of its own, nonce || 2, nonce || 3 and so on, where the nonce is eight bytes of
the seed and the segment's number: the counters of AES-GCM (NIST SP 800-38D, section 7.1), so that
the encryption of zeros by GCM, less its tag, is the stream. Where the processor multiplies vectors
of blocks, libraries do that twice as fast as counter mode.

Neither a nonce nor a counter comes twice under a key: a seed gives a key to one stream, numbers of
segments stay below 2^32 for vectors of up to 2^40 coordinates, and 2^14 blocks a segment are far
below the 2^32 - 2 (64 GiB) after which GCM's counter would repeat.
"""

import mmap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from zerosum.secagg.errors import LocalProtocolError
from zerosum.secagg.session import COUNTER_MASKS
from zerosum.secagg.vectors.packing import CONTAINERS
from zerosum.secagg.vectors.ring import Ring

SEGMENT_BYTES = 256 << 10
"""Bytes of a stream under one nonce. So few that a segment of the accumulator and one of the
keystream stay in a core's own cache, so many that starting them costs little."""

# Streams and pairs that are open at a time, where a generator gives thousands.
_STREAMS_AT_ONCE = 256
_PAIRS_AT_ONCE = 4096
# Pairs of so many clients with so many others are run one after another: their accumulators stay
# in a core's own cache meanwhile, which takes an eighth off the whole.
_TILE = 4
_BLOCK_BYTES = 16
_LINE_BYTES = 64
# A thread with less than this to do costs more than it saves.
_THREAD_BYTES = 256 << 10
# The first counter of data in GCM: 1 is the tag's.
_FIRST_COUNTER = (2).to_bytes(4, "big")
FIRST_BLOCK = bytes(4) + _FIRST_COUNTER
"""What follows the eight bytes of the seed in the first counter block of a stream of version 3."""
_PROBES = 5
_reused = threading.local()

Fill = Callable[[bytes, memoryview, None, memoryview], object]
"""Fills a buffer with one segment of a stream, whose number is the nonce's last four bytes; of the
form of :meth:`AESGCM.encrypt_into`, so that it can be that."""
Opened = tuple[Fill, bytes]
"""A stream under way, and the first eight bytes of its nonces."""


def open_streams(seeds: Iterable[bytes], version: int) -> list[Opened]:
    """Set up the ciphers of many streams.

    Parameters
    ----------
    seeds : iterable of bytes
        32 bytes each. Of version 3: 16 of key, 8 of nonce, and 8 that are not used.
    version : int
        The session's.

    Returns
    -------
    list of (callable, bytes)
        For one thread. Segments can be run in any order, each as often as wanted.
    """
    if version == COUNTER_MASKS:
        return [(_Counted(seed).fill, bytes(8)) for seed in seeds]
    if _gcm_is_faster():
        return [(AESGCM(seed[:16]).encrypt_into, seed[16:24]) for seed in seeds]
    return [(_Segmented(seed[:16]).fill, seed[16:24]) for seed in seeds]


class _Counted:
    """A stream of version 2, which counts through from 16 bytes of its seed."""

    def __init__(self, seed: bytes) -> None:
        self._start = int.from_bytes(seed[16:], "big")
        self._context: CipherContext = _counter_mode(seed[:16], seed[16:])
        self._next = 0

    def fill(self, nonce: bytes, zeros: memoryview, _: None, buffer: memoryview) -> None:
        number = int.from_bytes(nonce[8:], "big")
        if number != self._next:
            counter = self._start + number * (SEGMENT_BYTES // _BLOCK_BYTES)
            self._context.reset_nonce((counter % (1 << 128)).to_bytes(16, "big"))
        # What is cut short can be a stream's end alone: what follows starts anew.
        self._next = number + 1 if len(zeros) == SEGMENT_BYTES else -1
        self._context.update_into(zeros, buffer)


class _Segmented:
    """A stream of version 3 without GCM: the same bytes."""

    def __init__(self, key: bytes) -> None:
        self._context: CipherContext = _counter_mode(key, bytes(_BLOCK_BYTES))

    def fill(self, nonce: bytes, zeros: memoryview, _: None, buffer: memoryview) -> None:
        self._context.reset_nonce(nonce + _FIRST_COUNTER)
        self._context.update_into(zeros, buffer)


def _counter_mode(key: bytes, counter: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()


@cache
def _gcm_is_faster() -> bool:
    """Measure, once, which way to the same bytes is the faster one on this machine.

    With vector instructions for AES and carry-less products GCM is twice as fast as counter mode;
    without them its tag costs a third. cryptography 46 has no GCM that writes
    into a buffer; the other way is there always.
    """
    if not hasattr(AESGCM, "encrypt_into"):
        return False
    zeros, buffer = _zeros(SEGMENT_BYTES), memoryview(bytearray(SEGMENT_BYTES + _BLOCK_BYTES))
    fills: tuple[Fill, Fill] = (AESGCM(bytes(16)).encrypt_into, _Segmented(bytes(16)).fill)
    times: list[list[int]] = [[], []]
    for _ in range(_PROBES):
        for fill, spent in zip(fills, times, strict=True):
            start = time.perf_counter_ns()
            fill(bytes(12), zeros, None, buffer)
            spent.append(time.perf_counter_ns() - start)
    by_gcm, by_counter = map(min, times)
    return by_gcm < by_counter


def keystream_cipher() -> str:
    """Return what streams are drawn with on this machine, for whoever compares rates."""
    return "AES-128-GCM" if _gcm_is_faster() else "AES-128-CTR"


Pair = tuple[int, int, bytes]
"""Where a stream is added, where it is subtracted, and its seed."""


class _Pad:
    """One reused buffer that keystream is drawn into, and the zeros that it is drawn from.

    A cipher writes a tag, or up to a block, more than it was given, so the buffer is a block
    longer. It starts as far from a cache line as the accumulator: vector additions in which one
    of the two straddles lines take up to a tenth longer. Each thread keeps its own between calls,
    since fresh pages cost as much as a few streams.
    """

    def __init__(self, total: NDArray[Any]) -> None:
        size = min(total.nbytes, SEGMENT_BYTES)
        self._zeros = _zeros(SEGMENT_BYTES)
        self._bytes = _buffer(size + _BLOCK_BYTES, total.ctypes.data % _LINE_BYTES)
        kind = _quickest(total).dtype.newbyteorder("<")
        self._words = np.frombuffer(self._bytes, kind, size // total.itemsize)

    def cut(self, chunk: NDArray[Any]) -> tuple[memoryview, memoryview, NDArray[Any]]:
        """Return zeros, buffer and the buffer's words, for a segment of an accumulator."""
        size = chunk.nbytes
        return self._zeros[:size], self._bytes[: size + _BLOCK_BYTES], self._words[: len(chunk)]

    def wipe(self) -> None:
        """Leave nothing of the keystream behind."""
        self._words.fill(0)


def _buffer(size: int, offset: int) -> memoryview:
    buffer: NDArray[np.uint8] | None = getattr(_reused, "buffer", None)
    if buffer is None:
        whole = SEGMENT_BYTES + _BLOCK_BYTES + _LINE_BYTES
        buffer = _reused.buffer = _at_line(np.empty(whole + _LINE_BYTES, np.uint8), whole)
    return buffer[offset : offset + size].data


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


def _at_line(spare: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return ``size`` bytes of an array that is a cache line longer, from a line's start on."""
    start = -spare.ctypes.data % _LINE_BYTES
    return spare[start : start + size]


def aligned_zeros(length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros that start at a cache line: what streams are added to fastest.

    Parameters
    ----------
    length : int
    dtype : dtype

    Returns
    -------
    ndarray of dtype, shape (length,)
    """
    size = length * dtype.itemsize
    return _at_line(np.zeros(size + _LINE_BYTES, np.uint8), size).view(dtype)


def accumulate(
    total: NDArray[Any],
    added: Iterable[bytes],
    subtracted: Iterable[bytes] = (),
    *,
    version: int,
    threads: int = 1,
) -> None:
    """Add and subtract many streams, in place, modulo the container's size.

    For each segment of the accumulator all streams are run, so that the segment and one reused
    buffer stay in cache.

    Parameters
    ----------
    total : ndarray of uint16, uint32 or uint64, shape (d,)
        Contiguous.
    added, subtracted : iterable of bytes
        The streams' seeds, 32 bytes each; taken a few hundred at a time, so that no more streams
        are open.
    version : int
        The session's.
    threads : int
        How many threads share the accumulator, each with segments of its own. The cipher and the
        additions release the interpreter's lock. Short vectors take one thread.
    """
    _check_accumulators(total)
    parts = _parts(total, threads)
    for seeds, step in ((iter(added), np.add), (iter(subtracted), np.subtract)):
        while group := list(islice(seeds, _STREAMS_AT_ONCE)):
            _in_threads(
                partial(_accumulate_part, part, total, group, version, step) for part in parts
            )


def _quickest(total: NDArray[Any]) -> NDArray[Any]:
    """Return the same words as those that numpy adds fastest.

    Modulo the container's size signs change nothing, but numpy's loops for 32 bits with sign are
    up to half again as fast as those without.
    """
    return total.view(np.int32) if total.dtype == np.uint32 else total


def _parts(total: NDArray[Any], threads: int) -> list[range]:
    """Return the numbers of the segments that each thread treats."""
    segments = range(-(-total.nbytes // SEGMENT_BYTES))
    count = max(1, min(threads, total.nbytes // _THREAD_BYTES))
    size = max(1, -(-len(segments) // count))
    return [segments[i : i + size] for i in range(0, len(segments), size)]


def _in_threads(calls: Iterable[Callable[[], None]]) -> None:
    """Make each call: in a thread of its own, where there is more than one."""
    calls = list(calls)
    if len(calls) == 1:
        calls[0]()
        return
    with ThreadPoolExecutor(max(1, len(calls))) as pool:
        for job in [pool.submit(call) for call in calls]:
            job.result()


def _segments(
    numbers: range, totals: Sequence[NDArray[Any]]
) -> Iterator[tuple[bytes, list[NDArray[Any]]]]:
    """Yield the last bytes of each segment's nonce, and the segment of each accumulator."""
    words = SEGMENT_BYTES // totals[0].itemsize
    totals = [_quickest(total) for total in totals]
    for number in numbers:
        chunks = [total[number * words : (number + 1) * words] for total in totals]
        yield number.to_bytes(4, "big"), chunks


def _accumulate_part(
    numbers: range, total: NDArray[Any], seeds: Sequence[bytes], version: int, step: np.ufunc
) -> None:
    pad, opened = _Pad(total), open_streams(seeds, version)
    for number, (chunk,) in _segments(numbers, [total]):
        zeros, buffer, drawn = pad.cut(chunk)
        for fill, prefix in opened:
            fill(prefix + number, zeros, None, buffer)
            step(chunk, drawn, chunk)
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
    totals: Sequence[NDArray[Any]], pairs: Iterable[Pair], *, version: int, threads: int = 1
) -> None:
    """Add each stream to one accumulator and subtract it from another, running it once.

    Half the cipher work of :func:`accumulate` for parties that live in one process.

    Parameters
    ----------
    totals : sequence of ndarray of uint16, uint32 or uint64, shape (d,)
        Contiguous, all of one length and type.
    pairs : iterable of (int, int, bytes)
        Where in ``totals`` to add, where to subtract, and a stream's seed of 32 bytes; taken a few
        thousand at a time.
    version : int
        The session's.
    threads : int
        As for :func:`accumulate`.
    """
    if not totals:
        return
    _check_accumulators(*totals)
    parts, remaining = _parts(totals[0], threads), iter(pairs)
    while some := list(islice(remaining, _PAIRS_AT_ONCE)):
        some.sort(key=lambda pair: (pair[0] // _TILE, pair[1] // _TILE))
        _in_threads(partial(_accumulate_pairs_part, part, totals, some, version) for part in parts)


def _accumulate_pairs_part(
    numbers: range, totals: Sequence[NDArray[Any]], pairs: Sequence[Pair], version: int
) -> None:
    pad = _Pad(totals[0])
    opened = open_streams((seed for _, _, seed in pairs), version)
    group = [(*pair[:2], *stream) for pair, stream in zip(pairs, opened, strict=True)]
    for number, chunks in _segments(numbers, totals):
        zeros, buffer, drawn = pad.cut(chunks[0])
        for plus, minus, fill, prefix in group:
            fill(prefix + number, zeros, None, buffer)
            chunk = chunks[plus]
            np.add(chunk, drawn, chunk)
            chunk = chunks[minus]
            np.subtract(chunk, drawn, chunk)
    pad.wipe()


def expand(seed: bytes, length: int, ring: Ring, version: int) -> NDArray[Any]:
    """Expand one seed into a mask.

    Parameters
    ----------
    seed : bytes
        32 bytes.
    length : int
        Coordinates d.
    ring : Ring
    version : int
        The session's.

    Returns
    -------
    ndarray in the ring's container, shape (d,)
        Uniform elements of the ring.
    """
    mask = ring.zeros(length)
    accumulate(mask, [seed], version=version)
    return ring.reduce(mask)
