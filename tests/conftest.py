"""Fixtures of all tests."""

import functools
import gc
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
import typer.testing
from hypothesis import settings

# How long an example takes is the machine's, and no test's, affair.
settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")

# Commands are called some hundred times: their tree, which nothing changes, is built once.
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]

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


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect tests without the garbage collector, and spare it what stays for good.

    Millions of objects live until the end: libraries, test modules, tests. Each full collection
    would walk them all again, and find nothing.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_disk() -> Iterator[None]:
    """Wait for no disk: no machine crashes in a test, and each wait takes milliseconds.

    Tests of what is on a disk at which moment put a function of their own here.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow what ``quick_one_in(n)`` leaves out: all but each n-th member of a family.

    A family is one test with many parameters, which mostly fail together. With an n that no number
    of values divides, each value of each parameter has its turn.
    """
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("quick_one_in")
        if mark is None or item.get_closest_marker("slow"):
            continue
        family = item.nodeid.split("[")[0]
        if seen[family] % mark.args[0]:
            item.add_marker(pytest.mark.slow)
        seen[family] += 1
