"""A server sends a model that sorts images into bins, and reads them out of the masked sum.

Then it sends the model to one client alone, which clients notice: their requests differ.
"""

from zerosum.simulations.attacks.harness import Cell, play
from zerosum.simulations.attacks.interface import Case, Protection
from zerosum.simulations.attacks.inversion.imprint import Imprint
from zerosum.simulations.attacks.results import rows_of
from zerosum.simulations.attacks.rounds import RoundsSetting
from zerosum.simulations.attacks.table import figure_text

MASKED = Protection("masked", masking="double")
UNBOUND = Protection("masked, no request hash", masking="double", request_hash=False)
NOISED = Protection("masked + noise", masking="double", clip=0.1, noise="distributed", sigma=0.001)


def main() -> None:
    """Attack all clients, then one of them."""
    setting = RoundsSetting(clients=10, records=8)
    tried = [(Imprint(), MASKED), (Imprint(), NOISED)]
    tried += [(Imprint(target=0), UNBOUND), (Imprint(target=0), MASKED)]
    for attack, protection in tried:
        cell = Cell(attack, Case(setting, protection))
        row = rows_of([cell], [play(0, cell, seed=0)])[-1]
        print(f"{attack.adaptive}; {protection.name}\n    {row.metric}: {figure_text(row)}")


if __name__ == "__main__":
    main()
