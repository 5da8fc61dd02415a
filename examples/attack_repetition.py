"""A server asks the same question again and again: local noise averages out, unless clients stop.

Each answer has noise of its own; of k answers' average, a k-th of the variance is left.
"""

from zerosum.simulations.attacks.harness import Cell, play
from zerosum.simulations.attacks.interface import Case
from zerosum.simulations.attacks.inversion.repetition import Repetition, asked, noised
from zerosum.simulations.attacks.results import rows_of
from zerosum.simulations.attacks.table import figure_text


def main() -> None:
    """Ask once, twenty times, 500 times, and clients with a budget 500 times."""
    for count, budget in ((1, None), (20, None), (500, None), (500, 20)):
        cell = Cell(Repetition(), Case(asked(count), noised(0.1, budget)))
        row = rows_of([cell], [play(0, cell, seed=0)])[-1]
        print(f"{count:4} questions, {row.protection}: {row.metric} {figure_text(row)}")
        if row.note:
            print(f"     {row.note}")


if __name__ == "__main__":
    main()
