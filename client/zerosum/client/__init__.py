"""The part that runs where the data is: local training, clipping, noise, masking.

Names are imported on first use: a deployed client loads torch only where it trains.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
