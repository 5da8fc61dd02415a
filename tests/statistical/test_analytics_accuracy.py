"""Answers on adult and Shakespeare are as right as demanded; opened up, each demand can fail."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from released_queries import question

import analytics_accuracy as accuracy
from zerosum.client.privacy.counts import counting_mechanism
from zerosum.client.queries.query import Moments, Quantile
from zerosum.client.queries.schema import IntegerColumn, Schema
from zerosum.client.queries.table import Table
from zerosum.secagg.randomness import insecure_keystream
from zerosum.server.analytics.answers import answer
from zerosum.server.analytics.calibrate import Noise
from zerosum.server.analytics.noise_law import ReleasedNoise

ADULT = Path("../shared/data/adult.csv")
SHAKESPEARE = Path("../shared/data/tinyshakespeare.txt")

pytestmark = pytest.mark.statistical
on_adult = pytest.mark.skipif(not ADULT.exists(), reason="../shared/data/adult.csv is not there")
on_text = pytest.mark.skipif(
    not SHAKESPEARE.exists(), reason="../shared/data/tinyshakespeare.txt is not there"
)


@pytest.fixture(scope="module")
def adult() -> Table:
    return accuracy.adult(str(ADULT))


@on_adult
def test_histogram_is_within_its_demand(adult: Table) -> None:
    (row,) = accuracy.histogram_rows(adult)
    assert row.met, row


@on_adult
def test_moments_err_as_claimed_and_intervals_cover(adult: Table) -> None:
    for row in accuracy.moment_rows(adult):
        assert row.met, row


@on_adult
def test_a_mean_that_claims_half_its_noise_is_caught(adult: Table) -> None:
    """The control: the same sums, read as if their noise were half as wide."""
    query = Moments(kind="mean", column="age", weight=4096)
    released = accuracy.Released(query, adult, Noise("geometric", 4096.0))
    truth = float(adult.columns["age"].mean() + 17)
    narrow = replace(released.noise, scale=released.noise.scale / 2)
    inside = 0
    for one in released.answers(300, 3):
        ends = answer(released.question, one.noisy, narrow, 300).interval(0.95)
        inside += bool(ends.low <= truth <= ends.high)
    assert inside / 300 < 0.85


@on_adult
@pytest.mark.slow
def test_quantiles_are_within_their_demands(adult: Table) -> None:
    for row in accuracy.quantile_rows(adult):
        assert row.met, row


@on_adult
@pytest.mark.slow
def test_classifiers_are_within_their_demands() -> None:
    for row in accuracy.bayes_rows(str(ADULT)):
        assert row.met, row


@on_text
@pytest.mark.slow
def test_words_are_within_their_demands() -> None:
    for row in accuracy.word_rows(str(SHAKESPEARE)):
        assert row.met, row


@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
@pytest.mark.parametrize(("size", "records"), [(2, 2_000), (74, 2_000), (4_096, 3_000)])
def test_intervals_of_quantiles_cover_small_domains_and_rare_noise(
    size: int, records: int, scale: float
) -> None:
    """No adult needed: two integers or 4,096, noise that is nearly always 0 or wide."""
    rng = np.random.default_rng(size)
    x = np.sort(rng.binomial(size - 1, 0.4, records))
    schema = Schema(columns={"x": IntegerColumn(low=0, high=size - 1)})
    query = Quantile(column="x", q=(0.2, 0.5, 0.9))
    released = accuracy.Released(query, Table.of({"x": x}, schema), Noise("geometric", scale))
    truths = np.array([x[int(np.ceil(q * records)) - 1] for q in query.q])
    inside = []
    for one in released.answers(200, 11):
        ends = one.interval(0.95)
        inside.append((ends.low <= truths) & (truths <= ends.high))
    assert np.mean(inside, axis=0).min() >= 0.93 - 0.02


@pytest.mark.parametrize("law", ["geometric", "skellam"])
@pytest.mark.parametrize("times", [6, 10, 100])
def test_intervals_of_means_cover_where_records_are_few(law: str, times: int) -> None:
    """From six standard deviations of the number of records on, for a mean near a bound too."""
    noise = ReleasedNoise(law, 4096.0, 1.25)  # type: ignore[arg-type]
    mechanism = counting_mechanism(law, 4096.0, 300, 0.8, (4096,))
    schema = Schema(columns={"x": IntegerColumn(low=0, high=100)})
    query = Moments(kind="mean", column="x", weight=4096)
    records = times * noise.std * 2**0.5 / 4096
    inside, spoken = 0, 0
    for number in range(1000):
        cells = np.rint(np.array([0.9, 0.1]) * records * 4096).astype(np.int64)
        drawn = mechanism.noise(300, 2, insecure_keystream(times, "noise", number))
        one = answer(question(query, schema), cells + drawn, noise, 300)
        ends = one.interval(0.95)
        spoken += not one.details["too_few_records"]
        inside += bool(ends.low <= 10 <= ends.high)
    assert spoken > 700
    assert inside / spoken >= 0.92


def test_one_share_less_of_noise_is_opendps_geometric() -> None:
    """At f = 1 the released noise is the geometric mechanism of another library."""
    opendp = pytest.importorskip("opendp.prelude", reason="opendp is not installed")
    opendp.enable_features("contrib")
    scale, count = 1.0, 20_000
    atom = opendp.atom_domain(T=int)
    other = opendp.m.make_laplace(
        opendp.vector_domain(atom), opendp.l1_distance(T=int), scale=scale
    )
    theirs = np.abs(np.array(other([0] * count)))
    mechanism = counting_mechanism("geometric", scale, 300, 1.0, (1,), central=True)
    ours = np.abs(mechanism.noise(1, count, insecure_keystream(0, "noise")))
    error = np.hypot(theirs.std(), ours.std()) / np.sqrt(count)
    assert abs(theirs.mean() - ours.mean()) < 5 * error
    assert abs(1.25 * theirs.mean() - ours.mean()) > 5 * error  # the control
