"""Liars cost little and are named; honest holders are never named alone."""

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerosum.secagg import LocalProtocolError, ReconstructionFailed, ServerMode, ServerParty
from zerosum.secagg.crypto import shamir
from zerosum.secagg.crypto.error_correction import (
    dual_weights,
    locate_all,
    locate_errors,
    recover_around,
)
from zerosum.secagg.crypto.reconstruction import Recovered, recover
from zerosum.secagg.crypto.share_tables import DenseShares, EdgeShares
from zerosum.secagg.graph.parameters import graph_parameters
from zerosum.secagg.parties.verdict import judge
from zerosum.secagg.randomness import Keystream, insecure_keystream
from zerosum.secagg.wire import from_bitmap

COINS = insecure_keystream(3, "decoding")


def secret_of(dealer):
    return dealer.to_bytes(4, "little") * 8


class Deal:
    """Shares that a cohort dealt, as its live holders release them; then lies are told."""

    def __init__(self, n, threshold, gone=(), edges=None):
        self.n, self.threshold = n, threshold
        self.live = [p for p in range(n) if p not in set(gone)]
        secrets = [secret_of(dealer) for dealer in range(n)]
        dealt = shamir.split(secrets, threshold, range(1, n + 1), Keystream(b"k" * 32))
        self.released = {}
        for holder in self.live:
            held = [d for d in range(n) if d != holder and (edges is None or holder in edges[d])]
            self.released[holder] = (np.array(held), dealt[holder, held].copy())
        self.lies = set()

    def lie(self, holder, dealers=None, limbs=slice(None), shift=None):
        """Change some of the shares that a holder releases."""
        held, table = self.released[holder]
        for row, dealer in enumerate(held.tolist()):
            if dealers is not None and dealer not in dealers:
                continue
            old = table[row].copy()
            by = np.random.default_rng([holder, dealer]).integers(1, 1 << 30, 9)
            by = by if shift is None else np.full(9, shift, np.int64)
            table[row, limbs] = ((old + by) % shamir.PRIME)[limbs]
            self.lies.add((dealer, holder))

    def omit(self, holder, dealers):
        held, table = self.released[holder]
        kept = ~np.isin(held, list(dealers))
        self.released[holder] = (held[kept], table[kept])

    def table(self, kind=DenseShares):
        return kind(self.n, self.released)

    def recover(self, kind=DenseShares):
        table = self.table(kind)
        self.counts = table.counts().tolist()

        def check(dealer, secret):
            return secret == secret_of(dealer)

        return recover(range(self.n), table, self.threshold, check, COINS)

    def judged(self, found, colluders):
        return judge(found, self.counts, self.threshold, colluders)


def pairs(found):
    return {(dealer, holder) for dealer, holders in found.wrong.items() for holder in holders}


def all_right(deal, found):
    return found.secrets == {dealer: secret_of(dealer) for dealer in range(deal.n)}


def tenth(n):
    """A cohort of which every tenth is gone, with the graph of 10 % dropouts."""
    graph = graph_parameters(n, 0.1, 0.05, "malicious", complete_below=n + 1)
    return Deal(n, graph.threshold, gone=range(3, n, 10)), max(1, graph.colluders)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("n", [20, 50, 100, 200, pytest.param(499, marks=pytest.mark.slow)])
@pytest.mark.parametrize("many", [False, True], ids=["one liar", "c liars"])
def test_errors_of_liars_are_located_once_and_the_liars_named(n, many):
    deal, colluders = tenth(n)
    liars = np.random.default_rng(n).choice(deal.live, colluders if many else 1, replace=False)
    for liar in liars.tolist():
        deal.lie(liar)
    found = deal.recover()
    assert all_right(deal, found)
    assert found.decodings == 1
    assert pairs(found) == deal.lies
    assert set(deal.judged(found, colluders).liars) == set(liars.tolist())


@pytest.mark.parametrize("place", [0, 15, -1], ids=["first", "in the middle", "last"])
def test_a_liar_is_found_wherever_it_stands(place):
    deal, colluders = tenth(50)
    deal.lie(deal.live[place])
    found = deal.recover()
    assert all_right(deal, found)
    assert deal.judged(found, colluders).liars == (deal.live[place],)


def test_nothing_is_decoded_where_nobody_lies():
    deal, _ = tenth(100)
    found = deal.recover()
    assert all_right(deal, found)
    assert (found.decodings, found.wrong) == (0, {})


SCHEMES: dict[str, dict[str, Any]] = {
    "one dealer": {"dealers": {7}},
    "one limb": {"limbs": [4]},
    "live dealers only": {"dealers": {d for d in range(60) if d % 10 != 3}},
    "gone dealers only": {"dealers": set(range(3, 60, 10))},
    "the same shift": {"shift": 12345},
}


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("count", [1, 3])
def test_whatever_liars_change_is_located_once(scheme, count):
    deal, _ = tenth(60)
    for liar in deal.live[:count]:
        deal.lie(liar, **SCHEMES[scheme])
    found = deal.recover()
    assert all_right(deal, found)
    assert pairs(found) == deal.lies
    assert found.decodings == 1


def test_a_liar_who_lies_to_each_kind_otherwise_is_located_once():
    deal, _ = tenth(60)
    deal.lie(deal.live[2], SCHEMES["gone dealers only"]["dealers"], shift=9)
    deal.lie(deal.live[2], SCHEMES["live dealers only"]["dealers"], limbs=[8])
    found = deal.recover()
    assert all_right(deal, found)
    assert (pairs(found), found.decodings) == (deal.lies, 1)


@pytest.mark.parametrize("wrong", [1, 4, 6], ids=lambda k: f"{k} wrong shares")
def test_holders_of_a_dealer_of_wrong_shares_are_not_named(wrong):
    deal, colluders = tenth(60)
    for holder in deal.live[5 : 5 + wrong]:
        deal.lie(holder, {2})
    found = deal.recover()
    assert all_right(deal, found)
    assert pairs(found) == deal.lies
    named = set(deal.judged(found, colluders).liars)
    assert named == ({2} if wrong > colluders else set())


def test_a_dealer_of_more_wrong_shares_than_can_be_located_is_named_and_nobody_else():
    deal, colluders = tenth(60)
    for holder in deal.live[2:11]:
        deal.lie(holder, {2})
    found = deal.recover()
    assert set(found.failed) == {2}
    assert deal.judged(found, colluders).liars == (2,)


def test_a_dealer_and_a_liar_are_told_apart():
    deal, colluders = tenth(60)
    for holder in deal.live[20:25]:
        deal.lie(holder, {2})
    deal.lie(deal.live[9])
    found = deal.recover()
    assert all_right(deal, found)
    assert pairs(found) == deal.lies
    assert set(deal.judged(found, colluders).liars) == {2, deal.live[9]}


def test_c_dealers_of_wrong_shares_in_different_places_cost_a_decoding_each():
    deal, colluders = tenth(200)
    most = (len(deal.live) - 1 - deal.threshold) // 2
    rng = np.random.default_rng(4)
    dealers = rng.choice(deal.live, colluders, replace=False).tolist()
    for dealer in dealers:
        others = [p for p in deal.live if p != dealer]
        for holder in rng.choice(others, most, replace=False).tolist():
            deal.lie(holder, {dealer})
    found = deal.recover()
    assert all_right(deal, found)
    assert pairs(found) == deal.lies
    assert found.decodings == 1 + colluders
    assert set(deal.judged(found, colluders).liars) == set(dealers)


def test_two_liars_among_two_spare_shares_are_searched_for_once():
    deal = Deal(46, threshold=43)
    for liar in (3, 7):
        deal.lie(liar, set(range(46)) - {3, 7})
    found = deal.recover()
    assert all_right(deal, found)
    assert found.wrong == {}  # beyond what can be located, so that it speaks against nobody
    # One word of all, each of the 44 by itself, and one search.
    assert found.decodings <= 1 + 44 + 1


def test_choices_of_shares_are_tried_in_one_product(monkeypatch):
    tried = []

    def counted(points, shares):
        tried.append(points)
        return shamir.combine(points, shares)

    monkeypatch.setattr("zerosum.secagg.crypto.error_correction.combine", counted)
    monkeypatch.setattr("zerosum.secagg.crypto.reconstruction.combine", counted)
    deal = Deal(60, threshold=58)
    for place, liar in enumerate((3, 7, 9)):  # one wrong share of each dealer, and one to spare
        deal.lie(liar, set(range(place, 60, 3)))
    found = deal.recover()
    assert all_right(deal, found)
    assert pairs(found) == deal.lies
    assert len(tried) <= 2 * 60  # one by one they would be 59 for each of most dealers


def test_holders_who_leave_out_shares_of_different_dealers_change_nothing():
    deal, colluders = tenth(60)
    for holder in deal.live[:4]:
        deal.omit(holder, np.random.default_rng(holder).choice(60, 25, replace=False).tolist())
    deal.lie(deal.live[30])
    found = deal.recover()
    assert all_right(deal, found)
    assert pairs(found) == deal.lies
    assert found.decodings <= 1 + deal.n
    assert deal.judged(found, colluders).liars == (deal.live[30],)


@pytest.mark.parametrize("shift", [None, 77], ids=["at random", "the same shift"])
def test_more_liars_than_can_be_located_end_the_search_at_once(shift):
    deal, colluders = tenth(60)
    most = (len(deal.live) - 1 - deal.threshold) // 2
    for liar in deal.live[: most + 2]:
        deal.lie(liar, shift=shift)
    found = deal.recover()
    assert found.failed
    assert found.decodings <= 1 + deal.n + 16
    assert set(next(iter(found.failed.values()))) >= set(deal.live[: most + 2]) - set(found.failed)
    # Every dealer looks like one of wrong shares: with so many liars nothing is proved.
    assert deal.judged(found, colluders).liars == ()


def test_an_honest_holder_whom_as_many_dealers_frame_as_may_collude_is_not_named():
    deal, colluders = tenth(100)
    for dealer in deal.live[:colluders]:
        deal.lie(deal.live[50], {dealer})
    found = deal.recover()
    assert pairs(found) == deal.lies
    assert deal.judged(found, colluders).liars == ()
    # The control: with one pair more, the holder is the only explanation by c parties.
    deal.lie(deal.live[50], {deal.live[colluders]})
    assert deal.judged(deal.recover(), colluders).liars == (deal.live[50],)


def test_where_no_colluders_are_assumed_one_wrong_share_names_nobody():
    deal, _ = tenth(50)
    deal.lie(deal.live[4], {9})
    found = deal.recover()
    assert pairs(found) == {(9, deal.live[4])}
    assert deal.judged(found, 0).liars == ()
    assert deal.judged(found, None).liars == ()


def test_whose_polynomial_is_in_doubt_speaks_against_nobody():
    found = Recovered(wrong={0: (3,), 1: (3,), 2: (3,)})
    # Of 10 shares 9 are needed: with one liar more, another polynomial has as many.
    assert judge(found, [10] * 5, 9, colluders=2).liars == ()
    assert judge(found, [11] * 5, 9, colluders=2).liars == (3,)


def test_a_dealer_who_committed_to_another_secret_is_named_and_its_holders_are_not():
    deal, colluders = tenth(60)
    table = deal.table()
    found = recover(
        range(60),
        table,
        deal.threshold,
        lambda dealer, secret: dealer != 5 and secret == secret_of(dealer),
        COINS,
    )
    assert set(found.failed) == {5}
    verdict = judge(found, table.counts().tolist(), deal.threshold, colluders)
    assert verdict.liars == (5,)
    assert verdict.wrong == ()


def edges_of(n, degree, seed=1):
    rng = np.random.default_rng(seed)
    others = [[p for p in range(n) if p != dealer] for dealer in range(n)]
    return [set(rng.choice(each, degree, replace=False).tolist()) for each in others]


@pytest.mark.parametrize("liars", [1, 6])
def test_on_a_sparse_graph_each_liar_costs_one_decoding_at_most(liars):
    deal = Deal(150, threshold=16, gone=range(3, 150, 10), edges=edges_of(150, 40))
    for liar in deal.live[:liars]:
        deal.lie(liar)
    found = deal.recover(EdgeShares)
    assert all_right(deal, found)
    assert 1 <= found.decodings <= liars
    assert pairs(found) <= deal.lies
    assert {holder for _, holder in pairs(found)} == set(deal.live[:liars])


def test_on_a_sparse_graph_more_liars_than_can_be_located_end_the_search_at_once():
    deal = Deal(100, threshold=25, edges=edges_of(100, 40))
    for liar in deal.live[:60]:
        deal.lie(liar)
    found = deal.recover(EdgeShares)
    assert found.failed
    assert found.decodings <= 16


def test_on_a_sparse_graph_a_dealer_is_tried_again_when_more_liars_are_known():
    edges = edges_of(60, 24)
    deal = Deal(60, threshold=14, edges=edges)
    # Of the first dealer's 24 shares 8 are wrong, and half of the spare ones are 5.
    liars = sorted(edges[0])[:8]
    for liar in liars:
        deal.lie(liar, {0, *(d for d in range(1, 60) if d % 3 == liars.index(liar) % 3)})
    found = deal.recover(EdgeShares)
    assert all_right(deal, found)
    # The control: without what other dealers tell of the liars it cannot be.
    alone = recover_around(
        [h + 1 for h in sorted(edges[0])],
        deal.table(EdgeShares).shares(0, np.array(sorted(edges[0]))),
        14,
        secret_of(0).__eq__,
        COINS,
    )
    assert alone is None


def test_on_a_sparse_graph_dealers_who_frame_everybody_cost_a_decoding_each():
    deal = Deal(120, threshold=16, edges=edges_of(120, 40))
    dealers = deal.live[:12]
    for dealer in dealers:
        for holder in sorted(h for h in deal.live if dealer in deal.released[h][0])[:10]:
            deal.lie(holder, {dealer})
    deal.lie(deal.live[60])
    found = deal.recover(EdgeShares)
    assert all_right(deal, found)
    assert pairs(found) <= deal.lies
    assert found.decodings <= len(dealers) + len(dealers) + 1


@pytest.mark.slow
@settings(max_examples=80)
@given(st.data())
def test_any_half_of_the_spare_shares_may_be_wrong(data):
    threshold, spare = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 7))
    n = threshold + spare + 1
    gone = data.draw(st.sets(st.integers(0, n - 1), max_size=spare))
    deal = Deal(n, threshold, gone)
    most = (len(deal.live) - 1 - threshold) // 2
    liars = data.draw(st.sets(st.sampled_from(deal.live), max_size=max(0, most)))
    for liar in sorted(liars):
        dealers = data.draw(st.none() | st.sets(st.integers(0, n - 1)))
        deal.lie(liar, dealers, limbs=data.draw(st.sampled_from([slice(None), [0], [8]])))
    for dealer in data.draw(st.sets(st.integers(0, n - 1), max_size=3)):
        live = [p for p in deal.live if p != dealer]
        for holder in data.draw(st.sets(st.sampled_from(live), max_size=len(live))):
            deal.lie(holder, {dealer})
    found = deal.recover(data.draw(st.sampled_from([DenseShares, EdgeShares])))
    assert all(secret == secret_of(dealer) for dealer, secret in found.secrets.items())
    by_dealer = {d: {h for dealer, h in deal.lies if dealer == d} for d in range(n)}
    few = {d for d in range(n) if 2 * len(by_dealer[d]) <= deal.counts[d] - threshold}
    if len(few) == n:
        assert all_right(deal, found)
    else:
        assert len(found.secrets) == n or found.failed
    assert not few & {d for d, who in found.failed.items() if who}
    for dealer in few & found.wrong.keys():
        assert set(found.wrong[dealer]) <= by_dealer[dealer]


def is_cover(parties, edges):
    return all(dealer in parties or holder in parties for dealer, holder in edges)


@settings(max_examples=60)
@given(st.data())
def test_who_is_named_is_to_blame_in_every_explanation_by_c_parties(data):
    edges = data.draw(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=9))
    edges = {(dealer, holder) for dealer, holder in edges if dealer != holder}
    c = data.draw(st.integers(1, 3))
    wrong = {d: tuple(h for dealer, h in sorted(edges) if dealer == d) for d, _ in edges}
    named = set(judge(Recovered(wrong=wrong), [50] * 6, 10, colluders=c).liars)
    assert len(named) <= c
    for parties in combinations(range(6), c):
        if is_cover(set(parties), edges):
            assert named <= set(parties)


def test_words_decoded_together_are_those_decoded_alone():
    rng = np.random.default_rng(6)
    points, threshold = [*range(1, 30, 2), 40, 77], 8
    words, wrong = [], []
    for _ in range(20):
        shares = shamir.split([secret_of(1)], threshold, points, Keystream(rng.bytes(32)))[:, 0, 3]
        values = shares.astype(np.uint64)
        places = rng.choice(len(points), rng.integers(0, 5), replace=False)
        values[places] = (values[places] + 5) % shamir.PRIME
        words.append(values)
        wrong.append(tuple(sorted(places.tolist())))
    weighted = np.array(words) * dual_weights(points) % np.uint64(shamir.PRIME)
    spare = np.full(20, len(points) - threshold)
    given_all = np.ones(weighted.shape, bool)
    found = locate_all(weighted, np.array(points, np.uint64), spare, given_all, COINS)
    assert found.sound.all()
    assert [tuple(np.flatnonzero(row).tolist()) for row in found.wrong] == wrong
    assert [locate_errors(points, word, threshold) for word in words] == wrong


def spoil(answer, dealers=None):
    table = np.frombuffer(answer.shares, "<u4").reshape(-1, 9).copy()
    for row, dealer in enumerate(from_bitmap(answer.dealers).tolist()):
        if dealers is None or dealer in dealers:
            table[row] ^= 1
    return dataclasses.replace(answer, shares=table.tobytes())


def play(lab, session, liars, colluders, dealers=None):
    def change(stage, index, message):
        lies = stage == "unmask" and index in liars
        return spoil(message, dealers) if lies else message

    game = lab.Play(session, change=change)
    roster = lab.roster_of(session)
    game.server = ServerParty(session, roster=roster, colluders=colluders)
    return game


@pytest.mark.parametrize("mode", ServerMode)
def test_a_session_names_its_liars_and_gives_the_sum(lab, mode):
    session = lab.session(20, threshold=11, mode=mode)
    liars = {session.cohort[3], session.cohort[17]}
    game = play(lab, session, liars, colluders=2)
    result = game.finish({session.cohort[8]: "contribute"})
    expected = lab.plain_sum(session, game.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)
    assert set(result.liars) == liars
    assert result.decodings == 1
    assert {holder for _, holder in result.wrong_shares} == liars


def test_a_session_that_fails_names_known_liars_first_and_does_not_clear_them(lab):
    session = lab.session(20, threshold=11)
    liar, dealer = session.cohort[17], session.cohort[4]
    game = play(lab, session, {liar}, colluders=2)
    party = game.clients[dealer]
    honest = party._own_advert
    party._own_advert = lambda: dataclasses.replace(honest(), commitment=bytes(32))
    with pytest.raises(ReconstructionFailed, match="known to lie: ") as error:
        game.finish()
    assert error.value.dealer == dealer
    assert set(error.value.liars) == {liar, dealer}
    assert error.value.candidates[:2] == error.value.liars
    assert sorted(error.value.candidates) == list(session.cohort)
    assert {holder for _, holder in error.value.wrong_shares} == {liar}


def test_without_an_assumption_about_colluders_nobody_is_named(lab):
    session = lab.session(20, threshold=11)
    result = play(lab, session, {session.cohort[3]}, colluders=None).finish()
    assert result.liars == ()
    assert {holder for _, holder in result.wrong_shares} == {session.cohort[3]}


def test_a_negative_number_of_colluders_is_refused(lab):
    with pytest.raises(LocalProtocolError, match="colluders = -1 is negative"):
        ServerParty(lab.session(5), colluders=-1)
