"""Shamir sharing: any t shares recover, t - 1 reveal nothing."""

import json
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from zerosum.secagg.crypto import shamir
from zerosum.secagg.randomness import Keystream

VECTORS = Path(__file__).parents[2] / "vectors"
P = (1 << 31) - 1


def reference_shares(seed, secrets, threshold, points):
    """The shares by Python integers: coefficient i of all polynomials, then i + 1."""
    stream = Cipher(algorithms.AES(seed[:16]), modes.CTR(seed[16:])).encryptor()
    limbs = [
        int.from_bytes(s, "little") >> 30 * i & (1 << 30) - 1 for s in secrets for i in range(9)
    ]
    rows = [limbs]
    while len(rows) < threshold:
        words = [int.from_bytes(stream.update(bytes(4)), "little") & P for _ in limbs]
        assert P not in words
        rows.append(words)
    return [
        [sum(row[j] * x**i for i, row in enumerate(rows)) % P for j in range(len(limbs))]
        for x in points
    ]


@pytest.mark.parametrize("case", json.loads((VECTORS / "shamir.json").read_text()))
def test_shares_are_those_of_the_vectors_and_of_the_reference(case):
    seed, points = bytes.fromhex(case["seed"]), case["points"]
    secrets = [bytes.fromhex(secret) for secret in case["secrets"]]
    shares = shamir.split(secrets, case["threshold"], points, Keystream(seed))
    flat = shares.reshape(len(points), -1).tolist()
    assert flat == case["shares"]
    assert flat == reference_shares(seed, secrets, case["threshold"], points)


@given(st.integers(1, 12), st.integers(0, 8), st.binary(min_size=32, max_size=32), st.randoms())
def test_any_threshold_shares_recover_the_secret(threshold, spare, secret, random):
    points = random.sample(range(1, 100), threshold + spare)
    shares = shamir.split([secret, bytes(32)], threshold, points, Keystream(bytes(32)))
    chosen = random.sample(range(len(points)), threshold)
    assert shamir.combine([points[i] for i in chosen], shares[chosen, 0]) == secret
    assert shamir.combine([points[i] for i in chosen], shares[chosen, 1]) == bytes(32)


@pytest.mark.parametrize("secret", [b"\xff" * 32, bytes(32), b"\0" * 31 + b"\x80"])
def test_extreme_secrets_come_back(secret):
    shares = shamir.split([secret], 3, range(1, 6), Keystream(b"s" * 32))
    assert shamir.combine([2, 4, 5], shares[[1, 3, 4], 0]) == secret


@pytest.mark.quick_one_in(7)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("value", [0, 1, P // 2, P // 2 + 1, 1 << 29, (1 << 15) - 1, P - 1])
@pytest.mark.parametrize("terms", [1, 256, 257, 5000])
def test_products_are_exact_at_the_largest_values_and_past_a_block_of_terms(sign, value, terms):
    left = np.full((2, terms), sign * (P // 2), np.float64)
    right = np.full((terms, 75), value, np.uint64)
    expected = sign * (P // 2) * value * terms % P
    assert shamir._product(left, right).tolist() == [[expected] * 75] * 2


def test_powers_are_centred_and_right():
    points = (1, 2, 1000, P - 1, P // 2 + 1)
    table = shamir._powers(points, 37)
    assert np.abs(table).max() <= P // 2
    expected = [[pow(x, i, P) for i in range(1, 38)] for x in points]
    assert [[int(value) % P for value in row] for row in table] == expected


def test_a_share_does_not_depend_on_the_other_points():
    many = shamir.split([b"x" * 32], 4, range(1, 20), Keystream(b"s" * 32))
    few = shamir.split([b"x" * 32], 4, [3, 17], Keystream(b"s" * 32))
    np.testing.assert_array_equal(few, many[[2, 16]])


def reference_weights(points):
    weights = []
    for i, x in enumerate(points):
        weight = 1
        for j, other in enumerate(points):
            if j != i:
                weight = weight * other * pow(other - x, -1, P) % P
        weights.append(weight)
    return weights


@given(st.lists(st.integers(1, P - 1), min_size=1, max_size=12, unique=True))
def test_weights_are_those_of_lagrange(points):
    assert shamir.lagrange_weights(tuple(points)).tolist() == reference_weights(points)


def test_weights_of_many_sets_at_once_are_those_of_each(monkeypatch):
    monkeypatch.setattr(shamir, "_CELLS_AT_ONCE", 100)
    rng = np.random.default_rng(0)
    sets = np.array([rng.permutation(50)[:7] + 1 for _ in range(11)])
    table = shamir.lagrange_rows(sets)
    assert table.tolist() == [reference_weights(row) for row in sets.tolist()]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 33])
def test_inverses_of_many_elements_are_those_of_each(count):
    values = np.random.default_rng(count).integers(1, P, count, dtype=np.uint64)
    assert shamir.inverse(values).tolist() == [pow(value, -1, P) for value in values.tolist()]


def test_leaving_one_point_out_gives_that_sets_weights():
    points = (1, 2, 5, 9, 14)
    table = shamir.leave_out_rows(points, np.array(points)[:, None])
    for place in range(len(points)):
        rest = points[:place] + points[place + 1 :]
        weights = np.delete(table[place], place)
        np.testing.assert_array_equal(weights, shamir.lagrange_weights(rest))
        assert table[place, place] == 0


@given(st.integers(1, 9), st.integers(40, 50))
def test_leaving_out_a_point_elsewhere_gives_the_value_at_zero_still(threshold, elsewhere):
    points = range(2, threshold + 3)
    secret = bytes(range(32))
    shares = shamir.split([secret], threshold, points, Keystream(b"k" * 32))
    limbs = shamir.weigh(shamir.leave_out_rows(points, np.array([[elsewhere]])), shares)
    assert shamir.from_limbs(limbs[0].tolist()) == secret


@given(st.integers(1, 9))
def test_a_polynomials_values_at_more_points_are_those_that_were_dealt(threshold):
    points = range(1, threshold + 6)
    shares = shamir.split([bytes(range(32))], threshold, points, Keystream(b"k" * 32))
    rows = shamir.evaluation_rows(points[3 : 3 + threshold], [1, 2, 3, *points[3 + threshold :]])
    chosen = np.broadcast_to(shares[3 : 3 + threshold], (threshold, len(rows), 9))
    np.testing.assert_array_equal(
        shamir.weigh(rows, chosen), np.delete(shares[:, 0], range(3, 3 + threshold), axis=0)
    )


@pytest.mark.parametrize("limb", [0, 7, 8])
def test_a_recovered_limb_out_of_range_is_no_secret(limb):
    limbs = [0] * 9
    limbs[limb] = 1 << (16 if limb == 8 else 30)
    assert shamir.from_limbs(limbs) is None
    limbs[limb] -= 1
    secret = shamir.from_limbs(limbs)
    assert secret is not None
    assert shamir.to_limbs(secret) == limbs


def test_coefficients_are_uniform_elements_without_the_modulus():
    class Stream(Keystream):
        """Words of which every third is the modulus, with the top bit set."""

        def __init__(self):
            self.drawn = 0

        def words(self, count, dtype=np.uint64, buffer=None):
            words = [(0xFFFFFFFF, 5, 0x80000007)[(self.drawn + i) % 3] for i in range(count)]
            self.drawn += count
            return np.array(words, dtype)

    drawn = shamir.uniform_elements(Stream(), 50)
    assert len(drawn) == 50
    assert set(drawn.tolist()) == {5, 7}


def test_fewer_shares_than_the_threshold_reveal_nothing(monkeypatch):
    """In the field of 7 elements, every secret is equally consistent with t - 1 shares."""
    small = 7
    monkeypatch.setattr(shamir, "PRIME", small)
    monkeypatch.setattr(shamir, "_P", np.uint64(small))
    monkeypatch.setattr(shamir, "LIMBS", 1)
    shamir._powers.cache_clear()
    points, threshold = (1, 2, 3, 4, 5), 3
    seen: dict[tuple[Any, ...], list[int]] = {}
    for secret, *coefficients in product(range(small), repeat=threshold):
        monkeypatch.setattr(shamir, "to_limbs", lambda _, secret=secret: [secret])
        drawn = np.array(coefficients, np.uint64)
        monkeypatch.setattr(shamir, "uniform_elements", lambda *_, drawn=drawn: drawn)
        shares = shamir.split([b""], threshold, points, Keystream(bytes(32)))[:, 0, 0].tolist()
        for held in combinations(range(len(points)), threshold - 1):
            view = (held, tuple(shares[i] for i in held))
            seen.setdefault(view, []).append(secret)
    shamir._powers.cache_clear()
    assert len(seen) == 10 * small ** (threshold - 1)
    assert all(sorted(secrets) == list(range(small)) for secrets in seen.values())
