"""The sum of ten clients, and the sum of nine of them: the difference is the tenth's update.

Masks hide nothing of it. Noise in both sums does.
"""

from zerosum.simulations.attacks import (
    POOLED,
    Cell,
    Differencing,
    epsilon_text,
    figure_text,
    play_all,
    rows_of,
)


def main() -> None:
    """Play the quick cases with three seeds."""
    attack = Differencing()
    cells = [Cell(attack, case) for case in attack.cases("quick")]
    for row in rows_of(cells, play_all(cells, seeds=(0, 1, 2), workers=1)):
        if row.seed == POOLED:
            said = f"{row.metric}: {figure_text(row)}, epsilon {epsilon_text(row)}"
            print(f"{row.protection:35} {said}")


if __name__ == "__main__":
    main()
