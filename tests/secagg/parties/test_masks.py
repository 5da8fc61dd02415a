"""A contribution looks like noise to whoever lacks its masks."""

from typing import cast

import numpy as np
import pytest

from zerosum.secagg import ClientParty
from zerosum.secagg.messages.all_messages import Advert


def contribution(lab, session, vectors):
    play = lab.Play(session)
    play.vectors = vectors
    play.until("contribute")
    return play.stage()[session.cohort[0]].vector


def chi_square(words, cells):
    """Distance of a histogram from the uniform one, in standard deviations."""
    counts = np.bincount(words, minlength=cells)
    expected = len(words) / cells
    statistic = ((counts - expected) ** 2 / expected).sum()
    return (statistic - (cells - 1)) / np.sqrt(2 * (cells - 1))


@pytest.mark.parametrize("bits", [16, 24])
def test_a_contribution_is_uniform_and_a_plain_vector_is_not(lab, bits):
    session = lab.session(3, ring_bits=bits, vector_length=200_000)
    rng = np.random.default_rng(0)
    vectors = {i: rng.normal(0, 50, 200_000).astype(np.int64) for i in session.cohort}
    masked = contribution(lab, session, vectors)
    plain = session.ring.encode(vectors[session.cohort[0]])
    for shift in (0, bits - 8):
        assert abs(chi_square((masked >> shift) & 255, 256)) < 6
        assert chi_square((plain >> shift) & 255, 256) > 100


@pytest.mark.parametrize("degree", [4, 3])
def test_a_contribution_is_uniform_against_a_malicious_server_too(lab, degree):
    """Of a vector of zeros, on the complete graph and where neighbours are drawn."""
    session = lab.session(
        5, mode="malicious", degree=degree, threshold=2, ring_bits=16, vector_length=200_000
    )
    masked = contribution(lab, session, dict.fromkeys(session.cohort, np.zeros(200_000, np.int64)))
    for shift in (0, 8):
        assert abs(chi_square((masked >> shift) & 255, 256)) < 6


def test_two_contributions_of_one_vector_are_unrelated(lab):
    session, again = (lab.session(3, vector_length=100_000, attempt=a) for a in (0, 1))
    vectors = lab.vectors(session)
    one, other = (contribution(lab, each, vectors).astype(np.float64) for each in (session, again))
    assert abs(np.corrcoef(one, other)[0, 1]) < 6 / np.sqrt(len(one))
    assert np.mean(one == other) < 1e-3
    equal = contribution(lab, session, vectors)
    assert np.mean(equal == one) < 1e-3


def test_a_contribution_is_unrelated_to_its_vector_and_to_its_neighbours(lab):
    session = lab.session(3, vector_length=100_000)
    play = lab.Play(session).until("contribute")
    said = [message.vector.astype(np.float64) for message in play.stage().values()]
    plain = session.ring.encode(play.vectors[session.cohort[0]]).astype(np.float64)
    for one, other in ((said[0], plain), (said[0], said[1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / np.sqrt(len(one))


def test_parties_draw_fresh_seeds_from_the_system(lab):
    session = lab.session(3)
    adverts = {cast(Advert, ClientParty(session, 10).advertise().send).entry for _ in range(20)}
    assert len(adverts) == 20


def test_all_of_a_partys_randomness_is_one_seed(lab):
    class Source:
        def __init__(self):
            self.taken = []

        def take(self, count):
            self.taken.append(count)
            return b"s" * count

    session = lab.session(3)
    source = Source()
    party = ClientParty(session, 10, source=source)
    assert party.advertise() == ClientParty(session, 10, source=Source()).advertise()
    assert source.taken == [32]
