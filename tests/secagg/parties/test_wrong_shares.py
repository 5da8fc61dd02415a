"""Wrong shares are decoded around or end the session by name; they never give a wrong sum."""

import dataclasses

import numpy as np
import pytest

from zerosum.secagg import ReconstructionFailed
from zerosum.secagg.messages.all_messages import SHARE_BYTES
from zerosum.secagg.wire import from_bitmap, to_bitmap


def spoil(answer, rng, dealers=None):
    """Return an unmask answer whose shares (of all dealers, or of some) are replaced."""
    table = np.frombuffer(answer.shares, "<u4").reshape(-1, SHARE_BYTES // 4).copy()
    for row, dealer in enumerate(from_bitmap(answer.dealers).tolist()):
        if dealers is None or dealer in dealers:
            table[row] = rng.integers(0, 1 << 30, table.shape[1])
    return dataclasses.replace(answer, shares=table.tobytes())


def play_with_liars(lab, session, liars, dealers=None, gone=None):
    rng = np.random.default_rng(5)

    def change(stage, index, message):
        lies = stage == "unmask" and index in liars
        return spoil(message, rng, dealers) if lies else message

    return lab.Play(session, change=change), gone or {}


@pytest.mark.parametrize("liars", [1, 2, 3])
def test_shares_of_a_few_liars_are_decoded_around_and_named(lab, liars):
    session = lab.session(12, threshold=5)
    wrong = set(session.cohort[2 : 2 + liars])
    play, gone = play_with_liars(lab, session, wrong, gone={session.cohort[8]: "contribute"})
    result = play.finish(gone)
    expected = lab.plain_sum(session, play.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)
    assert {holder for _, holder in result.wrong_shares} == wrong


def test_one_wrong_share_beside_the_bare_threshold_is_found_by_trying_subsets(lab):
    session = lab.session(6, threshold=4)
    play, _ = play_with_liars(lab, session, {session.cohort[0]})
    result = play.finish()
    expected = lab.plain_sum(session, play.vectors, session.cohort)
    np.testing.assert_array_equal(result.total, expected)
    assert {holder for _, holder in result.wrong_shares} == {session.cohort[0]}


def test_one_wrong_share_of_one_dealer_is_decoded_around(lab):
    session = lab.session(40, threshold=26)
    play, _ = play_with_liars(lab, session, {session.cohort[1]}, dealers={7})
    result = play.finish()
    assert result.wrong_shares == ((session.cohort[7], session.cohort[1]),)
    expected = lab.plain_sum(session, play.vectors, session.cohort)
    np.testing.assert_array_equal(result.total, expected)


def test_without_a_spare_share_the_session_fails_and_names_candidates(lab):
    session = lab.session(5, threshold=4)
    play, _ = play_with_liars(lab, session, {session.cohort[3]})
    with pytest.raises(ReconstructionFailed) as error:
        play.finish()
    assert session.cohort[3] in error.value.candidates
    assert error.value.dealer in error.value.candidates
    assert play.server.stage == "failed"


def test_too_many_liars_give_no_sum(lab):
    session = lab.session(30, threshold=20)
    liars = set(session.cohort[:15])
    play, _ = play_with_liars(lab, session, liars)
    with pytest.raises(ReconstructionFailed) as error:
        play.finish()
    assert liars <= {*error.value.candidates, error.value.dealer}


def test_liars_that_agree_on_another_polynomial_give_no_sum(lab):
    session = lab.session(4, threshold=1)

    def change(stage, index, message):
        if stage != "unmask":
            return message
        table = np.full(len(message.shares) // 4, 12345, "<u4")
        return dataclasses.replace(message, shares=table.tobytes())

    with pytest.raises(ReconstructionFailed):
        lab.Play(session, change=change).finish()


def test_a_dealer_that_sealed_garbage_is_named_when_its_secret_is_needed(lab):
    session = lab.session(5, threshold=3)
    dealer = session.cohort[2]

    def change(stage, index, message):
        if stage == "share" and index == dealer:
            return dataclasses.replace(message, sealed=bytes(len(message.sealed)))
        return message

    with pytest.raises(ReconstructionFailed, match="too few shares that open") as error:
        lab.Play(session, change=change).finish()
    assert error.value.dealer == dealer


def test_an_envelope_that_does_not_open_is_left_out_and_the_others_released(lab):
    session = lab.session(6, threshold=3)
    dealer, victim = session.cohort[1], session.cohort[4]

    def change(stage, index, message):
        if stage == "share" and index == dealer:
            sealed = bytearray(message.sealed)
            sealed[3 * 88] ^= 1
            return dataclasses.replace(message, sealed=bytes(sealed))
        return message

    play = lab.Play(session, change=change)
    result = play.finish()
    expected = lab.plain_sum(session, play.vectors, session.cohort)
    np.testing.assert_array_equal(result.total, expected)
    assert play.sent["unmask"][victim].dealers == to_bitmap({0, 2, 3, 5}, 6)


def test_a_commitment_to_another_seed_is_caught(lab):
    session = lab.session(5, threshold=2)
    dealer = session.cohort[0]
    play = lab.Play(session)
    party = play.clients[dealer]
    honest = party._own_advert
    party._own_advert = lambda: dataclasses.replace(honest(), commitment=bytes(32))
    with pytest.raises(ReconstructionFailed, match="does not match its commitment") as error:
        play.finish()
    assert error.value.dealer == dealer
