"""The coordinator: sampling, private sums, optimization, accounting.

Names are imported on first use: a plan loads no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
