"""Agreement, derivation and envelopes, against published vectors."""

import json
from pathlib import Path
from typing import Any

import pytest

from zerosum.secagg import LowOrderKey, NonCanonicalKey
from zerosum.secagg.crypto.cache import SharedCache
from zerosum.secagg.crypto.keys import (
    Channel,
    Hkdf,
    KeyPair,
    PairMasks,
    PartySecrets,
    check_public_key,
    commitment,
    expand,
)

VECTORS = Path(__file__).parents[2] / "vectors"
SALT = b"s" * 32


def load(name):
    return json.loads((VECTORS / f"{name}.json").read_text())


@pytest.mark.parametrize("case", load("hkdf"))
def test_hkdf_gives_the_vectors_of_rfc_5869(case):
    ikm, salt, info, prk, okm = (
        bytes.fromhex(case[name]) for name in ("ikm", "salt", "info", "prk", "okm")
    )
    hkdf = Hkdf(salt)
    assert hkdf.extract(ikm) == prk
    assert expand(prk, info, len(okm)) == okm
    assert hkdf.derive(ikm, info, len(okm)) == okm


@pytest.mark.parametrize("case", load("x25519"))
def test_agreement_gives_the_vectors_of_rfc_7748(case):
    private, public, shared = (bytes.fromhex(case[name]) for name in ("scalar", "u", "shared"))
    hkdf = Hkdf(SALT)
    pair = KeyPair(private, hkdf)
    assert pair.agree_all([public]) == [hkdf.extract(shared)]
    if "public" in case:
        assert pair.public == bytes.fromhex(case["public"])


@pytest.mark.parametrize("value", [(1 << 255) - 19, (1 << 255) - 1, 1 << 255, 9 | 1 << 255])
def test_keys_that_are_not_canonical_are_refused(value):
    with pytest.raises(NonCanonicalKey):
        check_public_key(value.to_bytes(32, "little"))


@pytest.mark.parametrize("key", load("low_order"))
def test_keys_of_low_order_are_refused_before_and_at_agreement(key):
    key = bytes.fromhex(key)
    with pytest.raises(LowOrderKey):
        check_public_key(key)
    with pytest.raises(LowOrderKey):
        KeyPair(b"k" * 32, Hkdf(SALT)).agree_all([key])


def test_both_ends_agree_with_and_without_the_cache():
    hkdf, cache = Hkdf(SALT), SharedCache().of(SALT)
    plain = [KeyPair(bytes([i]) * 32, hkdf) for i in (1, 2)]
    cached = [KeyPair(bytes([i]) * 32, hkdf, cache) for i in (1, 2)]
    agreed = {
        one.agree_all([other.public])[0]
        for pairs in (plain, cached)
        for one, other in (pairs, reversed(pairs))
    }
    assert len(agreed) == 1
    assert len(cache.agreed) == 1


@pytest.mark.parametrize("cached", [False, True])
def test_an_envelope_opens_only_for_its_pair_direction_and_session(cached):
    hkdf, shared = Hkdf(SALT), SharedCache()
    alice, bob, eve = (KeyPair(bytes([i]) * 32, hkdf) for i in (1, 2, 3))

    def channel(session, index, own):
        return Channel(session, index, own, shared.of(session) if cached else None)

    sealed = channel(SALT, 1, alice).seal_all([b"plain"], [2], [bob.public])
    assert len(shared.of(SALT).envelopes) == cached
    assert channel(SALT, 2, bob).open(sealed, 1, alice.public) == b"plain"
    assert channel(SALT, 1, alice).open(sealed, 2, bob.public) is None
    assert channel(SALT, 2, bob).open(sealed, 3, alice.public) is None
    assert channel(SALT, 3, eve).open(sealed, 1, alice.public) is None
    assert channel(b"t" * 32, 2, bob).open(sealed, 1, alice.public) is None
    for bit in range(8 * len(sealed)):
        torn = bytearray(sealed)
        torn[bit >> 3] ^= 1 << (bit & 7)
        assert channel(SALT, 2, bob).open(bytes(torn), 1, alice.public) is None


def test_one_damaged_envelope_among_many_is_the_only_one_that_does_not_open():
    hkdf, shared = Hkdf(SALT), SharedCache()
    alice, *others = (KeyPair(bytes([i]) * 32, hkdf) for i in range(1, 6))
    sealed = [
        Channel(SALT, i, other, shared.of(SALT)).seal_all([bytes([i]) * 72], [1], [alice.public])
        for i, other in enumerate(others, 2)
    ]
    sealed[2] = sealed[2][:-1] + bytes([sealed[2][-1] ^ 1])
    for cache in (shared.of(SALT), None):
        plain = Channel(SALT, 1, alice, cache).open_all(
            sealed, range(2, 6), [other.public for other in others]
        )
        assert plain == [bytes([2]) * 72, bytes([3]) * 72, None, bytes([5]) * 72]


def test_everything_a_party_draws_differs_by_seed_session_and_index():
    drawn: set[Any] = set()
    for seed in (bytes(32), bytes(31) + b"\1", b"\1" + bytes(31)):
        for session in (SALT, b"t" * 32):
            for index in (1, 2, (1 << 64) - 1):
                secrets = PartySecrets.expand(seed, Hkdf(session), index, None)
                keys = (secrets.channel.private, secrets.mask.private)
                drawn.update((*keys, secrets.self_seed, secrets.polynomials))
    assert len(drawn) == 3 * 2 * 3 * 4


def test_pair_masks_differ_by_request_and_pair_and_agree_at_both_ends():
    hkdf = Hkdf(SALT)
    alice, bob = KeyPair(b"a" * 32, hkdf), KeyPair(b"b" * 32, hkdf)

    def start(own, peer, request, low, high):
        (seed,) = PairMasks(own, low, request).seeds([peer.public], [high])
        return seed

    assert start(alice, bob, b"r" * 32, 1, 2) == start(bob, alice, b"r" * 32, 1, 2)
    others = {start(alice, bob, b"q" * 32, 1, 2), start(alice, bob, b"r" * 32, 1, 3)}
    assert start(alice, bob, b"r" * 32, 1, 2) not in others


def test_commitments_bind_session_client_and_seed():
    values = {
        commitment(session, index, seed)
        for session in (SALT, b"t" * 32)
        for index in (1, 2)
        for seed in (bytes(32), b"b" * 32)
    }
    assert len(values) == 8
