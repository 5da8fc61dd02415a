"""The graph that is chosen by itself: sparse where chance seldom ends its sessions."""

import math

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from zerosum.secagg import NoFeasibleGraph
from zerosum.secagg.graph.auto_degree import COMPLETE_BELOW, auto_parameters
from zerosum.secagg.graph.parameters import graph_parameters
from zerosum.secagg.stages import ServerMode


@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
def test_auto_takes_the_complete_graph_of_small_cohorts(server):
    first = COMPLETE_BELOW[ServerMode(server)]
    below = auto_parameters(first - 1, 0.1, 0.1, server)
    assert (below.degree, below.complete) == (first - 2, True)
    assert below.log2_secrecy == below.log2_correctness == below.log2_connectivity == -math.inf
    assert not auto_parameters(first, 0.1, 0.1, server).complete


def test_auto_keeps_shares_to_spare_where_no_dropout_is_assumed():
    assert graph_parameters(100, 0.0, 0.05).threshold == graph_parameters(100, 0.0, 0.05).degree
    for n in (80, 100, 499):
        chosen = auto_parameters(n, 0.0, 0.05)
        assert chosen == auto_parameters(n, 0.1, 0.05) == graph_parameters(n, 0.1, 0.05)
        assert chosen.degree - chosen.threshold >= 8
    assert auto_parameters(500, 0.0, 0.05) == graph_parameters(500, 0.0, 0.05)


def test_auto_takes_the_complete_graph_where_a_sparse_one_has_no_shares_to_spare():
    chosen = auto_parameters(100, 0.0, 0.85)
    assert chosen == graph_parameters(100, 0.0, 0.85, complete_below=101)
    with pytest.raises(NoFeasibleGraph):
        graph_parameters(100, 0.1, 0.85)
    with pytest.raises(NoFeasibleGraph):
        auto_parameters(100, 0.1, 0.85)


def test_sparse_sessions_seldom_end_though_each_client_drops_out_by_chance():
    def ends(chosen):  # at most: over all clients, and over how many drop out
        lost = np.arange(chosen.n)
        spare = chosen.degree - chosen.threshold
        one = hypergeom.sf(spare, chosen.n - 1, lost, chosen.degree)
        return binom.pmf(lost, chosen.n, 0.1) @ np.minimum(1.0, chosen.n * one)

    chosen = {n: graph_parameters(n, 0.1, 0.05) for n in (50, 80, 100, 200)}
    odds = [ends(graph) for graph in chosen.values()]
    assert odds == pytest.approx([1 / 9, 1 / 60, 1 / 300, 1 / 5000], rel=0.15)
    assert max(ends(graph_parameters(n, 0.1, 0.05, complete_below=n + 1)) for n in chosen) < 1e-5
