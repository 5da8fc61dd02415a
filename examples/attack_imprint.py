"""A server sends a model that sorts images into bins, and reads them out of the masked sum.

A little noise ends that, and not a server that expects it, whose model has rows that few images
move. A model that is sent to one client alone is noticed: clients' requests differ.
"""

from zerosum.simulations.attacks.harness.interface import Attack, Case, Protection
from zerosum.simulations.attacks.harness.play_all import Cell, play
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.inversion.imprint import Imprint
from zerosum.simulations.attacks.inversion.traps import Traps
from zerosum.simulations.attacks.report.table import figure_text
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

MASKED = Protection("masked", masking="double")
UNBOUND = Protection("masked, no request hash", masking="double", request_hash=False)
NOISED = Protection("masked + noise", masking="double", clip=0.1, noise="distributed", sigma=0.001)


def main() -> None:
    """Attack all clients, then one of them."""
    setting = RoundsSetting(clients=10, records=8)
    tried: list[tuple[Attack, Protection]] = [(Imprint(), MASKED)]
    tried += [(Imprint(), NOISED), (Traps(), NOISED)]
    tried += [(Imprint(target=0), UNBOUND), (Imprint(target=0), MASKED)]
    for attack, protection in tried:
        cell = Cell(attack, Case(setting, protection))
        row = rows_of([cell], [play(0, cell, seed=0)])[-1]
        print(f"{attack.adaptive}; {protection.name}\n    {row.metric}: {figure_text(row)}")


if __name__ == "__main__":
    main()
