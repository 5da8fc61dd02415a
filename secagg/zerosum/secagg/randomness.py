"""Random sources: the operating system, or a seed that protects nobody.

Two kinds of source share one type, :class:`Keystream`, so that code which draws noise does
not know which it was given. A deployed party makes its own with :func:`system_keystream`.
A simulation derives them with :func:`insecure_keystream`, whose name says what it is: whoever
knows the experiment's seed knows every bit of it.
"""

import hashlib
import os
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

SEED_BYTES = 32

_DERIVE_TAG = b"zerosum/1 derive seed\0"
_ZEROS = memoryview(bytes(1 << 17))

SPARE_BYTES = 15
"""Room that the cipher asks for behind what it writes: a block of 16 bytes, less one."""


class RandomSource(Protocol):
    """A source of random bytes."""

    def take(self, count: int) -> bytes:
        """Return the next ``count`` random bytes."""
        ...


class SystemRandomness:
    """Bytes straight from the operating system."""

    def take(self, count: int) -> bytes:
        """Return ``count`` bytes of operating-system entropy."""
        return os.urandom(count)


class Keystream:
    """An AES-128-CTR keystream read as bytes, integer words or uniform floats.

    Parameters
    ----------
    seed : bytes
        32 bytes: 16 of AES key, then 16 of initial counter.

    Raises
    ------
    ValueError
        If ``seed`` is not 32 bytes long.
    """

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a keystream seed has {SEED_BYTES} bytes, not {len(seed)}")
        cipher = Cipher(algorithms.AES(seed[:16]), modes.CTR(seed[16:]))
        self._encryptor = cipher.encryptor()
        self._start = int.from_bytes(seed[16:], "big")

    def seek(self, stretch: int) -> None:
        """Go on at the beginning of a stretch of the stream; it has 2^64 of them.

        Parameters
        ----------
        stretch : int
            From 0, which the stream itself begins with, to 2^64 - 1. Each has 2^64 blocks of 16
            bytes, so that no two overlap.

        Raises
        ------
        ValueError
            If there is no such stretch.
        """
        if not 0 <= stretch < 2**64:
            raise ValueError(f"a keystream has 2^64 stretches; there is none of number {stretch}")
        counter = (self._start + (stretch << 64)) % 2**128
        self._encryptor.reset_nonce(counter.to_bytes(16, "big"))

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the stream."""
        if count <= len(_ZEROS):
            return self._encryptor.update(_ZEROS[:count])
        return self._encryptor.update(bytes(count))

    def words(
        self,
        count: int,
        dtype: type[np.unsignedinteger[Any]] = np.uint64,
        buffer: bytearray | None = None,
    ) -> np.ndarray:
        """Return the next little-endian unsigned words.

        Parameters
        ----------
        count : int
        dtype : type
            An unsigned integer type.
        buffer : bytearray, optional
            Where to write them, at most 2^17 bytes, and SPARE_BYTES longer.

        Returns
        -------
        ndarray of dtype, little-endian, shape (count,)
            Uniform; read-only, or a view of the buffer.
        """
        kind = np.dtype(dtype).newbyteorder("<")
        size = count * kind.itemsize
        if buffer is None:
            return np.frombuffer(self.take(size), kind)
        self._encryptor.update_into(_ZEROS[:size], buffer)
        return np.frombuffer(buffer, kind, count)

    def uniform(self, count: int) -> np.ndarray:
        """Return ``count`` float64 values, uniform on the multiples of 2^-53 in [0, 1)."""
        return (self.words(count) >> np.uint64(11)) * 2.0**-53


def system_keystream() -> Keystream:
    """Return a keystream keyed by the operating system: for protocols and deployed noise."""
    return Keystream(os.urandom(SEED_BYTES))


def insecure_keystream(seed: int, purpose: str, *indices: int) -> Keystream:
    """Return a reproducible keystream for simulations; it protects nobody.

    Parameters
    ----------
    seed : int
        The experiment's seed.
    purpose : str
        What the bits are for; different purposes never share bits.
    *indices : int
        Usually round and client.

    Returns
    -------
    Keystream
    """
    return Keystream(derive_seed(seed, purpose, *indices))


def derive_seed(seed: int, purpose: str, *indices: int) -> bytes:
    """Derive 32 bytes from a seed, a purpose and indices: independent of any schedule.

    Parameters
    ----------
    seed, *indices : int
        Any integers, negative ones too.
    purpose : str
        A label; no two labels give the same bytes.

    Returns
    -------
    bytes
        SHA-256 over an unambiguous encoding of the arguments.
    """
    parts = [str(seed), purpose.replace("/", "//"), *map(str, indices)]
    return hashlib.sha256(_DERIVE_TAG + "/ ".join(parts).encode()).digest()


def numpy_generator(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return a numpy generator for experiment randomness: batches, partitions, faults.

    Never for noise or for the protocol: those read a :class:`Keystream`.

    Parameters
    ----------
    seed, *indices : int
    purpose : str
        As for :func:`derive_seed`.

    Returns
    -------
    numpy.random.Generator
    """
    # The numbers 0 to 255 as an array: numpy takes a list of them ten times slower.
    numbers = np.frombuffer(derive_seed(seed, purpose, *indices), np.uint8).astype(np.uint32)
    return np.random.Generator(np.random.PCG64(numbers))
