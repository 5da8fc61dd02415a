"""Keep what a summary says of tests that lack a figure, and log it once."""

import logging
from collections.abc import Callable

from zerosum.client.training.default_metrics import NUMBERS
from zerosum.server.runs.run_summary import no_accuracy
from zerosum.server.training.public_test import PublicTest
from zerosum.server.training.undefined_tests import LostTests

log = logging.getLogger("zerosum.server")


class MissingFigures:
    """What the latest test could give no figure of.

    Parameters
    ----------
    count_at_start : callable
        As for :class:`~.undefined_tests.LostTests`.

    Attributes
    ----------
    no_accuracy, lost_tests : str
        Why there is no accuracy; why a figure is NaN or missing. Empty where all is well.
    """

    def __init__(self, count_at_start: Callable[[], int]) -> None:
        self._lost = LostTests(count_at_start)
        self.no_accuracy = self.lost_tests = ""

    def note(self, test: PublicTest) -> None:
        """Keep what the latest test says; of numbers to regress on, nothing is amiss."""
        why = test.unscored
        before, self.no_accuracy = self.no_accuracy, ""
        if why and not why.startswith(NUMBERS):
            self.no_accuracy = no_accuracy(why)
            if not before:
                log.warning("%s", self.no_accuracy)
        self._lost.note(test.lost, test.examples)
        self.lost_tests = "; ".join(filter(None, (self._lost.said, test.failed)))
