"""One line of progress: a bar on a terminal, a line now and then elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.rounding import plain
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.results import lies_in_words
from zerosum.server.runs.run_outcome import (
    UNTRAINED,
    charged_in_words,
    epsilons_in_words,
    failures_in_words,
)
from zerosum.server.training.saturation_watch import cuts_in_words, shortened

LINES = 10
"""Lines printed in all where there is no terminal."""


@contextmanager
def progress(
    rounds: int, console: Console | None = None
) -> Iterator[Callable[[RoundRecord], None]]:
    """Show the rounds of a run as they end.

    Yields
    ------
    callable
        To be called with each round's record.
    """
    console = console or Console()
    if not console.is_terminal:
        yield _printer(console, rounds)
        return
    # No markup: a line quotes errors of tasks, and "[/data]" in one would end the run.
    columns = (BarColumn(24), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("starting", total=rounds)

        def update(record: RoundRecord) -> None:
            bar.update(task, completed=record.round, description=describe(record, rounds))

        yield update


def describe(record: RoundRecord, rounds: int, told: str | None = None) -> str:
    """Return a round in one line: accuracy, epsilon so far, dropouts, failures, liars.

    Parameters
    ----------
    record : RoundRecord
        A round's.
    rounds : int
        Of the run.
    told : str, optional
        What stands for the reason of a round that was abandoned.
    """
    parts = [f"round {record.round}/{rounds}"]
    for key in ("test_accuracy", "test_loss", "federated_accuracy", "federated_loss"):
        if key in record.metrics:
            noise = record.metrics.get(key + NOISE_STD)
            shown = plain(record.metrics[key], 3) + (
                "" if noise is None else f" ± {plain(noise, 3)}"
            )
            whose = f" ({UNTRAINED})" if record.untrained else ""
            parts.append(f"{key.removeprefix('test_').replace('_', ' ')} {shown}{whose}")
            break
    # Of the local one each line would repeat that masks are all that hides a contribution.
    if spent := epsilons_in_words(record.epsilon, without=["local"]):
        parts.append(f"epsilon {spent}")
    if record.status == "abandoned":
        parts.append(f"abandoned: {told or shortened(record['reason'])[1]}")
        parts += [charged_in_words(record)]
    else:
        parts.append(f"dropouts {record.cohort - record.survivors}/{record.cohort}")
    parts += [failures_in_words(record)]
    if (rate := record.dropout_charged) is not None:
        parts.append(f"WARNING: more dropouts than secagg.dropout; charged at up to {rate:g}")
    # The reason of a round that cuts have ended has their numbers.
    cuts = cuts_in_words(record) if record.status == "completed" else ""
    return "  ".join(filter(None, parts)) + lies_in_words(record) + cuts


def _printer(console: Console, rounds: int) -> Callable[[RoundRecord], None]:
    """Return what prints some rounds; a reason like that of the line before only names its round.

    On a terminal each line takes the place of the one before, which could not be looked up.
    """
    before: tuple[str, int] | None = None

    def print_some(record: RoundRecord) -> None:
        nonlocal before
        number, told = record.round, None
        if number not in (1, rounds) and number % max(1, rounds // LINES):
            return
        if record.status == "abandoned":
            cure, _ = shortened(record.reason)
            if before is not None and before[0] == cure:
                told = f"as round {before[1]}"
            else:
                before = cure, number
        else:
            before = None
        console.print(
            f"{describe(record, rounds, told)}  {record.seconds:.2f} s",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    return print_some
