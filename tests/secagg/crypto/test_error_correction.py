"""Errors in shares are located as far as Reed-Solomon codes allow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerosum.secagg.crypto import shamir
from zerosum.secagg.crypto.error_correction import locate_errors, recover_around
from zerosum.secagg.randomness import Keystream

SECRET = bytes(range(32))
COINS = Keystream(b"c" * 32)


def shares_of(threshold, count):
    return shamir.split([SECRET], threshold, range(1, count + 1), Keystream(b"k" * 32))[:, 0].copy()


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(0, 8), st.data())
def test_up_to_half_the_spare_shares_may_be_wrong(threshold, spare, data):
    count = threshold + spare
    places = st.integers(0, count - 1)
    wrong = data.draw(st.sets(places, max_size=spare // 2))
    shares = shares_of(threshold, count)
    for place in wrong:
        shares[place, 2] = (shares[place, 2] + data.draw(st.integers(1, shamir.PRIME - 1))) % (
            shamir.PRIME
        )
    assert locate_errors(range(1, count + 1), shares[:, 2], threshold) == tuple(sorted(wrong))
    found = recover_around(range(1, count + 1), shares, threshold, SECRET.__eq__, COINS)
    assert found == (SECRET, tuple(sorted(wrong)))


def test_beyond_half_a_check_and_subsets_still_find_the_secret():
    shares = shares_of(3, 8)
    shares[[0, 1, 3, 6]] += 17
    assert recover_around(range(1, 9), shares, 3, SECRET.__eq__, COINS) == (SECRET, (0, 1, 3, 6))


def test_what_cannot_be_found_is_not_invented():
    shares = shares_of(3, 8)
    shares[:6] = np.random.default_rng(0).integers(0, 1 << 30, (6, 9))
    assert recover_around(range(1, 9), shares, 3, SECRET.__eq__, COINS) is None


@pytest.mark.parametrize("count", [20, 60])
def test_errors_spread_over_limbs_and_holders_are_all_found(count):
    shares = shares_of(10, count)
    wrong = (0, 4, 9, 13, 19)
    for limb, place in enumerate(wrong):
        shares[place, limb] ^= 1
    assert recover_around(range(1, count + 1), shares, 10, SECRET.__eq__, COINS) == (SECRET, wrong)
