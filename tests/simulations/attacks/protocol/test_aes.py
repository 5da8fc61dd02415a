"""AES-128 under many keys at once."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from zerosum.simulations.attacks.protocol.aes import encrypt_blocks


def test_encryption_gives_the_standard_s_block():
    """FIPS 197, appendix B."""
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    block = bytes.fromhex("3243f6a8885a308d313198a2e0370734")
    encrypted = encrypt_blocks(*(np.frombuffer(data, np.uint8)[None] for data in (key, block)))
    assert encrypted.tobytes().hex() == "3925841d02dc09fbdc118597196a0b32"


def test_many_keys_at_once_equal_a_cipher_for_each_key():
    rng = np.random.default_rng(0)
    keys, blocks = rng.integers(0, 256, (2, 300, 16), dtype=np.uint8)
    expected = b"".join(
        Cipher(algorithms.AES(key.tobytes()), modes.ECB()).encryptor().update(block.tobytes())
        for key, block in zip(keys, blocks, strict=True)
    )
    assert encrypt_blocks(keys, blocks).tobytes() == expected
