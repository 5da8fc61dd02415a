"""Labels are classes, or values, or are refused because they could be both."""

import numpy as np
import pytest

from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.tabular.labels import (
    are_values,
    class_names_of,
    encode_labels,
    names_of,
)

KEY = 'data.label = "y"'


@pytest.mark.parametrize(
    "labels",
    [
        np.tile([10, 2, 1], 20),  # 10 is before 2 as a text
        np.tile([2.0, 0.0], 20),
        np.tile([True, False], 20),
        np.tile(np.array(["x", "a", "M"], object), 20),
    ],
)
def test_classes_are_named_in_the_order_of_their_codes(labels: np.ndarray) -> None:
    codes, classes = encode_labels(labels, KEY, "classes")
    names = class_names_of(labels)
    assert len(names) == classes
    assert np.array(names)[codes].tolist() == names_of(labels).tolist()


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (np.tile([0.0, 1.0], 30), False),
        (np.tile([-1, 1], 30), False),
        (np.repeat(np.arange(100), 10), False),
        (np.tile(np.arange(1, 6), 12), False),
        (np.tile([True, False], 30), False),
        (np.tile(np.array(["x", "y"], object), 30), False),
        (np.linspace(0, 1, 60), True),
        (np.arange(60), True),
        (np.arange(60) * 1000.0, True),
        (np.tile([0.5, 1.5, 2.5], 20), True),
    ],
)
def test_labels_that_can_be_only_one_are_that(labels: np.ndarray, values: bool) -> None:
    assert are_values(labels, KEY, "auto") is values
    assert (encode_labels(labels, KEY)[1] is None) is values


@pytest.mark.parametrize(
    "labels",
    [
        np.random.default_rng(0).integers(18, 90, 500),  # ages
        np.random.default_rng(0).poisson(12, 500),  # counts
        np.repeat(np.arange(100), 5),
        np.repeat(np.arange(1, 101), 10),
        np.tile([0.25, 0.75], 30),
    ],
)
def test_labels_that_could_be_both_need_the_key(labels: np.ndarray) -> None:
    with pytest.raises(DataError, match=r'data\.target = "classes" or data\.target = "values"'):
        encode_labels(labels, KEY)
    assert encode_labels(labels, KEY, "values")[1] is None
    assert encode_labels(labels, KEY, "classes")[1] == len(np.unique(labels))


def test_classes_have_one_name_however_files_write_them() -> None:
    assert names_of(np.array([0.0, 1.0])).tolist() == names_of(np.array([0, 1])).tolist()
    assert names_of(np.array([0.5, 1.0])).tolist() == ["0.5", "1.0"]
    assert names_of(np.array(["0", "b"], object)).tolist() == ["0", "b"]
    assert names_of(np.array([1e300, np.inf, 1.0])).tolist() == ["1e+300", "inf", "1.0"]
