"""Masking graphs, and the number of colluders."""

import tracemalloc
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.secagg import LocalProtocolError, ServerMode
from zerosum.secagg.graph.failure_bounds import colluders_in
from zerosum.secagg.graph.graphs import HararyGraph, SparseGraph, draw_neighbours, public_graph


def graph_of(session):
    graph = public_graph(session)
    assert graph is not None
    return graph


def colluders(n, roster, corruption, security=2**-40):
    return colluders_in(n, roster, corruption, "semi-honest", security)


def tail(n, roster, bad, above):
    """P[X > above] for X hypergeometric, by its definition."""
    ways = sum(comb(bad, x) * comb(roster - bad, n - x) for x in range(above + 1, min(n, bad) + 1))
    return Fraction(ways, comb(roster, n))


@given(
    st.integers(1, 60), st.integers(0, 60), st.floats(0, 1), st.sampled_from([0.5, 0.01, 2**-40, 0])
)
def test_colluders_are_the_smallest_count_that_is_rarely_exceeded(n, more, corruption, security):
    roster = n + more
    bad = int(Fraction(corruption).limit_denominator(10**9) * roster)
    count = colluders(n, roster, corruption, security)
    assert tail(n, roster, bad, count) <= security
    assert count == max(0, n - (roster - bad)) or tail(n, roster, bad, count - 1) > security


@pytest.mark.parametrize(
    ("n", "roster", "corruption", "expected"),
    [(100, 100, 0.2, 20), (100, 100, 0.29, 29), (100, 400, 0.1, 30), (500, 10**6, 0.05, 66)],
)
def test_known_numbers_of_colluders(n, roster, corruption, expected):
    assert colluders(n, roster, corruption) == expected


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((5, 4, 0.1), "roster"), ((5, 9, 1.1), "corruption"), ((5, 9, 0.1, 1.0), "security")],
)
def test_arguments_out_of_range_are_named(arguments, name):
    with pytest.raises(LocalProtocolError, match=name):
        colluders(*arguments)


def test_on_the_complete_graph_everybody_is_a_neighbour(lab):
    graph = graph_of(lab.session(5))
    for neighbours in (graph.named_by(2), graph.naming(2), graph.masking(2)):
        assert neighbours.tolist() == [0, 1, 3, 4]


def components(graph, n):
    """Return the number of parts that the masking edges leave the cohort in."""
    left, parts = set(range(n)), 0
    while left:
        parts, edge = parts + 1, [left.pop()]
        while edge:
            found = left.intersection(graph.masking(edge.pop()).tolist())
            left -= found
            edge.extend(found)
    return parts


@pytest.mark.parametrize(("n", "k"), [(8, 2), (9, 4), (10, 3), (10, 7), (30, 9), (31, 10)])
def test_the_permuted_harary_graph_is_regular_symmetric_and_connected(lab, n, k):
    graph = graph_of(lab.session(n, degree=k, threshold=1))
    for u in range(n):
        named = graph.named_by(u).tolist()
        assert named == sorted({*named} - {u})
        assert len(named) == k
        assert graph.naming(u).tolist() == graph.masking(u).tolist() == named
        assert all(u in graph.named_by(v) for v in named)
    assert components(graph, n) == 1


@given(st.integers(4, 30), st.data())
def test_the_counts_of_the_harary_graph_are_those_of_its_edges(n, data):
    k = data.draw(st.integers(1, n - 2).filter(lambda k: n * k % 2 == 0))
    graph = HararyGraph(data.draw(st.binary(min_size=32, max_size=32)), n, k)
    live = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    assert graph.counts(live).tolist() == [live[graph.named_by(u)].sum() for u in range(n)]


def test_a_large_degree_makes_no_client_allocate_all_edges():
    n = 20_000
    tracemalloc.start()
    try:
        assert len(HararyGraph(b"s" * 32, n, n - 2).named_by(7)) == n - 2
        assert tracemalloc.get_traced_memory()[1] < 100 * n
    finally:
        tracemalloc.stop()


def test_another_seed_permutes_the_graph_otherwise_and_the_same_one_does_not(lab):
    graphs = [graph_of(lab.session(40, degree=6, graph_seed=seed * 32)) for seed in (b"a", b"b")]
    again = graph_of(lab.session(40, degree=6, graph_seed=b"a" * 32, round=2))
    rows = [np.array([g.named_by(u) for u in range(40)]) for g in (*graphs, again)]
    np.testing.assert_array_equal(rows[0], rows[2])
    assert np.mean(rows[0] == rows[1]) < 0.5


@given(st.data())
def test_the_answers_of_a_sparse_graph_agree_with_its_edges(data):
    n = data.draw(st.integers(1, 10))
    edges, live_bits = data.draw(st.integers(0, 2 ** (n * n) - 1)), data.draw(st.integers(0, 2**n))
    sets = [{v for v in range(n) if v != u and edges >> (u * n + v) & 1} for u in range(n)]
    graph = SparseGraph([np.array(sorted(named), np.intp) for named in sets])
    live = {v for v in range(n) if live_bits >> v & 1}
    mask = np.isin(np.arange(n), list(live))
    assert graph.counts(mask).tolist() == [len(named & live) for named in sets]
    for u in range(n):
        naming = {v for v in range(n) if u in sets[v]}
        assert graph.naming(u).tolist() == sorted(naming)
        assert graph.masking(u).tolist() == sorted(naming | sets[u])


@given(st.integers(3, 60), st.data())
def test_drawn_neighbours_are_k_others(lab, n, data):
    k, u = data.draw(st.integers(1, n - 2)), data.draw(st.integers(0, n - 1))
    session = lab.session(n, degree=k, threshold=1, mode=ServerMode.MALICIOUS)
    seed = data.draw(st.binary(min_size=32, max_size=32))
    drawn = draw_neighbours(session, u, seed).tolist()
    assert drawn == sorted({*drawn} - {u})
    assert len(drawn) == k
    assert set(drawn) <= set(range(n))
    assert public_graph(session) is None


@pytest.mark.slow
def test_neighbours_are_drawn_uniformly(lab):
    n, k, draws = 11, 4, 4000
    session = lab.session(n, degree=k, threshold=1, mode=ServerMode.MALICIOUS)
    counts, pairs = np.zeros(n), np.zeros((n, n))
    for seed in range(draws):
        drawn = draw_neighbours(session, 3, seed.to_bytes(32, "big"))
        counts[drawn] += 1
        pairs[np.ix_(drawn, drawn)] += 1
    others = np.delete(np.arange(n), 3)
    sigma = np.sqrt(draws * 0.4 * 0.6)
    assert counts[3] == 0
    assert np.abs(counts[others] - 0.4 * draws).max() < 5 * sigma
    off = ~np.eye(n, dtype=bool)
    off[3] = off[:, 3] = False
    expected = draws * k * (k - 1) / ((n - 1) * (n - 2))
    assert np.abs(pairs[off] - expected).max() < 5 * np.sqrt(expected)
