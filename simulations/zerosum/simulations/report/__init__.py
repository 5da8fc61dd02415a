"""The report of a run: one self-contained HTML page, made from the run folder alone.

Names are imported on first use: commands that draw nothing read records and words of this package,
and matplotlib takes a second to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
