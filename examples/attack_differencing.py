"""The sum of ten clients, and the sum of nine of them: the difference is the tenth's update.

Masks hide nothing of it. Noise in both sums does.
"""

from zerosum.simulations.attacks.differencing import Differencing
from zerosum.simulations.attacks.harness import Cell, play
from zerosum.simulations.attacks.results import rows_of
from zerosum.simulations.attacks.table import epsilon_text, figure_text


def main() -> None:
    """Play the quick cases with one seed."""
    attack = Differencing()
    for case in attack.cases("quick"):
        cell = Cell(attack, case)
        print(case.protection.name)
        for row in rows_of([cell], [play(0, cell, seed=0)]):
            if row.seed != "pooled":
                print(f"    {row.metric}: {figure_text(row)}, epsilon {epsilon_text(row)}")


if __name__ == "__main__":
    main()
