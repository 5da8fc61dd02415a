"""Name the exceptions that count as a failure of a task or an app: all, an exit included."""

from typing import Final

FAILURES: Final = (Exception, SystemExit)
"""Caught wherever somebody else's code runs. `sys.exit()` in it would end the process, and the
server would see a dropout that depended on data."""
