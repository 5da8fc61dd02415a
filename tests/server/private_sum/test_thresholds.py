"""Thresholds of a session, as its experiment is written."""

import pytest

from zerosum.client.protocol.survivors import CohortTooSmallError
from zerosum.client.spec import PrivacySpec, SecAggSpec
from zerosum.secagg.graph.auto_degree import auto_parameters
from zerosum.secagg.graph.parameters import graph_parameters
from zerosum.server.privacy.release_sampling import sampling_terms
from zerosum.server.private_sum import thresholds
from zerosum.server.private_sum.thresholds import Thresholds, survivors_needed
from zerosum.server.spec import SamplingSpec

NO_NOISE = PrivacySpec(model="none", clip=None)


def of(cohort, roster=1000, privacy=NO_NOISE, **secagg):
    spec = SecAggSpec(**({"dropout": 0.1} | secagg))
    return Thresholds.of(cohort, roster=roster, secagg=spec, privacy=privacy)


def test_against_a_malicious_server_all_colluders_of_the_roster_may_be_in_one_cohort():
    assert of(60, roster=400, corruption=0.05).colluders == 20
    assert of(60, roster=400, corruption=0.05, server="semi-honest").colluders < 20
    assert of(60, roster=60, corruption=0.05).colluders == 3


def test_small_cohorts_are_complete_and_large_ones_sparse():
    assert of(79, corruption=0.01).degree == 78
    for cohort in (80, 100, 499, 600):
        sparse = of(cohort, corruption=0.01)
        chosen = graph_parameters(cohort, 0.1, 0.01, roster=1000, security=SecAggSpec().security)
        assert (sparse.degree, sparse.threshold) == (chosen.degree, chosen.threshold)
        assert sparse.degree < cohort / 2
        assert of(cohort, corruption=0.01, degree="complete").degree == cohort - 1


def test_a_session_of_a_hundred_clients_has_the_degrees_that_are_safe_and_no_more():
    degrees = [of(100, roster=100, corruption=c).degree for c in (0.05, 0.1)]
    assert all(25 <= degree <= 40 for degree in degrees)
    assert degrees == sorted(degrees)


def test_semi_honest_sessions_below_five_hundred_are_complete():
    assert of(499, server="semi-honest").degree == 498
    assert of(500, server="semi-honest").degree < 499


def test_a_written_threshold_is_one_of_the_complete_graph():
    assert of(100, threshold=60) == of(100, threshold=60, degree="complete")
    assert of(100, threshold=60).degree == 99


@pytest.mark.parametrize(
    "privacy", [NO_NOISE, PrivacySpec(noise_multiplier=1.0, honest_fraction=0.6)]
)
@pytest.mark.parametrize("corruption", [0.0, 0.05, 0.1, 0.3])
def test_a_sparse_graph_opens_no_smaller_sum_than_the_complete_one(privacy, corruption):
    sparse = 0
    for cohort in (80, 81, 100, 250, 499):
        for dropout in (0.0, 0.1, 0.3):
            settings = {"dropout": dropout, "corruption": corruption, "privacy": privacy}
            try:
                complete = of(cohort, roster=cohort, degree="complete", **settings)
            except CohortTooSmallError:
                continue
            chosen = of(cohort, roster=cohort, **settings)
            assert chosen.min_survivors == complete.min_survivors
            assert chosen.threshold <= complete.threshold
            sparse += chosen.degree < complete.degree
    assert sparse >= 5
    # The control: a sparse graph that was asked for opens what its own threshold allows.
    degree = of(100, roster=100, corruption=corruption, privacy=NO_NOISE).degree
    written = of(100, roster=100, corruption=corruption, degree=degree)
    assert written.min_survivors < of(100, roster=100, corruption=corruption).min_survivors


def test_the_guarantee_counts_survivors_beside_the_colluders():
    privacy = PrivacySpec(noise_multiplier=1.0, honest_fraction=0.6)
    assert of(60, roster=400, corruption=0.05, privacy=privacy).min_survivors == 36 + 20
    # Two honest clients at least, and one more than the threshold.
    limits = of(60, roster=400, corruption=0.05)
    assert limits.min_survivors == max(limits.threshold + 1, 22)


def test_a_semi_honest_sparse_session_opens_only_where_its_graph_stays_connected():
    limits = of(1000, server="semi-honest", dropout=0.05)
    assert limits.degree < 999
    assert limits.min_survivors >= 1000 - 50


@pytest.mark.parametrize(("cohort", "degree"), [(25, 8), (24, 7), (5, 4)])
def test_a_written_degree_is_fitted_to_the_cohort(cohort, degree):
    assert of(cohort, roster=25, server="semi-honest", degree=7, dropout=0.0).degree == degree


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"degree": 3, "corruption": 0.2}, "smallest degree is"),
        ({"threshold": 10, "corruption": 0.2}, r"threshold = 10.*secrecy"),
        ({"threshold": 39}, r"at most that, or less dropout"),
        ({"corruption": 0.8}, "corruption at most"),
        ({"dropout": 0.9}, "dropout may be at most"),
    ],
)
def test_an_unsafe_graph_is_refused_with_a_safe_one(settings, why):
    with pytest.raises(CohortTooSmallError, match=why):
        of(40, roster=40, **settings)


@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
def test_survivors_needed_is_computed_without_the_graph(server):
    privacy = PrivacySpec(noise_multiplier=1.0, honest_fraction=0.7)
    spec = SecAggSpec(dropout=0.1, corruption=0.01, server=server)
    for cohort in (1, 2, 30, 79, 80, 100, 499, 500, 501, 640):
        told = survivors_needed(cohort, roster=1000, secagg=spec, privacy=privacy)
        try:
            limits = Thresholds.of(cohort, roster=1000, secagg=spec, privacy=privacy)
        except CohortTooSmallError:
            assert told == cohort + 1
        else:
            assert told == limits.min_survivors


def test_a_large_population_is_accounted_for_without_a_graph_a_size(monkeypatch):
    searched = []

    def counted(search):
        def counting(*arguments, **options):
            searched.append(arguments[0])
            return search(*arguments, **options)

        return counting

    for search in (graph_parameters, auto_parameters):
        monkeypatch.setattr(thresholds, search.__name__, counted(search))
    privacy = PrivacySpec(noise_multiplier=1.0, honest_fraction=0.71)
    sampling = SamplingSpec(kind="poisson", cohort=1000)
    terms = sampling_terms(privacy, SecAggSpec(corruption=0.001), sampling, 20_000)
    assert 0 < terms.p < 1e-6
    assert len(searched) < 20, "hundreds of cohort sizes are likely"
