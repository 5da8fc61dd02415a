"""References in docstrings: those that name something, and those that do not."""

import pytest

import check_docstrings

OWN = {"Own", "method", "imported"}
MODULES = {
    "zerosum.client.task": {"Task", "model"},
    "zerosum.server.spec": {"Experiment"},
    "zerosum.server": {"spec"},
}


@pytest.mark.parametrize(
    "reference",
    [
        "method",
        "Own.method",
        "torch.nn.Module",
        ".task",
        ".task.Task",
        ".task.Task.model",
        "zerosum.client.task.Task.model",
        "zerosum.server.spec",
    ],
)
def test_a_reference_that_names_something_is_found(reference: str) -> None:
    assert check_docstrings.resolves(reference, OWN, MODULES)


@pytest.mark.parametrize(
    "reference",
    [
        "gone",
        "Gone.method",
        ".task.Experiment",
        ".ask",
        ".ask.Task",
        "zerosum.client.task.Gone",
        "zerosum.client.spec.Experiment",
    ],
)
def test_a_reference_that_names_nothing_is_found_out(reference: str) -> None:
    assert not check_docstrings.resolves(reference, OWN, MODULES)
