"""A mean of two noised sums lies in its range, and its noise is what repetition shows."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from narrowed import present

from zerosum.server.privacy.noised_ratio import noised_ratio
from zerosum.server.spec import Experiment
from zerosum.server.training.federated_metrics import released_metrics


def repeated(mean, count, std, **options):
    """Read the same mean of so many clients under fresh noise, many times."""
    rng = np.random.default_rng(5)
    sums = np.array([mean * count, count]) + std * rng.standard_normal((20_000, 2))
    return [noised_ratio(total, n, std, **options) for total, n in sums.tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.2, 0.5, 0.8])
def test_the_stated_noise_is_the_spread_of_repetitions(mean):
    found = repeated(mean, 100.0, 5.0)
    values = np.array([ratio.value for ratio in found])
    assert np.mean([ratio.noise_std for ratio in found]) == pytest.approx(values.std(), rel=0.03)
    naive = 5.0 / 100.0  # the control: noise of the numerator alone
    assert (abs(values.std() / naive - 1) < 0.03) == (mean == 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "least"), [(1.0, 0.0), (10.0, 0.0), (3.0, -1.0)])
def test_a_mean_never_leaves_its_range_nor_has_more_noise_than_that(scale, least):
    found = [r for std in (0.1, 3.0, 40.0) for r in repeated(0.97, 20.0, std, scale=scale,
                                                             least=least)]  # fmt: skip
    read = [ratio for ratio in found if ratio is not None]
    assert len(read) < len(found)
    assert all(scale * least <= ratio.value <= scale for ratio in read)
    assert all(0 < ratio.noise_std < scale for ratio in read)


@pytest.mark.parametrize(
    ("total", "count", "std"),
    [(1.0, 0.0, 1.0), (1.0, -3.0, 1.0), (5.0, 0.9, 1.0), (1.3, 1.3, 1.0), (math.nan, math.nan, 1)],
)
def test_what_noise_drowned_is_not_read(total, count, std):
    assert noised_ratio(total, count, std) is None


def test_a_record_names_no_noise_where_there_is_none():
    assert present(noised_ratio(3.0, 4.0, 0.0)).record("accuracy") == {"accuracy": 0.75}
    record = present(noised_ratio(3.0, 4.0, 0.4, scale=2.0)).record("loss")
    assert record == {"loss": 1.5, "loss_noise_std": pytest.approx(0.25)}


def evaluated(total, noise_std=1.0, model="distributed"):
    experiment = Experiment()
    privacy = experiment.privacy.model_copy(update={"model": model})
    settings = experiment.model_copy(update={"privacy": privacy})
    aggregate: Any = SimpleNamespace(total=np.array(total), noise_std=noise_std)
    return released_metrics(aggregate, settings, loss_unit=1.0)


def test_a_federated_accuracy_lies_between_none_and_all_and_shows_its_noise():
    """The ratio alone was 1.3, and -0.2, of the clients' examples."""
    above, below = evaluated([2.0, 13.0, 10.0]), evaluated([-1.0, -2.0, 10.0])
    assert (above["federated_accuracy"], below["federated_accuracy"]) == (1.0, 0.0)
    assert below["federated_loss"] == 0.0
    assert above["federated_accuracy_noise_std"] == pytest.approx(math.sqrt(2) / 10)
    assert below["federated_accuracy_noise_std"] == pytest.approx(1 / 10)
    most = Experiment().evaluation.federated_max_loss
    assert above["federated_loss"] == pytest.approx(0.2 * most)
    assert above["federated_loss_noise_std"] == pytest.approx(most * math.hypot(1, 0.2) / 10)


@pytest.mark.parametrize("total", [[0.1, 0.1, -3.0], [0.1, 0.2, 0.9], [0.1, 1.2, 1.3]])
def test_an_evaluation_that_noise_drowned_has_no_metrics(total):
    assert evaluated(total) == {"federated_status": "drowned in noise"}


def test_without_noise_a_federated_metric_is_as_it_was_summed():
    read = evaluated([30.0, 7.0, 10.0], 0.0, "none")
    assert read == {
        "federated_status": "completed",
        "federated_loss": 3.0,
        "federated_accuracy": 0.7,
    }
