"""Neighbours, thresholds and the number of colluders."""

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.secagg import LocalProtocolError, colluders, complete_threshold
from zerosum.secagg.graph import dropped, public_graph


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
    ("n", "dropout", "corruption_count", "expected"),
    [
        (100, 0.1, 10, 67),
        (100, 0.3, 10, 67),
        (100, 0.4, 10, 59),
        (100, 0.1, 80, 81),
        (3, 1 / 3, 0, 1),
        (2, 0.0, 0, 1),
        (500, 0.3, 50, 333),
        (100, 0.29, 69, 70),
        (11, 0.0, 9, 10),
    ],
)
def test_known_thresholds(n, dropout, corruption_count, expected):
    assert complete_threshold(n, dropout, corruption_count) == expected


@given(st.integers(2, 80), st.floats(0, 1), st.integers(0, 80))
def test_a_threshold_stands_its_colluders_and_its_dropouts_or_is_refused(n, dropout, corrupt):
    gone = dropped(n, dropout)
    try:
        t = complete_threshold(n, dropout, corrupt)
    except LocalProtocolError:
        assert corrupt + 1 > n - 1 - gone
    else:
        assert corrupt < t <= n - 1 - gone


def test_a_refusal_says_what_would_be_feasible():
    with pytest.raises(LocalProtocolError) as error:
        complete_threshold(10, 0.5, 6)
    assert "3 colluders are feasible" in str(error.value)
    assert "2 dropouts" in str(error.value)
    assert complete_threshold(10, 0.5, 3) == 4
    assert complete_threshold(10, 0.2, 6) == 7


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((5, 4, 0.1), "roster"), ((5, 9, 1.1), "corruption"), ((5, 9, 0.1, 1.0), "security")],
)
def test_senseless_arguments_are_named(arguments, name):
    with pytest.raises(LocalProtocolError, match=name):
        colluders(*arguments)


def test_on_the_complete_graph_everybody_is_a_neighbour(lab):
    graph = public_graph(lab.session(5))
    for neighbours in (graph.named_by(2), graph.naming(2), graph.masking(2)):
        assert neighbours.tolist() == [0, 1, 3, 4]
