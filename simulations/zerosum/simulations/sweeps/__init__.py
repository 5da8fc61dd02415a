"""Sweeps: many runs of one experiment, over lists of values and seeds, in parallel and resumable.

Names are imported on first use: a cell of a sweep does not load pandas.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
