"""Load heavy libraries without looking for garbage in them."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import in this block what a command computes with.

    torch and its like make a quarter of a million objects that stay. While they are imported, each
    full collection looks through all of them, and so does each later one: a second of CPU time in a
    short run. Frozen, they are looked at no more, and the pages that forked workers share are not
    written to. Where torch is there already, in a program of the user's, nothing is done: garbage
    that it has at this moment would stay.

    Yields
    ------
    None
        With collections off.
    """
    if "torch" in sys.modules:
        yield
        return
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
