"""Limit arithmetic to one thread, so that bits do not depend on the machine's cores."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController


def use_one_thread() -> None:
    """Let torch and numpy's linear algebra use one thread from now on, in this process."""
    torch.set_num_threads(1)
    # BLAS forgets a limit in a fork, and its idle threads wait by spinning.
    _libraries(len(sys.modules)).limit(limits=1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries(len(sys.modules)).limit(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Find the libraries that have threads: anew where modules were imported, as it takes 30 ms."""
    return ThreadpoolController()
