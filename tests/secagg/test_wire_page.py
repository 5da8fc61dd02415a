"""The pages on the wire format say what is sent."""

import hashlib
import hmac
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import wire_example

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_session_is_the_one_on_its_page():
    page = (DOCS / "secagg-wire-example.md").read_text(encoding="utf-8")
    assert page == wire_example.page(), "python docs/wire_example.py > docs/secagg-wire-example.md"


def test_a_session_of_version_2_has_the_bytes_that_it_had():
    """The page as it stood before there was another version: every message, byte by byte."""
    page = wire_example.page(version=2).encode()
    frozen = "9938de85a60314ed70273003f8d0a5caec01be76f9a2b643f937f72701fbfc19"
    assert hashlib.sha256(page).hexdigest() == frozen
    assert hashlib.sha256(wire_example.page(version=3).encode()).hexdigest() != frozen


def test_the_fields_of_every_example_message_fill_it():
    session, roster = wire_example.example_session()
    said, total = wire_example.play()
    for spoken in said:
        sizes = [size for _, size in wire_example.layout(spoken.message, session)]
        assert sum(sizes) == spoken.message.wire_bytes
    assert sum(size for _, size in wire_example.session_layout(session)) == len(session.to_bytes())
    assert sum(size for _, size in wire_example.roster_layout(roster)) == len(roster.to_bytes())
    assert total == tuple(map(sum, zip(*wire_example.VECTORS, strict=True)))


# --- an independent reader of the page ---------------------------------------------------------


def u64(value):
    return struct.pack(">Q", value)


def kdf(salt, secret, info):
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def raw(private):
    return x25519.X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private, public):
    peer = x25519.X25519PublicKey.from_public_bytes(public)
    return x25519.X25519PrivateKey.from_private_bytes(private).exchange(peer)


@pytest.fixture(scope="module")
def page():
    """The blocks of the page, each a list of (name, bytes), by heading."""
    text = (DOCS / "secagg-wire-example.md").read_text(encoding="utf-8")
    blocks = {}
    for heading, body in re.findall(r"## ([^\n]*)\n\n```text\n(.*?)```", text, re.S):
        fields = []
        for line in body.splitlines():
            if line[:14].strip():
                fields.append((line[:14].strip(), ""))
            name, value = fields[-1]
            fields[-1] = (name, value + line[15:])
        blocks[heading] = [(name, bytes.fromhex(value)) for name, value in fields]
    return blocks


def found(page, *words):
    (fields,) = (dict(block) for heading, block in page.items() if all(w in heading for w in words))
    return fields


COHORT = (2, 5, 2**64 - 1)


class Reference:
    """One client of the example, from its label and the page's formulas."""

    def __init__(self, page, index):
        self.index = index
        self.session = sha(b"".join(data for _, data in found_list(page, "Session")))
        seed, info = sha(f"seed {index}".encode()), b"zerosum party\0" + u64(index)
        labels = (b"channel key", b"mask key", b"self mask")
        secret = {label: kdf(self.session, seed, info + label) for label in labels}
        self.channel, self.mask, self.b = secret.values()
        self.signer = ed25519.Ed25519PrivateKey.from_private_bytes(
            sha(f"identity {index}".encode())
        )


def found_list(page, word):
    (block,) = (block for heading, block in page.items() if heading.startswith(word + ":"))
    return block


@pytest.mark.parametrize("index", COHORT)
def test_an_advert_follows_from_the_pages_formulas(page, index):
    client, advert = Reference(page, index), found(page, "Advertise: Advert,", f"client {index} to")
    assert advert["magic"] + advert["version, type"] == b"zsag\x02\x01"
    assert advert["session"] == client.session
    assert advert["channel key"] == raw(client.channel)
    assert advert["mask key"] == raw(client.mask)
    commitment = sha(b"zerosum commitment\0", client.session, u64(index), client.b)
    assert advert["commitment"] == commitment
    signed = b"zerosum advert\0" + client.session + u64(index)
    signed += raw(client.channel) + raw(client.mask) + commitment
    assert advert["signature"] == client.signer.sign(signed)
    body = [data for name, data in advert.items() if name != "checksum"]
    assert advert["checksum"] == sha(*body)[:16]


def keystream(seed, count):
    counter = seed[16:24] + bytes(4) + struct.pack(">I", 2)
    cipher = Cipher(algorithms.AES(seed[:16]), modes.CTR(counter)).encryptor()
    return cipher.update(bytes(count))


@pytest.mark.parametrize("place", range(3))
def test_a_contribution_follows_from_the_pages_formulas(page, place):
    index, clients = COHORT[place], [Reference(page, i) for i in COHORT]
    own, asked = clients[place], found_list(page, "Session")
    said = found(page, "Contribution", f"client {index} to")
    request = sha(b"zerosum request\0", u64(2), u64(5), b"model", u64(8), b"clip 1.0")
    assert said["request"] == request
    seeds = [(1, kdf(own.session, own.b, b"zerosum self\0" + request + u64(index)))]
    for other in clients:
        if other is not own:
            shared = agree(own.mask, raw(other.mask))
            low, high = sorted((index, other.index))
            info = b"zerosum mask\0" + request + u64(low) + u64(high)
            seeds.append((1 if index == low else -1, kdf(own.session, shared, info)))
    expected = [
        (x + sum(sign * struct.unpack_from("<I", keystream(seed, 16), 4 * at)[0]
                 for sign, seed in seeds)) % 2**20
        for at, x in enumerate(wire_example.VECTORS[place])
    ]  # fmt: skip
    packed = sum(word << (20 * at) for at, word in enumerate(expected))
    assert said["vector"] == packed.to_bytes(10, "little")
    assert dict(asked)["ring bits"] == u64(20)


def test_the_shares_of_the_page_open_and_recover_the_dealers_secrets(page):
    dealer, prime = Reference(page, 2), 2**31 - 1
    said = found(page, "Share: Shares", "client 2 to")
    points, limbs = [2, 3], []
    for place, holder in enumerate(COHORT[1:], 1):
        peer = Reference(page, holder)
        direction = u64(2) + u64(holder)
        key = kdf(dealer.session, agree(peer.channel, raw(dealer.channel)),
                  b"zerosum share\0" + direction)  # fmt: skip
        associated = b"zerosum envelope\0" + dealer.session + direction
        plain = AESGCM(key).decrypt(bytes(12), said[f"envelope {place}"], associated)
        limbs.append(struct.unpack("<18I", plain))
    secret = [0, 0]
    for at in range(18):
        # The line through two points, at zero.
        slope = (limbs[1][at] - limbs[0][at]) * pow(points[1] - points[0], -1, prime)
        secret[at // 9] |= (limbs[0][at] - slope * points[0]) % prime << (30 * (at % 9))
    assert [value.to_bytes(32, "little") for value in secret] == [dealer.mask, dealer.b]


def test_signatures_and_released_shares_are_those_of_the_page(page):
    request = found(page, "Unmask: UnmaskRequest")
    asked = found(page, "Contribution", "client 2 to")["request"]
    for place, index in enumerate(COHORT, 1):
        client = Reference(page, index)
        statement = b"zerosum survivors\0" + client.session + asked + request["survivors"]
        assert request[f"signature {place}"] == client.signer.sign(statement)
    assert request["survivors"] == request["signers"] == b"\x07"


# --- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["semi-honest", "malicious"])
@pytest.mark.parametrize(("n", "k"), [(9, 8), (12, 6), (17, 16)])
def test_the_bytes_of_a_session_are_those_of_the_formulas(lab, mode, n, k):
    session = lab.session(n, degree=k, threshold=2, mode=mode, vector_length=37, ring_bits=19)
    play = lab.Play(session)
    play.finish()
    b, a = -(-n // 8), 96 + (64 + (k * 2 if k < n - 1 else 0) if session.signed else 0)
    for place, index in enumerate(session.cohort):
        sent = {stage: said[index] for stage, said in play.sent.items()}
        dealers = len(sent["unmask"].shares) // 36
        assert k == n - 1 or session.signed or dealers == k
        up = a + 2 * b + 88 * k + 36 * dealers + -(-37 * 19 // 8)
        up += 406 if session.signed else 280
        assert sum(len(message.to_bytes()) for message in sent.values()) == up
        assert sent["advertise"].wire_bytes == 54 + 8 + a
        got = {stage: said[index] for stage, said in play.asked.items() if said[index]}
        shown = int.from_bytes(got["share"].present, "little").bit_count()
        assert got["share"].wire_bytes == 54 + b + shown * a
        assert got["contribute"].wire_bytes == 54 + 40 + b + 88 * dealers
        if session.signed:
            signers = 3 if session.complete else 2
            assert got["confirm"].wire_bytes == 54 + b
            assert got["unmask"].wire_bytes == 54 + 2 * b + 64 * signers
        else:
            assert got["unmask"].wire_bytes == 54 + b
        assert place < n


def test_the_upload_quoted_for_a_thousand_clients_is_right():
    n, d, b = 1024, 2**20, 26

    def up(k, a):
        return 406 + a + 2 * (n // 8) + 88 * k + 36 * k + d * b // 8

    text = (DOCS / "secagg-wire.md").read_text(encoding="utf-8").replace(",", "")
    complete, sparse = up(1023, 160), up(51, 160 + 102)
    assert str(complete) in text
    assert str(round(sparse, -3)) in text
    assert np.isclose(complete / (2 * d), 1.69, atol=0.005)
    assert np.isclose(sparse / (2 * d), 1.63, atol=0.005)
