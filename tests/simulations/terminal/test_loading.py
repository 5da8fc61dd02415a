"""What is loaded is not looked through for garbage, and a user's program is left alone."""

import gc
import sys
from collections.abc import Iterator

import pytest

from zerosum.simulations.terminal.loading import loading


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Leave the collector as it was for the other tests: with what stays frozen."""
    yield
    gc.enable()
    gc.freeze()


def test_loaded_objects_are_collected_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    gc.unfreeze()
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000


def test_collections_that_were_off_stay_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    gc.disable()
    with loading():
        pass
    assert not gc.isenabled()


def test_a_program_that_has_torch_keeps_its_garbage_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", gc)
    gc.unfreeze()
    with loading():
        assert gc.isenabled()
    assert gc.get_freeze_count() == 0
