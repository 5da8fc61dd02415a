"""The sum equals the plain sum, whoever drops out and whenever."""

from collections import Counter

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerosum.secagg import SecAggError, ServerMode, TooFewSurvivors
from zerosum.secagg.crypto import keys
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.wrapping import MessageCanWrapError, check_message_fits

STAGES = ("advertise", "share", "contribute", "unmask")
ALL_STAGES = ("advertise", "share", "contribute", "confirm", "unmask")


@st.composite
def schedules(draw, complete=True, most=8):
    n = draw(st.integers(2 if complete else 4, most))
    mode = draw(st.sampled_from(ServerMode))
    stages = STAGES if mode is ServerMode.SEMI_HONEST else ALL_STAGES
    degrees = [k for k in range(2, n - 1) if mode is ServerMode.MALICIOUS or n * k % 2 == 0]
    degree = n - 1 if complete else draw(st.sampled_from(degrees))
    return {
        "n": n,
        "mode": mode,
        "degree": degree,
        "threshold": draw(st.integers(1, degree)),
        "min_survivors": draw(st.integers(1, n)),
        "ring_bits": draw(st.sampled_from([1, 3, 16, 17, 32, 33, 59, 64])),
        "version": draw(st.sampled_from([2, 3])),
        "vector_length": draw(st.integers(1, 20)),
        "gone": draw(st.dictionaries(st.integers(0, n - 1), st.sampled_from(stages), max_size=n)),
        "cached": draw(st.booleans()),
        "as_bytes": draw(st.booleans()),
    }


def outcome(play, gone):
    """Return a session's end, as plain values that can be compared."""
    try:
        result = play.finish(gone)
    except TooFewSurvivors as error:
        return ("too few", error.stage, error.survivors, error.needed, error.client)
    return (result.total.tolist(), result.survivors, result.dropouts, result.wrong_shares)


def play_both(lab, schedule):
    schedule = dict(schedule)
    n, gone = schedule.pop("n"), schedule.pop("gone")
    how = {name: schedule.pop(name) for name in ("cached", "as_bytes")}
    session = lab.session(n, **schedule)
    gone = {session.cohort[place]: stage for place, stage in gone.items()}
    real, ideal = lab.Play(session, **how), lab.Play(session, ideal=True)
    return session, real, ideal, gone


def check_sum(lab, session, play, told, gone):
    """The survivors are those who contributed, and the total is their plain sum."""
    assert told[0] == lab.plain_sum(session, play.vectors, told[1]).tolist()
    early = [index for stage in STAGES[:3] for index in told[2][stage]]
    assert set(told[1]) == set(session.cohort) - set(early)
    assert len(told[1]) >= session.min_survivors
    assert set(gone) <= {index for lost in told[2].values() for index in lost}


@pytest.mark.slow
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=schedules(complete=False, most=10))
def test_every_schedule_on_a_sparse_graph_gives_the_plain_sum_or_names_who_is_cut_off(
    lab, schedule
):
    session, real, ideal, gone = play_both(lab, schedule)
    told, wanted = outcome(real, gone), outcome(ideal, gone)
    if not session.drawn:
        # Everybody knows a graph that is not drawn, the ideal server too.
        assert told == wanted
    if told[0] == "too few":
        assert told[2] < told[3]
        assert told[4] is None or told[4] in session.cohort
    else:
        check_sum(lab, session, real, told, gone)
        lost = {index: stage for stage, who in told[2].items() for index in who}
        if lost == gone:  # where clients draw neighbours, some may be cut off before they vanish
            assert told == wanted


@pytest.mark.slow
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=schedules())
def test_every_schedule_of_dropouts_gives_the_plain_sum_or_the_right_refusal(lab, schedule):
    session, real, ideal, gone = play_both(lab, schedule)
    told = outcome(real, gone)
    assert told == outcome(ideal, gone)
    early = [i for i in session.cohort if gone.get(i) in ("advertise", "share", "contribute")]
    survivors = [index for index in session.cohort if index not in early]
    live = [index for index in survivors if index not in gone]
    enough = len(live) > session.threshold and len(survivors) >= session.min_survivors
    if enough:
        assert told[0] == lab.plain_sum(session, real.vectors, survivors).tolist()
        assert told[1] == tuple(survivors)
        for stage in session.stages:
            assert set(told[2][stage]) == {i for i, when in gone.items() if when == stage}
    else:
        assert told[0] == "too few"


@pytest.mark.parametrize("stage", STAGES)
def test_one_dropout_at_each_stage_is_survived(lab, stage):
    play = lab.play(6)
    result = play.finish({play.session.cohort[2]: stage})
    survivors = [i for i in play.session.cohort if stage == "unmask" or i != play.session.cohort[2]]
    expected = lab.plain_sum(play.session, play.vectors, survivors)
    np.testing.assert_array_equal(result.total, expected)
    assert result.dropouts[stage] == (play.session.cohort[2],)


def test_dropouts_at_every_stage_of_one_session_are_survived(lab):
    session = lab.session(12, threshold=7)
    gone = {
        session.cohort[place]: stage for place, stage in zip((0, 4, 7, 11), STAGES, strict=True)
    }
    play = lab.Play(session, as_bytes=True)
    result = play.finish(gone)
    survivors = [index for index in session.cohort if gone.get(index) in (None, "unmask")]
    np.testing.assert_array_equal(result.total, lab.plain_sum(session, play.vectors, survivors))


@pytest.mark.parametrize(("n", "threshold"), [(2, 1), (7, 4), (7, 2), (7, 6), (3, 2)])
def test_small_even_and_full_thresholds_work(lab, n, threshold):
    play = lab.Play(lab.session(n, threshold=threshold))
    result = play.finish()
    assert result.survivors == play.session.cohort
    expected = lab.plain_sum(play.session, play.vectors, play.session.cohort)
    np.testing.assert_array_equal(result.total, expected)


@pytest.mark.parametrize("stage", ALL_STAGES)
def test_five_clients_survive_one_dropout_against_a_malicious_server(lab, stage):
    session = lab.session(5, mode=ServerMode.MALICIOUS, threshold=3)
    play, lost = lab.Play(session, as_bytes=True), session.cohort[3]
    result = play.finish({lost: stage})
    survivors = [i for i in session.cohort if i != lost or stage in ("confirm", "unmask")]
    assert result.survivors == tuple(survivors)
    assert result.dropouts[stage] == (lost,)
    np.testing.assert_array_equal(result.total, lab.plain_sum(session, play.vectors, survivors))


@pytest.mark.parametrize(("n", "threshold"), [(2, 1), (3, 2), (5, 4), (7, 4)])
def test_small_even_and_full_thresholds_work_against_a_malicious_server(lab, n, threshold):
    session = lab.session(n, mode=ServerMode.MALICIOUS, threshold=threshold)
    play = lab.Play(session, as_bytes=True)
    result = play.finish()
    assert result.survivors == session.cohort
    expected = lab.plain_sum(session, play.vectors, session.cohort)
    np.testing.assert_array_equal(result.total, expected)


@pytest.mark.parametrize("mode", ServerMode)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_at_the_exact_bound_does_not_wrap_and_one_above_is_refused(lab, mode, sign):
    n, bits, bound = 7, 10, 73
    assert n * bound == 2 ** (bits - 1) - 1
    check_message_fits(bits, n, bound)
    with pytest.raises(MessageCanWrapError):
        check_message_fits(bits, n, bound + 1)
    session = lab.session(n, mode=mode, ring_bits=bits, threshold=4, vector_length=4)
    # The control: one above does wrap, so that the refusal is needed.
    for value, wraps in ((bound, False), (bound + 1, True)):
        play = lab.Play(session)
        play.vectors = dict.fromkeys(session.cohort, np.full(4, sign * value, np.int64))
        total = session.ring.centre(play.finish().total)
        assert (total != sign * n * value).all() == wraps


@pytest.mark.parametrize("stage", STAGES[:3])
def test_three_clients_survive_one_dropout_at_threshold_one(lab, stage):
    session = lab.session(3, threshold=1)
    play = lab.Play(session)
    result = play.finish({session.cohort[1]: stage})
    survivors = (session.cohort[0], session.cohort[2])
    assert result.survivors == survivors
    np.testing.assert_array_equal(result.total, lab.plain_sum(session, play.vectors, survivors))


def test_roster_indices_reach_two_to_the_64_less_one(lab):
    session = lab.session(cohort=(0, 1, 1 << 32, (1 << 63) + 5, (1 << 64) - 2, (1 << 64) - 1))
    play = lab.Play(session, as_bytes=True)
    result = play.finish({(1 << 64) - 2: "contribute"})
    assert result.survivors[-1] == (1 << 64) - 1
    expected = lab.plain_sum(session, play.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)


def test_a_vector_may_come_in_the_rings_container(lab):
    play = lab.play(4)
    ring = play.session.ring
    play.vectors = {index: ring.encode(vector) for index, vector in play.vectors.items()}
    result = play.finish()
    expected = lab.plain_sum(play.session, play.vectors, play.session.cohort)
    np.testing.assert_array_equal(result.total, expected)


def test_the_callers_vector_is_left_alone(lab):
    play = lab.play(3)
    before = {index: vector.copy() for index, vector in play.vectors.items()}
    play.finish()
    for index, vector in play.vectors.items():
        np.testing.assert_array_equal(vector, before[index])


def test_too_few_survivors_name_stage_and_counts(lab):
    play = lab.Play(lab.session(5, threshold=2, min_survivors=4))
    a, b = play.session.cohort[:2]
    with pytest.raises(
        TooFewSurvivors, match="after contribute, 3 clients are left and 4"
    ) as error:
        play.finish({a: "contribute", b: "contribute"})
    assert (error.value.stage, error.value.survivors, error.value.needed) == ("contribute", 3, 4)
    assert play.server.stage == "failed"
    with pytest.raises(SecAggError):
        _ = play.server.result
    with pytest.raises(SecAggError):
        play.server.close()


@pytest.mark.parametrize("mode", ServerMode)
@pytest.mark.parametrize("degree", [4, 5])
def test_the_cache_changes_no_bit_of_any_message(lab, monkeypatch, mode, degree):
    session = lab.session(6, mode=mode, degree=degree, threshold=2)
    heard = []
    for cached in (False, True):
        sources = (Keystream(bytes([i]) * 32) for i in range(6))
        monkeypatch.setattr("zerosum.secagg.parties.client.SystemRandomness", sources.__next__)
        play = lab.Play(session, cached=cached)
        play.finish({session.cohort[3]: "contribute"})
        said = {(s, i): m.to_bytes() for s, by in play.sent.items() for i, m in by.items()}
        asked = {(s, i): m.to_bytes() for s, by in play.asked.items() for i, m in by.items() if m}
        heard.append((said, asked))
    assert heard[0] == heard[1]


def test_a_threshold_in_the_middle_uses_whichever_shares_come(lab):
    for missing in range(6):
        play = lab.Play(lab.session(6, threshold=3))
        gone = {play.session.cohort[missing]: "unmask", play.session.cohort[missing - 1]: "unmask"}
        result = play.finish(gone)
        expected = lab.plain_sum(play.session, play.vectors, play.session.cohort)
        np.testing.assert_array_equal(result.total, expected)


def test_contributions_are_not_kept_by_the_server(lab):
    play = lab.Play(lab.session(8, vector_length=50_000)).until("contribute")
    before = sum(value.nbytes for value in vars(play.server).values() if hasattr(value, "nbytes"))
    play.stage()
    after = sum(value.nbytes for value in vars(play.server).values() if hasattr(value, "nbytes"))
    assert after == before
    assert before == 50_000 * play.session.ring.dtype.itemsize


def test_unmasking_costs_an_agreement_a_pair_and_parses_each_key_once(lab, monkeypatch):
    session, gone = lab.session(7, threshold=3), (10, 16)
    play = lab.Play(session).until("unmask", dict.fromkeys(gone, "contribute"))
    play.stage()
    counts: Counter[str] = Counter()

    class CountedKey:
        @staticmethod
        def from_public_bytes(data):
            counts["parsed"] += 1
            return X25519PublicKey.from_public_bytes(data)

    def counted(self, secret):
        counts["extracted"] += 1
        return extract(self, secret)

    extract = keys.Hkdf.extract
    monkeypatch.setattr(keys, "X25519PublicKey", CountedKey)
    monkeypatch.setattr(keys.Hkdf, "extract", counted)
    play.close()
    survivors = 5
    assert counts == {"parsed": survivors, "extracted": 2 * survivors + survivors}
    total = lab.plain_sum(session, play.vectors, play.server.result.survivors)
    np.testing.assert_array_equal(play.server.result.total, total)
