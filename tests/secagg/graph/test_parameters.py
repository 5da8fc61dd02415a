"""The smallest degree and threshold, against published numbers and by enumeration."""

import csv
import itertools
import math
import time
from dataclasses import replace
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from zerosum.secagg import LocalProtocolError, NoFeasibleGraph, RemoteProtocolError, UnsafeGraph
from zerosum.secagg.graph import failure_bounds, tails
from zerosum.secagg.graph.failure_bounds import Assumptions, colluders_in, share_of
from zerosum.secagg.graph.parameters import (
    check,
    graph_parameters,
    is_feasible,
    smallest_sparse,
)
from zerosum.secagg.stages import ServerMode

with (Path(__file__).parents[2] / "vectors" / "graph_parameters.csv").open() as file:
    ROWS = list(csv.DictReader(file))

SERVERS = ("malicious", "semi-honest")
MALICIOUS, SEMI_HONEST = ServerMode.MALICIOUS, ServerMode.SEMI_HONEST


def assumptions(n, dropout, corruption, server, security=2**-40, correctness=2**-20):
    mode = ServerMode(server)
    corrupt = colluders_in(n, n, corruption, mode, security)
    return Assumptions(mode, n, corrupt, share_of(dropout, n, ""), security, correctness)


def asked(row):
    return {
        "n": int(row["n"]),
        "dropout": float(row["dropout"]),
        "corruption": float(row["corruption"]),
        "server": row["server"],
        "correctness": 2.0 ** -int(row["correctness_exponent"]),
    }


def published(row):
    return int(row["k"]), int(row["t_min"]), int(row["t_max"])


# --- published numbers -----------------------------------------------------------------------


@pytest.mark.quick_one_in(7)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_counting_isolated_clients_only_gives_the_published_numbers(row):
    assert smallest_sparse(assumptions(**asked(row)), isolation_only=True) == published(row)


def test_full_connectivity_asks_for_a_larger_degree_in_one_published_row():
    larger = {}
    for row in ROWS:
        found = smallest_sparse(assumptions(**asked(row)))
        if found != published(row):
            larger[tuple(row.values())] = found
    # 1 colluder and 5 dropouts of 100: six removed in two windows of three cut a ring.
    assert larger == {("semi-honest", "40", "100", "0.01", "0.05", "7", "2", "2"): (8, 2, 3)}


@pytest.mark.parametrize("row", ROWS[::5], ids=lambda row: "-".join(row.values()))
def test_parameters_are_the_smallest_and_pass_the_check_of_a_client(row):
    chosen = graph_parameters(**asked(row))
    smallest = smallest_sparse(assumptions(**asked(row)))
    assert smallest is not None
    k, least, _ = smallest
    assert (chosen.degree, chosen.threshold, chosen.complete) == (k, least, False)
    bounds = (chosen.log2_secrecy, chosen.log2_isolation, chosen.log2_connectivity)
    assert max(bounds) <= -40
    assert chosen.log2_correctness <= -int(row["correctness_exponent"])
    n, corruption = chosen.n, float(row["corruption"])
    policy = {"corruption": corruption, "dropout": float(row["dropout"]), "server": row["server"]}
    check(n, n, k, least, **policy)
    if least > 1:
        with pytest.raises(UnsafeGraph):
            check(n, n, k, least - 1, **policy)


@pytest.mark.parametrize(
    ("n", "server", "correctness", "expected"),
    [
        (1000, "malicious", 2**-20, (51, 36)),
        (1000, "malicious", 2**-40, (67, 45)),
        (1024, "malicious", 2**-20, (51, 36)),
        (10_000, "malicious", 2**-20, (61, 43)),
        (1000, "semi-honest", 2**-20, (29, 17)),
        (10_000, "semi-honest", 2**-40, (41, 21)),
    ],
)
def test_known_numbers_at_five_percent(n, server, correctness, expected):
    chosen = graph_parameters(
        n=n, dropout=0.05, corruption=0.05, server=server, correctness=correctness
    )
    assert (chosen.degree, chosen.threshold) == expected


def test_a_client_accepts_the_lattice_numbers_of_the_specification():
    check(1000, 1000, 68, 46, corruption=0.05)
    check(1000, 1000, 68, 46, corruption=0.05, dropout=0.05, server="semi-honest")


# --- by enumeration --------------------------------------------------------------------------


def exact(population, good, draws, count):
    ways = sum(
        comb(good, x) * comb(population - good, draws - x)
        for x in range(max(count, 0), min(good, draws) + 1)
        if draws - x >= 0
    )
    return Fraction(ways, comb(population, draws))


def holds(a, k, t):
    """The specification's terms, word for word, in fractions."""
    n, c, d = a.n, a.colluders, a.dropped
    security = Fraction(a.security)
    short = 1 - exact(n - 1, n - 1 - d, k, t)
    if n * short > Fraction(a.correctness):
        return False
    if a.server is MALICIOUS:
        closed = sum(
            comb(n - c, s) * exact(n - 1, s - 1 + c, k, t) ** s for s in range(1, (n - c) // 2 + 1)
        )
        return n * exact(n - 1, c, k, 2 * t - k) <= security and closed <= security
    if n * k % 2 or n * exact(n - 1, c, k, t) > security:
        return False
    if k == n - 1:
        return True
    removed, pair = min(n - 1, c + d), 2 * (k // 2)
    windows = Fraction(n * n, 2) * exact(n, removed, pair, pair)
    return n * exact(n - 1, removed, k, k) <= security and windows <= security


small = st.builds(
    Assumptions,
    st.sampled_from([MALICIOUS, SEMI_HONEST]),
    st.integers(2, 24),
    st.integers(0, 8),
    st.integers(0, 8),
    st.sampled_from([0.0, 2**-40, 2**-10, 0.01, 0.3, 0.99]),
    st.sampled_from([0.0, 2**-20, 1e-4, 0.01, 0.5]),
).filter(lambda a: max(a.colluders, a.dropped) < a.n)


@given(small)
@settings(max_examples=50)
def test_the_search_finds_what_enumeration_finds(a):
    feasible = ((k, t) for k in range(1, a.n - 1) for t in range(1, k + 1) if holds(a, k, t))
    first = next(feasible, None)
    if first is None:
        assert smallest_sparse(a) is None
    else:
        k = first[0]
        all_t = [t for t in range(1, k + 1) if holds(a, k, t)]
        assert smallest_sparse(a) == (k, min(all_t), max(all_t))


@given(small)
@settings(max_examples=50)
def test_where_a_sparse_graph_can_do_the_complete_one_can(a):
    assume(smallest_sparse(a) is not None)
    weight = 2 if a.server is MALICIOUS else 1
    assert a.colluders + weight * a.dropped <= a.n - 2


def test_the_windows_term_bounds_how_often_a_ring_is_cut():
    n, k, removed = 10, 4, 4
    cut = 0
    for gone in itertools.combinations(range(n), removed):
        left = set(range(n)) - set(gone)
        reached, todo = set(), [min(left)]
        while todo:
            u = todo.pop()
            if u not in reached:
                reached.add(u)
                todo += [v for d in (1, 2) for v in ((u + d) % n, (u - d) % n) if v in left]
        cut += reached != left
    a = Assumptions(SEMI_HONEST, n, 0, removed, 2**-40, 2**-20)
    assert 0 < cut / comb(n, removed) <= math.exp(failure_bounds.log_connectivity(a, k, 1))
    alone = Assumptions(SEMI_HONEST, n, 0, k - 1, 2**-40, 2**-20)
    assert failure_bounds.log_connectivity(alone, k, 1) == -math.inf


@pytest.mark.statistical
def test_the_closed_groups_term_bounds_how_often_a_client_is_closed_in():
    n, c, k, t = 12, 3, 5, 4
    rng = np.random.default_rng(11)
    bound = math.exp(
        failure_bounds.log_connectivity(Assumptions(MALICIOUS, n, c, 0, 0.1, 0.1), k, t)
    )
    honest, hits, trials = range(c, n), 0, 4000
    groups = [set(g) for s in (1, 2) for g in itertools.combinations(honest, s)]
    for _ in range(trials):
        drawn = {u: {(u + 1 + x) % n for x in rng.permutation(n - 1)[:k]} for u in honest}
        hits += any(
            all(len(drawn[u] & (group | set(range(c)))) >= t for u in group) for group in groups
        )
    assert 0 < hits / trials <= bound


# --- tails -----------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=100)
def test_tails_agree_with_fractions_within_their_error_bound(data):
    population = data.draw(st.integers(1, 400))
    good = data.draw(st.integers(0, population))
    draws = data.draw(st.integers(0, population))
    count = data.draw(st.integers(-1, draws + 1))
    value = tails.exact_tail(population, good, draws, count)
    assert value == exact(population, good, draws, count)
    log = tails.log_tail(population, good, draws, count)
    if value == 0:
        assert log == -math.inf
    else:
        true = math.log(value.numerator) - math.log(value.denominator)
        assert abs(log - true) <= tails.error_bound(population) + 1e-12 * abs(true)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=65)
def test_a_bound_met_exactly_is_met_and_one_just_below_is_not(data):
    population = data.draw(st.integers(2, 40))
    good = data.draw(st.integers(1, population))
    draws = data.draw(st.integers(1, population))
    count = data.draw(st.integers(1, draws))
    value = exact(population, good, draws, count)
    level = float(value)
    assume(0 < level < 1)
    assert tails.is_rare(population, good, draws, count, level) == (value <= Fraction(level))
    below = math.nextafter(level, 0)
    assert tails.is_rare(population, good, draws, count, below) == (value <= Fraction(below))


@pytest.mark.parametrize(
    "sizes", [(99_999, 5000, 67), (99_999, 33_000, 91_278), (10**6, 1000, 10**4)]
)
def test_tails_of_large_populations_are_within_their_error_bound(sizes):
    population, good, draws = sizes
    count = tails.rarely_exceeded(population, good, draws, 2**-40, population) + 1
    # The first term as integers, the rest by the exact ratio of each term to the last.
    mass = Fraction(
        comb(good, count) * comb(population - good, draws - count), comb(population, draws)
    )
    ratio, total = 1.0, 1.0
    for x in range(count, min(count + 4000, good, draws)):
        ratio *= (good - x) * (draws - x) / ((x + 1) * (population - good - draws + x + 1))
        total += ratio
    true = math.log(mass.numerator) - math.log(mass.denominator) + math.log(total)
    error = abs(tails.log_tail(population, good, draws, count) - true)
    assert error <= tails.error_bound(population)


@given(st.integers(2, 60), st.integers(0, 20), st.integers(1, 30), st.data())
@settings(max_examples=50)
def test_the_sum_over_closed_groups_agrees_with_fractions(n, c, k, data):
    assume(c < n and k < n)
    t = data.draw(st.integers(1, k))
    value = failure_bounds._exact_closed_groups(n, c, k, t)
    total, slack = failure_bounds._log_closed_groups(n, c, k, t)
    if value == 0:
        assert total == -math.inf
    else:
        true = math.log(value.numerator) - math.log(value.denominator)
        assert abs(total - true) <= slack + 1e-12 * abs(true)
        for level in (float(value), math.nextafter(float(value), 0)):
            if 0 < level < 1:
                expected = value <= Fraction(level)
                assert failure_bounds._stays_together(n, c, k, t, level) == expected


# --- how many collude ------------------------------------------------------------------------


def test_a_malicious_server_invites_all_its_colluders():
    assert colluders_in(100, 1000, 0.05, "malicious") == 50
    assert colluders_in(100, 10_000, 0.05, "malicious") == 99
    assert colluders_in(100, 1000, 0.05, "semi-honest") < 50
    near = graph_parameters(n=1000, dropout=0.05, corruption=0.05)
    far = graph_parameters(n=1000, dropout=0.05, corruption=0.05, roster=3000)
    assert (near.colluders, far.colluders) == (50, 150)
    assert far.degree > near.degree


# --- complete graphs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "dropout", "corruption", "server", "expected"),
    [
        (2, 0.0, 0.0, "semi-honest", (1, 1)),
        (2, 0.0, 0.0, "malicious", (1, 1)),
        (3, 1 / 3, 0.0, "semi-honest", (2, 1)),
        (5, 0.2, 0.2, "malicious", (4, 3)),
    ],
)
def test_small_cohorts_get_the_complete_graph(n, dropout, corruption, server, expected):
    chosen = graph_parameters(n=n, dropout=dropout, corruption=corruption, server=server)
    assert (chosen.degree, chosen.threshold) == expected
    assert chosen.complete
    check(n, n, *expected, corruption=corruption, server=server)


def test_a_cohort_that_no_sparse_graph_serves_gets_the_complete_one():
    chosen = graph_parameters(n=100, dropout=0.3, corruption=0.38)
    assert (chosen.degree, chosen.threshold, chosen.complete) == (99, 69, True)


@pytest.mark.parametrize(
    ("n", "dropout", "corruption", "expected"),
    [
        (100, 0.1, 0.1, 67),
        (100, 0.3, 0.1, 67),
        (100, 0.4, 0.1, 59),
        (100, 0.1, 0.8, 81),
        (500, 0.3, 0.1, 333),
        (100, 0.29, 0.69, 70),
        (11, 0.0, 9 / 11, 10),
        (10, 0.5, 0.3, 4),
        (10, 0.2, 0.6, 7),
    ],
)
def test_known_thresholds_of_complete_graphs(n, dropout, corruption, expected):
    chosen = graph_parameters(n, dropout, corruption, "semi-honest", complete_below=1000)
    assert chosen.threshold == expected


@given(st.integers(2, 80), st.floats(0, 1), st.floats(0, 1), st.sampled_from(SERVERS))
@settings(max_examples=65)
def test_a_complete_graph_stands_its_colluders_and_dropouts_or_none_does(n, drop, corrupt, server):
    gone = math.floor(Fraction(drop).limit_denominator(10**9) * n)
    c = colluders_in(n, n, corrupt, server)
    lies = server == "malicious"
    safe = [t for t in range(1, n - gone) if (2 * t - (n - 1) > c if lies else t > c)]
    try:
        t = graph_parameters(n, drop, corrupt, server, complete_below=1000).threshold
    except NoFeasibleGraph:
        assert not safe
    else:
        assert t in safe


# --- a degree that was written ---------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("n", "dropout", "corruption"), [(14, 0.1, 0.0), (30, 0.1, 0.1)])
def test_a_written_degree_is_taken_where_some_threshold_is_safe(server, n, dropout, corruption):
    level: dict[str, Any] = {"security": 2.0**-10, "correctness": 2.0**-5}
    smallest = graph_parameters(n, dropout, corruption, server, **level).degree
    for degree in range(1, n - 1):
        if is_feasible(n, degree, dropout, corruption, server, **level):
            chosen = graph_parameters(n, dropout, corruption, server, degree=degree, **level)
            assert chosen.degree == degree >= smallest
            settings = {"corruption": corruption, "dropout": dropout, "server": server}
            check(n, n, degree, chosen.threshold, security=level["security"], **settings)
        else:
            with pytest.raises(NoFeasibleGraph, match=r"smallest degree|must be even"):
                graph_parameters(n, dropout, corruption, server, degree=degree, **level)
    whole = graph_parameters(n, dropout, corruption, server, degree=n - 1, **level)
    assert whole == graph_parameters(n, dropout, corruption, server, complete_below=n + 1, **level)


@pytest.mark.parametrize("degree", [0, -1, 30, 31])
def test_a_degree_beyond_the_cohort_is_refused(degree):
    with pytest.raises(LocalProtocolError, match="degree"):
        graph_parameters(30, 0.1, 0.0, degree=degree)


def test_a_regular_graph_with_both_odd_says_so():
    with pytest.raises(NoFeasibleGraph, match="one of the two must be even; take degree 8"):
        graph_parameters(25, 0.0, 0.0, "semi-honest", degree=7)


# --- refusals --------------------------------------------------------------------------------


def test_a_refusal_says_what_would_be_feasible():
    with pytest.raises(NoFeasibleGraph) as error:
        graph_parameters(n=1000, dropout=0.3, corruption=0.45)
    assert "dropout may be at most 0.274 at this corruption" in str(error.value)
    assert "corruption at most 0.398 at this dropout" in str(error.value)
    assert isinstance(error.value, LocalProtocolError)
    assert graph_parameters(n=1000, dropout=0.274, corruption=0.45)
    assert graph_parameters(n=1000, dropout=0.3, corruption=0.398)


def test_a_refusal_says_when_nothing_is_small_enough():
    with pytest.raises(NoFeasibleGraph) as error:
        graph_parameters(n=10, dropout=0.5, corruption=0.6, roster=40)
    assert "no dropout is small enough at this corruption" in str(error.value)
    assert "no corruption is small enough at this dropout" in str(error.value)


@given(
    st.integers(3, 60),
    st.integers(0, 60),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(SERVERS),
)
@settings(max_examples=65)
def test_what_a_refusal_calls_feasible_is_the_most_that_is(n, more, dropout, corruption, server):
    roster = n + more

    def able(dropout, corruption):
        try:
            graph_parameters(n, dropout, corruption, server, roster)
        except NoFeasibleGraph as refusal:
            return str(refusal)
        return ""

    words = able(dropout, corruption).split()
    assume(words)
    if "dropout may be at most" in " ".join(words):
        most = float(words[words.index("may") + 4])
        assert not able(most, corruption)
        assert able(most + 1 / n, corruption)
    if "corruption at most" in " ".join(words):
        at = max(i for i, word in enumerate(words) if word == "corruption")
        most = float(words[at + 3])
        assert not able(dropout, most)
        assert most + 1 / roster > 1 or able(dropout, most + 1 / roster)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"n": 1}, "two clients"),
        ({"dropout": 1.1}, "dropout"),
        ({"corruption": -0.1}, "corruption"),
        ({"server": "honest"}, "server"),
        ({"roster": 9}, "roster"),
        ({"security": 1.0}, "security"),
        ({"correctness": -0.1}, "correctness"),
    ],
)
def test_arguments_out_of_range_are_named(changes, name):
    with pytest.raises(LocalProtocolError, match=name):
        graph_parameters(**{"n": 10, "dropout": 0.1, "corruption": 0.1, **changes})


# --- what a client refuses -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degree", "threshold", "server", "term"),
    [
        (0, 1, "malicious", "degree"),
        (1000, 1, "malicious", "degree"),
        (68, 0, "malicious", "threshold"),
        (68, 69, "malicious", "threshold"),
        (68, 40, "malicious", "secrecy"),
        (999, 524, "malicious", "secrecy"),
        (29, 16, "semi-honest", "secrecy"),
        (999, 50, "semi-honest", "secrecy"),
        (14, 14, "semi-honest", "connectivity"),
    ],
)
def test_a_client_refuses_and_names_the_term(degree, threshold, server, term):
    with pytest.raises(UnsafeGraph) as error:
        check(1000, 1000, degree, threshold, corruption=0.05, dropout=0.05, server=server)
    assert error.value.term == term
    assert term in str(error.value)
    assert isinstance(error.value, RemoteProtocolError)
    if term in ("secrecy", "connectivity"):
        assert error.value.log2_probability is not None
        assert error.value.log2_probability > -40


def test_a_client_refuses_drawn_graphs_that_may_fall_apart():
    # Nobody colludes, so no share is lost; but groups that hear only of each other are likely.
    with pytest.raises(UnsafeGraph) as error:
        check(1000, 1000, 9, 5, corruption=0.0)
    assert error.value.term == "connectivity"


def test_a_client_refuses_an_odd_degree_in_an_odd_lattice():
    with pytest.raises(UnsafeGraph, match="degree"):
        check(1001, 1001, 69, 46, corruption=0.05, dropout=0.05, server="semi-honest")
    check(1001, 1001, 69, 47, corruption=0.05)


def test_a_client_refuses_a_cohort_larger_than_its_roster():
    with pytest.raises(UnsafeGraph, match="cohort"):
        check(11, 10, 10, 8, corruption=0.1)


def test_the_bound_of_the_complete_graph_is_sharp():
    check(1000, 1000, 999, 525, corruption=0.05)
    check(1000, 1000, 999, 51, corruption=0.05, server="semi-honest")


def test_a_lattice_is_not_judged_without_a_dropout():
    with pytest.raises(LocalProtocolError, match="dropout"):
        check(1000, 1000, 68, 46, corruption=0.05, server="semi-honest")


# --- monotone --------------------------------------------------------------------------------

fractions = st.floats(0, 0.3)


@given(st.integers(20, 400), fractions, fractions, fractions, st.sampled_from(SERVERS), st.data())
@settings(max_examples=25)
def test_easier_assumptions_never_ask_for_a_larger_degree(
    n, dropout, corruption, less, server, data
):
    hard = assumptions(n, dropout, corruption, server)
    easy = replace(
        hard,
        **data.draw(
            st.sampled_from(
                [
                    {"dropped": math.floor(hard.dropped * less)},
                    {"colluders": math.floor(hard.colluders * less)},
                    {"security": 2**-20},
                    {"correctness": 2**-10},
                ]
            )
        ),
    )
    found, easier = smallest_sparse(hard), smallest_sparse(easy)
    if found is not None:
        assert easier is not None
        assert easier[0] <= found[0]


@given(st.integers(3, 300), fractions, fractions, st.sampled_from(SERVERS))
@settings(max_examples=25)
def test_chosen_parameters_are_accepted_by_clients_with_the_same_policy(
    n, dropout, corruption, server
):
    try:
        chosen = graph_parameters(n, dropout, corruption, server)
    except NoFeasibleGraph:
        assume(False)
    check(
        n,
        n,
        chosen.degree,
        chosen.threshold,
        corruption=corruption,
        dropout=dropout,
        server=server,
    )


# --- speed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "limit"), [(10_000, 1.0), (100_000, 5.0)])
@pytest.mark.parametrize("server", SERVERS)
def test_large_cohorts_are_quick(n, limit, server):
    asked = {"n": n, "dropout": 0.05, "corruption": 0.05, "server": server, "security": 2**-41}
    before = time.process_time()
    chosen = graph_parameters(**asked)
    assert time.process_time() - before < limit
    before = time.process_time()
    assert graph_parameters(**asked) is chosen
    assert time.process_time() - before < 0.01
