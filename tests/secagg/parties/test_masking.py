"""Net masks that parties of one process make together: the same bits, whatever happens to them."""

from dataclasses import replace

import numpy as np
import pytest

from zerosum.secagg import SharedCache
from zerosum.secagg.messages.all_messages import ContributeRequest
from zerosum.secagg.parties import masking
from zerosum.secagg.wire import from_bitmap, to_bitmap


def contributions(play):
    return {index: said.vector.tolist() for index, said in play.sent["contribute"].items()}


def sourced(lab, **changes):
    """Two plays of one session whose parties have the same seeds, with a cache and without."""

    plays = []
    for cached in (False, True):
        play = lab.Play(lab.session(6, mode="malicious", **changes), cached=cached)
        for index, client in play.clients.items():
            client._seed = index.to_bytes(32, "big")
        plays.append(play)
    return plays


@pytest.mark.slow
@pytest.mark.parametrize("ring_bits", [16, 20, 40])
@pytest.mark.parametrize("gone", [(), (13,), (10, 25)])
@pytest.mark.parametrize(("degree", "version"), [(5, 2), (5, 3), (4, 3)])
def test_a_cache_changes_no_bit_of_a_contribution(lab, ring_bits, gone, degree, version):
    changes = {"ring_bits": ring_bits, "degree": degree, "version": version}
    alone, together = sourced(lab, threshold=2, **changes)
    for play in (alone, together):
        play.until("contribute").stage(gone)
    assert contributions(alone) == contributions(together)
    cache = together.server._cache
    assert cache.netted is not None
    assert len(cache.nets) == len(gone)
    together.close()
    assert not cache.nets
    result = together.finish()
    expected = lab.plain_sum(together.session, together.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)


def test_each_pair_of_a_sparse_graph_runs_its_stream_once(lab, monkeypatch):
    opened: list[tuple[int, ...]] = []
    pair_seeds = masking._pair_seeds

    def counted(own, u, peers, keys, inputs):
        opened.extend(tuple(sorted((u, p))) for p in peers)
        return pair_seeds(own, u, peers, keys, inputs)

    monkeypatch.setattr(masking, "_pair_seeds", counted)
    alone, together = sourced(lab, threshold=2, degree=2)
    alone.until("contribute").stage()
    both = sorted(opened)
    opened.clear()
    together.until("contribute").stage()
    assert len(set(opened)) == len(opened) < 15, "the graph is not complete"
    assert sorted(opened * 2) == both


def test_an_advert_that_is_kept_from_one_party_leaves_each_to_its_own(lab):
    _, play = sourced(lab, threshold=1, degree=2)
    play.until("share")
    first = next(iter(play.messages))
    adverts, hidden = play.messages[first], play.clients[first]._own_neighbours()[-1]
    shown = from_bitmap(adverts.present).tolist()
    size = len(adverts.entries) // len(shown)
    kept = [(i, p) for i, p in enumerate(shown) if p != hidden]
    lied = replace(
        adverts,
        present=to_bitmap([p for _, p in kept], 6),
        entries=b"".join(adverts.entries[i * size : (i + 1) * size] for i, _ in kept),
    )
    for index, message in play.messages.items():
        play.clients[index].share(lied if index == first else message)
    cache = play.server._cache
    assert masking._pairs_here(list(range(6)), cache) is None
    assert masking._pairs_here(list(range(1, 6)), cache) is not None  # as all others saw it


def test_nobody_uses_masks_made_for_another_set_of_sharers(lab):
    alone, together = sourced(lab, threshold=2)
    for play in (alone, together):
        play.until("contribute", {25: "share"})
        messages = dict(play.messages)
        first, second, third, *_ = messages
        play.stage([index for index in messages if index not in (first, second)])
        # A lying server shows the third client a smaller U2, without the fourth.
        request = messages[third]
        sharers = [p for p in range(6) if p not in (3, 5)]
        size = len(request.sealed) // 4
        sealed = b"".join(request.sealed[i * size : (i + 1) * size] for i in (0, 1, 3))
        lied = ContributeRequest(
            request.session,
            third,
            request.request,
            to_bitmap(sharers, 6),
            sealed,
        )
        said = play.clients[third].contribute(lied, play.vectors[third]).send
        play.sent["contribute"][third] = said
    assert contributions(alone) == contributions(together)


def test_masks_that_would_take_too_much_memory_are_not_made_together(lab, monkeypatch):
    monkeypatch.setattr(masking, "SHARED_BYTES", 6 * 11 * 4 - 1)
    alone, together = sourced(lab)
    for play in (alone, together):
        play.until("contribute").stage()
    assert contributions(alone) == contributions(together)
    assert together.server._cache.netted is None


def test_a_party_that_lives_elsewhere_leaves_each_to_its_own(lab):
    alone, together = sourced(lab)
    for play in (alone, together):
        play.until("contribute")
    together.server._cache.maskers.pop(2)
    for play in (alone, together):
        play.stage()
    assert contributions(alone) == contributions(together)
    assert together.server._cache.netted is None


def test_threads_change_no_bit(lab, monkeypatch):
    monkeypatch.setattr("zerosum.secagg.crypto.prg._THREAD_BYTES", 16)
    for cached in (0, 1):
        one, two = (sourced(lab, vector_length=1003)[cached] for _ in range(2))
        for client in two.clients.values():
            client._threads = 3
        for play in (one, two):
            play.until("contribute").stage()
        assert contributions(one) == contributions(two)


def test_a_shared_cache_of_another_session_holds_none_of_it():
    cache = SharedCache()
    assert cache.of(b"one").nets is not cache.of(b"two").nets
