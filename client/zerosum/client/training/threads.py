"""Limit arithmetic to one thread, so that bits do not depend on the machine's cores."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


def use_one_thread() -> None:
    """Let torch and numpy's linear algebra use one thread from now on, in this process."""
    torch.set_num_threads(1)
    threadpool_limits(1)  # BLAS forgets a limit in a fork, and its idle threads wait by spinning


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)
