"""Say a round in one line, and show the rounds of a run as they end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.rounding import plain
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.round_line import lies_in_words
from zerosum.server.runs.run_outcome import (
    UNTRAINED,
    charged_in_words,
    epsilons_in_words,
    failures_in_words,
)
from zerosum.server.training.saturation_watch import cuts_in_words, shortened
from zerosum.simulations.terminal.progress import ProgressBar


@contextmanager
def progress(
    rounds: int, console: Console | None = None
) -> Iterator[Callable[[RoundRecord], None]]:
    """Show the rounds of a run as they end.

    Parameters
    ----------
    rounds : int
        Of the run.
    console : Console, optional
        Standard output where absent.

    Yields
    ------
    callable
        To be called with each round's record.
    """
    with ProgressBar(rounds, "round", console) as bar:
        lines = _RoundLines(bar, rounds)

        def update(record: RoundRecord) -> None:
            if bar.drawn:
                bar.show(describe(record, rounds), record.round)
            elif bar.due(record.round):
                lines.print(record)

        yield update


def describe(record: RoundRecord, rounds: int, reason: str | None = None) -> str:
    """Return a round in one line: accuracy, epsilon so far, dropouts, failures, liars.

    Parameters
    ----------
    record : RoundRecord
    rounds : int
        Of the run.
    reason : str, optional
        What stands for the recorded reason of a round that was abandoned.

    Returns
    -------
    str
        Two spaces between its parts.
    """
    parts = [f"round {record.round}/{rounds}"]
    for key in ("test_accuracy", "test_loss", "federated_accuracy", "federated_loss"):
        if key in record.metrics:
            noise = record.metrics.get(key + NOISE_STD)
            figure = plain(record.metrics[key], 3)
            figure += "" if noise is None else f" ± {plain(noise, 3)}"
            whose = f" ({UNTRAINED})" if record.untrained else ""
            parts.append(f"{key.removeprefix('test_').replace('_', ' ')} {figure}{whose}")
            break
    # Of the local one each line would repeat that masks are all that hides a contribution.
    if spent := epsilons_in_words(record.epsilon, without=["local"]):
        parts.append(f"epsilon {spent}")
    if record.status == "abandoned":
        # Before the reason, whose last words it would else seem to go on from.
        cost = ", ".join(filter(None, ["abandoned", charged_in_words(record)]))
        parts.append(f"{cost}: {reason or shortened(record.reason)[1]}")
    else:
        parts.append(f"dropouts {record.cohort - record.survivors}/{record.cohort}")
    parts += [failures_in_words(record)]
    if (rate := record.dropout_charged) is not None:
        parts.append(f"WARNING: more dropouts than secagg.dropout; charged at up to {rate:g}")
    # The reason of a round that cuts have ended has their numbers.
    cuts = cuts_in_words(record) if record.completed else ""
    return "  ".join(filter(None, parts)) + lies_in_words(record) + cuts


class _RoundLines:
    """Prints rounds a line each; a reason like that of the line before only names its round.

    On a terminal each line takes the place of the one before, which could not be looked up.
    """

    def __init__(self, bar: ProgressBar, rounds: int) -> None:
        self._bar, self._rounds = bar, rounds
        self._last_cure, self._last_round = "", 0

    def print(self, record: RoundRecord) -> None:
        """Print a round's line."""
        reason = None
        cure = shortened(record.reason)[0] if record.status == "abandoned" else ""
        if cure and cure == self._last_cure:
            reason = f"as round {self._last_round}"
        else:
            self._last_cure, self._last_round = cure, record.round
        line = describe(record, self._rounds, reason)
        self._bar.line(f"{line}  {record.seconds:.2f} s")
