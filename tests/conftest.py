"""What all tests share."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let torch use one thread, as a simulation does."""
    from zerosum.client import threads

    with threads.one_thread():
        yield
