"""A server asks the same question again and again: local noise averages out, unless clients stop.

Each answer has noise of its own; of k answers' average, a k-th of the variance is left. A budget of
20 answers keeps pixels from being exact, and the digit is recognisable all the same: it takes more
noise to end that.
"""

from zerosum.simulations.attacks import (
    Case,
    Cell,
    Repetition,
    figure_text,
    local_noise,
    play,
    repeated_question,
    rows_of,
)


def main() -> None:
    """Ask once, 500 times, and clients with a budget 500 times, with little and with much noise."""
    for count, sigma, budget in ((1, 0.1, None), (500, 0.1, None), (500, 0.1, 20), (500, 10.0, 20)):
        cell = Cell(Repetition(), Case(repeated_question(count), local_noise(sigma, budget)))
        outcomes = [play(0, cell, seed) for seed in range(3)]
        for row in rows_of([cell], outcomes):
            if row.seed == "pooled":
                print(f"{count:4} questions, {row.protection}: {row.metric} {figure_text(row)}")
                print(f"     an attacker who saw nothing: {row.baseline:.3g}")
                if row.note:
                    print(f"     {row.note}")


if __name__ == "__main__":
    main()
