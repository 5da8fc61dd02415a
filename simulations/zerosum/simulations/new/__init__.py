"""``zerosum new``: a Flower app of the user's own, for data of the user's own.

Nothing here is imported by the app that is made, except by name in its templates.
"""

from zerosum.simulations.new.kinds import Kind

__all__ = ["Kind"]
