"""Say why tests come to NaN or infinity: the test data hold it, or the model has diverged.

One record with NaN makes the accuracy of all NaN, as a diverged model does. The initial model tells
them apart: what it gives no number for can only be the data or the loss.
"""

import logging
from collections.abc import Callable

log = logging.getLogger("zerosum.server")


class LostTests:
    """Keeps what a run's summary says of test examples without a number.

    Parameters
    ----------
    count_at_start : callable
        Returns how many test examples the initial model gives NaN or infinity for. Called once, at
        the first test that has any: all other runs are spared that evaluation.
    """

    def __init__(self, count_at_start: Callable[[], int]) -> None:
        self._count_at_start = count_at_start
        self._at_start: int | None = None
        self.said = ""

    def note(self, lost: int, examples: int) -> None:
        """Keep what the latest test says, and log the first that says anything.

        Parameters
        ----------
        lost : int
            Test examples whose loss or metrics were NaN or infinite.
        examples : int
            All test examples.
        """
        if not lost:
            self.said = ""
            return
        if self._at_start is None:
            self._at_start = self._count_at_start()
            log.warning("%s", _reason(self._at_start, lost, examples))
        self.said = _reason(self._at_start, lost, examples)


def _reason(at_start: int, lost: int, examples: int) -> str:
    line = f"{at_start or lost:,} of {examples:,} test examples give NaN or infinity"
    if at_start:
        return (
            f"{line}, and did with the initial model: look for NaN in test_data(), or for "
            "logarithms or divisions by zero in loss() or metrics()"
        )
    return f"{line}, and none did with the initial model: the model has diverged; lower training.lr"
