"""Fixtures of all tests."""

import signal
from collections.abc import Iterator

import pytest

# A shell's background and nohup let a process ignore these signals, and its children inherit that:
# commands that tests start, and then interrupt, would go on. What is handled is not inherited.
for _sign in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_sign) is signal.SIG_IGN:
        signal.signal(_sign, lambda number, frame: None)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let torch use one thread, as a simulation does."""
    from zerosum.client.training import threads

    with threads.one_thread():
        yield
