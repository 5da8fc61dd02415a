"""Ten clients with one image each train a round, and masks are all that hides them.

The server never sees an update, only the sum of ten, and solves it for the ten images.
"""

from zerosum.simulations.attacks.harness.interface import Case, Protection
from zerosum.simulations.attacks.harness.play_all import Cell, play
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.inversion.first_layer import FirstLayer
from zerosum.simulations.attacks.report.table import figure_text
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

MASKED = Protection("masked", masking="double")
NOISED = Protection("masked + noise", masking="double", clip=0.1, noise="distributed", sigma=0.01)


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
