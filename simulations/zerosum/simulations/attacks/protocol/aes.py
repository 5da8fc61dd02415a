"""Encrypt one block under many AES-128 keys at once, for the search of mask seeds.

A library's cipher object takes microseconds to key, and a candidate seed needs a single block. Here
the rounds of all candidates are table look-ups on whole arrays (Daemen and Rijmen, "AES Proposal:
Rijndael" (1999), section 5.2.1). No cipher that protects anything may do so: the timing of
look-ups reveals the key.
"""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_ROUNDS = 10


def _times(value: int, factor: int) -> int:
    """Multiply in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1."""
    product = 0
    while factor:
        product ^= value * (factor & 1)
        value = (value << 1) ^ (0x11B * (value >> 7))
        factor >>= 1
    return product


def _substitutions() -> list[int]:
    """Return the S-box: inverse in GF(2^8), then the affine map (FIPS 197, section 5.1.1)."""
    powers = [1]
    while len(powers) < 255:
        powers.append(_times(powers[-1], 3))
    inverses = {powers[i]: powers[-i % 255] for i in range(255)} | {0: 0}
    table = []
    for value in range(256):
        b = inverses[value]
        spread = b ^ b << 1 ^ b << 2 ^ b << 3 ^ b << 4
        table.append((spread ^ spread >> 8) & 0xFF ^ 0x63)
    return table


def _column(bytes_of: tuple[int, int, int, int]) -> Words:
    """Return the table of each byte's S-box value times four factors, as columns."""
    rows = [[_times(s, factor) if factor else 0 for factor in bytes_of] for s in _SUBSTITUTIONS]
    return np.array([int.from_bytes(bytes(row), "big") for row in rows], np.uint32)


_SUBSTITUTIONS = _substitutions()
_MIXED = [_column(f) for f in ((2, 1, 1, 3), (3, 2, 1, 1), (1, 3, 2, 1), (1, 1, 3, 2))]
_PLAIN = [_column(f) for f in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))]


def _looked_up(tables: list[Words], words: tuple[Words, Words, Words, Words]) -> Words:
    """Look up byte i of word i in table i, and add the four columns."""
    column = np.take(tables[0], words[0] >> np.uint32(24))
    column ^= np.take(tables[1], (words[1] >> np.uint32(16)) & np.uint32(255))
    column ^= np.take(tables[2], (words[2] >> np.uint32(8)) & np.uint32(255))
    column ^= np.take(tables[3], words[3] & np.uint32(255))
    return column


def _next_key(key: list[Words], constant: int) -> list[Words]:
    """Return the next round key (FIPS 197, section 5.2)."""
    last = key[3]
    turned = (last << np.uint32(8)) | (last >> np.uint32(24))
    word = key[0] ^ _looked_up(_PLAIN, (turned, turned, turned, turned)) ^ np.uint32(constant << 24)
    words = [word]
    for old in key[1:]:
        words.append(words[-1] ^ old)
    return words


def encrypt_blocks(keys: NDArray[np.uint8], blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Encrypt one block under each key.

    Parameters
    ----------
    keys, blocks : ndarray of uint8, shape (n, 16)

    Returns
    -------
    ndarray of uint8, shape (n, 16)
    """
    key = [word.astype(np.uint32) for word in np.ascontiguousarray(keys).view(">u4").T]
    state = [word.astype(np.uint32) for word in np.ascontiguousarray(blocks).view(">u4").T]
    state = [word ^ part for word, part in zip(state, key, strict=True)]
    constant = 1
    for number in range(1, _ROUNDS + 1):
        key = _next_key(key, constant)
        constant = _times(constant, 2)
        tables = _PLAIN if number == _ROUNDS else _MIXED
        state = [
            _looked_up(tables, (state[j], state[j - 3], state[j - 2], state[j - 1])) ^ key[j]
            for j in range(4)
        ]
    return np.stack(state, axis=1).astype(">u4").view(np.uint8)
