"""Ten clients with one image each train a round, and masks are all that hides them.

The server never sees an update, only the sum of ten, and solves it for the ten images.
"""

from zerosum.simulations.attacks import (
    Case,
    Cell,
    Defense,
    FirstLayer,
    RoundsSetting,
    figure_text,
    play,
    rows_of,
)

MASKED = Defense("masked", masking="double")
NOISED = Defense("masked + noise", masking="double", clip=0.1, noise="distributed", sigma=0.01)


def main() -> None:
    """Attack with and without noise in the sum."""
    ten = RoundsSetting(clients=10)
    for protection in (MASKED, NOISED):
        cell = Cell(FirstLayer(), Case(ten, protection))
        row = next(r for r in rows_of([cell], [play(0, cell, seed=0)]) if r.metric == "PSNR")
        print(f"{protection.name:15} {row.metric}: {figure_text(row)}")
        print(f"{'':15} an attacker who saw nothing: {row.baseline:.1f} dB")


if __name__ == "__main__":
    main()
