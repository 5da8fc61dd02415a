"""Many sessions in one process leave nothing behind."""

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

from zerosum.secagg import SharedCache

KINDS: dict[str, dict[str, Any]] = {
    "semi-honest": {},
    "malicious": {"mode": "malicious", "threshold": 4},
    "malicious sparse": {"mode": "malicious", "degree": 4, "threshold": 1},
    "semi-honest sparse": {"degree": 4, "threshold": 1},
}


def run_sessions(lab, count, start, cache, **kind):
    for round_ in range(start, start + count):
        play = lab.Play(lab.session(6, round=round_, vector_length=500, **kind), cached=False)
        for party in (*play.clients.values(), play.server):
            party._cache = cache.of(play.session.digest)
        gone = {play.session.cohort[round_ % 6]: ("share", "contribute", "unmask")[round_ % 3]}
        result = play.finish(gone)
        expected = lab.plain_sum(play.session, play.vectors, result.survivors)
        np.testing.assert_array_equal(result.total, expected)


# The quick ones have keys of every kind between them: signatures and drawn graphs, and neither.
QUICK = [(kind, 16) for kind in ("semi-honest", "malicious sparse")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count"),
    [*QUICK, *(pytest.param(kind, 200, marks=pytest.mark.slow) for kind in KINDS)],
)
def test_sessions_in_a_row_do_not_grow_memory(lab, kind, count):
    cache = SharedCache()
    run_sessions(lab, 10, 0, cache, **KINDS[kind])
    gc.collect()
    tracemalloc.start()
    try:
        run_sessions(lab, count // 2, 1000, cache, **KINDS[kind])
        gc.collect()
        halfway = tracemalloc.get_traced_memory()[0]
        run_sessions(lab, count // 2, 5000, cache, **KINDS[kind])
        gc.collect()
        end = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # A kilobyte a session: less than any vector, key table or message of one.
    assert end - halfway < 1_000 * (count // 2)


def test_a_cache_keeps_the_latest_sessions_only_and_clears():
    cache = SharedCache(sessions=2)
    parts = {name: cache.of(name) for name in (b"a", b"b")}
    assert cache.of(b"a") is parts[b"a"]
    cache.of(b"c")
    assert cache.of(b"a") is parts[b"a"]
    assert cache.of(b"b") is not parts[b"b"]
    last = cache.of(b"b")
    cache.clear(b"b")
    assert cache.of(b"b") is not last
    cache.clear()
    assert cache.of(b"a") is not parts[b"a"]
