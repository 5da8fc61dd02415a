"""Every record belongs to exactly one client, and a seed says which."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.datasets import Records
from zerosum.simulations.data.partition import Partition, dirichlet, iid, natural, partition, shards


def records(count: int = 200, classes: int = 10, owners: list[int] | None = None) -> Records:
    generator = np.random.default_rng(0)
    named = None if owners is None else np.array(owners)
    inputs = np.zeros((count, 2), dtype=np.float32)
    return Records(inputs, generator.integers(0, classes, count), named)


def parts(split: Partition) -> list[np.ndarray]:
    return [split[client] for client in range(len(split))]


def assert_exact_cover(split: Partition, count: int, clients: int) -> None:
    assert len(split) == clients
    assert np.array_equal(np.sort(np.concatenate(parts(split))), np.arange(count))


@pytest.mark.slow
@given(
    kind=st.sampled_from(["iid", "dirichlet", "shards"]),
    count=st.integers(1, 300),
    clients=st.integers(1, 40),
    alpha=st.sampled_from([1e-3, 0.1, 1.0, 1e3]),
    per_client=st.integers(1, 4),
    seed=st.integers(0, 5),
)
def test_a_partition_is_an_exact_cover_that_repeats(
    kind: str, count: int, clients: int, alpha: float, per_client: int, seed: int
) -> None:
    spec = DataSpec.model_validate(
        {"partition": kind, "alpha": alpha, "shards_per_client": per_client}
    )
    data = records(count)
    if clients * (per_client if kind == "shards" else 1) > count:
        with pytest.raises(DataError, match=r"data\.clients"):
            partition(spec, data, clients, seed)
        return
    split = partition(spec, data, clients, seed)
    assert_exact_cover(split, count, clients)
    again = partition(spec, data, clients, seed)
    assert np.array_equal(split.order, again.order)
    assert np.array_equal(split.bounds, again.bounds)


def test_seeds_differ() -> None:
    labels = records().targets
    assert not np.array_equal(iid(200, 10, 0).order, iid(200, 10, 1).order)
    for first, other in (
        (dirichlet(labels, 10, 1.0, 0), dirichlet(labels, 10, 1.0, 1)),
        (shards(labels, 10, 2, 0), shards(labels, 10, 2, 1)),
    ):
        assert not np.array_equal(first.order, other.order)


def test_iid_parts_are_equal() -> None:
    assert {len(part) for part in parts(iid(4000, 400, 3))} == {10}
    assert {len(part) for part in parts(iid(103, 10, 3))} == {10, 11}


def test_a_small_alpha_concentrates_classes_and_a_large_one_spreads_them() -> None:
    labels = np.repeat(np.arange(10), 200)

    def largest_share(alpha: float) -> float:
        held = [labels[part] for part in parts(dirichlet(labels, 20, alpha, 0)) if len(part)]
        return float(np.mean([np.bincount(part).max() / len(part) for part in held]))

    assert largest_share(0.05) > 0.7
    assert largest_share(100.0) < 0.2


@pytest.mark.parametrize("alpha", [1e6, 1e12, 1e300, 1e308, float("inf")])
def test_a_huge_alpha_divides_evenly(alpha: float) -> None:
    split = dirichlet(np.repeat(np.arange(10), 200), 20, alpha, 0)
    assert_exact_cover(split, 2000, 20)
    assert all(abs(len(part) - 100) <= 10 for part in parts(split))


@pytest.mark.parametrize("alpha", [5e-324, 1e-300])
def test_a_vanishing_alpha_is_still_an_exact_cover(alpha: float) -> None:
    assert_exact_cover(dirichlet(np.repeat(np.arange(10), 20), 7, alpha, 0), 200, 7)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_an_alpha_that_is_no_concentration_is_named(alpha: float) -> None:
    with pytest.raises(DataError, match=r"data\.alpha = .*above 0"):
        dirichlet(np.zeros(5, int), 2, alpha, 0)


def test_shards_give_each_client_few_labels() -> None:
    labels = np.repeat(np.arange(10), 100)
    split = shards(labels, 50, 2, 0)
    assert {len(part) for part in parts(split)} == {20}
    assert max(len(np.unique(labels[part])) for part in parts(split)) <= 2


def test_the_natural_partition_follows_the_owners() -> None:
    owners = np.array([2, 0, 2, 1, 0])
    assert [part.tolist() for part in parts(natural(owners, 3))] == [[1, 4], [3], [0, 2]]
    spec = DataSpec(partition="natural")
    split = partition(spec, records(5, owners=[7, 3, 7, 5, 3]), 3, 0)  # owner 3 comes first
    assert [part.tolist() for part in parts(split)] == [[1, 4], [3], [0, 2]]


def test_what_does_not_fit_is_named() -> None:
    spec = DataSpec(partition="natural")
    with pytest.raises(DataError, match=r"data\.client_column"):
        partition(spec, records(5), 3, 0)
    with pytest.raises(DataError, match=r"data\.clients = 4.* 3 clients"):
        partition(spec, records(5, owners=[0, 1, 2, 0, 1]), 4, 0)
    values = Records(np.zeros((9, 1), np.float32), np.linspace(0, 1, 9, dtype=np.float32))
    with pytest.raises(DataError, match=r'data\.partition = "dirichlet" needs classes'):
        partition(DataSpec(partition="dirichlet"), values, 3, 0)
    assert_exact_cover(partition(DataSpec(partition="shards"), values, 3, 0), 9, 3)


@pytest.mark.parametrize("client", [-1, 3])
def test_a_client_outside_the_roster_has_no_part(client: int) -> None:
    with pytest.raises(IndexError):
        iid(9, 3, 0)[client]
