"""Data sets, partitions, models and the built-in tasks; what apps of ``zerosum new`` stand on.

Names are imported on first use: an app imports pandas only when it reads a table.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
