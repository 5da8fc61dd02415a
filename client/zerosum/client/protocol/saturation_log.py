"""Log what the range cuts of clients' vectors, in few lines however many clients and rounds.

A range that is too small cuts every client in every round, and equal lines hide those of another
kind. So a log has the first, each that is larger than all before, and each tenth power of their
count, which is then in the line.
"""

import logging

from zerosum.secagg.vectors.saturation import Cut

log = logging.getLogger("zerosum.client")

_CUT = "zerosum_cut"
"""Attribute of a record of the log that says what was cut."""


class CutTally:
    """Count cuts, and decide which are logged.

    Attributes
    ----------
    count : int
        Cuts so far.
    """

    def __init__(self) -> None:
        self.count, self._largest = 0, 0.0

    def worth(self, cut: Cut) -> bool:
        """Count a cut; return whether it is the first, the largest so far or a power of ten."""
        self.count += 1
        larger = cut.largest > self._largest
        self._largest = max(cut.largest, self._largest)
        return larger or str(self.count).strip("0") == "1"


class CutFilter(logging.Filter):
    """Logging filter that passes the first, largest and every tenth power of cuts, and all else.

    Of one file of one process: it counts the cuts of all clients together.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tally = CutTally()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is worth its line; the count is added to it."""
        cut = getattr(record, _CUT, None)
        if not isinstance(cut, Cut):
            return True
        worth = self._tally.worth(cut)
        if worth and self._tally.count > 1:
            record.msg = f"{record.msg}; cuts so far: {self._tally.count:,}"
        return worth


def log_cut(whose: str, cut: Cut, why: str = "") -> None:
    """Log what was cut of a vector.

    Parameters
    ----------
    whose : str
        The vector.
    cut : Cut
    why : str
        What stands at the end.
    """
    log.warning("%s: %s%s", whose, cut, why, extra={_CUT: cut})
