"""Attack experiments: what leaks, what each protection stops, and what it does not.

``docs/attacks.md`` says how to read the table, and how an attack of one's own is written.
Names are imported on first use: asking for the list of attacks loads no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
